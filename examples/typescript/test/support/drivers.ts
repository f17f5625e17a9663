// Every client library, major version and protocol that the example works with.

import { Redis } from "ioredis";
import { Redis as Redis5 } from "ioredis5";
import { createClient } from "redis";
import { createClient as createClient5 } from "redis5";

import { fromIoredis, fromNodeRedis, type Connection, type IoredisClient, type NodeRedisClient } from "../../src/index.js";

export interface Login {
  port: number;
  username?: string;
  password?: string;
}

export interface Client {
  connection: Connection;
  close(): void;
}

export interface Driver {
  name: string;
  open(login: Login): Client;
}

function ioredis(name: string, make: (options: object) => IoredisClient): Driver {
  return {
    name,
    open(login) {
      const client = make({ host: "127.0.0.1", retryStrategy: () => 20, ...login });
      return { connection: fromIoredis(client), close: () => client.disconnect() };
    },
  };
}

function nodeRedis(name: string, make: (options: object) => NodeRedisClient): Driver {
  return {
    name,
    open({ port, ...login }) {
      const client = make({ socket: { host: "127.0.0.1", port, reconnectStrategy: 20 }, ...login });
      const connection = fromNodeRedis(client);
      // As a worker would do it: commands given meanwhile are queued by the client.
      client.connect().catch(() => {});
      return { connection, close: () => client.isOpen && client.destroy() };
    },
  };
}

export const drivers: Driver[] = [
  ioredis("ioredis 6, RESP2", (options) => new Redis({ ...options, protocol: 2 })),
  ioredis("ioredis 6, RESP3", (options) => new Redis({ ...options, protocol: 3 })),
  ioredis("ioredis 5, RESP2", (options) => new Redis5(options)),
  nodeRedis("node-redis 6, RESP2", (options) => createClient({ ...options, RESP: 2 })),
  nodeRedis("node-redis 6, RESP3", (options) => createClient({ ...options, RESP: 3 })),
  nodeRedis("node-redis 5, RESP3", (options) => createClient5({ ...options, RESP: 3 })),
];
