// What can be wrong with a server or its address: each example must say what it is and what to do, and never claim that
// it holds a lock.

import assert from "node:assert/strict";
import { test } from "node:test";

import { LockCache, LockError, LockLost, type Code } from "../src/index.js";
import { drivers, type Driver, type Login } from "./support/drivers.js";
import { freePort, Server, until } from "./support/server.js";
import { fired, World } from "./support/world.js";

const SECRET = "a-token-that-nobody-may-see";

/** The test, once for each driver, on a server of its own kind. */
function each(
  name: string,
  start: () => Promise<Server>,
  run: (world: World, server: Server, driver: Driver) => Promise<void>,
  login: Partial<Login> = {},
): void {
  test(name, async (t) => {
    const server = await start();
    try {
      for (const driver of drivers) {
        await t.test(driver.name, async () => {
          const world = await World.open(server, driver, { replyMs: 2000, retryMs: 200 }, login);
          try {
            await run(world, server, driver);
          } finally {
            await world.close();
          }
        });
      }
    } finally {
      await server.stop();
    }
  });
}

/** Every way to a lock fails with this code and this advice, without a word of the token, and no work runs. */
async function refuses(world: World, code: Code, advice: RegExp): Promise<void> {
  const expected = (error: unknown) => {
    assert.ok(error instanceof LockError, String(error));
    assert.equal(error.code, code, error.message);
    assert.match(error.message, advice);
    assert.doesNotMatch(error.message + String(error.cause ?? ""), new RegExp(SECRET));
    return true;
  };
  const none = () => assert.fail("the work ran");
  const { locks } = world;
  await assert.rejects(locks.withLock("k", { ttlMs: 1000, token: SECRET }, none), expected);
  await assert.rejects(locks.withLock("k", { ttlMs: 1000, token: SECRET, waitMs: 100 }, none), expected);
  await assert.rejects(locks.withLock("k", { ttlMs: 1000, token: SECRET, steal: true }, none), expected);
  const cache = new LockCache(world.client.connection, { replyMs: 2000, retryMs: 100 });
  await assert.rejects(cache.claim("k", SECRET, 1), expected);
  assert.equal(locks.held.get("k", SECRET), undefined);
}

each("a server without the module", () => Server.start({ module: false }), async (world) => {
  await refuses(world, "NO_MODULE", /loadmodule .*replicas too/);
  await assert.rejects(world.locks.revokeOwn(), /loadmodule/);
});

test("a server that lost the module in a failover", async (t) => {
  for (const driver of drivers) {
    await t.test(driver.name, async () => {
      const port = await freePort();
      let server = await Server.start({ port });
      const world = await World.open(server, driver);
      try {
        await world.locks.withLock("k", { ttlMs: 3000 }, async (lock) => {
          await server.stop();
          server = await Server.start({ port, module: false });
          const reason = await fired(lock.signal);
          assert.ok(reason instanceof LockLost && reason.why === "deadline");
          assert.ok(!lock.held());
        });
        const codes = world.errors.map((error) => error instanceof LockError && error.code);
        assert.ok(codes.includes("NO_MODULE"), String(world.errors));
      } finally {
        await world.close();
        await server.stop();
      }
    });
  }
});

each("an older version of the module, which doesn't know an option", Server.start, async (world) => {
  // The client is connected, so that the answer meets the claim alone.
  await world.locks.commands.info("k");
  world.proxy.next("\r\nLINGER\r\n", { answer: "-ERR syntax error\r\n" }, 2);
  const { locks } = world;
  const old = (error: unknown) => error instanceof LockError && error.code === "OLD_MODULE" && /Upgrade/.test(error.message);
  const none = () => assert.fail("the work ran");
  await assert.rejects(locks.withLock("k", { ttlMs: 1000, lingerMs: 0 }, none), old);
  await assert.rejects(locks.withLock("k", { ttlMs: 1000, lingerMs: 0, waitMs: 1000 }, none), old);
  assert.equal(await locks.withLock("k", { ttlMs: 1000 }, () => "without the option"), "without the option");
});

test("a replica's address", async (t) => {
  const primary = await Server.start();
  const replica = await Server.start({ args: ["--replicaof", "127.0.0.1", String(primary.port)] });
  try {
    await until("the replica is in sync", async () => (await replica.info("replication", "master_link_status")) === "up");
    for (const driver of drivers) {
      await t.test(driver.name, async () => {
        const world = await World.open(replica, driver, { retryMs: 200 });
        try {
          await refuses(world, "REPLICA", /connect to it|Sentinel/);
        } finally {
          await world.close();
        }
      });
    }
  } finally {
    await replica.stop();
    await primary.stop();
  }
});

const withPassword = () => Server.start({ args: ["--requirepass", "right"] });
each("no password", withPassword, (world) => refuses(world, "PASSWORD", /user or password/));
each("a wrong password", withPassword, (world) => refuses(world, "PASSWORD", /user or password/), { password: "wrong" });
each(
  "a user who doesn't exist",
  withPassword,
  (world) => refuses(world, "PASSWORD", /user or password/),
  { username: "nobody", password: "right" },
);
each(
  "the right password",
  withPassword,
  async (world) => assert.equal(await world.locks.withLock("k", { ttlMs: 1000, waitMs: 100 }, () => "done"), "done"),
  { password: "right" },
);

/** A server with a user who has just these rights. */
const withUser = (rights: string) => async () => {
  const server = await Server.start();
  const reply = await server.raw(["ACL", "SETUSER", "worker", "on", ">secret", ...rights.split(" ")]);
  assert.match(reply, /^\+OK/);
  return server;
};
const worker = { username: "worker", password: "secret" };
// As the advice says.
const RIGHTS = "~k +prlock.claim +prlock.renew +prlock.release +prlock.revoke";

each(
  "the rights that the advice names are enough",
  withUser(RIGHTS),
  async (world) => {
    for (const options of [{ ttlMs: 1500 }, { ttlMs: 1500, waitMs: 100, lingerMs: 0 }]) {
      await world.locks.withLock("k", options, async (lock) => {
        const before = lock.signal.aborted;
        await new Promise((resolve) => setTimeout(resolve, 600));
        assert.deepEqual([before, lock.signal.aborted, lock.held()], [false, false, true]);
      });
    }
    assert.equal(await world.locks.revokeOwn(), 0);
    assert.deepEqual(world.errors, []);
  },
  worker,
);
each("no right to claim", withUser("~* +@all -prlock.claim"), (world) => refuses(world, "RIGHTS", /ACL SETUSER/), worker);
each("no right to the key", withUser("~other:* +@all"), (world) => refuses(world, "RIGHTS", /ACL SETUSER/), worker);
each(
  "no right to renew",
  withUser("~* +@all -prlock.renew"),
  async (world) => {
    await world.locks.withLock("k", { ttlMs: 1200 }, async (lock) => {
      const reason = await fired(lock.signal);
      assert.ok(reason instanceof LockLost && reason.why === "deadline");
    });
    assert.ok(world.errors.every((error) => error instanceof LockError && error.code === "RIGHTS"));
    assert.ok(world.errors.length > 0);
    // With LINGER a renewal is part of the claim.
    await assert.rejects(
      world.locks.withLock("k", { ttlMs: 300, lingerMs: 0 }, () => assert.fail("the work ran")),
      (error) => error instanceof LockError && error.code === "RIGHTS",
    );
    assert.equal(await world.keys(), 0);
  },
  worker,
);
each(
  "no right to release",
  withUser("~* +@all -prlock.release"),
  async (world) => {
    assert.equal(await world.locks.withLock("k", { ttlMs: 100 }, () => "done"), "done");
    assert.ok(world.errors[0] instanceof LockError && world.errors[0].code === "RIGHTS");
    await until("lapsed", async () => (await world.keys()) === 0);
  },
  worker,
);

each(
  "a server out of memory grants nothing, and what is held goes on",
  Server.start,
  async (world, server) => {
    await world.locks.withLock("held", { ttlMs: 10_000 }, async (lock) => {
      await server.raw(["CONFIG", "SET", "maxmemory", "1"]);
      await refuses(world, "MEMORY", /maxmemory/);
      assert.ok(lock.held());
    });
    assert.deepEqual(world.locks.held.all(), []);
    await server.raw(["CONFIG", "SET", "maxmemory", "0"]);
    assert.equal(await world.keys(), 0);
    assert.deepEqual(world.errors, []);
  },
);

each("a key that is no lock", Server.start, async (world, server) => {
  await server.raw(["LPUSH", "k", "1"]);
  await refuses(world, "TYPE", /another key/);
  await server.raw(["DEL", "k"]);
});

test("no server at all", async (t) => {
  const server = await Server.start();
  for (const driver of drivers) {
    await t.test(driver.name, async () => {
      const world = await World.open(server, driver, { replyMs: 300, retryMs: 200 });
      world.proxy.cut();
      try {
        await refuses(world, "CONNECTION", /is it running/);
      } finally {
        await world.close();
      }
    });
  }
  await server.stop();
});

each("a wait on a primary that becomes a replica ends with what is wrong", Server.start, async (world, server) => {
  await world.rival("k");
  const wait = world.locks.withLock("k", { ttlMs: 1000, waitMs: 1000 }, () => assert.fail("the work ran"));
  wait.catch(() => {});
  await until("it waits", async () => (await world.waiters()) === 1);
  await server.raw(["REPLICAOF", "127.0.0.1", "1"]);
  await assert.rejects(wait, (error) => error instanceof LockError && ["REPLICA", "SERVER"].includes(error.code));
  await server.raw(["REPLICAOF", "NO", "ONE"]);
  await server.raw(["FLUSHALL"]);
});
