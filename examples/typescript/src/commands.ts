import { toRecord, type Connection, type Reply } from "./connection.js";
import { explain, LockError } from "./errors.js";
import { within } from "./time.js";

export interface Grant {
  token: string;
  /** Rises with every grant: give it to what the lock protects, so that it can refuse an older holder. */
  fence: number;
}

export interface LockInfo {
  key: string;
  holder: string;
  fence: number;
  /** -1: without a deadline. */
  ttlMs: number;
  heldMs: number;
  idleMs: number;
  renewals: number;
  /** -1: none. */
  lingerMs: number;
  waiters: number;
}

export interface ClaimTerms {
  ttlMs: number;
  /** The secret that renews and releases. The same token again is granted again, so a claim can be retried. */
  token: string;
  /** A public label, such as `worker-7`. */
  holder?: string | undefined;
  /** Frees the lock this long after the connection that claimed or renewed it last is gone. */
  lingerMs?: number | undefined;
  /** Takes the lock from whoever holds it, or only from the grant with this fence. */
  steal?: boolean | { fence: number } | undefined;
}

/** The module's commands with types. Every error is a `LockError`; a refusal is a value, never an error. */
export class Commands {
  constructor(
    private readonly connection: Connection,
    /** How long a reply may take. */
    private readonly replyMs = 5000,
  ) {}

  async claim(key: string, terms: ClaimTerms): Promise<Grant | null> {
    return toGrant(await this.call(claimArgs(key, terms)));
  }

  /** Sets the deadline anew. False: this token (and grant, with `fence`) no longer holds the lock. */
  async renew(key: string, token: string, ttlMs: number, fence?: number): Promise<boolean> {
    return toBoolean(await this.call(["PRLOCK.RENEW", key, token, "PX", String(ttlMs), ...fenceArgs(fence)]));
  }

  /** False: there was nothing of this token (and grant) to release. */
  async release(key: string, token: string, fence?: number): Promise<boolean> {
    return toBoolean(await this.call(releaseArgs(key, token, fence)));
  }

  async info(key: string): Promise<LockInfo | null> {
    const reply = await this.call(["PRLOCK.INFO", key]);
    return reply === null ? null : toInfo(reply);
  }

  /** The locks of the database, of all nodes of a cluster, in the order of their keys. */
  async list(options: { match?: string; holder?: string; after?: string; count?: number } = {}): Promise<LockInfo[]> {
    const args = ["PRLOCK.LIST"];
    if (options.match !== undefined) args.push("MATCH", options.match);
    if (options.holder !== undefined) args.push("HOLDER", options.holder);
    if (options.after !== undefined) args.push("AFTER", options.after);
    if (options.count !== undefined) args.push("COUNT", String(options.count));
    const lists = (await this.callEverywhere(args)) as Reply[][];
    if (lists.length === 1) return (lists[0] as Reply[]).map(toInfo);
    return merge(lists.flat().map(toInfo)).slice(0, options.count);
  }

  /** Frees all locks with this label, on all nodes of a cluster, and says how many. */
  async revoke(holder: string): Promise<number> {
    const counts = await this.callEverywhere(["PRLOCK.REVOKE", holder]);
    return counts.reduce((sum: number, count) => sum + Number(count), 0);
  }

  private call(args: string[]): Promise<Reply> {
    return this.answered(args[0] as string, this.connection.send(args));
  }

  /** A command that names no key acts on one node alone. */
  private async callEverywhere(args: string[]): Promise<Reply[]> {
    if (!this.connection.everywhere) return [await this.call(args)];
    return this.answered(args[0] as string, this.connection.everywhere(args));
  }

  private async answered<T>(command: string, answer: Promise<T>): Promise<T> {
    const late = new Error(`no reply within ${this.replyMs} ms`);
    let reply: T | Error;
    try {
      reply = await within(answer, this.replyMs, late);
    } catch (error) {
      throw explain(command, error, this.connection.trouble());
    }
    if (reply === late) throw explain(command, late, this.connection.trouble());
    return reply as T;
  }
}

export function claimArgs(key: string, terms: ClaimTerms): string[] {
  const args = ["PRLOCK.CLAIM", key, "PX", String(terms.ttlMs), "TOKEN", terms.token];
  if (terms.holder !== undefined) args.push("HOLDER", terms.holder);
  if (terms.lingerMs !== undefined) args.push("LINGER", String(terms.lingerMs));
  if (terms.steal === true) args.push("STEAL");
  else if (terms.steal) args.push("STEALIF", String(terms.steal.fence));
  return args;
}

export function releaseArgs(key: string, token: string, fence?: number): string[] {
  return ["PRLOCK.RELEASE", key, token, ...fenceArgs(fence)];
}

function fenceArgs(fence: number | undefined): string[] {
  return fence === undefined ? [] : ["FENCE", String(fence)];
}

/** Only what has the shape of a grant is one: anything else must not pass for a lock. */
export function toGrant(reply: Reply): Grant | null {
  if (reply === null) return null;
  if (Array.isArray(reply) && reply.length === 2) {
    const [token, fence] = [String(reply[0]), Number(reply[1])];
    if (Number.isSafeInteger(fence)) return { token, fence };
  }
  throw new LockError("SERVER", "PRLOCK.CLAIM: a reply that is neither a grant nor a refusal. What server is this?");
}

function toBoolean(reply: Reply): boolean {
  const number = Number(reply);
  if (number === 1 || number === 0) return number === 1;
  throw new LockError("SERVER", "A reply that is neither 1 nor 0. What server is this?");
}

function toInfo(reply: Reply): LockInfo {
  const map = toRecord(reply);
  return {
    key: String(map["key"]),
    holder: String(map["holder"]),
    fence: Number(map["fence"]),
    ttlMs: Number(map["ttl-ms"]),
    heldMs: Number(map["held-ms"]),
    idleMs: Number(map["idle-ms"]),
    renewals: Number(map["renewals"]),
    lingerMs: Number(map["linger-ms"]),
    waiters: Number(map["waiters"]),
  };
}

/** The lists of several nodes as one. A lock that moved from one to the other meanwhile may be in both. */
function merge(locks: LockInfo[]): LockInfo[] {
  const byKey = new Map<string, LockInfo>();
  for (const lock of locks) {
    const other = byKey.get(lock.key);
    if (!other || other.fence < lock.fence) byKey.set(lock.key, lock);
  }
  return [...byKey.values()].sort((a, b) => Buffer.compare(Buffer.from(a.key), Buffer.from(b.key)));
}
