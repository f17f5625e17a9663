import { Commands } from "./commands.js";
import type { Connection } from "./connection.js";
import { retrying, undo } from "./retry.js";

/**
 * The three calls that many workers have behind their locks today, with the same meaning: true or false is the server's
 * answer, and trouble is a throw. So a caller that rather works twice than not at all can fail open:
 *
 *     const mine = await cache.claim(key, token, 600).catch(() => true);
 */
export class LockCache {
  private readonly commands: Commands;

  constructor(
    connection: Connection,
    private readonly options: { holder?: string; replyMs?: number; retryMs?: number } = {},
  ) {
    this.commands = new Commands(connection, options.replyMs ?? 2000);
  }

  /** True: the lock is this token's now, for so many seconds. False: it is another's. */
  async claim(key: string, token: string, ttlSeconds: number): Promise<boolean> {
    const terms = { token, ttlMs: ttlSeconds * 1000, holder: this.options.holder };
    try {
      const claim = () => this.commands.claim(key, terms);
      return (await retrying(claim, this.options.retryMs ?? 1000)) !== null;
    } catch (error) {
      // It may have been granted, unheard; whoever goes on without the lock must not leave it behind.
      void undo(this.commands, key, token, terms.ttlMs);
      throw error;
    }
  }

  /** False: this token no longer holds the lock. */
  renewIfValue(key: string, token: string, ttlSeconds: number): Promise<boolean> {
    return retrying(() => this.commands.renew(key, token, ttlSeconds * 1000), this.options.retryMs ?? 1000);
  }

  /** False: this token didn't hold the lock; nothing has changed. */
  releaseIfValue(key: string, token: string): Promise<boolean> {
    return this.commands.release(key, token);
  }
}
