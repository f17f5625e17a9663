"""What only asyncio has: work and waits that are cancelled."""

import asyncio
import os
import random
import signal
import time
import unittest
from unittest import mock

import redis.asyncio

from prlock import LockBusy, LockLost, aio
from prlock.aio import lock

from .support.proxy import Proxy
from .support.server import Server


class AioTest(unittest.IsolatedAsyncioTestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.addClassCleanup(cls.server.stop)

    async def asyncSetUp(self):
        self.server.raw("FLUSHALL")
        self.proxy = Proxy(self.server.port)
        self.addCleanup(self.proxy.stop)
        self.client = redis.asyncio.Redis(port=self.proxy.port)
        self.addAsyncCleanup(self.client.aclose)

    def lock(self, ttl_ms=60_000, **options):
        return lock(self.client, "k", ttl_ms, **options)

    def rival(self, *options):
        self.server.raw("PRLOCK.CLAIM", "k", "PX", 60_000, "TOKEN", "rival", *options)

    async def until(self, what, check):
        async with asyncio.timeout(10):
            while not check():
                await asyncio.sleep(0.005)

    def waiters(self):
        return int(self.server.info("prlock", "prlock_waiters"))

    def keys(self):
        return self.server.number("DBSIZE")

    async def test_work_whose_lock_is_lost_is_cancelled(self):
        reached = []
        for why, lose in (("taken", lambda: self.rival("STEAL")), ("deadline", self.proxy.cut)):
            self.proxy.mend()
            self.server.raw("FLUSHALL")
            with self.assertRaises(LockLost) as caught:
                async with self.lock(900, retry_ms=0) as held:
                    lose()
                    try:
                        await asyncio.sleep(10)
                    finally:
                        reached.append(held.lost.is_set())
            self.assertEqual(caught.exception.why, why)
            self.assertEqual(asyncio.current_task().cancelling(), 0)
        self.assertEqual(reached, [True, True])

    async def test_the_works_own_error_counts_also_when_the_lock_is_lost(self):
        with self.assertRaisesRegex(ValueError, "own"):
            async with self.lock(300):
                self.rival("STEAL")
                try:
                    await asyncio.sleep(10)
                except asyncio.CancelledError:
                    raise ValueError("the work's own") from None
        async with self.lock(300, steal=True):
            self.rival("STEAL")
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                result = "cleaned up"
        self.assertEqual(result, "cleaned up")
        self.assertEqual(asyncio.current_task().cancelling(), 0)

    async def test_work_that_asks_is_not_cancelled_as_well(self):
        with self.assertRaises(LockLost):
            async with self.lock(200) as held:
                time.sleep(0.25)
                held.check()
        async with self.lock(200) as held:
            time.sleep(0.25)
            self.assertFalse(held.held())
            await asyncio.sleep(0.1)
        self.assertEqual(asyncio.current_task().cancelling(), 0)

    async def test_cancel_false_only_sets_the_event(self):
        async with self.lock(300, cancel=False) as held:
            self.rival("STEAL")
            async with asyncio.timeout(10):
                await held.lost.wait()
            await asyncio.sleep(0.05)
        self.assertFalse(held.held())

    async def test_somebody_elses_cancel_goes_on_and_releases(self):
        with self.assertRaises(TimeoutError):
            async with asyncio.timeout(0.1):
                async with self.lock():
                    await asyncio.sleep(10)
        self.assertEqual(self.keys(), 0)

        async def work():
            async with self.lock():
                await asyncio.sleep(10)

        task = asyncio.create_task(work())
        await self.until("held", lambda: self.keys() == 1)
        # Also twice, the second in the middle of the release.
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        await self.until("free", lambda: self.keys() == 0)

    async def test_a_wait_that_is_cancelled_leaves_nothing_behind(self):
        self.rival()

        async def work():
            async with self.lock(wait_ms=20_000):
                self.fail("the work ran")

        task = asyncio.create_task(work())
        await self.until("it waits", lambda: self.waiters() == 1)
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        await self.until("it left", lambda: self.waiters() == 0)
        self.server.raw("PRLOCK.RELEASE", "k", "rival")
        self.assertEqual(self.keys(), 0)

    async def test_a_claim_that_is_cancelled_at_any_moment_leaves_nothing_behind(self):
        for round in range(60):
            if round % 4 > 1:
                self.rival()

            async def work(wait_ms=(round % 2) * 20_000):
                async with self.lock(wait_ms=wait_ms):
                    await asyncio.sleep(0)

            task = asyncio.create_task(work())
            for _ in range(round // 3):
                await asyncio.sleep(random.uniform(0, 0.0005))
            self.server.raw("PRLOCK.RELEASE", "k", "rival")
            task.cancel()
            await asyncio.wait([task])
            self.assertTrue(task.cancelled() or task.exception() is None or isinstance(task.exception(), LockBusy))
            await self.until("nothing is left", lambda: self.keys() == 0 and self.waiters() == 0)

    async def cancelled(self, *, reached, go_on=lambda: None, times=1, work=None, **options):
        """Takes the lock and is cancelled, so often, once it has come so far; `go_on` comes right behind. Nothing is left:
        no lock, no waiter, nobody who renews, no connection, no task."""
        async def run():
            async with self.lock(**options):
                if work is None:
                    self.fail("the work ran")
                await work()

        task = asyncio.create_task(run())
        await self.until("it has come so far", reached)
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0)
        go_on()
        with self.assertRaises(asyncio.CancelledError):
            await task
        await self.until("nothing is left", lambda: self.keys() == 0 and self.waiters() == 0)
        # Beside the one that asks.
        await self.until("no connection", lambda: self.server.info("clients", "connected_clients") == "1")
        await self.until("no task", lambda: asyncio.all_tasks() == {asyncio.current_task()})

    def struck(self):
        return bool(self.proxy.struck)

    async def test_cancelled_while_it_connects(self):
        for times in (1, 2):
            os.kill(self.server.process.pid, signal.SIGSTOP)
            self.addCleanup(os.kill, self.server.process.pid, signal.SIGCONT)
            connecting = mock.patch.object(aio._Wire, "_connect", autospec=True, side_effect=aio._Wire._connect)
            with connecting as connect:
                task = asyncio.create_task(self.lock().__aenter__())
                await self.until("it connects", lambda: connect.called)
                for _ in range(times):
                    task.cancel()
                    await asyncio.sleep(0)
                os.kill(self.server.process.pid, signal.SIGCONT)
                with self.assertRaises(asyncio.CancelledError):
                    await task
            self.assertEqual(self.keys(), 0)
            self.assertEqual(asyncio.all_tasks(), {asyncio.current_task()})

    async def test_cancelled_while_a_claims_reply_is_on_its_way(self):
        for times in (1, 2):
            for options in ({}, {"wait_ms": 20_000}, {"linger_ms": 60_000}):
                self.proxy.next("PRLOCK.CLAIM", "unheard")
                await self.cancelled(reached=lambda: self.keys() == 1, times=times, **options)

    async def test_cancelled_before_a_claim_is_sent_again(self):
        for times in (1, 2):
            self.proxy.next("PRLOCK.CLAIM", "unanswered")
            with mock.patch("prlock.aio.pause_s", return_value=30) as pause:
                await self.cancelled(reached=lambda: pause.called, times=times, retry_ms=60_000)

    async def test_cancelled_while_it_connects_again(self):
        pid = self.server.process.pid
        self.addCleanup(os.kill, pid, signal.SIGCONT)

        def pause(attempt):
            os.kill(pid, signal.SIGSTOP)
            return 0

        for times in (1, 2):
            self.proxy.next("PRLOCK.CLAIM", "unanswered")
            before = self.proxy.accepted
            with mock.patch("prlock.aio.pause_s", pause):
                await self.cancelled(
                    reached=lambda before=before: self.proxy.accepted == before + 2,
                    go_on=lambda: os.kill(pid, signal.SIGCONT),
                    times=times,
                )

    async def test_cancelled_during_the_renewal_after_a_long_wait(self):
        for times in (1, 2):
            self.rival()
            self.proxy.struck.clear()
            # More than a sixth of the lifetime, which is long, so that it is not the deadline that frees.
            began = time.monotonic()
            self.proxy.next("PRLOCK.RENEW", "unheard")

            def release(began=began):
                if self.waiters() == 1 and time.monotonic() - began > 1.2:
                    self.server.raw("PRLOCK.RELEASE", "k", "rival")
                return self.struck()

            await self.cancelled(reached=release, times=times, ttl_ms=6000, wait_ms=20_000)
            # Nobody renews it on.
            self.rival()
            renewals = self.server.info("prlock", "prlock_renewals")
            await asyncio.sleep(0.1)
            self.assertEqual(self.server.info("prlock", "prlock_renewals"), renewals)
            self.server.raw("PRLOCK.RELEASE", "k", "rival")

    async def test_cancelled_during_a_renewal(self):
        for times in (1, 2):
            for fate in ("unheard", "silence", "lost"):
                self.proxy.struck.clear()
                self.proxy.next("PRLOCK.RENEW", fate)
                await self.cancelled(
                    reached=self.struck, times=times, ttl_ms=1500, reply_ms=300, work=lambda: asyncio.sleep(20)
                )

    async def test_cancelled_during_the_release(self):
        for times in (1, 2):
            for fate in ("unheard", "silence", "lost", "unanswered"):
                self.proxy.struck.clear()
                self.proxy.next("PRLOCK.RELEASE", fate)
                await self.cancelled(reached=self.struck, times=times, reply_ms=300, work=lambda: asyncio.sleep(0))

    async def test_many_at_once(self):
        order = []

        async def work(number):
            async with self.lock(wait_ms=20_000) as held:
                order.append(held.fence)
                self.assertEqual(self.keys(), 1)

        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(work(number))
        self.assertEqual(order, sorted(set(order)))
        self.assertEqual(len(order), 20)

    async def test_no_task_is_left(self):
        async with self.lock(300):
            await asyncio.sleep(0.2)
        self.assertEqual(asyncio.all_tasks(), {asyncio.current_task()})

    async def test_an_answer_that_lay_unread_while_the_process_stood_still_counts(self):
        # With LINGER, for which a connection given up too early would be the end.
        async with self.lock(3000, linger_ms=0) as held:
            connection, stalled = held._wire._connection, []
            send = connection.send_command

            async def send_and_stall(*command):
                await send(*command)
                if not stalled:
                    stalled.append(command[0])
                    # In the next turn, with the renewal on its way, until after the deadline that it moves.
                    asyncio.get_running_loop().call_soon(time.sleep, 2.2)

            connection.send_command = send_and_stall
            await asyncio.sleep(3.4)
            self.assertEqual(stalled, ["PRLOCK.RENEW"])
            self.assertIs(held._wire._connection, connection)
            self.assertTrue(held.held())
            self.assertFalse(held.lost.is_set())
