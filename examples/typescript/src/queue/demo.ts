// Twelve jobs for three keys, and a worker with four places. Once with jobs that go back to the queue while their lock is
// taken, once with jobs that wait for it in the server.

import { Queue, Worker } from "bullmq";
import { Redis } from "ioredis";

import { fromIoredis, LockError, Locks } from "../index.js";
import { locked, type Contended } from "./locked.js";

interface Data extends Contended {
  key: string;
}

const url = process.env["REDIS_URL"] ?? "redis://127.0.0.1:6379";
const redis = new Redis(url, { maxRetriesPerRequest: null });
const locks = new Locks(fromIoredis(redis), { holder: "queue-demo" });

async function main(): Promise<void> {
  await locks.revokeOwn();

  for (const waitMs of [0, 5000]) {
    const name = `prlock-demo-${waitMs === 0 ? "delay" : "block"}`;
    const queue = new Queue<Data>(name, { connection: redis });
    await queue.obliterate({ force: true });
    const options = { key: (data: Data) => `demo:${data.key}`, ttlMs: 10_000, waitMs, delayMs: 100, maxAgeMs: 30_000 };
    const work = () => new Promise<void>((resolve) => setTimeout(resolve, 50));
    const worker = new Worker<Data, void>(name, locked(locks, options, work), { connection: redis, concurrency: 4 });

    let done = 0;
    let contended = 0;
    const all = new Promise<void>((resolve, reject) => {
      worker.on("completed", (job) => {
        contended += job.data.contended ?? 0;
        if (++done === 12) resolve();
      });
      worker.on("failed", (_job, error) => reject(error));
    });
    await queue.addBulk(Array.from({ length: 12 }, (_, i) => ({ name: "job", data: { key: "abc"[i % 3] as string } })));
    await all;
    const how = waitMs === 0 ? "going back to the queue" : "waiting in the server";
    console.log(`${how}: ${done} jobs done, put back ${contended} times, no attempt used up`);
    await worker.close();
    await queue.obliterate({ force: true });
    await queue.close();
  }
  await locks.shutdown(1000);
  redis.disconnect();
}

main().catch((error: unknown) => {
  // One line that says what is wrong and what to do.
  console.error(error instanceof LockError ? error.message : error);
  process.exit(1);
});
