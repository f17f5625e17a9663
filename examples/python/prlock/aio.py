"""Locks for asyncio, with `redis.asyncio.Redis`."""

import asyncio
import contextlib
import logging
import math

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from .errors import LockBusy, LockError, LockLost, explain, shutting_down
from .held import Held, Registry
from .terms import Terms, connection_settings, fence_of, lapsed, now, pause_s, wrong_client, yes_or_no

log = logging.getLogger("prlock")

# The event loop's turns from bytes that have come to the call that waits for them, and some more.
TURNS = 20


def lock(client, key, ttl_ms, *, cancel=True, **options):
    """An asynchronous context manager around work that needs the lock.

        async with aio.lock(client, "invoice:17", 30_000, wait_ms=10_000, holder="worker-7") as held:
            await store(invoice, fence=held.fence)

    Options: those of `prlock.lock`, and `cancel`: when the lock is lost, the work is cancelled at its next await and the
    `async with` raises LockLost, as asyncio.timeout does with TimeoutError. With `cancel=False` only `held.lost` is set.
    """
    return _Manager(client, Terms(key, ttl_ms, **options), cancel)


async def revoke(client, holder):
    """At a process's start: frees what an earlier life of this holder left behind, and says how many locks. Locks of
    others stay."""
    try:
        return await client.execute_command("PRLOCK.REVOKE", holder)
    except (redis.RedisError, OSError) as error:
        raise explain("PRLOCK.REVOKE", error) from None


class Locks:
    """The locks of this process, for its start and its end."""

    def __init__(self, client, holder, *, reply_ms=5000, retry_ms=3000):
        """`holder`: this process's public label, which `revoke_own` frees; one for each process."""
        if not holder:
            raise LockError("ARGUMENT", "The holder must not be empty.")
        self._client = client
        self._holder = holder
        self._options = {"reply_ms": reply_ms, "retry_ms": retry_ms}
        #: What this process holds, by key and token.
        self.held = Registry()
        self._closing = asyncio.Event()
        # What has begun to claim and has not been released yet, and whether that is nothing.
        self._running = set()
        self._drained = asyncio.Event()
        self._drained.set()

    async def revoke_own(self):
        """At the start: frees what an earlier life of this process left behind, and says how many locks. Siblings' locks
        stay, which a flush would take as well."""
        return await revoke(self._client, self._holder)

    def lock(self, key, ttl_ms, *, cancel=True, **options):
        """As `prlock.aio.lock`, with this process's holder."""
        terms = Terms(key, ttl_ms, holder=self._holder, **{**self._options, **options})
        return _Manager(self._client, terms, cancel, self)

    async def shutdown(self, grace_ms):
        """For the end of the process: no new locks and no more waits; lets the running work come to its end; after the
        grace cancels what is left, and releases its locks also if it doesn't end then. Gives the keys of those."""
        self._closing.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if math.isinf(grace_ms) else grace_ms / 1000):
                await self._drained.wait()
        left = [(manager, held) for manager in self._running if (held := manager._cut_short())]
        # Also of the work that has ended in time.
        releases = [manager._releasing for manager in self._running if manager._releasing is not None]
        if releases:
            await asyncio.wait(releases)
        return [held.key for _, held in left]

    def _begins(self, manager):
        if self._closing.is_set():
            raise shutting_down()
        self._running.add(manager)
        self._drained.clear()

    def _ends(self, manager):
        self._running.discard(manager)
        if not self._running:
            self._drained.set()


class Lock(Held):
    """What the work gets: a lock that a task renews until it is released or lost."""

    def __init__(self, terms, fence, proven_at, wire, on_lost):
        super().__init__(terms, fence, proven_at)
        #: Set when the lock is lost: `await held.lost.wait()`.
        self.lost = asyncio.Event()
        self._wire = wire
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._timer = None
        self._arm()
        self._renewals = self._loop.create_task(self._renew(), name=f"prlock {terms.key!r}")

    def _lose(self, why):
        if self._why is not None:
            return
        super()._lose(why)
        self.lost.set()
        self._timer.cancel()
        if why != "released" and self._on_lost is not None:
            self._on_lost()

    def _arm(self):
        if self._timer is not None:
            self._timer.cancel()
        if self._why is None:
            rest = max(0.001, self.deadline - now())
            self._timer = self._loop.call_later(rest, self._at_deadline, TURNS)

    def _at_deadline(self, turns):
        if self._why is None and turns > 0:
            # After a standstill a renewal's answer may lie unread: it is read before anyone is told of a loss.
            self._timer = self._loop.call_soon(self._at_deadline, turns - 1)
        # Sees to it that the loss is known. Not yet: the timer's clock and the deadline's are two.
        elif self.held():
            self._arm()

    async def _renew(self):
        terms = self._terms
        next_at = self._proven_at + terms.ttl / 3
        while True:
            await asyncio.sleep(max(0, next_at - now()))
            if not self.held():
                return
            sent_at = now()
            try:
                if not yes_or_no(await self._wire.call(terms.renew(self.fence), min(terms.reply, terms.ttl / 3))):
                    return self._lose("taken")
                self._renewed(sent_at)
                self._arm()
                next_at = sent_at + terms.ttl / 3
            except LockError as error:
                # A server in trouble is not a lost lock: the next renewal, sooner, may still be in time.
                next_at = max(sent_at + terms.ttl / 10, now() + 0.001)
                log.warning("lock %r: %s", self.key, error)

    async def _end(self):
        """Ends the renewals."""
        self._lose("released")
        self._renewals.cancel()
        await asyncio.wait([self._renewals])


class _Manager:
    def __init__(self, client, terms, cancel, locks=None):
        if not isinstance(client, redis.asyncio.Redis):
            raise wrong_client(client, "redis.asyncio.Redis", "for redis.Redis there is prlock.lock")
        self._client = client
        self._terms = terms
        self._cancel = cancel
        self._locks = locks
        self._held = None
        # The task that releases, once the work has ended or `shutdown` doesn't wait for it any more.
        self._releasing = None
        self._body = None
        self._cancelling = 0
        self._cancelled = False

    async def __aenter__(self):
        if self._held is not None:
            raise LockError("ARGUMENT", "This lock is in use; call lock() again for another.")
        self._releasing = None
        wire = _Wire(self._client)
        try:
            if self._locks is not None:
                self._locks._begins(self)
            fence, proven_at = await self._claim(wire)
            if self._locks is not None and self._locks._closing.is_set():
                raise shutting_down()
            self._body = asyncio.current_task()
            self._cancelling = self._body.cancelling()
            self._cancelled = False
            on_lost = self._cancel_body if self._cancel else None
            self._held = Lock(self._terms, fence, proven_at, wire, on_lost)
            wire.claiming = False
            if self._locks is not None:
                self._locks.held._add(self._held)
            return self._held
        except BaseException as error:
            undoing = asyncio.get_running_loop().create_task(self._undo(wire, error))
            _keep(undoing)
            # Once begun it goes on, also when the claim is cancelled a second time meanwhile.
            await asyncio.shield(undoing)
            raise

    async def __aexit__(self, kind, error, trace):
        """The deadline frees what can't be released, and the work's own end counts."""
        held, self._held = self._held, None
        held._on_lost = None
        why = held._why
        self._end(held)
        ours = False
        try:
            # Once begun it goes on, also when the work is cancelled a second time meanwhile.
            await asyncio.shield(self._releasing)
        finally:
            if self._cancelled:
                ours = self._body.uncancel() <= self._cancelling
        # Our own cancellation becomes LockLost; somebody else's goes on.
        if ours and kind is asyncio.CancelledError:
            raise LockLost(held.key, why) from error

    def _cut_short(self):
        """For `shutdown`: if the work still runs, cancels it and begins to release its lock, which it gives."""
        held = self._held
        if held is not None and self._releasing is None:
            held._lose("shutdown")
            self._end(held)
            return held
        return None

    def _end(self, held):
        if self._releasing is None:
            self._releasing = asyncio.get_running_loop().create_task(self._release(held))
            self._releasing.add_done_callback(lambda _: self._ended(held))
            _keep(self._releasing)

    def _ended(self, held):
        if self._locks is not None:
            self._locks.held._remove(held)
            self._locks._ends(self)

    def _cancel_body(self):
        # The work itself may find the loss, by asking; then it knows.
        if self._body is not _current_task():
            self._cancelled = True
            self._body.cancel()

    async def _claim(self, wire):
        terms = self._terms
        closing = None if self._locks is None else self._locks._closing
        wait_until = now() + terms.wait
        retry_until = wait_until + terms.retry
        attempt = 0
        while True:
            try:
                sent_at = now()
                rest = max(0, wait_until - sent_at)
                fence = fence_of(await wire.call(terms.claim(rest), rest + terms.reply, closing))
                if fence is None:
                    raise LockBusy(terms.key)
                if terms.surely_since(sent_at):
                    return fence, sent_at
                sent_at = now()
                if yes_or_no(await wire.call(terms.renew(fence), terms.reply)):
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
            await asyncio.sleep(pause)
            if closing is not None and closing.is_set():
                raise shutting_down() from error

    async def _release(self, held):
        terms = self._terms
        until = min(now() + terms.retry, held.deadline)
        attempt = 0
        await held._end()
        wire = held._wire
        try:
            while True:
                try:
                    return await wire.call(terms.release(held.fence), terms.reply)
                except LockError as error:
                    pause = pause_s(attempt)
                    attempt += 1
                    if not error.passing or now() + pause >= until:
                        raise
                    await asyncio.sleep(pause)
        except LockError as error:
            log.warning("lock %r not released, it lapses at its deadline: %s", held.key, error)
        finally:
            await wire.close()

    async def _undo(self, wire, error):
        """A claim was given up: frees what it may have got unheard."""
        release = self._terms.release()
        try:
            # In a hurry (shutdown, cancelled). The server drops a waiter whose connection closes; a claim that it hasn't
            # read yet, or has just granted, is undone by what follows it on the same connection.
            is_hurried = wire.owes or not isinstance(error, LockError)
            if is_hurried and await wire.tell(release, min(self._terms.reply, 1.0)):
                return
            # Also where the connection broke before: the server may have granted what it broke with.
            if wire.told and not isinstance(error, LockBusy):
                await wire.call(release, min(self._terms.reply, 1.0))
        except LockError:
            pass
        finally:
            await wire.close()
            if self._locks is not None:
                self._locks._ends(self)


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
        #: Until the lock is held.
        self.claiming = True
        # Whether the last call was a claim that may wait, whose reply takes its time.
        self._waits = False

    async def call(self, command, timeout_s, ended=None):
        """`ended` is an event that ends the wait for the reply."""
        clean = False
        try:
            reply = await _within(self._exchange(command), timeout_s, ended)
            clean = True
            return reply
        except redis.ResponseError as error:
            clean = True
            raise explain(command[0], error) from None
        except (redis.RedisError, OSError) as error:
            if isinstance(error, TimeoutError) and not str(error):
                error = redis.TimeoutError(f"no reply within {timeout_s:.3g} s")
            raise explain(command[0], error) from None
        except (asyncio.CancelledError, LockError):
            # A claim's connection stays, for `tell`; nothing else is ever sent on one that owes a reply.
            self.owes = clean = self.claiming
            raise
        finally:
            if not clean:
                await self.close()

    async def _exchange(self, command):
        await self._connect()
        self.told = True
        self._waits = "BLOCK" in command
        await self._connection.send_command(*command)
        return await self._connection.read_response(timeout=None, disconnect_on_error=False)

    async def tell(self, command, timeout_s):
        """Sends, if a connection is there, behind a call that may have been given up on it, and hears the replies, if that
        call doesn't wait; says whether the connection stood."""
        if self._connection is None or not self._connection.is_connected:
            return False
        try:
            async with asyncio.timeout(timeout_s):
                await self._connection.send_command(*command)
                for _ in range(0 if self._waits else 1 + self.owes):
                    with contextlib.suppress(redis.ResponseError):
                        await self._connection.read_response(timeout=None, disconnect_on_error=False)
            return True
        except TimeoutError:
            return True
        except (redis.RedisError, OSError):
            await self.close()
            return False

    async def close(self):
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.disconnect(nowait=True)

    async def _connect(self):
        if self._connection is None:
            settings = self._settings | {"socket_timeout": None}
            if "host" in settings:
                # While a claim waits nothing is sent: so a peer that vanished without closing is noticed.
                settings |= {"socket_connect_timeout": None, "socket_keepalive": True}
            connection = self._kind(**settings)
            try:
                await connection.connect()
            except BaseException:
                await connection.disconnect(nowait=True)
                raise
            self._connection = connection


async def _within(coroutine, timeout_s, ended=None):
    """asyncio.timeout, but after a standstill what has come meanwhile counts as come in time."""
    task = asyncio.get_running_loop().create_task(coroutine)
    ends = [] if ended is None else [asyncio.get_running_loop().create_task(ended.wait())]
    try:
        limit = None if math.isinf(timeout_s) else timeout_s
        await asyncio.wait([task, *ends], timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        for _ in range(TURNS):
            if task.done():
                break
            await asyncio.sleep(0)
        if not task.done():
            raise shutting_down() if ended is not None and ended.is_set() else TimeoutError
        return task.result()
    finally:
        for end in ends:
            end.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
        if not task.cancelled():
            # Heard, also where a cancellation came first.
            task.exception()


#: Tasks that nobody waits for any more would else be collected while they run.
_kept = set()


def _keep(task):
    _kept.add(task)
    task.add_done_callback(_kept.discard)


def _current_task():
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None

