import type { Connection, Reply } from "./connection.js";

/** The part of a node-redis client that is used: any version from 5 on fits, with RESP 2 or 3. */
export interface NodeRedisClient {
  readonly isOpen: boolean;
  readonly isReady: boolean;
  // Read again for the duplicate; every version has its own type for them.
  readonly options?: object | undefined;
  sendCommand(args: string[], options?: object): Promise<unknown>;
  duplicate(overrides?: object): NodeRedisClient;
  connect(): Promise<unknown>;
  destroy(): void;
  on(event: "error", listener: (error: Error) => void): unknown;
}

/** Locks over a node-redis client, which stays the caller's: to connect, to configure, to share, and to close. */
export function fromNodeRedis(client: NodeRedisClient): Connection {
  let last: Error | undefined;
  client.on("error", (error) => (last = error));
  return {
    async send(args: string[]): Promise<Reply> {
      return client.sendCommand(args);
    },
    async open() {
      const { socket } = (client.options ?? {}) as { socket?: object };
      const waiting = client.duplicate({
        // A waiting call is silent for as long as it waits, and nothing may be queued behind it.
        commandOptions: undefined,
        pingInterval: undefined,
        // The locks send a claim again themselves, with the same token.
        socket: { ...socket, socketTimeout: undefined, reconnectStrategy: false },
      });
      const connection = fromNodeRedis(waiting);
      await waiting.connect();
      return connection;
    },
    close() {
      // A client that lost its connection for good is closed already, and throws when told so again.
      if (client.isOpen) client.destroy();
    },
    usable: () => client.isReady,
    trouble: () => (client.isReady ? undefined : last),
  };
}
