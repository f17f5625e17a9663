// Locks in a cluster, with every cluster client: calls find the node of their key, also while slots move, and what names no
// key goes to all nodes. `make prove` does it under load, with failovers and lost nodes.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { LockBusy, LockError, Locks, type Connection } from "../src/index.js";
import { slotOf } from "../src/slot.js";
import { clusterDrivers } from "./support/drivers.js";
import { type Server, startCluster, until } from "./support/server.js";

let nodes: Server[];
before(async () => void (nodes = await startCluster(3)));
after(() => Promise.all(nodes.map((node) => node.stop())));

/** The test, once for each driver, in an empty cluster. */
function each(name: string, run: (locks: Locks, connection: Connection) => Promise<void>): void {
  for (const driver of clusterDrivers) {
    test(`${name}: ${driver.name}`, async () => {
      for (const node of nodes) await node.raw(["FLUSHALL"]);
      const client = await driver.open([(nodes[0] as Server).port]);
      const locks = new Locks(client.connection, { holder: "worker-1" });
      try {
        await run(locks, client.connection);
      } finally {
        await locks.shutdown(0);
        client.close();
      }
    });
  }
}

/** The node that owns the key's slot now. */
async function ownerOf(key: string): Promise<Server> {
  for (const node of nodes) {
    if (!(await node.raw(["PRLOCK.INFO", key])).startsWith("-MOVED")) return node;
  }
  throw new Error(`nobody owns the slot of ${key}`);
}

async function another(than: Server): Promise<Server> {
  return nodes.find((node) => node !== than) as Server;
}

async function waiters(node: Server): Promise<number> {
  return Number(await node.info("prlock", "prlock_waiters"));
}

const KEYS = Array.from({ length: 30 }, (_, number) => `key-${String(number).padStart(2, "0")}`);

test("slots are those of the server", async () => {
  for (const key of [...KEYS, "", "{a}b", "x{a}y", "{}a", "a{", "a}b{c}d{e}", "{a{b}c}", "ключ", "k".repeat(1000)]) {
    assert.equal(await (nodes[0] as Server).number("CLUSTER", "KEYSLOT", key), slotOf(key), key);
  }
});

each("locks on every node", async (locks) => {
  await Promise.all(
    KEYS.map((key) =>
      locks.withLock(key, { ttlMs: 60_000, waitMs: 1000 }, async (lock) => {
        assert.equal((await locks.commands.info(key))?.fence, lock.fence);
        await assert.rejects(locks.withLock(key, { ttlMs: 1000 }, () => assert.fail("ran")), LockBusy);
      }),
    ),
  );
  for (const node of nodes) assert.equal(await node.number("DBSIZE"), 0);
});

each("LIST and REVOKE see all nodes", async (locks) => {
  for (const [index, key] of KEYS.entries()) {
    const holder = index % 3 === 0 ? "worker-1" : "worker-2";
    assert.ok(await locks.commands.claim(key, { ttlMs: 60_000, token: "t", holder }));
  }
  for (const node of nodes) assert.ok((await node.number("DBSIZE")) > 0, "some are on every node");
  const keys = async (options: object) => (await locks.commands.list(options)).map(({ key }) => key);
  assert.deepEqual(await keys({}), KEYS);
  assert.deepEqual(await keys({ match: "key-1*" }), KEYS.slice(10, 20));
  const pages: string[] = [];
  for (let page = await keys({ count: 7 }); page.length > 0; page = await keys({ count: 7, after: page.at(-1) })) {
    assert.ok(page.length <= 7);
    pages.push(...page);
  }
  assert.deepEqual(pages, KEYS);
  assert.equal(await locks.revokeOwn(), 10);
  assert.deepEqual(await keys({}), KEYS.filter((_, index) => index % 3 !== 0));
});

each("a lock that moves to another node is still the holder's, and a wait follows it", async (locks) => {
  const key = "moves";
  const source = await ownerOf(key);
  const target = await another(source);
  let waited: Promise<number> | undefined;
  let fence = 0;
  await locks.withLock(key, { ttlMs: 900 }, async (lock) => {
    fence = lock.fence;
    waited = locks.withLock(key, { ttlMs: 60_000, waitMs: 20_000 }, (next) => next.fence);
    await until("it waits", async () => (await waiters(source)) === 1);
    await source.moveSlot(slotOf(key), target);
    await until("it waits at the other node", async () => (await waiters(target)) === 1);
    assert.equal(await waiters(source), 0);
    const before = (await locks.commands.info(key))?.renewals ?? 0;
    await until("renewed there", async () => ((await locks.commands.info(key))?.renewals ?? 0) > before);
    assert.ok(lock.held());
  });
  assert.ok(((await waited) as number) > fence);
  assert.equal(await target.number("EXISTS", key), 0);
});

each("in the middle of a move each lock is where its key is", async (locks) => {
  // In one slot, of which one key has moved and the other hasn't.
  const [gone, here, fresh] = ["{slot}gone", "{slot}here", "{slot}fresh"] as const;
  const source = await ownerOf(gone);
  const target = await another(source);
  await locks.withLock(gone, { ttlMs: 60_000 }, async (lock) => {
    await locks.withLock(here, { ttlMs: 60_000 }, async () => {
      await source.beginToMoveSlot(slotOf(gone), target);
      await source.moveKey(gone, target);
      assert.equal((await locks.commands.info(gone))?.fence, lock.fence);
      assert.equal((await locks.commands.info(here))?.waiters, 0);
      for (const key of [gone, here]) {
        await assert.rejects(locks.withLock(key, { ttlMs: 1000 }, () => assert.fail("ran")), LockBusy);
        await assert.rejects(locks.withLock(key, { ttlMs: 1000, waitMs: 30 }, () => assert.fail("ran")), LockBusy);
      }
      await locks.withLock(fresh, { ttlMs: 60_000, waitMs: 1000 }, async () => {
        assert.equal(await locks.commands.info(fresh).then((info) => info?.holder), "worker-1");
      });
    });
  });
  await source.moveSlot(slotOf(gone), target);
  for (const node of nodes) assert.equal(await node.number("DBSIZE"), 0);
});

each("a node that stands still is no lock, and the others serve", async (locks, connection) => {
  const still = await ownerOf("still");
  const owners = await Promise.all(KEYS.map(ownerOf));
  const other = KEYS.find((_, index) => owners[index] !== still) as string;
  const hasty = new Locks(connection, { holder: "worker-1", replyMs: 300, retryMs: 300 });
  await locks.withLock("still", { ttlMs: 60_000 }, () => {});
  still.signal("SIGSTOP");
  try {
    await locks.withLock(other, { ttlMs: 60_000 }, () => {});
    await locks.withLock(other, { ttlMs: 60_000, waitMs: 1000 }, () => {});
    for (const waitMs of [0, 50]) {
      const none = hasty.withLock("still", { ttlMs: 2000, waitMs }, () => assert.fail("ran"));
      await assert.rejects(none, (error) => error instanceof LockError && error.code === "CONNECTION");
    }
  } finally {
    still.signal("SIGCONT");
  }
  await hasty.shutdown(10_000);
  // The claim that waited had a connection of its own, so the release may have come before it.
  await until("what was given up is released, or lapsed", async () => (await still.number("DBSIZE")) === 0);
  await locks.withLock("still", { ttlMs: 60_000 }, () => {});
});
