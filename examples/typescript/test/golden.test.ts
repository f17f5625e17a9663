// The replies as each client library gives them, in RESP2 and RESP3 (CASES 59): a refusal is null, 1 and 0 are integers.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { toRecord } from "../src/connection.js";
import { Commands } from "../src/index.js";
import { drivers } from "./support/drivers.js";
import { Server } from "./support/server.js";

let server: Server;
before(async () => void (server = await Server.start()));
after(() => server.stop());

for (const driver of drivers) {
  test(`golden replies: ${driver.name}`, async () => {
    const client = driver.open({ port: server.port });
    try {
      await server.raw(["FLUSHALL"]);
      const send = (...args: string[]) => client.connection.send(args);
      const grant = (await send("PRLOCK.CLAIM", "k", "PX", "60000", "TOKEN", "a", "HOLDER", "w")) as unknown[];
      assert.equal(grant.length, 2);
      assert.equal(grant[0], "a");
      assert.equal(typeof grant[1], "number");
      assert.ok(Number.isSafeInteger(grant[1]));

      assert.equal(await send("PRLOCK.CLAIM", "k", "PX", "60000", "TOKEN", "b"), null);
      assert.equal(await send("PRLOCK.CLAIM", "k", "PX", "60000", "TOKEN", "b", "BLOCK", "1"), null);
      assert.equal(await send("PRLOCK.INFO", "free"), null);
      assert.equal(await send("PRLOCK.RENEW", "k", "a", "PX", "60000"), 1);
      assert.equal(await send("PRLOCK.RENEW", "k", "b", "PX", "60000"), 0);
      assert.equal(await send("PRLOCK.RELEASE", "k", "b"), 0);

      const fields = ["key", "holder", "fence", "ttl-ms", "held-ms", "idle-ms", "renewals", "linger-ms", "waiters"];
      const info = toRecord(await send("PRLOCK.INFO", "k"));
      assert.deepEqual(Object.keys(info), fields);
      assert.deepEqual([info["key"], info["holder"], info["fence"], info["renewals"]], ["k", "w", grant[1], 1]);
      assert.deepEqual([info["linger-ms"], info["waiters"]], [-1, 0]);
      const list = (await send("PRLOCK.LIST")) as unknown[];
      assert.equal(list.length, 1);
      assert.deepEqual(Object.keys(toRecord(list[0])), fields);
      assert.deepEqual(await send("PRLOCK.LIST", "MATCH", "none*"), []);

      assert.equal(await send("PRLOCK.REVOKE", "nobody"), 0);
      assert.equal(await send("PRLOCK.REVOKE", "w"), 1);
      assert.equal(await send("PRLOCK.RELEASE", "k", "a"), 0);
      await send("PRLOCK.CLAIM", "k", "PX", "60000", "TOKEN", "a");
      assert.equal(await send("PRLOCK.RELEASE", "k", "a"), 1);
    } finally {
      client.close();
    }
  });

  test(`typed commands: ${driver.name}`, async () => {
    const client = driver.open({ port: server.port });
    try {
      await server.raw(["FLUSHALL"]);
      const commands = new Commands(client.connection);
      const terms = { ttlMs: 60_000, token: "a", holder: "w", lingerMs: 5000 };
      const grant = await commands.claim("k", terms);
      assert.ok(grant);
      assert.deepEqual(await commands.claim("k", terms), grant);
      assert.equal(await commands.claim("k", { ttlMs: 1000, token: "b" }), null);
      assert.equal(await commands.claim("k", { ttlMs: 1000, token: "b", steal: { fence: 1 } }), null);
      const info = await commands.info("k");
      assert.equal(info?.holder, "w");
      assert.equal(info?.fence, grant.fence);
      assert.equal(info?.lingerMs, 5000);
      assert.equal(await commands.info("free"), null);
      assert.deepEqual((await commands.list({ match: "k*", holder: "w", count: 10 })).map((lock) => lock.key), ["k"]);
      assert.equal(await commands.renew("k", "a", 60_000, grant.fence), true);
      assert.equal(await commands.renew("k", "a", 60_000, grant.fence - 1), false);
      assert.equal(await commands.release("k", "a", grant.fence - 1), false);
      assert.ok(await commands.claim("k", { ttlMs: 1000, token: "b", steal: { fence: grant.fence } }));
      assert.ok(await commands.claim("k", { ttlMs: 1000, token: "c", steal: true }));
      assert.equal(await commands.release("k", "b"), false);
      assert.equal(await commands.release("k", "c"), true);
    } finally {
      client.close();
    }
  });
}
