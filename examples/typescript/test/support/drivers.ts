// Every client library, major version and protocol that the example works with.

import { Cluster, Redis } from "ioredis";
import { Cluster as Cluster5, Redis as Redis5 } from "ioredis5";
import { createClient, createCluster } from "redis";
import { createClient as createClient5, createCluster as createCluster5 } from "redis5";

import {
  fromIoredis,
  fromIoredisCluster,
  fromNodeRedis,
  fromNodeRedisCluster,
  type Connection,
  type IoredisClient,
  type NodeRedisClient,
} from "../../src/index.js";

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

export interface ClusterDriver {
  name: string;
  /** Given the ports of some nodes. */
  open(ports: number[]): Promise<Client>;
}

const hosts = (ports: number[]) => ports.map((port) => ({ host: "127.0.0.1", port }));
const rootNodes = (ports: number[]) => ports.map((port) => ({ url: `redis://127.0.0.1:${port}` }));

/** The same for clusters. */
export const clusterDrivers: ClusterDriver[] = [
  {
    name: "ioredis 6 cluster",
    async open(ports) {
      const cluster = new Cluster(hosts(ports));
      return { connection: fromIoredisCluster(cluster), close: () => cluster.disconnect() };
    },
  },
  {
    name: "ioredis 5 cluster",
    async open(ports) {
      const cluster = new Cluster5(hosts(ports));
      return { connection: fromIoredisCluster(cluster), close: () => cluster.disconnect() };
    },
  },
  {
    name: "node-redis 6 cluster",
    async open(ports) {
      const cluster = createCluster({ rootNodes: rootNodes(ports) });
      const connection = fromNodeRedisCluster(cluster);
      await cluster.connect();
      return { connection, close: () => cluster.destroy() };
    },
  },
  {
    name: "node-redis 5 cluster",
    async open(ports) {
      const cluster = createCluster5({ rootNodes: rootNodes(ports), RESP: 3 });
      const connection = fromNodeRedisCluster(cluster);
      await cluster.connect();
      return { connection, close: () => cluster.destroy() };
    },
  },
];
