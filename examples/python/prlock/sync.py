"""Locks for threads, with `redis.Redis`."""

import contextlib
import logging
import math
import threading
import time

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from .errors import LockBusy, LockError, explain, shutting_down
from .held import Held, Registry
from .terms import Terms, connection_settings, fence_of, lapsed, now, pause_s, wrong_client, yes_or_no

log = logging.getLogger("prlock")

#: How often a claim that waits looks whether its process is shutting down: a thread can't wait for both at once.
LOOK_S = 0.05


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


class Locks:
    """The locks of this process, for its start and its end. All methods are for any thread."""

    def __init__(self, client, holder, *, reply_ms=5000, retry_ms=3000):
        """`holder`: this process's public label, which `revoke_own` frees; one for each process."""
        if not holder:
            raise LockError("ARGUMENT", "The holder must not be empty.")
        self._client = client
        self._holder = holder
        self._options = {"reply_ms": reply_ms, "retry_ms": retry_ms}
        #: What this process holds, by key and token.
        self.held = Registry()
        self._closing = threading.Event()
        # What has begun to claim and has not been released yet. A signal's handler may call `shutdown` in the middle of
        # another call on the same thread; the lock of a condition is one that the same thread may take again.
        self._running = set()
        self._changed = threading.Condition()

    def revoke_own(self):
        """At the start: frees what an earlier life of this process left behind, and says how many locks. Siblings' locks
        stay, which a flush would take as well."""
        return revoke(self._client, self._holder)

    def lock(self, key, ttl_ms, **options):
        """As `prlock.lock`, with this process's holder."""
        return _Manager(self._client, Terms(key, ttl_ms, holder=self._holder, **{**self._options, **options}), self)

    def shutdown(self, grace_ms):
        """For the end of the process: no new locks and no more waits; lets the running work come to its end; after the
        grace tells what is left that its lock is lost, and releases it. Gives the keys of those."""
        self._closing.set()
        with self._changed:
            self._changed.wait_for(lambda: not self._running, min(grace_ms / 1000, threading.TIMEOUT_MAX))
            left = [(manager, held) for manager in self._running if (held := manager._cut_short())]
        # Side by side, so that one whose server is silent doesn't hold up the others.
        releases = [threading.Thread(target=self._release, args=[*each], daemon=True) for each in left]
        for release in releases:
            release.start()
        for release in releases:
            release.join()
        with self._changed:
            # What ended by itself just now is being released by its own thread, which takes so long at most.
            longest = max((held._terms.reply + held._terms.retry for held in self.held), default=0)
            self._changed.wait_for(lambda: not self.held, longest)
        return [held.key for _, held in left]

    def _release(self, manager, held):
        try:
            manager._end(held)
        finally:
            self._ends(manager, held)

    def _begins(self, manager):
        with self._changed:
            if self._closing.is_set():
                raise shutting_down()
            self._running.add(manager)

    def _granted(self, manager, held):
        with self._changed:
            if self._closing.is_set():
                raise shutting_down()
            self.held._add(held)
            manager._held = held

    def _ends(self, manager, held):
        with self._changed:
            self._running.discard(manager)
            if held is not None:
                self.held._remove(held)
            self._changed.notify_all()


class Lock(Held):
    """What the work gets: a lock that a thread renews until it is released or lost."""

    def __init__(self, terms, fence, proven_at, wire):
        super().__init__(terms, fence, proven_at)
        self._lost = threading.Event()
        self._stop = threading.Event()
        # Taken once, by whoever releases the lock.
        self._ending = threading.Lock()
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

    def _first_to_end(self):
        return self._ending.acquire(blocking=False)

    def _end(self):
        """Ends the renewals; says whether their connection is idle now."""
        self._stop.set()
        self._renewals.join(0.05)
        return not self._renewals.is_alive()


class _Manager:
    def __init__(self, client, terms, locks=None):
        if not isinstance(client, redis.Redis):
            raise wrong_client(client, "redis.Redis", "for redis.asyncio there is prlock.aio.lock")
        self._client = client
        self._terms = terms
        self._locks = locks
        self._held = None

    def __enter__(self):
        if self._held is not None:
            raise LockError("ARGUMENT", "This lock is in use; call lock() again for another.")
        wire = _Wire(self._client)
        held = None
        try:
            if self._locks is not None:
                self._locks._begins(self)
            fence, proven_at = self._claim(wire)
            held = Lock(self._terms, fence, proven_at, wire)
            if self._locks is None:
                self._held = held
            else:
                self._locks._granted(self, held)
            return held
        except BaseException as error:
            self._held = None
            try:
                if held is not None:
                    held._end()
                self._undo(wire, error)
            finally:
                if self._locks is not None:
                    self._locks._ends(self, held)
            raise

    def __exit__(self, *_):
        """Never raises: the deadline frees what can't be released, and the work's own end counts."""
        held, self._held = self._held, None
        try:
            # Else `shutdown` did not wait for this any more.
            if held._first_to_end():
                self._end(held)
        finally:
            if self._locks is not None:
                self._locks._ends(self, held)

    def _cut_short(self):
        """For `shutdown`: if the work still runs, tells it that its lock is lost, and gives that for `_end`."""
        held = self._held
        if held is None or not held._first_to_end():
            return None
        held._lose("shutdown")
        return held

    def _end(self, held):
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
        closing = None if self._locks is None else self._locks._closing
        wait_until = now() + terms.wait
        retry_until = wait_until + terms.retry
        attempt = 0
        while True:
            try:
                sent_at = now()
                rest = max(0, wait_until - sent_at)
                fence = fence_of(wire.call(terms.claim(rest), rest + terms.reply, closing))
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
            if closing is None:
                time.sleep(pause)
            elif closing.wait(pause):
                raise shutting_down() from error

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
        release = self._terms.release()
        try:
            # In a hurry (shutdown, Ctrl-C). The server drops a waiter whose connection closes; a claim that it hasn't read
            # yet, or has just granted, is undone by what follows it on the same connection.
            is_hurried = wire.owes or not isinstance(error, LockError)
            if is_hurried and wire.tell(release, min(self._terms.reply, 1.0)):
                return
            # Also where the connection broke before: the server may have granted what it broke with.
            if wire.told and not isinstance(error, LockBusy):
                wire.call(release, min(self._terms.reply, 1.0))
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
        #: Whether a call was given up whose connection stays, for `tell`.
        self.owes = False
        # Whether the last call was a claim that may wait, whose reply takes its time.
        self._waits = False

    def call(self, command, timeout_s, ended=None):
        """`ended` is an event that ends the wait for the reply."""
        try:
            connection = self._connect(timeout_s)
            self.told = True
            self._waits = "BLOCK" in command
            connection.send_command(*command)
            if not self._answered(connection, timeout_s, ended):
                raise redis.TimeoutError(f"no reply within {timeout_s:.3g} s")
            return connection.read_response(disconnect_on_error=False)
        except redis.ResponseError as error:
            raise explain(command[0], error) from None
        except (redis.RedisError, OSError) as error:
            self.close()
            raise explain(command[0], error) from None

    def _answered(self, connection, timeout_s, ended):
        """The socket's own timeout is for each read; this is for the reply to begin."""
        if ended is None:
            return connection.can_read(timeout=None if math.isinf(timeout_s) else timeout_s)
        until = now() + timeout_s
        while True:
            rest = max(0, until - now())
            if connection.can_read(timeout=min(rest, LOOK_S)):
                return True
            if ended.is_set():
                self.owes = True
                raise shutting_down()
            if rest == 0:
                return False

    def tell(self, command, timeout_s):
        """Sends, if a connection is there, behind a call that may have been given up on it, and hears the replies, if that
        call doesn't wait; says whether the connection stood."""
        if self._connection is None:
            return False
        until = now() + timeout_s
        try:
            self._connection.send_command(*command)
            for _ in range(0 if self._waits else 1 + self.owes):
                if not self._connection.can_read(timeout=max(0, until - now())):
                    break
                with contextlib.suppress(redis.ResponseError):
                    self._connection.read_response(disconnect_on_error=False)
            return True
        except (redis.RedisError, OSError):
            self.close()
            return False

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
