import type { Commands } from "./commands.js";
import { LockLost } from "./errors.js";
import { now, within } from "./time.js";

/** What the work gets: a lock that is renewed until it is released or lost. */
export class Lock {
  /** Fires when the lock is lost, with a `LockLost` as its reason; not on a passing error. Stop the work then. */
  readonly signal: AbortSignal;
  private readonly abort = new AbortController();
  private renewTimer: NodeJS.Timeout | undefined;
  private deadlineTimer: NodeJS.Timeout | undefined;
  private over = false;

  constructor(
    readonly key: string,
    readonly token: string,
    /** The number of this grant: give it to what the lock protects. */
    readonly fence: number,
    readonly ttlMs: number,
    /** When the last claim or renewal that succeeded was sent: from then on the lock is safe for `ttlMs`. */
    private provenAt: number,
    private readonly commands: Commands,
    private readonly onError: (error: unknown) => void,
  ) {
    this.signal = this.abort.signal;
    this.arm(provenAt + ttlMs / 3 - now());
  }

  /**
   * Whether the lock is surely still this process's, by the clock of this very moment. Ask before a step that can't be
   * undone: the signal can't fire while the process itself is busy or stopped.
   */
  held(): boolean {
    return !this.over && now() < this.provenAt + this.ttlMs;
  }

  /** Throws the `LockLost` if the lock is not held any more. */
  check(): void {
    if (this.held()) return;
    this.lose("deadline");
    throw this.signal.reason;
  }

  /** Ends the renewals; the signal no longer fires. */
  stop(): void {
    this.over = true;
    clearTimeout(this.renewTimer);
    clearTimeout(this.deadlineTimer);
  }

  /** Ends the renewals and fires the signal. */
  lose(why: LockLost["why"]): void {
    if (this.over) return;
    this.stop();
    this.abort.abort(new LockLost(this.key, why));
  }

  private arm(renewInMs: number): void {
    if (this.over) return;
    clearTimeout(this.renewTimer);
    clearTimeout(this.deadlineTimer);
    // Neither timer keeps a process alive whose work is done.
    this.renewTimer = setTimeout(() => void this.renew(), Math.max(0, renewInMs)).unref();
    const rest = Math.max(0, this.provenAt + this.ttlMs - now());
    this.deadlineTimer = setTimeout(() => this.atDeadline(), rest).unref();
  }

  private atDeadline(): void {
    // After a stall of this process a renewal's answer may lie unread: let it be read first.
    setImmediate(() => {
      if (this.over) return;
      if (!this.held()) this.lose("deadline");
      // A timer can fire a little early.
      else this.deadlineTimer = setTimeout(() => this.atDeadline(), 1).unref();
    });
  }

  private async renew(): Promise<void> {
    const sentAt = now();
    const answered = this.commands.renew(this.key, this.token, this.ttlMs, this.fence).then((renewed) => {
      // Also when it comes late: an answer that lay unread while this process was stopped is one.
      if (!renewed) return this.lose("taken");
      this.provenAt = Math.max(this.provenAt, sentAt);
      this.arm(sentAt + this.ttlMs / 3 - now());
    });
    try {
      const late = new Error("no answer to a renewal in time");
      if ((await within(answered, this.ttlMs / 3, late)) === late) throw late;
    } catch (error) {
      if (this.over) return;
      // A server in trouble is not a lost lock: the next renewal, sooner, may still be in time.
      this.onError(error);
      this.arm(sentAt + this.ttlMs / 10 - now());
    }
  }
}
