// Two workers want the same lock; one waits until the other is done. With ioredis, and with node-redis: CLIENT=redis.

import { Redis } from "ioredis";
import { createClient } from "redis";

import { fromIoredis, fromNodeRedis, LockError, Locks, type Connection } from "./index.js";

const url = process.env["REDIS_URL"] ?? "redis://127.0.0.1:6379";

async function connect(): Promise<[Connection, () => unknown]> {
  if (process.env["CLIENT"] === "redis") {
    const client = createClient({ url });
    const connection = fromNodeRedis(client);
    // Not awaited: without a server it tries for ever, while the first lock says after seconds that nobody answers.
    client.connect().catch(() => {});
    return [connection, () => client.isOpen && client.destroy()];
  }
  const client = new Redis(url);
  return [fromIoredis(client), () => client.disconnect()];
}

async function main(): Promise<void> {
  const [connection, close] = await connect();
  const locks = new Locks(connection, { holder: `demo:${process.pid}`, onError: (error) => console.error(String(error)) });
  // What an earlier life of this process left behind; here there was none, since its label has the process's number.
  await locks.revokeOwn();
  try {
    const worker = (name: string) =>
      locks.withLock("demo:report", { ttlMs: 2000, waitMs: 10_000 }, async (lock) => {
        console.log(`${name} holds the lock, fence ${lock.fence}`);
        // Three seconds of work under a lock of two, which is renewed meanwhile.
        for (let step = 0; step < 30; step++) {
          lock.signal.throwIfAborted();
          await new Promise((resolve) => setTimeout(resolve, 100));
        }
        console.log(`${name} is done, the lock is ${lock.held() ? "still its own" : "lost"}`);
      });
    await Promise.all([worker("first"), worker("second")]);
  } finally {
    await locks.shutdown(1000);
    close();
  }
}

main().catch((error: unknown) => {
  // One line that says what is wrong and what to do.
  console.error(error instanceof LockError ? error.message : error);
  process.exit(1);
});
