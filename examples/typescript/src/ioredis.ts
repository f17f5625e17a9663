import { everywhere, redirection, Rover, type Nodes } from "./cluster.js";
import type { Connection, Reply } from "./connection.js";
import { slotOf } from "./slot.js";

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
    open: () => openWaiting(client, {}),
    close: () => client.disconnect(),
    usable: () => client.status === "ready",
    trouble: () => (client.status === "ready" ? undefined : last),
  };
}

async function openWaiting(client: IoredisClient, address: { host?: string; port?: number }): Promise<Connection> {
  const waiting = client.duplicate({ ...WAITING, ...address });
  const connection = fromIoredis(waiting);
  try {
    await waiting.connect();
  } catch (error) {
    waiting.disconnect();
    // ioredis says "Connection is closed" here; the reason came as an event before.
    throw connection.trouble() ?? error;
  }
  return connection;
}

interface IoredisNode {
  readonly options: { readonly host?: string | undefined; readonly port?: number | undefined };
}

/** The part of an ioredis `Cluster` that is used. */
export interface IoredisCluster {
  readonly status: string;
  /** The addresses of each slot's nodes, the primary's first. */
  readonly slots: string[][];
  nodes(role: "master"): (IoredisClient & IoredisNode)[];
  call(command: string, args: string[]): Promise<unknown>;
  on(event: "error" | "node error", listener: (error: Error) => void): unknown;
}

/** The same over an ioredis `Cluster`. */
export function fromIoredisCluster(cluster: IoredisCluster): Connection {
  let last: Error | undefined;
  for (const event of ["error", "node error"] as const) cluster.on(event, (error) => (last = error));
  const addressOf = ({ options }: IoredisNode) => `${options.host}:${options.port}`;
  const nodes: Nodes = {
    owner: (slot) => cluster.slots[slot]?.[0],
    primaries: () => cluster.nodes("master").map(addressOf),
    open(address) {
      const [node] = cluster.nodes("master");
      if (!node) throw last ?? new Error("The cluster client knows no node.");
      const colon = address.lastIndexOf(":");
      return openWaiting(node, { host: address.slice(0, colon), port: Number(address.slice(colon + 1)) });
    },
  };
  const connection: Connection = {
    async send(args) {
      const [command = "", ...rest] = args;
      // ioredis doesn't know where the key of a module's command is, and would ask any node first.
      const owner = rest[0] === undefined ? undefined : nodes.owner(slotOf(rest[0]));
      const node = cluster.nodes("master").find((node) => addressOf(node) === owner);
      if (node) {
        try {
          return await node.call(command, rest);
        } catch (error) {
          // It follows these, and remembers.
          if (!redirection(error)) throw error;
        }
      }
      return cluster.call(command, rest);
    },
    everywhere: (args) => everywhere(connection, nodes, args),
    open: () => Promise.resolve(new Rover(nodes)),
    close() {},
    usable: () => cluster.status === "ready",
    trouble: () => (cluster.status === "ready" ? undefined : last),
  };
  return connection;
}
