// A lock that is held keeps no process alive: its timers don't count.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { test } from "node:test";

test("a process ends while its lock is held", async () => {
  const index = new URL("../src/index.js", import.meta.url).href;
  // A connection that grants, without a socket that would keep the process alive.
  const script = `
    import { Locks } from ${JSON.stringify(index)};
    const connection = { send: async (args) => ["t", 1], open() {}, close() {}, usable: () => true, trouble() {} };
    const locks = new Locks(connection, { holder: "w" });
    void locks.withLock("k", { ttlMs: 3600_000 }, () => new Promise(() => console.log("working")));
  `;
  const child = spawn(process.execPath, ["--input-type=module", "-e", script], { stdio: ["ignore", "pipe", "inherit"] });
  let out = "";
  child.stdout.on("data", (data) => (out += data));
  const timer = setTimeout(() => child.kill("SIGKILL"), 10_000);
  const code = await new Promise((resolve) => child.once("exit", (code, signal) => resolve(signal ?? code)));
  clearTimeout(timer);
  // 13: Node's own code for a promise that nothing will settle any more; 0 without a top-level await.
  assert.ok(code === 0 || code === 13, String(code));
  assert.equal(out, "working\n");
});
