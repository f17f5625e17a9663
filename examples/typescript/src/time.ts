// Time that no one can set: a lock's deadline must not move with the wall clock.

/** Milliseconds since this process started. */
export function now(): number {
  return performance.now();
}

/** Waits until the time is over or the signal fires. `idle` time doesn't keep the process alive. */
export function pause(ms: number, signal?: AbortSignal, idle = false): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    if (idle) timer.unref();
    signal?.addEventListener("abort", done);
  });
}

/** What the promise gives, or `late` if it takes longer, or the signal's reason as an error. */
export function within<T, L>(promise: Promise<T>, ms: number, late: L, signal?: AbortSignal): Promise<T | L> {
  return new Promise((resolve, reject) => {
    const abort = () => settle(() => reject(signal?.reason));
    // Longer than a timer can count is for ever.
    const timer = ms < 2 ** 31 ? setTimeout(() => settle(() => resolve(late)), ms) : undefined;
    const settle = (how: () => void) => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
      how();
    };
    promise.then(
      (value) => settle(() => resolve(value)),
      (error) => settle(() => reject(error)),
    );
    if (signal?.aborted) abort();
    else signal?.addEventListener("abort", abort);
  });
}
