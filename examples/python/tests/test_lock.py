"""What a lock around work does, and what becomes of it when the network breaks at each step."""

import math
import os
import signal
import threading
import time

import prlock

from .support.server import until
from .support.world import variants


class LockCases:
    def test_claims_gives_the_fence_and_releases(self):
        with self.lock(holder="worker-7", linger_ms=5000) as held:
            self.assertTrue(held.held())
            held.check()
            info = self.server.raw("PRLOCK.INFO", "k")
            self.assertIn("worker-7", info)
            self.assertIn(f"fence\r\n:{held.fence}\r\n", info)
            self.assertFalse(self.rival())
        self.assertEqual(self.keys(), 0)
        self.assertFalse(held.held())
        with self.assertRaisesRegex(prlock.LockLost, "released"):
            held.check()
        self.assertEqual(self.logged, [])

    def test_each_grant_has_a_greater_fence(self):
        fences = []
        for _ in range(3):
            with self.lock() as held:
                fences.append(held.fence)
        self.assertEqual(fences, sorted(set(fences)))

    def test_bytes_are_bytes(self):
        key, token, holder = b"k\0\r\n\xff", b"t\0\r\n\xff", b"h\0\r\n\xff"
        with self.lock(key, token=token, holder=holder):
            self.assertEqual(self.keys(), 1)
        self.assertEqual(self.keys(), 0)

    def test_what_the_work_raises_passes_through(self):
        with self.assertRaisesRegex(ValueError, "the work's own"):
            with self.lock():
                raise ValueError("the work's own")
        self.assertEqual(self.keys(), 0)

    def test_a_lock_that_another_holds_is_refused_or_waited_for(self):
        self.rival()
        self.assertIsInstance(self.refused("BUSY", "holder"), prlock.LockBusy)
        self.assertIsInstance(self.refused("BUSY", "holder", wait_ms=50), prlock.LockBusy)
        waiter = self.waiting(wait_ms=math.inf)
        self.server.raw("PRLOCK.RELEASE", "k", "rival")
        self.assertIs(waiter.outcome(), True)
        self.assertEqual(self.keys(), 0)
        self.assertEqual(self.waiters(), 0)

    def test_a_wait_longer_than_the_clients_timeout(self):
        self.connect(self.server, socket_timeout=0.1)
        self.rival()
        waiter = self.waiting(wait_ms=20_000)
        waiter.join(0.4)
        self.server.raw("PRLOCK.RELEASE", "k", "rival")
        self.assertIs(waiter.outcome(), True)

    def test_a_waiter_has_its_whole_lifetime(self):
        self.rival()
        waiter = self.waiting(ttl_ms=600, wait_ms=20_000)
        waiter.join(0.7)
        self.server.raw("PRLOCK.RELEASE", "k", "rival")
        self.assertIs(waiter.outcome(), True)

    def test_renewals_carry_it_over_many_lifetimes(self):
        with self.lock(ttl_ms=1500) as held:
            until("four renewals", lambda: self.renewals() >= 4)
            self.assertTrue(held.held())
            self.assertFalse(self.rival())
        self.assertEqual(self.logged, [])

    def test_steal(self):
        with self.lock(ttl_ms=900) as first:
            self.refused("BUSY", "holder", steal_if=first.fence - 1)
            with self.lock(steal_if=first.fence) as second:
                self.assertGreater(second.fence, first.fence)
                self.assertTrue(self.driver.wait_lost(first, 10))
                with self.assertRaisesRegex(prlock.LockLost, "no longer holds") as caught:
                    first.check()
                self.assertEqual(caught.exception.why, "taken")
                self.assertTrue(second.held())
        self.rival()
        with self.lock(steal=True):
            self.assertEqual(self.server.number("PRLOCK.RELEASE", "k", "rival"), 0)
        self.assertEqual(self.keys(), 0)

    def test_the_end_of_a_lock_that_was_stolen_frees_nothing(self):
        with self.lock(ttl_ms=60_000):
            self.assertTrue(self.rival("k", "STEAL"))
        self.assertEqual(self.server.number("PRLOCK.RELEASE", "k", "rival"), 1)

    def test_wrong_arguments_are_named_before_anything_is_sent(self):
        for options in [
            {"ttl_ms": 0},
            {"wait_ms": -1},
            {"wait_ms": math.nan},
            {"reply_ms": 0},
            {"steal": True, "steal_if": 1},
            {"steal": True, "wait_ms": 1},
        ]:
            self.proxy.cut()
            self.refused("ARGUMENT", "must|choose|leave", **options)
        self.proxy.mend()
        for options in [{"token": ""}, {"ttl_ms": 10**12}, {"linger_ms": -1}, {"holder": "h" * 513}]:
            self.refused("ARGUMENT", "out of range", **options)
        with self.assertRaisesRegex(prlock.LockError, "wants a redis"):
            prlock.lock(object(), "k", 1000)
        with self.assertRaisesRegex(prlock.LockError, "wants a redis"):
            prlock.aio.lock(object(), "k", 1000)

    def test_a_token_of_ones_own_claims_again(self):
        with self.lock(token="t") as first, self.lock(token="t") as again:
            self.assertEqual(first.fence, again.fence)

    def test_linger_frees_it_when_the_connection_is_gone(self):
        with self.lock(ttl_ms=60_000, linger_ms=0) as held:
            self.proxy.cut()
            until("free", lambda: self.keys() == 0)
            self.proxy.mend()
        self.assertFalse(held.held())

    def test_linger_after_a_wait_is_bound_to_a_connection_that_stays(self):
        self.rival()
        done = threading.Event()
        seen = []

        def work():
            with self.lock(wait_ms=20_000, linger_ms=0) as held:
                time.sleep(0.3)
                seen.append((held.held(), self.keys()))
            done.set()

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        until("it waits", lambda: self.waiters() == 1)
        self.server.raw("PRLOCK.RELEASE", "k", "rival")
        self.assertTrue(done.wait(10))
        self.assertEqual(seen, [(True, 1)])

    def test_connections_are_closed(self):
        def clients():
            return int(self.server.info("clients", "connected_clients"))

        before = clients()
        for _ in range(5):
            with self.lock():
                pass
        self.rival()
        for wait_ms in (0, 20):
            self.refused("BUSY", "holder", wait_ms=wait_ms)
        until("closed", lambda: clients() == before)

    def test_revoke(self):
        for key in "ab":
            self.server.raw("PRLOCK.CLAIM", key, "PX", 60_000, "HOLDER", "worker-1")
        self.server.raw("PRLOCK.CLAIM", "c", "PX", 60_000, "HOLDER", "worker-10")
        self.assertEqual(self.driver.revoke(self.client, "worker-1"), 2)
        self.assertEqual(self.keys(), 1)

    def test_a_unix_socket(self):
        self.client = self.driver.client(unix_socket_path=f"{self.server.folder}/socket", protocol=self.protocol)
        self.addCleanup(self.driver.close, self.client)
        with self.lock(wait_ms=100) as held:
            self.assertTrue(held.held())

    def test_replies_as_text(self):
        self.connect(self.server, decode_responses=True)
        with self.lock(wait_ms=100) as held:
            self.assertTrue(held.held())
        self.assertEqual(self.keys(), 0)

    def test_the_clients_database(self):
        self.connect(self.server, db=5)
        with self.lock():
            self.assertEqual(self.keys(), 0)
            self.assertIn("db5:keys=1", self.server.raw("INFO", "keyspace"))

    # --- the network breaks

    def test_a_claim_whose_way_breaks_is_sent_again_and_granted_once(self):
        for fate in ("lost", "unanswered"):
            for wait_ms in (0, 5000):
                with self.subTest(fate=fate, wait_ms=wait_ms):
                    self.proxy.struck.clear()
                    self.proxy.next("PRLOCK.CLAIM", fate, 2)
                    granted = int(self.server.info("prlock", "prlock_claims_granted"))
                    with self.lock(wait_ms=wait_ms):
                        self.assertEqual(len(self.proxy.struck), 2)
                        self.assertEqual(int(self.server.info("prlock", "prlock_claims_granted")), granted + 1)
                    self.assertEqual(self.keys(), 0)

    def test_a_claim_without_an_answer_is_given_up_and_leaves_nothing(self):
        for fate in ("lost", "unanswered", "silence"):
            with self.subTest(fate=fate):
                self.proxy.next("PRLOCK.CLAIM", fate, 100)
                self.refused("CONNECTION", "is it running", reply_ms=100, retry_ms=300)
                with self.proxy._lock:
                    self.proxy._plan.clear()
                until("nothing is left", lambda: self.keys() == 0)

    def test_the_renewal_after_a_wait_breaks(self):
        for fate in ("lost", "unanswered"):
            with self.subTest(fate=fate):
                self.rival()
                self.proxy.struck.clear()
                self.proxy.next("PRLOCK.RENEW", fate)
                waiter = self.waiting(ttl_ms=600, wait_ms=20_000)
                waiter.join(0.3)
                self.server.raw("PRLOCK.RELEASE", "k", "rival")
                self.assertIs(waiter.outcome(), True)
                self.assertEqual(self.proxy.struck, ["PRLOCK.RENEW"])
                self.assertEqual(self.keys(), 0)

    def test_a_wait_whose_connection_breaks_is_taken_up_again(self):
        self.rival()
        waiter = self.waiting(wait_ms=20_000)
        self.proxy.cut()
        until("it left", lambda: self.waiters() == 0)
        self.proxy.mend()
        until("it waits again", lambda: self.waiters() == 1)
        self.server.raw("PRLOCK.RELEASE", "k", "rival")
        self.assertIs(waiter.outcome(), True)

    def test_a_renewal_that_breaks_is_no_loss(self):
        for fate in ("lost", "unanswered", "silence", b"-LOADING loading\r\n", b"-MISCONF disk\r\n"):
            with self.subTest(fate=fate):
                self.proxy.struck.clear()
                with self.lock(ttl_ms=900) as held:
                    self.proxy.next("PRLOCK.RENEW", fate)
                    until("struck", lambda: len(self.proxy.struck) == 1)
                    before = self.renewals()
                    until("renewed again", lambda: self.renewals() > before)
                    self.assertTrue(held.held())
                self.assertEqual(self.keys(), 0)

    def test_a_break_of_a_lifetime_is_a_loss_then_and_not_before(self):
        for how in ("cut", "silence"):
            with self.subTest(how=how):
                began = time.monotonic()
                with self.lock(ttl_ms=400, reply_ms=300, retry_ms=0) as held:
                    if how == "cut":
                        self.proxy.cut()
                    else:
                        self.proxy.next("PRLOCK.RENEW", how, 100)
                    self.assertTrue(self.driver.wait_lost(held, 10))
                    took = time.monotonic() - began
                    self.assertGreaterEqual(took, 0.4)
                    self.assertLess(took, 2)
                    with self.assertRaisesRegex(prlock.LockLost, "lifetime") as caught:
                        held.check()
                    self.assertEqual(caught.exception.why, "deadline")
                    self.proxy.mend()
                self.assertFalse(held.held())
                with self.proxy._lock:
                    self.proxy._plan.clear()

    def test_a_lock_that_was_lost_stays_lost(self):
        with self.lock(ttl_ms=300) as held:
            self.proxy.cut()
            self.assertTrue(self.driver.wait_lost(held, 10))
            self.proxy.mend()
            time.sleep(0.2)
            self.assertFalse(held.held())

    def test_a_release_that_breaks_hides_nothing(self):
        for fate in ("lost", "unanswered", "silence", b"-ERR trouble\r\n"):
            with self.subTest(fate=fate):
                self.proxy.struck.clear()
                self.proxy.next("PRLOCK.RELEASE", fate)
                with self.assertRaisesRegex(ValueError, "the work's own"):
                    with self.lock(ttl_ms=600, reply_ms=200):
                        raise ValueError("the work's own")
                self.assertEqual(len(self.proxy.struck), 1)
                until("free", lambda: self.keys() == 0)

    def test_the_end_of_work_without_a_server_is_quick(self):
        with self.lock(ttl_ms=60_000, retry_ms=500, reply_ms=1000):
            self.proxy.cut()
            began = time.monotonic()
        self.assertLess(time.monotonic() - began, 10)
        self.assertTrue(any("not released" in line for line in self.logged), self.logged)

    def test_a_server_that_stands_still(self):
        with self.lock(ttl_ms=1200, reply_ms=1000, retry_ms=0) as held:
            os.kill(self.server.process.pid, signal.SIGSTOP)
            try:
                self.assertTrue(self.driver.wait_lost(held, 10))
                self.refused("CONNECTION", "is it running", reply_ms=100, retry_ms=0)
            finally:
                os.kill(self.server.process.pid, signal.SIGCONT)
        until("free", lambda: self.keys() == 0)


variants(globals(), LockCases)
del LockCases
