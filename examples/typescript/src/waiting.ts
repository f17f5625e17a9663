import { claimArgs, releaseArgs, toGrant, type ClaimTerms, type Grant } from "./commands.js";
import type { Connection, Reply } from "./connection.js";
import { explain } from "./errors.js";
import { within } from "./time.js";

/** How many idle connections are kept for the next wait. */
const SPARE = 4;
/** For how long. They would keep a process alive whose own client is closed. */
const SPARE_MS = 2000;

/**
 * The connections on which claims wait in the server. A waiting claim holds up everything that is sent behind it, so each
 * has a connection of its own; those that are done serve the next wait.
 */
export class Waiting {
  /** Idle connections, the last used behind, and the timers that close them. */
  private readonly spare = new Map<Connection, NodeJS.Timeout>();
  private closed = false;

  constructor(
    private readonly connection: Connection,
    private readonly replyMs: number,
  ) {}

  /**
   * Claims, and waits for the lock up to `waitMs` (Infinity: without limit). When it rejects, by the signal or by trouble,
   * the server may still grant the claim, if the connection broke: the caller releases the token then.
   */
  async claim(key: string, terms: ClaimTerms, waitMs: number, signal: AbortSignal): Promise<Grant | null> {
    const connection = await this.take(signal);
    // BLOCK 0 waits without limit, so the least is 1.
    const blockMs = waitMs === Infinity ? 0 : Math.max(1, Math.ceil(waitMs));
    const late = new Error(`no reply within ${this.replyMs} ms after the time to wait`);
    let reply: Reply;
    try {
      const claim = connection.send([...claimArgs(key, terms), "BLOCK", String(blockMs)]);
      reply = await within(claim, waitMs + this.replyMs, late, signal);
    } catch (error) {
      this.abandon(connection, signal.aborted ? releaseArgs(key, terms.token) : undefined);
      throw signal.aborted ? signal.reason : explain("PRLOCK.CLAIM", error, connection.trouble());
    }
    if (reply === late) {
      this.abandon(connection);
      throw explain("PRLOCK.CLAIM", late, connection.trouble());
    }
    this.give(connection);
    return toGrant(reply);
  }

  close(): void {
    this.closed = true;
    for (const connection of this.spare.keys()) this.pick(connection).close();
  }

  private async take(signal: AbortSignal): Promise<Connection> {
    signal.throwIfAborted();
    for (const spare of [...this.spare.keys()].reverse()) {
      this.pick(spare);
      if (spare.usable()) return spare;
      spare.close();
    }
    const opening = this.connection.open();
    try {
      const late = new Error(`not connected within ${this.replyMs} ms`);
      const connection = await within(opening, this.replyMs, late, signal);
      if (connection instanceof Error) throw connection;
      return connection;
    } catch (error) {
      // One that opens later, after all, is not wanted any more.
      opening.then((connection) => connection.close()).catch(() => {});
      throw signal.aborted ? signal.reason : explain("PRLOCK.CLAIM", error, this.connection.trouble());
    }
  }

  private give(connection: Connection): void {
    if (this.closed || this.spare.size >= SPARE || !connection.usable()) connection.close();
    else this.spare.set(connection, setTimeout(() => this.pick(connection).close(), SPARE_MS).unref());
  }

  /** Takes it out of the idle ones. */
  private pick(connection: Connection): Connection {
    clearTimeout(this.spare.get(connection));
    this.spare.delete(connection);
    return connection;
  }

  /**
   * Leaves a connection whose claim is under way. The server drops a waiter whose connection closes. If the claim is given
   * up for good, a release follows it on the same connection, for when the server hasn't read it yet, or has just granted
   * it. If it may be sent again with the same token, no release does: a server that stood still could carry it out after it
   * granted the second claim.
   */
  private abandon(connection: Connection, release?: string[]): void {
    if (release) connection.send(release).catch(() => {});
    // The clients write what was sent at the end of this turn.
    setImmediate(() => setImmediate(() => connection.close()));
  }
}
