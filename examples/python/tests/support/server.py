"""Real servers for the tests: own port, own folder, on loopback, ended by the test that started them."""

import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2]
ROOT = Path(os.environ.get("PRLOCK_ROOT") or EXAMPLE.parents[1])
MODULE = Path(os.environ.get("PRLOCK_MODULE") or ROOT / "target/release/libprlock.so").resolve()


def program():
    cached = ROOT / ".cache/servers"
    kinds = {
        "redis7": ("PRLOCK_REDIS7", "redis-server"),
        "redis8": ("PRLOCK_REDIS8", cached / "redis8/redis-server"),
        "valkey8": ("PRLOCK_VALKEY8", cached / "valkey8/valkey-server"),
        "valkey9": ("PRLOCK_VALKEY9", cached / "valkey9/valkey-server"),
    }
    name, default = kinds[os.environ.get("PRLOCK_SERVER") or "redis7"]
    return str(os.environ.get(name) or default)


class Server:
    def __init__(self, *args, module=True, port=None):
        self.port = port or free_port()
        self.folder = tempfile.mkdtemp(prefix="prlock-client-test-")
        command = [program(), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.folder, "--save", ""]
        command += ["--logfile", "log", "--maxmemory-policy", "noeviction", "--repl-diskless-sync-delay", "0"]
        command += ["--unixsocket", f"{self.folder}/socket"]
        if module:
            if not MODULE.exists():
                raise RuntimeError(f"{MODULE} is missing: run 'make build' in the project's folder")
            command += ["--loadmodule", str(MODULE)]
        null = subprocess.DEVNULL
        self.process = subprocess.Popen([*command, *args], stdin=null, stdout=null, stderr=null)
        end = time.monotonic() + 20
        while True:
            try:
                if re.match(r"\+PONG|-NOAUTH", self.raw("PING")):
                    return
            except OSError:
                pass
            if self.process.poll() is not None or time.monotonic() > end:
                self.stop()
                raise RuntimeError(f"{program()} did not start")
            time.sleep(0.01)

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}"

    def raw(self, *args):
        """One command on a connection of its own, without any client library; gives the reply's first bytes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection:
            connection.sendall(encode(args))
            return connection.recv(65536).decode("latin1")

    def number(self, *args):
        reply = self.raw(*args)
        assert reply.startswith(":"), reply
        return int(reply[1:])

    def info(self, section, field):
        found = re.search(rf"^{field}:(.*?)\r?$", self.raw("INFO", section), re.MULTILINE)
        return found and found[1]

    def stop(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait(20)
        shutil.rmtree(self.folder, ignore_errors=True)


def encode(args):
    parts = [str(arg).encode() for arg in args]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def until(what, check):
    """Waits until it is so; fails after ten seconds."""
    end = time.monotonic() + 10
    while not check():
        if time.monotonic() > end:
            raise AssertionError(f"not within 10 s: {what}")
        time.sleep(0.005)
