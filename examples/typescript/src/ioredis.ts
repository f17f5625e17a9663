import type { Connection, Reply } from "./connection.js";

/** The part of an ioredis client that is used: any version from 5 on fits. */
export interface IoredisClient {
  readonly status: string;
  call(command: string, args: string[]): Promise<unknown>;
  duplicate(override?: object): IoredisClient;
  connect(): Promise<void>;
  disconnect(reconnect?: boolean): void;
  on(event: "error", listener: (error: Error) => void): unknown;
  once(event: "end", listener: () => void): unknown;
}

/** Overrides for a connection that waits in the server: see `Connection.open`. */
const WAITING = {
  lazyConnect: true,
  // A waiting call is silent for as long as it waits.
  commandTimeout: undefined,
  blockingTimeout: undefined,
  socketTimeout: undefined,
  // How a peer that vanished without closing is noticed meanwhile.
  keepAlive: 10_000,
  // The locks send a claim again themselves, with the same token.
  retryStrategy: () => null,
  autoResendUnfulfilledCommands: false,
  maxRetriesPerRequest: 0,
};

/** Locks over an ioredis client, which stays the caller's: to configure, to share, and to close. */
export function fromIoredis(client: IoredisClient): Connection {
  let last: Error | undefined;
  client.on("error", (error) => (last = error));
  return {
    async send(args: string[]): Promise<Reply> {
      const [command = "", ...rest] = args;
      return client.call(command, rest);
    },
    async open() {
      const waiting = client.duplicate(WAITING);
      const connection = fromIoredis(waiting);
      try {
        await waiting.connect();
      } catch (error) {
        waiting.disconnect();
        // ioredis says "Connection is closed" here; the reason came as an event before.
        throw connection.trouble() ?? error;
      }
      return connection;
    },
    close: () => client.disconnect(),
    usable: () => client.status === "ready",
    trouble: () => (client.status === "ready" ? undefined : last),
  };
}
