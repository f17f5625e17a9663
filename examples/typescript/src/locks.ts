import { randomBytes } from "node:crypto";

import { Commands, type ClaimTerms, type Grant } from "./commands.js";
import type { Connection } from "./connection.js";
import { LockBusy, LockError } from "./errors.js";
import { Held } from "./held.js";
import { Lock } from "./lock.js";
import { pauseMs, undo } from "./retry.js";
import { now, pause, within } from "./time.js";
import { Waiting } from "./waiting.js";

export interface LocksOptions {
  /** This process's public label: what others see as the holder, and what `revokeOwn` frees. One for each process. */
  holder: string;
  /** How long a reply may take before the connection counts as broken. Default 5 s. */
  replyMs?: number;
  /** How long a claim is sent again when the connection breaks or the server can't serve it. Default 3 s. */
  retryMs?: number;
  /** Hears of passing errors in renewals and releases, which end nothing. */
  onError?: (error: unknown, key: string) => void;
}

export interface LockOptions {
  /** The lock lapses this long after the last renewal that came through. Renewed at a third of it. */
  ttlMs: number;
  /** How long to wait in the server's queue while another holds the lock. 0, the default: don't. Infinity: no limit. */
  waitMs?: number;
  /** Ends the wait. Nothing of it stays behind. */
  signal?: AbortSignal;
  /** Takes the lock from whoever holds it, or only from the grant with this fence (as LIST shows it). */
  steal?: boolean | { fence: number };
  /** If this process's connection closes, the lock is free so many ms later. For work that dies with its process. */
  lingerMs?: number;
  /** Default: a new random one. */
  token?: string;
}

/** The locks of this process. */
export class Locks {
  readonly held = new Held();
  readonly commands: Commands;
  private readonly waiting: Waiting;
  private readonly replyMs: number;
  private readonly retryMs: number;
  private readonly running = new Set<Promise<unknown>>();
  private readonly closing = new AbortController();

  constructor(
    connection: Connection,
    private readonly options: LocksOptions,
  ) {
    if (options.holder === "") throw new LockError("ARGUMENT", "The holder must not be empty.");
    this.replyMs = options.replyMs ?? 5000;
    this.retryMs = options.retryMs ?? 3000;
    this.commands = new Commands(connection, this.replyMs);
    this.waiting = new Waiting(connection, this.replyMs);
  }

  /**
   * At the start: frees what an earlier life of this process left behind, and says how many locks. Siblings' locks stay,
   * which a flush would take as well.
   */
  revokeOwn(): Promise<number> {
    return this.commands.revoke(this.options.holder);
  }

  /**
   * Claims the lock, does the work, releases the lock. The work's result or error is the caller's, also when the lock was
   * lost meanwhile: `lock.signal` and `lock.check()` tell the work. Throws `LockBusy` if another holds the lock, and other
   * `LockError`s if it can't be had; the work didn't run then.
   */
  withLock<T>(key: string, options: LockOptions, work: (lock: Lock) => Promise<T> | T): Promise<T> {
    const run = this.run(key, options, work);
    this.track(run);
    return run;
  }

  /**
   * For the end of the process: no new locks and no more waits; lets the running work come to its end; after `graceMs`
   * fires the signals of what is left, and releases it. Gives the keys of those.
   */
  async shutdown(graceMs: number): Promise<string[]> {
    this.closing.abort(new LockError("SHUTDOWN", "This process is shutting down and claims no more locks."));
    await within(Promise.allSettled(this.running), graceMs, undefined);
    const left = this.held.all();
    for (const lock of left) lock.lose("shutdown");
    await Promise.allSettled(left.map((lock) => this.release(lock)));
    this.waiting.close();
    return left.map((lock) => lock.key);
  }

  private async run<T>(key: string, options: LockOptions, work: (lock: Lock) => Promise<T> | T): Promise<T> {
    const lock = await this.claim(key, options);
    if (!lock) throw new LockBusy(key);
    this.held.add(lock);
    try {
      return await work(lock);
    } finally {
      lock.stop();
      await this.release(lock);
    }
  }

  private async claim(key: string, options: LockOptions): Promise<Lock | null> {
    const { ttlMs, lingerMs, steal, waitMs = 0 } = options;
    const token = options.token ?? randomBytes(16).toString("hex");
    const terms = { ttlMs, token, holder: this.options.holder, lingerMs, steal };
    const signals = options.signal ? [options.signal, this.closing.signal] : [this.closing.signal];
    const signal = AbortSignal.any(signals);
    signal.throwIfAborted();
    const waitUntil = now() + waitMs;
    const retryUntil = waitUntil + this.retryMs;
    for (let attempt = 0; ; attempt++) {
      try {
        const sentAt = now();
        const grant = await this.attempt(key, terms, waitUntil - sentAt, signal);
        if (!grant) return null;
        const provenAt = await this.prove(key, terms, grant, sentAt);
        if (provenAt === undefined) continue;
        if (signal.aborted) throw signal.reason;
        const report = (error: unknown) => this.options.onError?.(error, key);
        return new Lock(key, token, grant.fence, ttlMs, provenAt, this.commands, report);
      } catch (error) {
        const backOff = pauseMs(attempt);
        const again = error instanceof LockError && error.passing && now() + backOff < retryUntil;
        // The same token again: if only the reply was lost, this is granted with the same fence.
        if (again) await pause(backOff, signal);
        if (again && !signal.aborted) continue;
        // In the background; `shutdown` waits for it as long as it has time.
        this.track(undo(this.commands, key, token, ttlMs));
        throw signal.aborted ? signal.reason : error;
      }
    }
  }

  /** One claim. It waits on a connection of its own, where everything behind it would have to wait as well. */
  private async attempt(key: string, terms: ClaimTerms, waitMs: number, signal: AbortSignal): Promise<Grant | null> {
    if (waitMs > 0 && !terms.steal) return this.waiting.claim(key, terms, waitMs, signal);
    return within(this.commands.claim(key, terms), Infinity, null, signal);
  }

  /**
   * From when on the lock is surely ours for its whole lifetime: since the claim was sent, if the answer came soon. A wait
   * may have been granted at any time since, so a renewal says it. That also binds LINGER to the connection that stays.
   * Undefined: it lapsed before.
   */
  private async prove(key: string, terms: ClaimTerms, grant: Grant, sentAt: number): Promise<number | undefined> {
    if (terms.lingerMs === undefined && now() - sentAt < terms.ttlMs / 6) return sentAt;
    const renewedAt = now();
    return (await this.commands.renew(key, terms.token, terms.ttlMs, grant.fence)) ? renewedAt : undefined;
  }

  /** Never throws: the deadline frees what can't be released, and the work's own result counts. */
  private async release(lock: Lock): Promise<void> {
    try {
      await this.commands.release(lock.key, lock.token, lock.fence);
    } catch (error) {
      this.options.onError?.(error, lock.key);
    } finally {
      this.held.remove(lock);
    }
  }

  private track(promise: Promise<unknown>): void {
    const tracked = promise.catch(() => {}).finally(() => this.running.delete(tracked));
    this.running.add(tracked);
  }
}
