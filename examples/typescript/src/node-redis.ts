import { everywhere, Rover, type Nodes } from "./cluster.js";
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
    open: () => openWaiting(client, {}),
    close() {
      // A client that lost its connection for good is closed already, and throws when told so again.
      if (client.isOpen) client.destroy();
    },
    usable: () => client.isReady,
    trouble: () => (client.isReady ? undefined : last),
  };
}

async function openWaiting(client: NodeRedisClient, address: { host?: string; port?: number }): Promise<Connection> {
  const { socket } = (client.options ?? {}) as { socket?: object };
  const waiting = client.duplicate({
    // A waiting call is silent for as long as it waits, and nothing may be queued behind it.
    commandOptions: undefined,
    pingInterval: undefined,
    // The locks send a claim again themselves, with the same token.
    socket: { ...socket, ...address, socketTimeout: undefined, reconnectStrategy: false },
  });
  const connection = fromNodeRedis(waiting);
  await waiting.connect();
  return connection;
}

/** The part of a node-redis cluster that is used; every version has its own types for the nodes. */
export interface NodeRedisCluster<Node extends { readonly address: string } = never> {
  readonly isOpen: boolean;
  readonly slots: { readonly master: { readonly address: string } }[];
  readonly masters: Node[];
  nodeClient(node: Node): Promise<NodeRedisClient> | NodeRedisClient;
  sendCommand(firstKey: string | undefined, isReadonly: boolean, args: string[], options?: object): Promise<unknown>;
  on(event: "error", listener: (error: Error) => void): unknown;
}

/** The same over a node-redis cluster. */
export function fromNodeRedisCluster<Node extends { readonly address: string }>(
  cluster: NodeRedisCluster<Node>,
): Connection {
  let last: Error | undefined;
  cluster.on("error", (error) => (last = error));
  const nodes: Nodes = {
    owner: (slot) => cluster.slots[slot]?.master.address,
    primaries: () => cluster.masters.map(({ address }) => address),
    async open(address) {
      const node = cluster.masters.find((node) => node.address === address) ?? cluster.masters[0];
      if (!node) throw last ?? new Error("The cluster client knows no node.");
      const colon = address.lastIndexOf(":");
      const at = { host: address.slice(0, colon), port: Number(address.slice(colon + 1)) };
      return openWaiting(await cluster.nodeClient(node), at);
    },
  };
  const connection: Connection = {
    // It doesn't know where the key of a module's command is, and is told.
    send: (args) => cluster.sendCommand(args[0]?.startsWith("PRLOCK.") ? args[1] : undefined, false, args),
    everywhere: (args) => everywhere(connection, nodes, args),
    open: () => Promise.resolve(new Rover(nodes)),
    close() {},
    usable: () => cluster.isOpen,
    trouble: () => (cluster.isOpen ? undefined : last),
  };
  return connection;
}
