"""What becomes of a lock when its process is interrupted, stopped or killed."""

import os
import signal
import subprocess
import sys
import time
import unittest

from .support.proxy import Proxy
from .support.server import EXAMPLE, Server, until

WORKER = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
import redis, prlock
client = redis.Redis(port=int(sys.argv[1]))
with prlock.lock(client, "k", int(sys.argv[2]), wait_ms=20_000, linger_ms=0 if "linger" in sys.argv else None) as held:
    print("held", flush=True)
    if "stopped" in sys.argv:
        sys.stdin.readline()
        print(held.held(), held.lost, held.wait_lost(10), flush=True)
    else:
        time.sleep(30)
"""


CLAIMER = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
import redis, prlock

def pause(attempt):
    print("before the next attempt", flush=True)
    return 30

prlock.sync.pause_s = pause
with prlock.lock(redis.Redis(port=int(sys.argv[1])), "k", 60_000, retry_ms=60_000):
    pass
"""


class ProcessTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.addClassCleanup(cls.server.stop)

    def setUp(self):
        self.server.raw("FLUSHALL")

    def keys(self):
        return self.server.number("DBSIZE")

    def worker(self, ttl_ms, *words):
        return self.run_script(WORKER, self.server.port, ttl_ms, *words)

    def run_script(self, script, *words):
        command = [sys.executable, "-c", script, *map(str, words)]
        pipe = subprocess.PIPE
        worker = subprocess.Popen(command, cwd=EXAMPLE, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(worker.communicate)
        self.addCleanup(worker.kill)
        return worker

    def test_interrupted_at_work(self):
        worker = self.worker(60_000)
        self.assertEqual(worker.stdout.readline(), "held\n")
        worker.send_signal(signal.SIGINT)
        worker.wait(10)
        self.assertEqual(self.keys(), 0)

    def test_interrupted_while_it_waits(self):
        self.server.raw("PRLOCK.CLAIM", "k", "PX", 60_000, "TOKEN", "rival")
        worker = self.worker(60_000)
        until("it waits", lambda: self.server.info("prlock", "prlock_waiters") == "1")
        worker.send_signal(signal.SIGINT)
        self.assertNotEqual(worker.wait(10), 0)
        self.server.raw("PRLOCK.RELEASE", "k", "rival")
        self.assertEqual(self.keys(), 0)

    def test_interrupted_before_a_claim_is_sent_again(self):
        proxy = Proxy(self.server.port)
        self.addCleanup(proxy.stop)
        proxy.next("PRLOCK.CLAIM", "unanswered")
        claimer = self.run_script(CLAIMER, proxy.port)
        self.assertEqual(claimer.stdout.readline(), "before the next attempt\n")
        self.assertEqual(self.keys(), 1)
        claimer.send_signal(signal.SIGINT)
        self.assertNotEqual(claimer.wait(10), 0)
        self.assertEqual(self.keys(), 0)

    def test_killed_with_linger(self):
        worker = self.worker(60_000, "linger")
        self.assertEqual(worker.stdout.readline(), "held\n")
        worker.kill()
        until("free", lambda: self.keys() == 0)

    def test_stopped_for_longer_than_a_lifetime(self):
        worker = self.worker(300, "stopped")
        self.assertEqual(worker.stdout.readline(), "held\n")
        worker.send_signal(signal.SIGSTOP)
        until("lapsed", lambda: self.keys() == 0)
        time.sleep(0.1)
        # Its question is the first thing that it does when it goes on.
        worker.stdin.write("\n")
        worker.stdin.flush()
        os.kill(worker.pid, signal.SIGCONT)
        self.assertEqual(worker.stdout.readline(), "False True True\n")
