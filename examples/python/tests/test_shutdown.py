"""The locks of one process: what it holds, its start, and its end, which drains first and releases what is left."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
import time
import unittest

import redis.asyncio

import prlock

from .support.proxy import Proxy
from .support.server import EXAMPLE, Server, until
from .support.world import variants


class Work(threading.Thread):
    """Works under a lock until it is told to finish; keeps the lock, and what came of it."""

    def __init__(self, locks, key="k", ttl_ms=60_000, **options):
        super().__init__(daemon=True)
        self.manager = locks.lock(key, ttl_ms, **options)
        self.held = self.result = None
        self.begun = threading.Event()
        self.finish = threading.Event()
        self.start()

    def run(self):
        try:
            with self.manager as self.held:
                self.begun.set()
                self.finish.wait(20)
                self.result = "done"
        except Exception as error:
            self.result = error

    def working(self):
        assert self.begun.wait(10), self.result
        return self

    def outcome(self):
        self.finish.set()
        self.join(20)
        return self.result


class ShutdownCases:
    def setUp(self):
        super().setUp()
        self.locks = self.locks_of()

    def locks_of(self, **options):
        return self.driver.locks(self.client, "worker-1", **options)

    def exist(self, *keys):
        return self.server.number("EXISTS", *keys)

    def assert_shutting_down(self, error):
        self.assertIsInstance(error, prlock.LockError)
        self.assertEqual(error.code, "SHUTDOWN", str(error))

    def test_what_is_held_is_known_by_key_and_token(self):
        with self.locks.lock("k", 60_000, token="t") as held:
            self.assertIn("worker-1", self.server.raw("PRLOCK.INFO", "k"))
            self.assertIs(self.locks.held.get("k", "t"), held)
            self.assertIs(self.locks.held.get(b"k", b"t"), held)
            self.assertIsNone(self.locks.held.get("k", "other"))
            with self.locks.lock(b"\0\xff", 60_000) as other:
                self.assertEqual(len(self.locks.held), 2)
                self.assertEqual(set(self.locks.held), {held, other})
        self.assertEqual(len(self.locks.held), 0)
        self.rival()
        with self.assertRaises(prlock.LockBusy), self.locks.lock("k", 1000):
            self.fail("the work ran")
        self.assertEqual(list(self.locks.held), [])

    def test_the_end_of_one_that_was_robbed_within_the_process_leaves_the_thiefs_entry(self):
        robbed = Work(self.locks, ttl_ms=900).working()
        with self.locks.lock("k", 60_000, steal_if=robbed.held.fence) as thief:
            self.assertTrue(self.driver.wait_lost(robbed.held, 10))
            self.assertEqual(len(self.locks.held), 2)
            self.assertEqual(robbed.outcome(), "done")
            self.assertEqual(list(self.locks.held), [thief])
            self.assertIs(self.locks.held.get("k", thief.token), thief)
            self.assertIn(f"fence\r\n:{thief.fence}\r\n", self.server.raw("PRLOCK.INFO", "k"))
            self.assertTrue(thief.held())
        self.assertEqual(self.keys(), 0)

    def test_at_the_start_an_earlier_lifes_locks_are_revoked_and_no_siblings(self):
        for key in "ab":
            self.server.raw("PRLOCK.CLAIM", key, "PX", 60_000, "HOLDER", "worker-1")
        self.server.raw("PRLOCK.CLAIM", "c", "PX", 60_000, "HOLDER", "worker-10")
        self.assertEqual(self.locks.revoke_own(), 2)
        self.assertEqual(self.exist("a", "b"), 0)
        self.assertEqual(self.exist("c"), 1)
        with self.assertRaisesRegex(prlock.LockError, "holder must not be empty"):
            self.driver.locks(self.client, "")

    def test_shutdown_drains_first_then_releases_what_is_left_and_starts_nothing_new(self):
        quick = Work(self.locks, "quick").working()
        stuck = Work(self.locks, "stuck").working()
        self.rival("busy")
        waits = Work(self.locks, "busy", wait_ms=20_000)
        until("it waits", lambda: self.waiters() == 1)
        self.server.raw("PRLOCK.CLAIM", "sibling", "PX", 60_000, "HOLDER", "worker-1")

        ended = []
        shutdown = threading.Thread(target=lambda: ended.append(self.locks.shutdown(1000)), daemon=True)
        shutdown.start()
        # The wait ends at once, before the grace is over; what runs goes on meanwhile under its lock.
        self.assert_shutting_down(waits.outcome())
        self.assertEqual(ended, [])
        until("no waiter", lambda: self.waiters() == 0)
        self.assertTrue(stuck.held.held())
        with self.assertRaises(prlock.LockError) as caught, self.locks.lock("new", 1000):
            self.fail("the work ran")
        self.assert_shutting_down(caught.exception)
        self.assertTrue(quick.held.held())
        self.assertEqual(quick.outcome(), "done")

        shutdown.join(20)
        self.assertEqual(ended, [["stuck"]])
        self.assertFalse(stuck.held.held())
        self.assertTrue(self.driver.wait_lost(stuck.held, 0.01))
        with self.assertRaisesRegex(prlock.LockLost, "shutting down") as caught:
            stuck.held.check()
        self.assertEqual(caught.exception.why, "shutdown")
        self.assertEqual(self.exist("quick", "stuck", "new"), 0)
        self.assertEqual(self.exist("busy", "sibling"), 2)
        self.assertEqual(len(self.locks.held), 0)
        # Another may have it by now, and the end of the work frees nothing of it.
        self.rival("stuck")
        self.assertEqual(stuck.outcome(), "done")
        self.assertEqual(self.exist("stuck"), 1)
        self.assertEqual(self.logged, [])
        self.assertEqual(self.locks.shutdown(1000), [])

    def test_a_grace_without_need_takes_no_time(self):
        began = time.monotonic()
        self.assertEqual(self.locks.shutdown(60_000), [])
        self.locks = self.locks_of()
        work = Work(self.locks).working()
        threading.Timer(0.2, work.finish.set).start()
        self.assertEqual(self.locks.shutdown(float("inf")), [])
        self.assertEqual(self.keys(), 0)
        self.assertEqual(work.outcome(), "done")
        self.assertLess(time.monotonic() - began, 10)

    def test_renewals_go_on_while_it_drains(self):
        work = Work(self.locks, ttl_ms=900).working()
        ended = []
        shutdown = threading.Thread(target=lambda: ended.append(self.locks.shutdown(20_000)), daemon=True)
        shutdown.start()
        until("renewed for longer than a lifetime", lambda: self.renewals() >= 4)
        self.assertTrue(work.held.held())
        self.assertEqual(work.outcome(), "done")
        shutdown.join(20)
        self.assertEqual(ended, [[]])

    def test_a_claim_that_the_shutdown_meets_on_its_way_leaves_nothing(self):
        # The server granted it, and the answer doesn't come; or it never got there.
        for fate in ("silence", "unanswered", "lost"):
            with self.subTest(fate=fate):
                locks = self.locks_of(reply_ms=5000, retry_ms=20_000)
                self.proxy.struck.clear()
                self.proxy.next("PRLOCK.CLAIM", fate, 1000)
                work = Work(locks)
                until("on its way", lambda: len(self.proxy.struck) >= 1)
                self.assertEqual(locks.shutdown(4000), [])
                self.assert_shutting_down(work.outcome())
                with self.proxy._lock:
                    self.proxy._plan.clear()
                until("nothing is left", lambda: self.keys() == 0)
                self.assertEqual(len(locks.held), 0)

    def test_a_shutdown_at_any_moment_leaves_nothing(self):
        for round in range(20):
            if round % 4 > 1:
                self.rival()
            locks = self.locks_of()
            works = [Work(locks, wait_ms=(round % 2) * 20_000) for _ in range(3)]
            time.sleep(random.uniform(0, 0.02))
            self.server.raw("PRLOCK.RELEASE", "k", "rival")
            for work in works[: round % 3]:
                work.finish.set()
            left = locks.shutdown(random.choice([0, 20]))
            self.assertLessEqual(len(left), 1)
            for work in works:
                result = work.outcome()
                if isinstance(result, Exception):
                    self.assertIn(getattr(result, "code", result), ("SHUTDOWN", "BUSY"))
            self.assertEqual(list(locks.held), [])
            until("nothing is left", lambda: self.keys() == 0 and self.waiters() == 0)

    def test_many_threads(self):
        locks = self.locks_of()
        overlaps, inside, done = [], [], []

        def worker(number):
            try:
                while True:
                    with locks.lock("k", 60_000, wait_ms=20_000) as held:
                        inside.append(number)
                        overlaps.append(len(inside))
                        assert locks.held.get("k", held.token) is held
                        inside.remove(number)
            except prlock.LockError as error:
                done.append(error.code)

        threads = [threading.Thread(target=worker, args=[number], daemon=True) for number in range(8)]
        for thread in threads:
            thread.start()
        until("they work", lambda: len(overlaps) >= 40)
        self.assertEqual(locks.shutdown(20_000), [])
        for thread in threads:
            thread.join(20)
        self.assertEqual(set(overlaps), {1})
        self.assertEqual(done, ["SHUTDOWN"] * 8)
        self.assertEqual(len(locks.held), 0)
        # A wait that ends has told the server so, which hears of it in its own time.
        until("nothing is left", lambda: self.keys() == 0 and self.waiters() == 0)

    def test_a_silent_server_holds_up_the_end_for_one_locks_time_and_not_for_each_ones(self):
        locks = self.locks_of(reply_ms=200, retry_ms=300)
        works = [Work(locks, key).working() for key in "abcdef"]
        os.kill(self.server.process.pid, signal.SIGSTOP)
        try:
            began = time.monotonic()
            self.assertEqual(sorted(locks.shutdown(0)), list("abcdef"))
            self.assertLess(time.monotonic() - began, 6 * 0.5)
            self.assertFalse(any(work.held.held() for work in works))
            self.assertTrue(any("not released" in line for line in self.logged), self.logged)
        finally:
            os.kill(self.server.process.pid, signal.SIGCONT)
        for work in works:
            self.assertEqual(work.outcome(), "done")

    def test_a_token_of_ones_own_claimed_twice(self):
        works = [Work(self.locks, token="t").working() for _ in range(2)]
        self.assertEqual(works[0].held.fence, works[1].held.fence)
        self.assertEqual(self.locks.shutdown(0), ["k", "k"])
        self.assertEqual([work.held.held() for work in works], [False, False])
        self.assertEqual(self.keys(), 0)
        self.assertEqual([work.outcome() for work in works], ["done", "done"])


variants(globals(), ShutdownCases)
del ShutdownCases


class AioShutdownTest(unittest.IsolatedAsyncioTestCase):
    """What only asyncio has: work that is cancelled when the grace is over."""

    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.addClassCleanup(cls.server.stop)

    async def asyncSetUp(self):
        self.server.raw("FLUSHALL")
        self.client = redis.asyncio.Redis(port=self.server.port)
        self.addAsyncCleanup(self.client.aclose)
        self.locks = prlock.aio.Locks(self.client, "worker-1")

    def keys(self):
        return self.server.number("DBSIZE")

    async def begin(self, work):
        task = asyncio.create_task(work())
        async with asyncio.timeout(10):
            while not len(self.locks.held):
                await asyncio.sleep(0.005)
        return task

    async def test_work_is_cancelled_when_the_grace_is_over(self):
        async def work():
            async with self.locks.lock("k", 60_000):
                await asyncio.sleep(20)

        task = await self.begin(work)
        self.assertEqual(await self.locks.shutdown(100), ["k"])
        self.assertEqual(self.keys(), 0)
        with self.assertRaisesRegex(prlock.LockLost, "shutting down") as caught:
            await task
        self.assertEqual(caught.exception.why, "shutdown")
        self.assertEqual(asyncio.all_tasks(), {asyncio.current_task()})

    async def test_work_that_does_not_end_then_loses_its_lock_all_the_same(self):
        go_on = asyncio.Event()

        async def work():
            async with self.locks.lock("k", 60_000) as held:
                try:
                    await asyncio.sleep(20)
                except asyncio.CancelledError:
                    await go_on.wait()
                    return held.held()

        task = await self.begin(work)
        self.assertEqual(await self.locks.shutdown(0), ["k"])
        self.assertEqual((self.keys(), len(self.locks.held)), (0, 0))
        go_on.set()
        self.assertIs(await task, False)
        self.assertEqual(task.cancelling(), 0)

    async def test_a_shutdown_that_is_cancelled_has_ended_nothing_that_ran(self):
        finish = asyncio.Event()

        async def work():
            async with self.locks.lock("k", 60_000) as held:
                await finish.wait()
                return held.held()

        task = await self.begin(work)
        with self.assertRaises(TimeoutError):
            async with asyncio.timeout(0.1):
                await self.locks.shutdown(20_000)
        finish.set()
        self.assertIs(await task, True)
        self.assertEqual(self.keys(), 0)

    async def test_a_cancelled_wait_is_not_waited_for(self):
        proxy = Proxy(self.server.port)
        self.addCleanup(proxy.stop)
        async with redis.asyncio.Redis(port=proxy.port) as client:
            locks = prlock.aio.Locks(client, "worker-1")
            proxy.next("PRLOCK.CLAIM", "silence", 100)

            async def work():
                async with locks.lock("k", 60_000):
                    self.fail("the work ran")

            task = asyncio.create_task(work())
            async with asyncio.timeout(10):
                while not proxy.struck:
                    await asyncio.sleep(0.005)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            self.assertEqual(await locks.shutdown(20_000), [])


WORKER = """
import os, signal, sys, threading, time
import redis, prlock
locks = prlock.Locks(redis.Redis(port=int(sys.argv[1])), "worker-1")
print("revoked", locks.revoke_own(), flush=True)
stop = threading.Event()

def work(key, seconds):
    with locks.lock(key, 60_000) as held:
        os.write(1, b"held\\n")  # at once, whatever other threads print
        held.wait_lost(seconds)

quick = threading.Thread(target=work, args=["quick", 1], daemon=True)
stuck = threading.Thread(target=work, args=["stuck", 60], daemon=True)

def end(*_):
    if "handler" in sys.argv:
        print("left", *locks.shutdown(1500), flush=True)
    stop.set()

signal.signal(signal.SIGTERM, end)
quick.start()
stuck.start()
if "handler" in sys.argv:
    # The handler comes in the middle of the main thread's own work, which can't go on before it is done.
    with locks.lock("own", 60_000):
        os.write(1, b"held\\n")
        stop.wait()
else:
    stop.wait()
    print("left", *locks.shutdown(1500), flush=True)
"""


class ProcessTest(unittest.TestCase):
    def terminated(self, *words, holds):
        server = Server()
        self.addCleanup(server.stop)
        server.raw("PRLOCK.CLAIM", "earlier", "PX", 60_000, "HOLDER", "worker-1")
        server.raw("PRLOCK.CLAIM", "sibling", "PX", 60_000, "HOLDER", "worker-2")
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", WORKER, str(server.port), *words]
        worker = subprocess.Popen(command, cwd=EXAMPLE, stdout=pipe, stderr=pipe, text=True)
        self.addCleanup(worker.communicate)
        self.addCleanup(worker.kill)
        self.assertEqual(worker.stdout.readline(), "revoked 1\n")
        for _ in range(holds):
            self.assertEqual(worker.stdout.readline(), "held\n")
        worker.send_signal(signal.SIGTERM)
        self.assertEqual(worker.wait(20), 0)
        self.assertEqual(server.number("DBSIZE"), 1)
        self.assertEqual(server.number("EXISTS", "sibling"), 1)
        return sorted(worker.stdout.readline().split())

    def test_a_process_that_is_terminated(self):
        self.assertEqual(self.terminated(holds=2), ["left", "stuck"])

    def test_a_process_that_is_terminated_in_the_middle_of_its_own_work(self):
        self.assertEqual(self.terminated("handler", holds=3), ["left", "own", "stuck"])
