// withLock on a real server, with every client library and protocol.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { LockBusy, LockError, LockLost, Locks, type Connection } from "../src/index.js";
import { drivers, type Driver } from "./support/drivers.js";
import { Server, until } from "./support/server.js";
import { fired, sleep, stall, World } from "./support/world.js";

let server: Server;
before(async () => void (server = await Server.start()));
after(() => server.stop());

/** The test, once for each driver, on an empty database. */
function each(name: string, run: (world: World, driver: Driver) => Promise<void>, those = drivers): void {
  for (const driver of those) {
    test(`${name}: ${driver.name}`, async () => {
      await server.raw(["FLUSHALL"]);
      const world = await World.open(server, driver);
      try {
        await run(world, driver);
      } finally {
        await world.close();
      }
    });
  }
}

each("the work runs under the lock, which is free afterwards", async (world) => {
  const result = await world.locks.withLock("k", { ttlMs: 60_000 }, async (lock) => {
    assert.equal(await world.rival("k"), false);
    assert.equal(world.locks.held.get("k", lock.token), lock);
    const info = await world.locks.commands.info("k");
    assert.equal(info?.fence, lock.fence);
    assert.equal(info?.holder, "worker-1");
    assert.ok(lock.held());
    lock.check();
    return 42;
  });
  assert.equal(result, 42);
  assert.equal(await world.keys(), 0);
  assert.deepEqual(world.locks.held.all(), []);
});

each("the work's own error reaches the caller, and the lock is free", async (world) => {
  const work = world.locks.withLock("k", { ttlMs: 60_000 }, () => Promise.reject(new Error("the work's own")));
  await assert.rejects(work, /the work's own/);
  assert.equal(await world.keys(), 0);
});

each("a lock of another is refused, and the work doesn't run", async (world) => {
  await world.rival("k");
  const none = world.locks.withLock("k", { ttlMs: 1000 }, () => assert.fail("ran"));
  await assert.rejects(none, (error) => error instanceof LockBusy && error.key === "k");
  const waited = world.locks.withLock("k", { ttlMs: 1000, waitMs: 30 }, () => assert.fail("ran"));
  await assert.rejects(waited, LockBusy);
  assert.equal(await world.waiters(), 0);
});

each("a wait ends with the grant, in order, and holds up nothing else meanwhile", async (world) => {
  await world.rival("k");
  const order: number[] = [];
  const waits: Promise<unknown>[] = [];
  for (const number of [1, 2, 3]) {
    waits.push(world.locks.withLock("k", { ttlMs: 60_000, waitMs: 20_000 }, () => order.push(number)));
    await until("it waits", async () => (await world.waiters()) === number);
  }
  // On the client's own connection, beside the waits.
  assert.equal((await world.locks.commands.info("k"))?.waiters, 3);
  await world.locks.withLock("other", { ttlMs: 1000 }, () => {});
  await server.raw(["PRLOCK.RELEASE", "k", "rival"]);
  await Promise.all(waits);
  assert.deepEqual(order, [1, 2, 3]);
  assert.equal(await world.keys(), 0);
});

each("a wait without limit", async (world) => {
  await world.rival("k");
  const wait = world.locks.withLock("k", { ttlMs: 60_000, waitMs: Infinity }, () => "got it");
  await until("it waits", async () => (await world.waiters()) === 1);
  await server.raw(["DEL", "k"]);
  assert.equal(await wait, "got it");
});

each("renewals carry the lock over many lifetimes", async (world) => {
  await world.locks.withLock("k", { ttlMs: 900 }, async (lock) => {
    await until("three renewals", async () => ((await world.locks.commands.info("k"))?.renewals ?? 0) >= 3);
    const info = await world.locks.commands.info("k");
    assert.ok((info?.heldMs ?? 0) >= 600, "a third of the lifetime lies between renewals");
    assert.equal(info?.fence, lock.fence);
    assert.equal(lock.signal.aborted, false);
    assert.equal(await world.rival("k"), false);
  });
});

each("a stolen lock fires the signal, and the thief keeps it", async (world) => {
  const result = await world.locks.withLock("k", { ttlMs: 1500 }, async (lock) => {
    assert.ok(await world.rival("k", "STEAL"));
    const reason = await fired(lock.signal);
    assert.ok(reason instanceof LockLost);
    assert.equal(reason.why, "taken");
    assert.equal(lock.held(), false);
    assert.throws(() => lock.check(), LockLost);
    return "the work's own result";
  });
  assert.equal(result, "the work's own result");
  assert.equal(await server.number("PRLOCK.RELEASE", "k", "rival"), 1);
});

each("steal and stealIf; in one process the old holder's end leaves the new one's entry", async (world) => {
  await world.locks.withLock("k", { ttlMs: 1500 }, async (first) => {
    const wrong = world.locks.withLock("k", { ttlMs: 300, steal: { fence: first.fence - 1 } }, () => {});
    await assert.rejects(wrong, LockBusy);
    let finish = () => {};
    const second = world.locks.withLock("k", { ttlMs: 60_000, steal: { fence: first.fence } }, async (lock) => {
      assert.ok(lock.fence > first.fence);
      await new Promise<void>((resolve) => (finish = resolve));
      assert.equal(world.locks.held.get("k", lock.token), lock);
      assert.equal(world.locks.held.all().length, 1);
      assert.equal((await world.locks.commands.info("k"))?.fence, lock.fence);
    });
    await fired(first.signal);
    assert.equal(world.locks.held.all().length, 2);
    // The first ends now, and the second goes on.
    setTimeout(() => finish(), 50);
    second.catch(() => {});
    return { second };
  }).then(({ second }) => second);
  await world.rival("k");
  await world.locks.withLock("k", { ttlMs: 300, steal: true }, () => {});
});

each("a connection that breaks for less than the lifetime loses nothing", async (world) => {
  await world.locks.withLock("k", { ttlMs: 3000 }, async (lock) => {
    const before = (await world.locks.commands.info("k"))?.renewals ?? 0;
    world.proxy.cut();
    await sleep(1200);
    world.proxy.mend();
    await until("renewed", async () => ((await world.locks.commands.info("k").catch(() => null))?.renewals ?? 0) > before);
    assert.equal(lock.signal.aborted, false);
    assert.ok(lock.held());
  });
  assert.equal(await world.keys(), 0);
});

each("a connection that breaks for a lifetime fires the signal, then and not before", async (world) => {
  const began = performance.now();
  const result = await world.locks.withLock("k", { ttlMs: 500 }, async (lock) => {
    world.proxy.cut();
    const reason = await fired(lock.signal);
    assert.ok(reason instanceof LockLost);
    assert.equal(reason.why, "deadline");
    assert.ok(performance.now() - began >= 500);
    world.proxy.mend();
    return "the work's own result";
  });
  assert.equal(result, "the work's own result");
  assert.deepEqual(world.locks.held.all(), []);
});

each("a process that was stopped for a lifetime knows at once that it holds nothing", async (world) => {
  await world.locks.withLock("k", { ttlMs: 200 }, async (lock) => {
    stall(250);
    assert.equal(lock.held(), false);
    assert.throws(() => lock.check(), (error) => error instanceof LockLost && error.why === "deadline");
    assert.ok(lock.signal.aborted);
  });
  await world.locks.withLock("k", { ttlMs: 200 }, async (lock) => {
    stall(250);
    await fired(lock.signal);
  });
});

each("a renewal whose answer lay unread while the process was stopped counts", async (world, driver) => {
  let stalls = 1;
  // Past the proxy, which is in this process and so would stop with it.
  const direct = driver.open({ port: server.port });
  const connection: Connection = {
    ...direct.connection,
    send(args) {
      const reply = direct.connection.send(args);
      // Once the renewal is on its way, and until after the deadline that it moves.
      if (args[0] === "PRLOCK.RENEW" && stalls-- > 0) setImmediate(() => setImmediate(() => stall(2200)));
      return reply;
    },
  };
  const locks = new Locks(connection, { holder: "worker-1" });
  try {
    await locks.withLock("k", { ttlMs: 3000 }, async (lock) => {
      const renewals = async () => Number((await world.locks.commands.info("k"))?.renewals);
      await until("stalled and renewed", async () => (await renewals()) >= 2);
      assert.equal(lock.signal.aborted, false);
    });
  } finally {
    direct.close();
  }
}, drivers.filter(({ name }) => /^(ioredis|node-redis) 6.*RESP3/.test(name)));

each("a wait that its caller ends leaves nothing behind", async (world) => {
  await world.rival("k");
  const abort = new AbortController();
  const options = { ttlMs: 60_000, waitMs: 20_000, signal: abort.signal };
  const wait = world.locks.withLock("k", options, () => assert.fail("ran"));
  await until("it waits", async () => (await world.waiters()) === 1);
  abort.abort(new Error("enough"));
  await assert.rejects(wait, /enough/);
  await until("it left", async () => (await world.waiters()) === 0);
  await server.raw(["PRLOCK.RELEASE", "k", "rival"]);
  assert.equal(await world.keys(), 0);
  await assert.rejects(world.locks.withLock("k", options, () => assert.fail("ran")), /enough/);
});

each("a claim that its caller ends at any moment leaves nothing behind", async (world) => {
  for (let round = 0; round < 40; round++) {
    const abort = new AbortController();
    const waitMs = round % 2 === 0 ? 0 : 20_000;
    if (round % 4 > 1) await world.rival("k");
    const claim = world.locks.withLock("k", { ttlMs: 60_000, waitMs, signal: abort.signal }, () => sleep(1));
    const ended = claim.catch((error: unknown) => error);
    // From the same turn to a few turns later: before it is written, on its way, and after its answer.
    for (let turn = 0; turn < round / 2; turn++) await new Promise((resolve) => setImmediate(resolve));
    if (round % 4 > 1 && round % 8 > 5) await server.raw(["PRLOCK.RELEASE", "k", "rival"]);
    abort.abort(new Error("enough"));
    await ended;
    await server.raw(["PRLOCK.RELEASE", "k", "rival"]);
    await until("nothing is left", async () => (await world.keys()) === 0 && (await world.waiters()) === 0);
  }
});

for (const fate of ["lost", "unanswered"] as const) {
  each(`a claim that is ${fate} is sent again with its token, and granted once`, async (world) => {
    world.proxy.next("PRLOCK.CLAIM", fate, 2);
    await world.locks.withLock("k", { ttlMs: 60_000 }, () => {});
    assert.equal(world.proxy.struck.length, 2);
    assert.equal(await world.keys(), 0);
    world.proxy.next("PRLOCK.CLAIM", fate, 2);
    await world.locks.withLock("k", { ttlMs: 60_000, waitMs: 5000 }, () => {});
    assert.equal(world.proxy.struck.length, 4);
    assert.equal(await world.keys(), 0);
  });

  each(`a renewal that is ${fate} is no loss`, async (world) => {
    await world.locks.withLock("k", { ttlMs: 1500 }, async (lock) => {
      world.proxy.next("PRLOCK.RENEW", fate);
      await until("struck", () => world.proxy.struck.length === 1);
      const before = (await world.locks.commands.info("k").catch(() => null))?.renewals ?? 0;
      await until("renewed again", async () => ((await world.locks.commands.info("k"))?.renewals ?? 0) > before);
      assert.equal(lock.signal.aborted, false);
    });
    assert.equal(await world.keys(), 0);
  });

  each(`a release that is ${fate} doesn't hide the work's result`, async (world) => {
    world.proxy.next("PRLOCK.RELEASE", fate);
    assert.equal(await world.locks.withLock("k", { ttlMs: 500 }, () => "done"), "done");
    assert.equal(world.proxy.struck.length, 1);
    assert.deepEqual(world.locks.held.all(), []);
    await until("free", async () => (await world.keys()) === 0);
  });
}

each("a wait whose connection breaks is taken up again", async (world) => {
  await world.rival("k");
  const wait = world.locks.withLock("k", { ttlMs: 60_000, waitMs: 20_000 }, () => "got it");
  await until("it waits", async () => (await world.waiters()) === 1);
  world.proxy.cut();
  await until("it left", async () => (await world.waiters()) === 0);
  world.proxy.mend();
  await until("it waits again", async () => (await world.waiters()) === 1);
  await server.raw(["PRLOCK.RELEASE", "k", "rival"]);
  assert.equal(await wait, "got it");
  assert.equal(await world.keys(), 0);
});

for (const driver of drivers) {
  test(`a server that falls silent is no lock, and is given up: ${driver.name}`, async () => {
    await server.raw(["FLUSHALL"]);
    const world = await World.open(server, driver, { replyMs: 200, retryMs: 300 });
    try {
      world.proxy.next("PRLOCK.CLAIM", "silence", 100);
      for (const waitMs of [0, 50]) {
        const none = world.locks.withLock("k", { ttlMs: 60_000, waitMs }, () => assert.fail("ran"));
        await assert.rejects(none, (error) => error instanceof LockError && error.code === "CONNECTION");
      }
      assert.deepEqual(world.locks.held.all(), []);
    } finally {
      await world.close();
    }
  });
}

for (const driver of drivers) {
  test(`a wait that the network kept, and that was sent again, frees nothing when it arrives: ${driver.name}`, async () => {
    await server.raw(["FLUSHALL"]);
    const world = await World.open(server, driver, { replyMs: 200, retryMs: 5000 });
    try {
      // Opens the connections.
      await world.locks.withLock("k", { ttlMs: 60_000, waitMs: 50 }, () => {});
      world.proxy.next("PRLOCK.CLAIM", "kept");
      await world.locks.withLock("k", { ttlMs: 60_000, waitMs: 50 }, async (lock) => {
        const arrived = await world.proxy.deliver();
        assert.match(arrived, /PRLOCK\.CLAIM/);
        assert.doesNotMatch(arrived, /PRLOCK\.RELEASE/);
        assert.equal((await world.locks.commands.info("k"))?.fence, lock.fence);
        assert.equal(await world.rival("k"), false);
        assert.ok(lock.held() && !lock.signal.aborted);
      });
      assert.equal(await world.keys(), 0);
    } finally {
      await world.close();
    }
  });
}

each("a wait that was given up leaves no lock behind, even if the network kept it meanwhile", async (world) => {
  world.proxy.next("PRLOCK.CLAIM", "kept");
  const caller = new AbortController();
  const work = () => assert.fail("ran");
  const wait = world.locks.withLock("k", { ttlMs: 60_000, waitMs: 20_000, signal: caller.signal }, work);
  await until("the network has it", () => world.proxy.struck.length === 1);
  caller.abort(new Error("enough"));
  await assert.rejects(wait, /enough/);
  await until("a release follows it", () => world.proxy.keeps(/PRLOCK\.CLAIM.*PRLOCK\.RELEASE/s));
  await world.proxy.deliver();
  assert.equal(await world.keys(), 0);
});

each("LINGER: the wait's connection may go, the client's own counts", async (world, driver) => {
  await world.rival("k");
  const wait = world.locks.withLock("k", { ttlMs: 60_000, waitMs: 20_000, lingerMs: 0 }, async (lock) => {
    // Closes the connection on which the claim waited.
    await world.locks.shutdown(0);
    return lock;
  });
  await until("it waits", async () => (await world.waiters()) === 1);
  await server.raw(["PRLOCK.RELEASE", "k", "rival"]);
  await wait;

  const other = await World.open(server, driver, { holder: "worker-2" });
  try {
    await world.rival("l");
    let closed: () => void = () => {};
    const run = other.locks.withLock("l", { ttlMs: 60_000, waitMs: 20_000, lingerMs: 0 }, async () => {
      (other.locks as unknown as { waiting: { close(): void } }).waiting.close();
      await sleep(50);
      assert.equal((await world.server.info("prlock", "prlock_held")), "1", "the wait's connection is gone, the lock is not");
      other.client.close();
      await until("free", async () => (await world.keys()) === 0);
      closed();
    });
    await until("it waits", async () => (await world.waiters()) === 1);
    await server.raw(["PRLOCK.RELEASE", "l", "rival"]);
    await run;
  } finally {
    await other.close();
  }
});

each("shutdown drains first, then releases what is left, and starts nothing new", async (world) => {
  let finish: () => void = () => {};
  const long = new Promise<void>((resolve) => (finish = resolve));
  let stuckLock: { signal: AbortSignal } | undefined;
  const quick = world.locks.withLock("quick", { ttlMs: 60_000 }, () => sleep(100).then(() => "quick"));
  const stuck = world.locks.withLock("stuck", { ttlMs: 60_000 }, (lock) => ((stuckLock = lock), long));
  await world.rival("busy");
  const waits = world.locks.withLock("busy", { ttlMs: 60_000, waitMs: 20_000 }, () => assert.fail("ran"));
  waits.catch(() => {});
  await until("all there", async () => (await world.waiters()) === 1 && world.locks.held.all().length === 2);
  await server.raw(["PRLOCK.CLAIM", "sibling", "PX", "60000", "HOLDER", "worker-1"]);

  const left = await world.locks.shutdown(500);
  assert.deepEqual(left, ["stuck"]);
  assert.equal(await quick, "quick");
  assert.ok(stuckLock?.signal.aborted);
  assert.ok(stuckLock.signal.reason instanceof LockLost && stuckLock.signal.reason.why === "shutdown");
  const closing = (error: unknown) => error instanceof LockError && error.code === "SHUTDOWN";
  await assert.rejects(waits, closing);
  await assert.rejects(world.locks.withLock("k", { ttlMs: 1000 }, () => {}), closing);
  await until("no waiter", async () => (await world.waiters()) === 0);
  assert.equal(await server.number("EXISTS", "quick", "stuck", "k"), 0);
  assert.equal(await server.number("EXISTS", "busy", "sibling"), 2);
  finish();
  await stuck;
});

each("at the start an earlier life's locks are revoked, and no sibling's", async (world) => {
  for (const key of ["a", "b"]) await server.raw(["PRLOCK.CLAIM", key, "PX", "60000", "HOLDER", "worker-1"]);
  await server.raw(["PRLOCK.CLAIM", "c", "PX", "60000", "HOLDER", "worker-10"]);
  assert.equal(await world.locks.revokeOwn(), 2);
  assert.equal(await world.keys(), 1);
});
