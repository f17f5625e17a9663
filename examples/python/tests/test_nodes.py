"""Servers that are several: a primary behind Sentinel, and the nodes of a Cluster."""

import asyncio
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import redis.asyncio.cluster
import redis.asyncio.sentinel
import redis.cluster
import redis.sentinel

import prlock
from prlock import aio

from .support.server import Server, free_port, program, until
from .test_readme import blocks


class SentinelTest(unittest.TestCase):
    def setUp(self):
        self.primary = self.start()
        self.replica = self.start("--replicaof", "127.0.0.1", str(self.primary.port))
        self.port = free_port()
        folder = tempfile.TemporaryDirectory(prefix="prlock-sentinel-")
        self.addCleanup(folder.cleanup)
        config = Path(folder.name, "sentinel.conf")
        config.write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {folder.name}\nlogfile {folder.name}/log\n"
            f"sentinel monitor locks 127.0.0.1 {self.primary.port} 1\n"
            "sentinel down-after-milliseconds locks 500\nsentinel failover-timeout locks 2000\n"
        )
        null = subprocess.DEVNULL
        sentinel = subprocess.Popen([program(), config, "--sentinel"], stdin=null, stdout=null, stderr=null)
        self.addCleanup(sentinel.wait)
        self.addCleanup(sentinel.kill)
        until("the replica is in sync", lambda: self.replica.info("replication", "master_link_status") == "up")
        until("the sentinel knows the replica", self.knows_replica)

    def start(self, *args):
        server = Server(*args)
        self.addCleanup(server.stop)
        return server

    def knows_replica(self):
        try:
            # It asks the primary for its replicas, and then these for how they are: only a good one takes over.
            sentinel = redis.sentinel.Sentinel([("127.0.0.1", self.port)]).sentinels[0]
            return any(replica["master-link-status"] == "ok" for replica in sentinel.sentinel_slaves("locks"))
        except redis.RedisError:
            return False

    def fail_over(self):
        self.primary.process.kill()
        until("the replica takes over", lambda: self.replica.info("replication", "role") == "master")

    def renewals(self):
        return int(self.replica.raw("PRLOCK.INFO", "k").split("renewals\r\n:")[1].split("\r")[0])

    def test_a_lock_goes_on_at_the_new_primary(self):
        client = redis.sentinel.Sentinel([("127.0.0.1", self.port)]).master_for("locks")
        self.addCleanup(client.close)
        with self.assertLogs("prlock"), prlock.lock(client, "k", ttl_ms=20_000) as held:
            until("it is replicated", lambda: self.replica.number("EXISTS", "k") == 1)
            self.fail_over()
            until("it is renewed there", lambda: self.renewals() > 0)
            self.assertTrue(held.held())
        self.assertEqual(self.replica.number("EXISTS", "k"), 0)

    def test_a_claim_waits_for_the_new_primary(self):
        async def work():
            sentinel = redis.asyncio.sentinel.Sentinel([("127.0.0.1", self.port)])
            async with sentinel.master_for("locks") as client, sentinel.sentinels[0]:
                async with aio.lock(client, "k", ttl_ms=20_000, wait_ms=60_000, token="mine") as held:
                    return held.held(), self.replica.number("EXISTS", "k")

        self.primary.raw("PRLOCK.CLAIM", "k", "PX", 60_000, "TOKEN", "rival")
        until("it is replicated", lambda: self.replica.number("EXISTS", "k") == 1)
        with asyncio.Runner() as runner:
            task = runner.get_loop().create_task(work())
            runner.run(asyncio.sleep(0.2))
            until("it waits", lambda: self.primary.info("prlock", "prlock_waiters") == "1")
            self.fail_over()
            runner.run(asyncio.sleep(0.5))
            self.assertEqual(self.replica.number("PRLOCK.RELEASE", "k", "rival"), 1)
            self.assertEqual(runner.run(asyncio.wait_for(task, 30)), (True, 1))


class ClusterTest(unittest.TestCase):
    def setUp(self):
        """Two nodes, each with a half of the slots; `a` lies on the second, `b` on the first."""
        self.nodes = [Server("--cluster-enabled", "yes", "--cluster-node-timeout", "2000") for _ in range(2)]
        for node in self.nodes:
            self.addCleanup(node.stop)
        for node, slots in zip(self.nodes, ((0, 8191), (8192, 16383)), strict=True):
            self.assertEqual(node.raw("CLUSTER", "ADDSLOTSRANGE", *slots), "+OK\r\n")
        self.nodes[0].raw("CLUSTER", "MEET", "127.0.0.1", self.nodes[1].port)
        for node in self.nodes:
            until("the cluster is up", lambda node=node: "cluster_state:ok" in node.raw("CLUSTER", "INFO"))
            until("both are known", lambda node=node: node.raw("CLUSTER", "NODES").count("connected") == 2)

    def test_a_lock_on_the_node_of_its_key(self):
        with redis.cluster.RedisCluster(host="127.0.0.1", port=self.nodes[0].port) as cluster:
            for key, server in (("b", self.nodes[0]), ("a", self.nodes[1])):
                client = cluster.get_redis_connection(cluster.get_node_from_key(key))
                with prlock.lock(client, key, ttl_ms=60_000, wait_ms=100) as held:
                    self.assertTrue(held.held())
                    self.assertEqual(server.number("EXISTS", key), 1)
                self.assertEqual(server.number("EXISTS", key), 0)

    def test_the_readmes_code(self):
        code = blocks("python")[-1].replace("port=7001", f"port={self.nodes[0].port}")
        names = {"prlock": prlock, "seen": []}
        exec(code.replace("    ...", "    seen.append(held.held())"), names)
        names["cluster"].close()
        self.assertEqual(names["seen"], [True])

    def test_the_same_with_asyncio(self):
        async def work():
            async with redis.asyncio.cluster.RedisCluster(host="127.0.0.1", port=self.nodes[0].port) as cluster:
                for key, server in (("b", self.nodes[0]), ("a", self.nodes[1])):
                    node = cluster.get_node_from_key(key)
                    async with redis.asyncio.Redis(host=node.host, port=node.port) as client:
                        async with aio.lock(client, key, ttl_ms=60_000, wait_ms=100) as held:
                            self.assertTrue(held.held())
                            self.assertEqual(server.number("EXISTS", key), 1)
                with self.assertRaisesRegex(prlock.LockError, "the client of the key's node") as caught:
                    aio.lock(cluster, "a", ttl_ms=1000)
                self.assertEqual(caught.exception.code, "CLUSTER")

        asyncio.run(work())

    def test_the_wrong_node_and_the_clusters_own_client_are_refused(self):
        with redis.Redis(port=self.nodes[0].port) as client:
            with self.assertRaises(prlock.LockError) as caught, prlock.lock(client, "a", ttl_ms=1000):
                self.fail("the work ran")
            self.assertEqual(caught.exception.code, "CLUSTER")
        with redis.cluster.RedisCluster(host="127.0.0.1", port=self.nodes[0].port) as cluster:
            with self.assertRaisesRegex(prlock.LockError, "the client of the key's node") as caught:
                prlock.lock(cluster, "a", ttl_ms=1000)
            self.assertEqual(caught.exception.code, "CLUSTER")

    def test_a_slot_that_moves(self):
        """What the README says: the lock is lost at its deadline and not before; the node asked for anew has the next."""
        first, second = self.nodes
        slot = first.number("CLUSTER", "KEYSLOT", "b")
        with redis.cluster.RedisCluster(host="127.0.0.1", port=first.port) as cluster:
            client = cluster.get_redis_connection(cluster.get_node_from_key("b"))
            with self.assertLogs("prlock"), prlock.lock(client, "b", ttl_ms=1500, retry_ms=100) as held:
                ids = [node.raw("CLUSTER", "MYID").split("\r\n")[1] for node in self.nodes]
                second.raw("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0])
                first.raw("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1])
                first.raw("MIGRATE", "127.0.0.1", second.port, "b", 0, 5000)
                for node in (second, first):
                    node.raw("CLUSTER", "SETSLOT", slot, "NODE", ids[1])
                self.assertTrue(held.held())
                self.assertTrue(held.wait_lost(10))
            with self.assertRaises(prlock.LockError) as caught, prlock.lock(client, "b", ttl_ms=1000):
                self.fail("the work ran")
            self.assertEqual(caught.exception.code, "CLUSTER")
            cluster.exists("b")
            client = cluster.get_redis_connection(cluster.get_node_from_key("b"))
            with prlock.lock(client, "b", ttl_ms=60_000, wait_ms=5000) as held:
                self.assertEqual(second.number("EXISTS", "b"), 1)
