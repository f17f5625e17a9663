"""What can be wrong with a server or its address: the example says what it is and what to do, and never claims that it
holds a lock."""

import threading
import time

import prlock

from .support.server import Server, free_port, until
from .support.world import variants

SECRET = "a-token-that-nobody-may-see"


class TroubleCases:
    def start(self, *args, **options):
        server = Server(*args, **options)
        self.addCleanup(server.stop)
        return server

    def refuses(self, code, text):
        """Every way to a lock fails with this code and this advice, without a word of the token."""
        for options in ({}, {"wait_ms": 100}, {"steal": True}, {"steal_if": 1}, {"linger_ms": 0}):
            error = self.refused(code, text, ttl_ms=1000, token=SECRET, retry_ms=200, reply_ms=1000, **options)
            self.assertNotIn(SECRET, str(error))
            self.assertTrue(error.__suppress_context__)

    def test_no_module(self):
        self.connect(self.start(module=False))
        self.refuses("NO_MODULE", "loadmodule .*replicas too")
        with self.assertRaisesRegex(prlock.LockError, "loadmodule"):
            self.driver.revoke(self.client, "worker-7")

    def test_the_module_is_lost_in_a_failover(self):
        port = free_port()
        server = self.start(port=port)
        self.connect(server)
        with self.lock(ttl_ms=1500) as held:
            server.stop()
            server = self.start(module=False, port=port)
            self.assertTrue(held.held())
            self.assertTrue(self.driver.wait_lost(held, 10))
        self.assertTrue(any("loadmodule" in line for line in self.logged), self.logged)

    def test_the_server_dies_with_the_lock(self):
        server = self.start()
        self.connect(server)
        with self.assertRaisesRegex(ValueError, "the work's own"):
            with self.lock(ttl_ms=600, retry_ms=100) as held:
                server.stop()
                self.assertTrue(self.driver.wait_lost(held, 10))
                raise ValueError("the work's own")
        self.refused("CONNECTION", "is it running", retry_ms=100)

    def test_the_server_dies_during_the_wait(self):
        server = self.start()
        self.connect(server)
        server.raw("PRLOCK.CLAIM", "k", "PX", 60_000)
        began = time.monotonic()

        def stop():
            until("it waits", lambda: server.info("prlock", "prlock_waiters") == "1")
            server.stop()

        threading.Thread(target=stop, daemon=True).start()
        # It is waited for as long as the wait was meant to last, since the server may come back.
        self.refused("CONNECTION", "is it running", wait_ms=1000, retry_ms=100)
        self.assertLess(time.monotonic() - began, 8)

    def test_the_server_comes_back_during_the_wait(self):
        port = free_port()
        server = self.start(port=port)
        self.connect(server)
        server.raw("PRLOCK.CLAIM", "k", "PX", 60_000)

        def restart():
            until("it waits", lambda: server.info("prlock", "prlock_waiters") == "1")
            server.stop()
            self.start(port=port)

        thread = threading.Thread(target=restart, daemon=True)
        thread.start()
        # The server kept nothing, so the lock is free.
        with self.lock(wait_ms=20_000) as held:
            self.assertTrue(held.held())
        thread.join(20)

    def test_an_old_module(self):
        self.proxy.next("\r\nLINGER\r\n", b"-ERR syntax error\r\n", 2)
        for wait_ms in (0, 100):
            self.refused("OLD_MODULE", "Upgrade", linger_ms=0, wait_ms=wait_ms)
        with self.lock():
            pass

    def test_a_replica(self):
        replica = self.start("--replicaof", "127.0.0.1", str(self.server.port))
        until("in sync", lambda: replica.info("replication", "master_link_status") == "up")
        self.connect(replica)
        self.refuses("REPLICA", "Sentinel")

    def test_a_primary_that_becomes_a_replica(self):
        server = self.start()
        self.connect(server)
        server.raw("PRLOCK.CLAIM", "k", "PX", 60_000)

        def demote():
            until("it waits", lambda: server.info("prlock", "prlock_waiters") == "1")
            server.raw("REPLICAOF", "127.0.0.1", "1")

        threading.Thread(target=demote, daemon=True).start()
        self.refused("REPLICA", "Sentinel", wait_ms=20_000)

    def test_a_holder_on_a_primary_that_becomes_a_replica(self):
        server = self.start()
        self.connect(server)
        with self.lock(ttl_ms=400, retry_ms=0) as held:
            server.raw("REPLICAOF", "127.0.0.1", "1")
            self.assertTrue(self.driver.wait_lost(held, 10))
        self.assertTrue(any("Sentinel" in line for line in self.logged), self.logged)

    def test_passwords(self):
        server = self.start("--requirepass", "right")
        for login in ({}, {"password": "wrong"}, {"username": "nobody", "password": "right"}):
            with self.subTest(login=login):
                self.connect(server, **login)
                self.refuses("PASSWORD", "user or password")
        self.connect(server, password="right")
        with self.lock(wait_ms=100) as held:
            self.assertTrue(held.held())

    def test_rights(self):
        server = self.start()
        login = {"username": "worker", "password": "secret"}

        def user(*rights):
            self.assertRegex(server.raw("ACL", "SETUSER", "worker", "reset", "on", ">secret", *rights), r"^\+OK")
            self.connect(server, **login)

        # As the advice says.
        user("~locks:*", "+prlock.claim", "+prlock.renew", "+prlock.release", "+prlock.revoke")
        with self.lock("locks:a", 1500, wait_ms=100, linger_ms=0) as held:
            until("renewed", lambda: "renewals\r\n:1" in server.raw("PRLOCK.INFO", "locks:a"))
            self.assertTrue(held.held())
        self.assertEqual(self.driver.revoke(self.client, "worker-7"), 0)
        self.assertEqual(self.logged, [])
        self.refuses("RIGHTS", "ACL SETUSER")
        user("~*", "+@all", "-prlock.claim")
        self.refuses("RIGHTS", "ACL SETUSER")
        user("~*", "+@all", "-prlock.renew")
        with self.lock(ttl_ms=300) as held:
            self.assertTrue(self.driver.wait_lost(held, 10))
        self.assertTrue(all("ACL SETUSER" in line for line in self.logged))
        user("~*", "+@all", "-prlock.release")
        self.logged.clear()
        with self.lock(ttl_ms=100):
            pass
        self.assertEqual(len(self.logged), 1)
        self.assertIn("ACL SETUSER", self.logged[0])
        until("lapsed", lambda: server.number("DBSIZE") == 0)

    def test_out_of_memory(self):
        server = self.start()
        self.connect(server)
        with self.lock("held", ttl_ms=1200) as held:
            server.raw("CONFIG", "SET", "maxmemory", "1")
            self.refuses("MEMORY", "maxmemory")
            time.sleep(1.3)
            self.assertTrue(held.held())
        self.assertEqual(server.number("DBSIZE"), 0)

    def test_another_type(self):
        self.server.raw("LPUSH", "k", 1)
        self.refused("TYPE", "another key", wait_ms=100)
        self.refused("TYPE", "another key", steal=True)

    def test_no_server(self):
        self.connect(self.server)
        self.proxy.cut()
        self.refuses("CONNECTION", "is it running")

    def test_something_else_than_a_server(self):
        for reply in (b"+OK\r\n", b":1\r\n", b"*2\r\n+t\r\n+x\r\n"):
            with self.subTest(reply=reply):
                self.proxy.next("PRLOCK.CLAIM", reply)
                self.refused("SERVER", "What server")

    def test_a_passing_error_is_no_refusal(self):
        self.proxy.next("PRLOCK.CLAIM", b"-LOADING loading\r\n", 2)
        self.proxy.next("PRLOCK.CLAIM", b"-NOREPLICAS few\r\n", 1)
        self.proxy.next("PRLOCK.CLAIM", b"-UNBLOCKED elsewhere\r\n", 1)
        with self.lock() as held:
            self.assertTrue(held.held())
        self.assertEqual(len(self.proxy.struck), 4)


variants(globals(), TroubleCases)
del TroubleCases
