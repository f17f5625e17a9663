import type { Connection, Reply } from "./connection.js";
import { slotOf } from "./slot.js";
import { now } from "./time.js";

/** How often a call is sent on before it is given up. */
const MAX_HOPS = 8;

/** What is needed of a cluster client beside sending commands by their keys. Addresses are `host:port`. */
export interface Nodes {
  /** The primary of a slot, as far as the client knows. */
  owner(slot: number): string | undefined;
  /** All primaries, as far as the client knows. */
  primaries(): string[];
  /** A connection of its own to that node, as `Connection.open` makes one. */
  open(address: string): Promise<Connection>;
}

/** Where a node sends a call instead of carrying it out. */
export function redirection(error: unknown): { address: string; asking: boolean } | undefined {
  const parts = /^(MOVED|ASK) \d+ (\S+)/.exec(error instanceof Error ? error.message : "");
  return parts ? { address: parts[2] as string, asking: parts[1] === "ASK" } : undefined;
}

/**
 * The same call on every primary. The cluster is asked anew which those are: what a client library remembers may be from
 * before the last failover.
 */
export async function everywhere(connection: Connection, nodes: Nodes, args: string[]): Promise<Reply[]> {
  const slots = (await connection.send(["CLUSTER", "SLOTS"])) as [unknown, unknown, [unknown, unknown]][];
  // A cluster may leave its clients to find out the hosts.
  const isNamed = slots.every(([, , [host]]) => host);
  const addresses = isNamed ? slots.map(([, , [host, port]]) => `${host}:${port}`) : nodes.primaries();
  return Promise.all(
    [...new Set(addresses)].map(async (address) => {
      const node = await nodes.open(address);
      try {
        return await node.send(args);
      } finally {
        node.close();
      }
    }),
  );
}

/**
 * A connection for one call at a time that may wait, in a cluster: it goes where the key is, and after the lock when that
 * moves while the call waits. It is no cluster client's own, on which a waiting call would hold up all others to that node.
 */
export class Rover implements Connection {
  private readonly open_ = new Map<string, Connection>();
  /** Where a call is under way. */
  private current: Connection | undefined;
  private closed = false;

  constructor(private readonly nodes: Nodes) {}

  async send(args: string[]): Promise<Reply> {
    // What is sent behind a call that is under way goes the same way.
    if (this.current) return this.current.send(args);
    const began = now();
    let address = this.nodes.owner(slotOf(args[1] as string)) ?? this.other("");
    let asking = false;
    let trouble: unknown = new Error("The cluster has no nodes.");
    for (let hop = 0; hop < MAX_HOPS && address !== undefined; hop++) {
      try {
        const node = await this.at(address);
        if (this.closed) break;
        this.current = node;
        // Tells the node to serve the next call, though the slot is not its own yet.
        if (asking) node.send(["ASKING"]).catch(() => {});
        return await node.send(hop === 0 ? args : rest(args, now() - began));
      } catch (error) {
        trouble = error;
        const to = redirection(error);
        if (!to && this.current) throw error;
        asking = to?.asking ?? false;
        // Any other node knows where the slots of one that can't be reached are by now.
        address = to ? absolute(to.address, address) : this.other(address);
      } finally {
        this.current = undefined;
      }
    }
    throw trouble;
  }

  open(): Promise<Connection> {
    return Promise.resolve(new Rover(this.nodes));
  }

  close(): void {
    this.closed = true;
    for (const node of this.open_.values()) node.close();
  }

  usable(): boolean {
    return !this.closed;
  }

  trouble(): Error | undefined {
    return this.current?.trouble();
  }

  private async at(address: string): Promise<Connection> {
    const known = this.open_.get(address);
    if (known?.usable()) return known;
    known?.close();
    this.open_.delete(address);
    const node = await this.nodes.open(address);
    if (this.closed) node.close();
    else this.open_.set(address, node);
    return node;
  }

  private other(than: string): string | undefined {
    const others = this.nodes.primaries().filter((address) => address !== than);
    return others[Math.floor(Math.random() * others.length)];
  }
}

/** The address that a node named, with that node's own host if it named none. */
function absolute(address: string, at: string): string {
  return address.startsWith(":") ? at.slice(0, at.lastIndexOf(":")) + address : address;
}

/** The same call with what is left of its time to wait. */
function rest(args: string[], spentMs: number): string[] {
  const block = args.lastIndexOf("BLOCK");
  const blockMs = Number(args[block + 1]);
  // 0 waits without limit, so the least is 1.
  if (block < 0 || blockMs === 0) return args;
  return args.with(block + 1, String(Math.max(1, Math.ceil(blockMs - spentMs))));
}
