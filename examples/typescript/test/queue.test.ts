// Jobs whose lock is taken: back to the queue without using up attempts, bounded by age; or waiting in the server.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { Queue, Worker, type Job } from "bullmq";
import { Redis } from "ioredis";

import { fromIoredis, Locks } from "../src/index.js";
import { locked, type Contended, type LockedOptions } from "../src/queue/locked.js";
import { Server, until } from "./support/server.js";

interface Data extends Contended {
  key: string;
}

let server: Server;
let redis: Redis;
before(async () => {
  server = await Server.start();
  redis = new Redis(server.port, "127.0.0.1", { maxRetriesPerRequest: null });
});
after(async () => {
  redis.disconnect();
  await server.stop();
});

/** One job with two attempts for the lock `k`, and a worker for it. */
async function withJob(
  name: string,
  options: Partial<LockedOptions<Data>>,
  work: (job: Job<Data, string>) => Promise<string>,
  run: (state: () => Promise<Job<Data, string>>) => Promise<void>,
  connection = redis,
): Promise<void> {
  const locks = new Locks(fromIoredis(connection), { holder: "worker" });
  const queue = new Queue<Data, string>(name, { connection });
  const all = { key: (data: Data) => data.key, ttlMs: 10_000, delayMs: 20, maxAgeMs: 30_000, ...options };
  const worker = new Worker<Data, string>(name, locked(locks, all, work), { connection });
  try {
    const job = await queue.add("job", { key: "k" }, { attempts: 2 });
    await run(async () => (await queue.getJob(job.id as string)) as Job<Data, string>);
  } finally {
    await worker.close();
    await queue.close();
    await locks.shutdown(1000);
  }
}

const rival = () => server.raw(["PRLOCK.CLAIM", "k", "PX", "60000", "TOKEN", "rival"]);
const release = () => server.number("PRLOCK.RELEASE", "k", "rival");

test("a contended job goes back, often, and uses up no attempt", async () => {
  await rival();
  await withJob("back", {}, async () => "done", async (state) => {
    await until("put back", async () => ((await state()).data.contended ?? 0) >= 4);
    assert.equal((await state()).attemptsMade, 0);
    assert.equal(await release(), 1);
    await until("done", async () => (await (await state()).getState()) === "completed");
    const job = await state();
    assert.equal(job.returnvalue, "done");
    assert.equal(job.attemptsMade, 1, "its one real attempt");
  });
});

test("a contended job that is too old fails, and says why", async () => {
  await rival();
  await withJob("age", { maxAgeMs: 1500 }, async () => assert.fail("ran"), async (state) => {
    await until("failed", async () => (await (await state()).getState()) === "failed");
    const job = await state();
    assert.match(job.failedReason ?? "", /its lock was taken each of \d+ times/);
    assert.ok((job.data.contended ?? 0) >= 2);
    assert.equal(await release(), 1, "the rival's lock is untouched");
  });
});

test("a job that waits in the server runs when the lock is free, without going back", async () => {
  await rival();
  await withJob("block", { waitMs: 20_000 }, async () => "done", async (state) => {
    await until("it waits", async () => (await server.info("prlock", "prlock_waiters")) === "1");
    assert.equal(await release(), 1);
    await until("done", async () => (await (await state()).getState()) === "completed");
    assert.equal((await state()).data.contended, undefined);
  });
});

test("a wait that is over goes back like any contended job", async () => {
  await rival();
  await withJob("both", { waitMs: 50 }, async () => "done", async (state) => {
    await until("put back", async () => ((await state()).data.contended ?? 0) >= 2);
    assert.equal(await release(), 1);
    await until("done", async () => (await (await state()).getState()) === "completed");
  });
});

test("the work's own failure uses up attempts as ever", async () => {
  await withJob("fails", {}, () => Promise.reject(new Error("the work's own")), async (state) => {
    await until("failed", async () => (await (await state()).getState()) === "failed");
    assert.equal((await state()).attemptsMade, 2);
    assert.equal((await state()).data.contended, undefined);
    assert.equal(await server.number("EXISTS", "k"), 0);
  });
});

test("a job whose lock can't be had for another reason fails with what is wrong and what to do", async () => {
  const bare = await Server.start({ module: false });
  const client = new Redis(bare.port, "127.0.0.1", { maxRetriesPerRequest: null });
  try {
    await withJob("bare", {}, async () => assert.fail("ran"), async (state) => {
      await until("failed", async () => (await (await state()).getState()) === "failed");
      const job = await state();
      assert.match(job.failedReason ?? "", /no PRLOCK module.*loadmodule/);
      assert.equal(job.data.contended, undefined, "it was not contended");
      assert.equal(job.attemptsMade, 2);
    }, client);
  } finally {
    client.disconnect();
    await bare.stop();
  }
});
