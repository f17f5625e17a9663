import type { Lock } from "./lock.js";

/**
 * What this process holds, by key and token: when a lock is stolen within the process, the end of the old holder's work
 * must not strike out the new holder's entry.
 */
export class Held {
  private readonly locks = new Map<string, Map<string, Lock>>();

  add(lock: Lock): void {
    const same = this.locks.get(lock.key) ?? new Map<string, Lock>();
    this.locks.set(lock.key, same.set(lock.token, lock));
  }

  remove(lock: Lock): void {
    const same = this.locks.get(lock.key);
    same?.delete(lock.token);
    if (same?.size === 0) this.locks.delete(lock.key);
  }

  get(key: string, token: string): Lock | undefined {
    return this.locks.get(key)?.get(token);
  }

  all(): Lock[] {
    return [...this.locks.values()].flatMap((same) => [...same.values()]);
  }
}
