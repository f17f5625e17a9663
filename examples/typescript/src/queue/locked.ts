// A job queue's part: jobs that need a lock. Here for BullMQ; other queues have the same three handles (put back with a
// delay, give up, the job's age).

import { DelayedError, UnrecoverableError, type Job } from "bullmq";

import { LockBusy, type Lock, type Locks } from "../index.js";

export interface LockedOptions<Data> {
  /** The lock that the job needs. */
  key: (data: Data) => string;
  ttlMs: number;
  /**
   * How long the job waits in the server's queue for the lock (BLOCK), first come first served. 0: not at all, so that the
   * worker takes another job at once. A waiting job fills a place of the worker, so give it few seconds, or more places.
   */
  waitMs?: number;
  /** After how long a job whose lock is taken comes back. */
  delayMs: number;
  /** How old a job may be that still goes back; then it fails. */
  maxAgeMs: number;
}

/** What every job's data has, once the lock was taken by another: a counter of its own, apart from the attempts. */
export interface Contended {
  contended?: number;
}

/** A processor for BullMQ's Worker that does the work under the job's lock. */
export function locked<Data extends Contended, Result>(
  locks: Locks,
  options: LockedOptions<Data>,
  work: (job: Job<Data, Result>, lock: Lock) => Promise<Result>,
): (job: Job<Data, Result>, token?: string) => Promise<Result> {
  return async (job, token) => {
    const key = options.key(job.data);
    const rest = job.timestamp + options.maxAgeMs - Date.now();
    const waitMs = Math.max(0, Math.min(options.waitMs ?? 0, rest));
    try {
      return await locks.withLock(key, { ttlMs: options.ttlMs, waitMs }, (lock) => work(job, lock));
    } catch (error) {
      // Only the claim of this very lock; one that the work itself could not get is the work's failure.
      if (!(error instanceof LockBusy && error.key === key)) throw error;
      return await putBack(job, token, options);
    }
  };
}

/** The job did not fail, its lock was taken: back to the queue without using up an attempt, unless it is too old. */
async function putBack<Data extends Contended>(
  job: Job<Data>,
  token: string | undefined,
  options: LockedOptions<Data>,
): Promise<never> {
  const contended = (job.data.contended ?? 0) + 1;
  await job.updateData({ ...job.data, contended });
  const ageMs = Date.now() - job.timestamp;
  if (ageMs >= options.maxAgeMs) {
    throw new UnrecoverableError(`its lock was taken each of ${contended} times, for ${Math.round(ageMs / 1000)} s`);
  }
  // Not all at the same moment, and not beyond the age.
  const delayMs = Math.min(options.delayMs * (0.5 + Math.random()), options.maxAgeMs - ageMs);
  await job.moveToDelayed(Date.now() + delayMs, token);
  throw new DelayedError();
}
