// A lock keeps no process alive: neither the timers of one that is held, nor the connection on which one was waited for.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { test } from "node:test";

import { drivers } from "./support/drivers.js";
import { Server } from "./support/server.js";

const index = new URL("../src/index.js", import.meta.url).href;

/** Runs a script to its end, and gives how that was and what it printed. */
async function ended(script: string): Promise<[unknown, string]> {
  const child = spawn(process.execPath, ["--input-type=module", "-e", script], { stdio: ["ignore", "pipe", "inherit"] });
  let out = "";
  child.stdout.on("data", (data) => (out += data));
  const timer = setTimeout(() => child.kill("SIGKILL"), 10_000);
  const code = await new Promise((resolve) => child.once("exit", (code, signal) => resolve(signal ?? code)));
  clearTimeout(timer);
  return [code, out];
}

test("a process ends while its lock is held", async () => {
  // A connection that grants, without a socket that would keep the process alive.
  const script = `
    import { Locks } from ${JSON.stringify(index)};
    const connection = { send: async (args) => ["t", 1], open() {}, close() {}, usable: () => true, trouble() {} };
    const locks = new Locks(connection, { holder: "w" });
    void locks.withLock("k", { ttlMs: 3600_000 }, () => new Promise(() => console.log("working")));
  `;
  const [code, out] = await ended(script);
  // 13: Node's own code for a promise that nothing will settle any more; 0 without a top-level await.
  assert.ok(code === 0 || code === 13, String(code));
  assert.equal(out, "working\n");
});

test("a process ends soon after its client is closed, also when it has waited for a lock", async (t) => {
  const server = await Server.start();
  try {
    for (const { name } of drivers) {
      await t.test(name, async () => {
        const script = `
          import { Locks } from ${JSON.stringify(index)};
          import { drivers } from ${JSON.stringify(new URL("support/drivers.js", import.meta.url).href)};
          const driver = drivers.find(({ name }) => name === ${JSON.stringify(name)});
          const client = driver.open({ port: ${server.port} });
          const locks = new Locks(client.connection, { holder: "w" });
          await locks.withLock("k", { ttlMs: 60_000, waitMs: 1000 }, () => console.log("held"));
          client.close();
        `;
        assert.deepEqual(await ended(script), [0, "held\n"]);
      });
    }
  } finally {
    await server.stop();
  }
});
