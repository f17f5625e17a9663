// A server, a proxy in front of it, and a client behind the proxy, for one test.

import { Locks, type LocksOptions } from "../../src/index.js";
import type { Client, Driver, Login } from "./drivers.js";
import { Proxy } from "./proxy.js";
import type { Server } from "./server.js";

export class World {
  readonly errors: unknown[] = [];
  readonly client: Client;
  readonly locks: Locks;

  private constructor(
    readonly server: Server,
    readonly proxy: Proxy,
    driver: Driver,
    options: Partial<LocksOptions>,
    login: Partial<Login>,
  ) {
    this.client = driver.open({ port: proxy.port, ...login });
    const onError = (error: unknown) => this.errors.push(error);
    this.locks = new Locks(this.client.connection, { holder: "worker-1", onError, ...options });
  }

  static async open(
    server: Server,
    driver: Driver,
    options: Partial<LocksOptions> = {},
    login: Partial<Login> = {},
  ): Promise<World> {
    return new World(server, await Proxy.start(server.port), driver, options, login);
  }

  async close(): Promise<void> {
    this.proxy.mend();
    await this.locks.shutdown(0);
    this.client.close();
    await this.proxy.stop();
  }

  /** Another token's claim, past any client library. */
  async rival(key: string, ...options: string[]): Promise<boolean> {
    return !/^(\$-1|_)/.test(await this.server.raw(["PRLOCK.CLAIM", key, "PX", "60000", "TOKEN", "rival", ...options]));
  }

  waiters(): Promise<number> {
    return this.server.info("prlock", "prlock_waiters").then(Number);
  }

  keys(): Promise<number> {
    return this.server.number("DBSIZE");
  }
}

export function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** Keeps this process's only thread busy. */
export function stall(ms: number): void {
  const end = performance.now() + ms;
  while (performance.now() < end);
}

/** Waits for the signal; fails after ten seconds. */
export function fired(signal: AbortSignal): Promise<unknown> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) return resolve(signal.reason);
    const timer = setTimeout(() => reject(new Error("the signal did not fire within 10 s")), 10_000);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve(signal.reason);
    });
  });
}
