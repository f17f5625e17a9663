"""A network that breaks where the test says: between client and server, seen command by command."""

import contextlib
import selectors
import socket
import threading


class Proxy:
    """Fates of a command on its way:

    "lost"         the connection breaks before the server sees it
    "unanswered"   the server carries it out; the connection breaks before the reply
    "silence"      nothing is heard any more on this connection, and nothing closes
    "unheard"      the server carries it out, and what follows it, but no reply comes back; and nothing closes
    bytes          the server never sees it; the client gets these
    """

    def __init__(self, target):
        self._target = target
        self._plan = []
        self._sockets = set()
        self._lock = threading.Lock()
        self._down = False
        #: What met its fate.
        self.struck = []
        #: How many connections there were by now.
        self.accepted = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def next(self, command, fate, times=1):
        """The next time(s) that the command passes, this happens."""
        with self._lock:
            self._plan += [(command, fate)] * times

    def cut(self):
        """Nobody gets through, and all that are connected are cut off."""
        with self._lock:
            self._down = True
            sockets = list(self._sockets)
        for each in sockets:
            _break(each)

    def mend(self):
        self._down = False

    def stop(self):
        _break(self._listener)
        self.cut()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.accepted += 1
                threading.Thread(target=self._serve, args=[client], daemon=True).start()
        self._listener.close()

    def _serve(self, client):
        with contextlib.ExitStack() as stack:
            stack.enter_context(client)
            stack.enter_context(contextlib.suppress(OSError))
            server = stack.enter_context(socket.create_connection(("127.0.0.1", self._target)))
            with self._lock:
                if self._down:
                    return
                self._sockets |= {client, server}
            stack.callback(self._forget, client, server)
            selector = stack.enter_context(selectors.DefaultSelector())
            for each in (client, server):
                selector.register(each, selectors.EVENT_READ)
            silent = unanswered = unheard = False
            while True:
                for key, _ in selector.select():
                    data = key.fileobj.recv(65536)
                    if not data or (unanswered and key.fileobj is server):
                        return
                    if silent:
                        continue
                    if key.fileobj is server:
                        if not unheard:
                            client.sendall(data)
                        continue
                    fate = self._fate(data)
                    if fate == "lost":
                        return
                    if fate == "silence":
                        silent = True
                    elif isinstance(fate, bytes):
                        client.sendall(fate)
                    else:
                        unanswered = fate == "unanswered"
                        unheard = unheard or fate == "unheard"
                        server.sendall(data)

    def _forget(self, *sockets):
        with self._lock:
            self._sockets -= set(sockets)

    def _fate(self, data):
        with self._lock:
            for step in self._plan:
                if step[0].encode() in data.upper():
                    self._plan.remove(step)
                    self.struck.append(step[0])
                    return step[1]
        return None


def _break(each):
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
