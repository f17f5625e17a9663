// What is wrong, and what to do about it, in words for whoever runs the worker.

export type Code =
  | "NO_MODULE"
  | "OLD_MODULE"
  | "REPLICA"
  | "PASSWORD"
  | "RIGHTS"
  | "CLUSTER"
  | "TYPE"
  | "ARGUMENT"
  | "MEMORY"
  | "SERVER"
  | "CONNECTION"
  | "SHUTDOWN"
  | "BUSY"
  | "LOST";

/** Every error of this example. */
export class LockError extends Error {
  override readonly name: string = "LockError";

  constructor(
    readonly code: Code,
    message: string,
    /** It may go away by itself soon, so a retry makes sense; else somebody has to change something. */
    readonly passing = false,
  ) {
    super(message);
  }
}

/** Refused: another token holds the lock, and the time to wait, if any, is up. */
export class LockBusy extends LockError {
  override readonly name = "LockBusy";

  constructor(readonly key: string) {
    super("BUSY", `Another holder has the lock ${JSON.stringify(key)}.`, true);
  }
}

/** The reason of the signal that fires when a lock is lost while its work runs. */
export class LockLost extends LockError {
  override readonly name = "LockLost";

  constructor(
    readonly key: string,
    /** `taken`: the server says that it is not ours. `deadline`: no renewal came through for its whole lifetime. */
    readonly why: "taken" | "deadline" | "shutdown",
  ) {
    super(
      "LOST",
      `The lock ${JSON.stringify(key)} is lost: ` +
        {
          taken: "the server says that this token no longer holds it (it lapsed, or was stolen, revoked or deleted).",
          deadline: "no renewal has come through since a whole lifetime, so another may hold it by now.",
          shutdown: "this process is shutting down, and released it.",
        }[why],
    );
  }
}

/** Known errors of the server: how they begin, what is wrong and what to do, and whether they pass. */
const KNOWN: [RegExp, Code, boolean, string][] = [
  [
    /^ERR unknown command/i,
    "NO_MODULE",
    false,
    "This server has no PRLOCK module, or came back without it after a restart or failover. Add 'loadmodule " +
      ".../libprlock.so' to the redis.conf of every node, replicas too, and restart it; 'MODULE LIST' must name prlock.",
  ],
  [
    /^ERR (syntax error|wrong number of arguments)/i,
    "OLD_MODULE",
    false,
    "The server's PRLOCK module is older than this client and doesn't know one of the options. Upgrade the module " +
      "('MODULE LIST' shows its version), or leave the option out.",
  ],
  [
    /^READONLY/,
    "REPLICA",
    false,
    "This address is a replica's. Locks are claimed on the primary: connect to it ('INFO replication' names it), or " +
      "through Sentinel.",
  ],
  [
    /^(NOAUTH|WRONGPASS|ERR invalid password|ERR AUTH)/i,
    "PASSWORD",
    false,
    "The server wants another user or password. Set them in the client's options or URL.",
  ],
  [
    /^NOPERM/,
    "RIGHTS",
    false,
    "The ACL user lacks a right. For keys that begin with 'locks:' the server's administrator gives it with: ACL SETUSER " +
      "<user> ~locks:* +prlock.claim +prlock.renew +prlock.release +prlock.revoke",
  ],
  [
    /^(MOVED|ASK|CROSSSLOT)/,
    "CLUSTER",
    false,
    "This server is part of a cluster: give a cluster client to fromIoredisCluster or fromNodeRedisCluster.",
  ],
  [/^WRONGTYPE/, "TYPE", false, "The key holds something else than a lock. Choose another key."],
  [/^OOM/, "MEMORY", false, "The server is at maxmemory and grants no new locks: free memory, or raise maxmemory."],
  [
    /^(UNBLOCKED|LOADING|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|BUSY|NOREPLICAS|MISCONF)/,
    "SERVER",
    true,
    "The server can't do it now: it starts, fails over, lacks its replicas or can't write to its disk. Its log says more.",
  ],
  [/^ERR (invalid expire|value is|timeout is|token must|holder must)/, "ARGUMENT", false, "An argument is out of range."],
];

/** The error of a call to the server or of its connection, explained. */
export function explain(command: string, error: unknown, trouble?: Error): LockError {
  if (error instanceof LockError) return error;
  const text = textOf(error);
  const known = find(text);
  if (known) return known(command, text);
  // A client that can't log in goes on trying, and its calls say at most that the connection is closed.
  const behind = trouble && find(textOf(trouble));
  if (behind) return behind(command, textOf(trouble));
  const because = trouble && textOf(trouble) !== text ? ` (${firstPart(textOf(trouble))})` : "";
  if (error instanceof Error && /^(ReplyError|ErrorReply|SimpleError|BlobError)$/.test(error.constructor.name)) {
    return new LockError("SERVER", `${command}: ${firstPart(text)}`, false);
  }
  return new LockError(
    "CONNECTION",
    `${command}: ${firstPart(text)}${because}. No answer from the server: is it running, and are host, port and TLS ` +
      "right? Whether the command was carried out is not known.",
    true,
  );
}

function find(text: string) {
  const row = KNOWN.find(([pattern]) => pattern.test(text));
  if (!row) return undefined;
  const [, code, passing, advice] = row;
  return (command: string, text: string) => new LockError(code, `${command}: ${firstPart(text)}. ${advice}`, passing);
}

function textOf(error: unknown): string {
  if (error instanceof AggregateError && error.errors.length > 0) return textOf(error.errors[0]);
  return error instanceof Error ? error.message || error.name : String(error);
}

/** Without the arguments that some servers repeat in the text: the token is a secret. */
function firstPart(text: string): string {
  return text.replace(/,? with args beginning with:.*$/s, "").replace(/\.$/, "");
}
