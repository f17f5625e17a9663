// The three calls with booleans: their meaning, and that trouble is a throw.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { LockCache } from "../src/index.js";
import { drivers } from "./support/drivers.js";
import { Server, until } from "./support/server.js";
import { World } from "./support/world.js";

let server: Server;
before(async () => void (server = await Server.start()));
after(() => server.stop());

for (const driver of drivers) {
  test(`claim, renewIfValue and releaseIfValue: ${driver.name}`, async () => {
    await server.raw(["FLUSHALL"]);
    const world = await World.open(server, driver);
    const cache = new LockCache(world.client.connection, { holder: "w" });
    try {
      assert.equal(await cache.claim("k", "a", 60), true);
      assert.equal(await cache.claim("k", "a", 60), true, "a retry is not refused by its own lock");
      assert.equal(await cache.claim("k", "b", 60), false);
      assert.equal(await cache.renewIfValue("k", "b", 60), false);
      assert.equal(await cache.renewIfValue("k", "a", 600), true);
      const ttlMs = await server.number("PTTL", "k");
      assert.ok(ttlMs > 590_000 && ttlMs <= 600_000);
      assert.equal(await cache.releaseIfValue("k", "b"), false);
      assert.equal(await cache.releaseIfValue("k", "a"), true);
      assert.equal(await cache.releaseIfValue("k", "a"), false);
      assert.equal(await cache.renewIfValue("k", "a", 60), false, "a renewal re-creates nothing");

      // A lock that an older worker made by SET NX.
      await server.raw(["SET", "old", "a", "PX", "60000"]);
      assert.equal(await cache.claim("old", "b", 60), false);
      assert.equal(await cache.renewIfValue("old", "a", 60), true);
      assert.equal(await cache.releaseIfValue("old", "a"), true);
    } finally {
      await world.close();
    }
  });

  test(`lost replies and lost servers: ${driver.name}`, async () => {
    await server.raw(["FLUSHALL"]);
    const world = await World.open(server, driver);
    const cache = new LockCache(world.client.connection, { replyMs: 300, retryMs: 1000 });
    try {
      world.proxy.next("PRLOCK.CLAIM", "unanswered");
      assert.equal(await cache.claim("k", "a", 60), true);
      world.proxy.next("PRLOCK.RENEW", "unanswered");
      assert.equal(await cache.renewIfValue("k", "a", 60), true);
      assert.equal(await cache.releaseIfValue("k", "a"), true);

      world.proxy.cut();
      const failOpen = cache.claim("k", "a", 60).catch(() => "open");
      assert.equal(await failOpen, "open");
      await assert.rejects(cache.renewIfValue("k", "a", 60));
      await assert.rejects(cache.releaseIfValue("k", "a"));
      world.proxy.mend();
      // The client may still deliver the claim; a release behind it frees it.
      await until("connected", async () => (await world.client.connection.send(["PING"]).catch(() => "")) === "PONG");
      await until("nothing is left", async () => (await world.keys()) === 0);
    } finally {
      await world.close();
    }
  });
}
