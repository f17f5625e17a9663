// What the locks need from a client library. `fromIoredis`, `fromNodeRedis` and the two for clusters make one of these.

/** What a reply can be in RESP2 and RESP3, as either client library gives it. */
export type Reply = unknown;

export interface Connection {
  /** Sends one command and gives its reply; rejects with the server's error or a lost connection. */
  send(args: string[]): Promise<Reply>;
  /** A cluster's: sends one command, which names no key, to every primary. */
  everywhere?(args: string[]): Promise<Reply[]>;
  /**
   * Another connection with the same address, user and database, for one call at a time that may wait. It has no
   * timeout for commands, and doesn't reconnect by itself: whoever waits on it wants to know at once that it broke.
   */
  open(): Promise<Connection>;
  /** Closes a connection that `open` made. What was sent before still reaches the server. */
  close(): void;
  /** Whether it is connected, as far as the client knows. */
  usable(): boolean;
  /** The last trouble with this connection, if it isn't ready now: the reason that a call gets no answer. */
  trouble(): Error | undefined;
}

/** A map's reply as an object: a flat array in RESP2; a Map, an object or a flat array in RESP3. */
export function toRecord(reply: Reply): Record<string, unknown> {
  if (reply instanceof Map) return Object.fromEntries(reply);
  if (Array.isArray(reply)) {
    const record: Record<string, unknown> = {};
    for (let i = 0; i + 1 < reply.length; i += 2) record[String(reply[i])] = reply[i + 1];
    return record;
  }
  return { ...(reply as Record<string, unknown>) };
}
