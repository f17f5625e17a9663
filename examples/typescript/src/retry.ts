import type { Commands } from "./commands.js";
import { LockError } from "./errors.js";
import { now, pause } from "./time.js";

/** Calls again while the trouble is a passing one, for so long. Only for calls that may be carried out twice. */
export async function retrying<T>(call: () => Promise<T>, forMs: number, signal?: AbortSignal): Promise<T> {
  const until = now() + forMs;
  for (let attempt = 0; ; attempt++) {
    try {
      return await call();
    } catch (error) {
      const backOff = pauseMs(attempt);
      if (!(error instanceof LockError && error.passing) || now() + backOff > until) throw error;
      await pause(backOff, signal);
      if (signal?.aborted) throw signal.reason;
    }
  }
}

/** 25 ms, 50 ms, ... 1 s, each a half of it by chance, so that not all come back at the same moment. */
export function pauseMs(attempt: number): number {
  const most = Math.min(1000, 25 * 2 ** attempt);
  return most * (0.5 + Math.random() / 2);
}

/**
 * Releases what a claim that was given up may have got unheard. The client may still hold that claim and send it when its
 * connection is back, so this goes on until a release came through behind it, or the lock would have lapsed.
 */
export async function undo(commands: Commands, key: string, token: string, ttlMs: number): Promise<void> {
  const until = now() + ttlMs;
  for (let attempt = 0; now() < until; attempt++) {
    try {
      await commands.release(key, token);
      return;
    } catch (error) {
      if (!(error instanceof LockError && error.passing)) return;
      await pause(pauseMs(attempt), undefined, true);
    }
  }
}
