// What the README tells a reader to run, run as told, in a copy of the folder without what was built or installed.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";
import { test } from "node:test";

import { Server } from "./support/server.js";

const FOLDER = resolve(import.meta.dirname, "../..");

function run(command: string, cwd: string, env: Record<string, string>): Promise<{ code: number | null; out: string }> {
  return new Promise((resolve) => {
    const inherited = { ...process.env };
    // It would make the test runner below report to this one.
    delete inherited["NODE_TEST_CONTEXT"];
    const child = spawn("bash", ["-c", command], { cwd, env: { ...inherited, ...env }, stdio: ["ignore", "pipe", "pipe"] });
    const timer = setTimeout(() => child.kill("SIGKILL"), 120_000);
    let out = "";
    child.stdout.on("data", (data) => (out += data));
    child.stderr.on("data", (data) => (out += data));
    child.once("close", (code) => {
      clearTimeout(timer);
      resolve({ code, out });
    });
  });
}

test("the README's commands", async () => {
  const readme = readFileSync(join(FOLDER, "README.md"), "utf8");
  const commands = [...readme.matchAll(/^```sh\n(.*?)^```/gms)].flatMap(([, block]) => (block as string).trim().split("\n"));
  // The tests themselves, which are running: the README's line must be what runs them.
  assert.equal(commands.pop(), "npm test");
  assert.ok(commands.length >= 5);

  const server = await Server.start();
  const copy = mkdtempSync(join(tmpdir(), "prlock-readme-"));
  const built = new Set(["node_modules", "dist"]);
  cpSync(FOLDER, copy, { recursive: true, filter: (path) => !built.has(basename(path)) });
  try {
    for (const command of commands) {
      const { code, out } = await run(command, copy, { REDIS_URL: server.url });
      assert.equal(code, 0, `${command}\n${out}`);
      if (command.includes("demo")) assert.match(out, /^(first|second) is done.*still its own$[^]*(first|second) holds[^]*is done.*still its own$/m);
      if (command.includes("queue")) {
        assert.match(out, /going back to the queue: 12 jobs done, put back [1-9]\d* times/);
        assert.match(out, /waiting in the server: 12 jobs done, put back 0 times/);
      }
    }
    assert.equal(await server.number("EXISTS", "demo:report"), 0);
  } finally {
    await server.stop();
    rmSync(copy, { recursive: true, force: true });
  }
});

test("the demos say what is wrong, and what to do, in one line", async () => {
  const bare = await Server.start({ module: false });
  const bareUrl = bare.url;
  const demos = [
    { script: "demo.js", CLIENT: "ioredis" },
    { script: "demo.js", CLIENT: "redis" },
    { script: "queue/demo.js", CLIENT: "" },
  ];
  const refused = async ({ script, CLIENT }: (typeof demos)[number], advice: RegExp) => {
    const { code, out } = await run(`node dist/src/${script}`, FOLDER, { REDIS_URL: bareUrl, CLIENT });
    assert.equal(code, 1, out);
    assert.match(out, advice);
    assert.doesNotMatch(out, /holds the lock|jobs done|\n +at /);
  };
  for (const demo of demos) await refused(demo, /^PRLOCK.*no PRLOCK module.*loadmodule.*\n$/);
  await bare.stop();
  for (const demo of demos) await refused(demo, /^PRLOCK.*is it running.*\n$/);
});

// What each of the README's blocks takes for granted.
const AROUND = [
  `const load = async (invoice: number, _: { signal: AbortSignal }) => "invoice " + invoice;
  const store = async (invoice: string, { fence }: { fence: number }) => console.log("stored", invoice, fence > 0);`,
  "",
  `import { Redis } from "ioredis";
  import { fromIoredis, LockCache } from "./index.js";
  const [redis, token] = [new Redis(), "a-token"];`,
];
const BEHIND = ['console.log("ready");', "", 'console.log("done"); redis.disconnect();'];

test("the README's TypeScript compiles and does what it says", async () => {
  const readme = readFileSync(join(FOLDER, "README.md"), "utf8");
  const blocks = [...readme.matchAll(/^```ts\n(.*?)^```/gms)].map(([, block]) => block as string);
  assert.equal(blocks.length, AROUND.length);
  const server = await Server.start();
  // Here, where the client libraries are found.
  const copy = mkdtempSync(join(FOLDER, "dist", "readme-"));
  try {
    for (const [i, block] of blocks.entries()) {
      const code = [AROUND[i], block, BEHIND[i], "export {};"].join("\n");
      const here = code.replaceAll('"./index.js"', '"../../src/index.js"');
      writeFileSync(join(copy, `${i}.ts`), here.replaceAll("new Redis()", `new Redis(${server.port})`));
    }
    const compilerOptions = { rootDir: "../..", outDir: "out", noUnusedLocals: false, declaration: false };
    const config = { extends: "../../tsconfig.json", compilerOptions, include: ["*.ts"] };
    writeFileSync(join(copy, "tsconfig.json"), JSON.stringify(config));
    const built = await run("../../node_modules/.bin/tsc", copy, {});
    assert.equal(built.code, 0, built.out);

    // The end that a worker waits for; then its host ends it.
    const script = (i: number) => join(copy, "out", "dist", basename(copy), `${i}.js`);
    const worker = spawn(process.execPath, [script(0)], { stdio: ["ignore", "pipe", "inherit"] });
    const timer = setTimeout(() => worker.kill("SIGKILL"), 20_000);
    let out = "";
    worker.stdout.on("data", (data) => {
      out += data;
      if (out.endsWith("ready\n")) worker.kill("SIGTERM");
    });
    const code = await new Promise((resolve) => worker.once("close", (code, signal) => resolve(signal ?? code)));
    clearTimeout(timer);
    assert.deepEqual([code, out], [0, "stored invoice 17 true\nready\n"]);

    const cached = await run(`${process.execPath} ${script(2)}`, copy, {});
    assert.deepEqual(cached, { code: 0, out: "done\n" });
    assert.equal(await server.number("DBSIZE"), 0);
  } finally {
    await server.stop();
    rmSync(copy, { recursive: true, force: true });
  }
});
