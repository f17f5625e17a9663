"""Locks for threads, with `redis.Redis`."""

import logging
import math
import threading
import time

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from .errors import LockBusy, LockError, LockLost, explain
from .held import Held
from .terms import Terms, connection_settings, fence_of, lapsed, now, pause_s, wrong_client, yes_or_no

log = logging.getLogger("prlock")


def lock(client, key, ttl_ms, **options):
    """A context manager around work that needs the lock.

        with lock(client, "invoice:17", 30_000, wait_ms=10_000, holder="worker-7") as held:
            held.check()
            store(invoice, fence=held.fence)

    Options: `wait_ms` (how long to wait in the server's queue; 0, the default: not at all; math.inf: without limit),
    `holder` (a public label), `linger_ms` (free so soon after this process's connection is gone), `steal=True` or
    `steal_if=fence`, `token` (default: a random one), `reply_ms`, `retry_ms`.

    Raises LockBusy if another holds the lock, and other LockErrors if it can't be had; the work didn't run then. What the
    work raises passes through as it is.
    """
    return _Manager(client, Terms(key, ttl_ms, **options))


def revoke(client, holder):
    """At a process's start: frees what an earlier life of this holder left behind, and says how many locks. Locks of
    others stay."""
    try:
        return client.execute_command("PRLOCK.REVOKE", holder)
    except (redis.RedisError, OSError) as error:
        raise explain("PRLOCK.REVOKE", error) from None


class Lock(Held):
    """What the work gets: a lock that a thread renews until it is released or lost."""

    def __init__(self, terms, fence, proven_at, wire):
        super().__init__(terms, fence, proven_at)
        self._lost = threading.Event()
        self._stop = threading.Event()
        self._wire = wire
        self._renewals = threading.Thread(target=self._renew, name=f"prlock {terms.key!r}", daemon=True)
        self._renewals.start()

    @property
    def lost(self):
        return not self.held()

    def wait_lost(self, seconds):
        """Sleeps for so long, or until the lock is lost; says whether it is."""
        end = time.monotonic() + seconds
        while self.held():
            rest = end - time.monotonic()
            if rest <= 0:
                return False
            # Rounded up: the event's clock and the deadline's are two.
            self._lost.wait(min(rest, self.deadline - now() + 0.001, threading.TIMEOUT_MAX))
        return True

    def _lose(self, why):
        super()._lose(why)
        self._lost.set()

    def _renew(self):
        terms = self._terms
        next_at = self._proven_at + terms.ttl / 3
        while not self._stop.wait(min(max(0, next_at - now()), threading.TIMEOUT_MAX)) and self.held():
            sent_at = now()
            try:
                # Not longer than to the deadline, so that a server that says nothing can't keep this thread from seeing it.
                timeout = min(terms.reply, terms.ttl / 3, max(0.001, self.deadline - sent_at))
                if not yes_or_no(self._wire.call(terms.renew(self.fence), timeout)):
                    return self._lose("taken")
                self._renewed(sent_at)
                next_at = sent_at + terms.ttl / 3
            except LockError as error:
                # A server in trouble is not a lost lock: the next renewal, sooner, may still be in time.
                next_at = max(sent_at + terms.ttl / 10, now() + 0.001)
                if not self._stop.is_set():
                    log.warning("lock %r: %s", self.key, error)

    def _end(self):
        """Ends the renewals; says whether their connection is idle now."""
        self._stop.set()
        self._renewals.join(0.05)
        return not self._renewals.is_alive()


class _Manager:
    def __init__(self, client, terms):
        if not isinstance(client, redis.Redis):
            raise wrong_client(client, "redis.Redis", "for redis.asyncio there is prlock.aio.lock")
        self._client = client
        self._terms = terms
        self._held = None

    def __enter__(self):
        if self._held is not None:
            raise LockError("ARGUMENT", "This lock is in use; call lock() again for another.")
        wire = _Wire(self._client)
        try:
            fence, proven_at = self._claim(wire)
            self._held = Lock(self._terms, fence, proven_at, wire)
            return self._held
        except BaseException as error:
            if self._held is not None:
                self._held._end()
            self._undo(wire, error)
            raise

    def __exit__(self, *_):
        """Never raises: the deadline frees what can't be released, and the work's own end counts."""
        held, self._held = self._held, None
        wire = held._wire if held._end() else _Wire(self._client)
        held._lose("released")
        try:
            self._release(wire, held)
        except LockError as error:
            log.warning("lock %r not released, it lapses at its deadline: %s", held.key, error)
        finally:
            wire.close()

    def _claim(self, wire):
        terms = self._terms
        wait_until = now() + terms.wait
        retry_until = wait_until + terms.retry
        attempt = 0
        while True:
            try:
                sent_at = now()
                rest = max(0, wait_until - sent_at)
                fence = fence_of(wire.call(terms.claim(rest), rest + terms.reply))
                if fence is None:
                    raise LockBusy(terms.key)
                if terms.surely_since(sent_at):
                    return fence, sent_at
                sent_at = now()
                if yes_or_no(wire.call(terms.renew(fence), terms.reply)):
                    return fence, sent_at
                error = lapsed(terms.key)
            except LockBusy:
                raise
            except LockError as trouble:
                error = trouble
            pause = pause_s(attempt)
            attempt += 1
            if not error.passing or now() + pause >= retry_until:
                raise error
            # The same token again: if only the reply was lost, this is granted with the same fence.
            time.sleep(pause)

    def _release(self, wire, held):
        terms = self._terms
        until = min(now() + terms.retry, held.deadline)
        attempt = 0
        while True:
            try:
                return wire.call(terms.release(held.fence), terms.reply)
            except LockError as error:
                pause = pause_s(attempt)
                attempt += 1
                if not error.passing or now() + pause >= until:
                    raise
                time.sleep(pause)

    def _undo(self, wire, error):
        """A claim was given up: frees what it may have got unheard."""
        try:
            if isinstance(error, LockError) and not isinstance(error, LockBusy) and wire.told:
                wire.call(self._terms.release(), min(self._terms.reply, 1.0))
            elif not isinstance(error, LockError):
                # In a hurry (Ctrl-C). The server drops a waiter whose connection closes; a claim that it hasn't read yet,
                # or has just granted, is undone by what follows it on the same connection.
                wire.tell(self._terms.release())
        except LockError:
            pass
        finally:
            wire.close()


class _Wire:
    """A connection of its own: a waiting claim holds up everything behind it, and LINGER needs one that stays. Opened
    when needed, and again after trouble."""

    def __init__(self, client):
        self._kind = client.connection_pool.connection_class
        self._settings = connection_settings(client, Retry(NoBackoff(), 0))
        self._connection = None
        #: Whether a server may have seen a command of ours.
        self.told = False

    def call(self, command, timeout_s):
        try:
            connection = self._connect(timeout_s)
            self.told = True
            connection.send_command(*command)
            # The socket's own timeout is for each read; this is for the reply to begin.
            if not connection.can_read(timeout=None if math.isinf(timeout_s) else timeout_s):
                raise redis.TimeoutError(f"no reply within {timeout_s:.3g} s")
            return connection.read_response(disconnect_on_error=False)
        except redis.ResponseError as error:
            raise explain(command[0], error) from None
        except (redis.RedisError, OSError) as error:
            self.close()
            raise explain(command[0], error) from None

    def tell(self, command):
        """Sends without waiting for a reply, if a connection is there."""
        if self._connection is not None:
            try:
                self._connection.send_command(*command)
            except (redis.RedisError, OSError):
                pass

    def close(self):
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()

    def _connect(self, timeout_s):
        if self._connection is None:
            settings = self._settings | {"socket_timeout": min(timeout_s, 5.0)}
            if "host" in settings:
                # While a claim waits nothing is sent: so a peer that vanished without closing is noticed.
                settings |= {"socket_connect_timeout": min(timeout_s, 5.0), "socket_keepalive": True}
            connection = self._kind(**settings)
            connection.connect()
            self._connection = connection
        return self._connection
