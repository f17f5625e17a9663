"""A server, a proxy in front of it, and a client behind the proxy, for one test; threads and asyncio alike.

The tests are written once, for threads. `Aio` lets them drive the asyncio half through an event loop in a thread; what
only asyncio has, such as cancelling, has tests of its own.
"""

import asyncio
import contextlib
import logging
import threading
import unittest

import redis
import redis.asyncio

import prlock

from .proxy import Proxy
from .server import Server, until


class Threads:
    def client(self, **settings):
        return redis.Redis(host="127.0.0.1", **settings)

    def close(self, client):
        client.close()

    def execute(self, client, *args):
        return client.execute_command(*args)

    def lock(self, client, key, ttl_ms, **options):
        return prlock.lock(client, key, ttl_ms, **options)

    def locks(self, client, holder, **options):
        return prlock.Locks(client, holder, **options)

    def revoke(self, client, holder):
        return prlock.revoke(client, holder)

    def wait_lost(self, held, seconds):
        return held.wait_lost(seconds)


class Aio:
    def __init__(self):
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(60)

    def client(self, **settings):
        return redis.asyncio.Redis(host="127.0.0.1", **settings)

    def close(self, client):
        self.run(client.aclose())

    def execute(self, client, *args):
        return self.run(client.execute_command(*args))

    def lock(self, client, key, ttl_ms, **options):
        return self.around(prlock.aio.lock(client, key, ttl_ms, cancel=False, **options))

    def locks(self, client, holder, **options):
        return AioLocks(self, prlock.aio.Locks(client, holder, **options))

    @contextlib.contextmanager
    def around(self, manager):
        held = self.run(manager.__aenter__())
        try:
            yield held
        finally:
            self.run(manager.__aexit__(None, None, None))

    def revoke(self, client, holder):
        return self.run(prlock.aio.revoke(client, holder))

    def wait_lost(self, held, seconds):
        async def wait():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await held.lost.wait()
            return held.lost.is_set()

        return self.run(wait())


class AioLocks:
    """What `prlock.Locks` has, of `prlock.aio.Locks`."""

    def __init__(self, driver, locks):
        self.driver = driver
        self.locks = locks
        self.held = locks.held

    def lock(self, key, ttl_ms, **options):
        return self.driver.around(self.locks.lock(key, ttl_ms, cancel=False, **options))

    def revoke_own(self):
        return self.driver.run(self.locks.revoke_own())

    def shutdown(self, grace_ms):
        return self.driver.run(self.locks.shutdown(grace_ms))


class WorldTest(unittest.TestCase):
    """Each test starts with an empty server, a proxy and a client of its own."""

    # Set by `variants`.
    half = None
    protocol = 2
    settings = {}

    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.addClassCleanup(cls.server.stop)
        cls.driver = Aio() if cls.half == "aio" else Threads()

    def setUp(self):
        self.server.raw("FLUSHALL")
        self.connect(self.server)
        self.logged = []
        handler = logging.Handler()
        handler.emit = lambda record: self.logged.append(record.getMessage())
        logger = logging.getLogger("prlock")
        logger.addHandler(handler)
        logger.propagate = False
        self.addCleanup(logger.removeHandler, handler)

    def connect(self, server, **settings):
        """A proxy before this server, and a client behind it."""
        self.proxy = Proxy(server.port)
        self.addCleanup(self.proxy.stop)
        self.client = self.driver.client(port=self.proxy.port, protocol=self.protocol, **{**self.settings, **settings})
        self.addCleanup(self.driver.close, self.client)

    def lock(self, key="k", ttl_ms=60_000, **options):
        return self.driver.lock(self.client, key, ttl_ms, **options)

    def rival(self, key="k", *options):
        """Another token's claim, past any client library."""
        return not self.server.raw("PRLOCK.CLAIM", key, "PX", 60_000, "TOKEN", "rival", *options).startswith(("$-1", "_"))

    def keys(self):
        return self.server.number("DBSIZE")

    def waiters(self):
        return int(self.server.info("prlock", "prlock_waiters"))

    def renewals(self, key="k"):
        reply = self.server.raw("PRLOCK.INFO", key)
        return int(reply.split("renewals\r\n:")[1].split("\r")[0]) if "renewals" in reply else 0

    def refused(self, code, text, **options):
        """The lock can't be had, for this reason; the work doesn't run."""
        with self.assertRaisesRegex(prlock.LockError, text) as caught:
            with self.lock(**options):
                self.fail("the work ran")
        self.assertEqual(caught.exception.code, code, str(caught.exception))
        return caught.exception

    def waiting(self, **options):
        """A thread that waits for the lock and gives what came of it by `join`."""
        waiter = Waiter(self, options)
        waiter.start()
        until("it waits", lambda: self.waiters() == 1)
        return waiter


class Waiter(threading.Thread):
    def __init__(self, test, options):
        super().__init__(daemon=True)
        self.test = test
        self.options = options
        self.result = None

    def run(self):
        try:
            with self.test.lock(**self.options) as held:
                self.result = held.held()
        except Exception as error:
            self.result = error

    def outcome(self):
        self.join(20)
        return self.result


def variants(namespace, base):
    """Makes a class of tests for threads and asyncio, RESP2 and RESP3."""
    for half in ("threads", "aio"):
        for protocol in (2, 3):
            name = f"{base.__name__.removesuffix('Cases')}_{half}_RESP{protocol}"
            body = {"half": half, "protocol": protocol, "__module__": namespace["__name__"], "__doc__": base.__doc__}
            namespace[name] = type(name, (base, WorldTest), body)
