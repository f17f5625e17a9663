// A client of a cluster for `make prove`, in a process of its own: it claims, waits, renews, releases and steals while the
// cluster is disturbed, and writes down what it was told, for the prover to check. Its input and output are those of
// tests/prove/worker.rs: it says `ready`; then come one line of JSON for each round, the line `stop`, and its answer, one line
// for each record and the line `done`.
//
//   node dist/test/prove.js <client library> <ports> <zero of all times, monotonic us> <number before the first attempt>

import { createInterface } from "node:readline";

import { Commands, LockError, Locks, type Connection } from "../src/index.js";
import { retrying } from "../src/retry.js";
import { Waiting } from "../src/waiting.js";
import { clusterDrivers } from "./support/drivers.js";

interface Settings {
  clients: number;
  keys: number;
  prefix: string;
  ttl_ms: [number, number];
  block_ms: number;
  steals_percent: number;
  think_us: number;
}

interface Job {
  seed: number;
  loads: Settings[];
}

type Ask =
  | { Claim: { attempt: number; ttl_ms: number; mode: "Plain" | "Block" | "Steal" } }
  | { Renew: { attempt: number; ttl_ms: number } }
  | { Release: { attempt: number } }
  | "Look";

type Answer = { Granted: number } | "Refused" | "One" | "Zero" | { Seen: [number, number] | null } | "Lost";

/** Without an end: nobody knows whether it was carried out, or when. */
interface Call {
  key: number;
  ask: Ask;
  start_us: number;
  end_us?: number;
  answer: Answer;
}

interface Section {
  key: string;
  fence: number;
  enter_us: number;
  leave_us: number;
}

const [library, ports, zero, first] = process.argv.slice(2) as [string, string, string, string];
const zeroUs = BigInt(zero);
let lastAttempt = Number(first);

function nowUs(): number {
  return Number(process.hrtime.bigint() / 1000n - zeroUs);
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** Choices that can be made again: a linear congruence, of which the upper bits are used. */
class Random {
  private state: bigint;

  constructor(seed: number, number: number) {
    this.state = BigInt(Math.trunc(seed)) * 1_000_003n + BigInt(number);
    for (let round = 0; round < 8; round++) this.below(2);
  }

  below(limit: number): number {
    this.state = (this.state * 6364136223846793005n + 1442695040888963407n) & 0xffff_ffff_ffff_ffffn;
    return Number((this.state >> 33n) % BigInt(limit));
  }

  between(least: number, most: number): number {
    return least + this.below(most - least + 1);
  }
}

/** One that calls as it likes, over the connection that it shares with the others; its waits have connections of their own. */
class Caller {
  /** What it thinks it holds, or may hold since the answer was lost. */
  private readonly mine = new Map<number, number>();
  private old: [number, number] | undefined;
  readonly calls: Call[] = [];

  constructor(
    private readonly settings: Settings,
    private readonly commands: Commands,
    private readonly waiting: Waiting,
    private readonly random: Random,
  ) {}

  async run(stopped: () => boolean): Promise<void> {
    while (!stopped()) {
      const key = this.random.below(this.settings.keys);
      await this.call(...this.choose(key));
      await sleep(this.random.below(this.settings.think_us + 1) / 1000);
    }
  }

  private choose(key: number): [number, Ask] {
    const [least, most] = this.settings.ttl_ms;
    const ttl_ms = this.random.between(least, most);
    const dice = this.random.below(100);
    const attempt = this.mine.get(key);
    if (attempt !== undefined) {
      if (dice < 45) return [key, { Release: { attempt } }];
      if (dice < 75) return [key, { Renew: { attempt, ttl_ms } }];
      if (dice < 85) return [key, { Claim: { attempt, ttl_ms, mode: "Plain" } }];
      return [key, "Look"];
    }
    if (dice < 4 && this.old) return [this.old[0], { Release: { attempt: this.old[1] } }];
    if (dice < 8 && this.old) return [this.old[0], { Renew: { attempt: this.old[1], ttl_ms } }];
    if (dice < 12) return [key, "Look"];
    const how = this.random.below(100);
    const mode = how < this.settings.steals_percent ? "Steal" : how < 70 && this.settings.block_ms > 0 ? "Block" : "Plain";
    return [key, { Claim: { attempt: ++lastAttempt, ttl_ms, mode } }];
  }

  private async call(key: number, ask: Ask): Promise<void> {
    const start_us = nowUs();
    let answer: Answer;
    try {
      answer = await this.send(`${this.settings.prefix}${key}`, ask);
    } catch (error) {
      if (!(error instanceof LockError)) throw error;
      // The client libraries send again by themselves, so an error says nothing of what was carried out before.
      answer = "Lost";
    }
    this.calls.push(answer === "Lost" ? { key, ask, start_us, answer } : { key, ask, start_us, end_us: nowUs(), answer });
    if (ask === "Look") return;
    const [[what, { attempt }]] = Object.entries(ask) as [[string, { attempt: number }]];
    if (what === "Claim" && answer !== "Refused") {
      this.mine.set(key, attempt);
    } else if (answer !== "Lost" && !(what === "Renew" && answer === "One") && this.mine.get(key) === attempt) {
      this.mine.delete(key);
      this.old = [key, attempt];
    }
  }

  private async send(key: string, ask: Ask): Promise<Answer> {
    if (ask === "Look") {
      const info = await this.commands.info(key);
      return { Seen: info && [Number(info.holder), info.fence] };
    }
    if ("Renew" in ask) {
      const { attempt, ttl_ms } = ask.Renew;
      return (await this.commands.renew(key, token(attempt), ttl_ms)) ? "One" : "Zero";
    }
    if ("Release" in ask) return (await this.commands.release(key, token(ask.Release.attempt))) ? "One" : "Zero";
    const { attempt, ttl_ms, mode } = ask.Claim;
    const terms = { ttlMs: ttl_ms, token: token(attempt), holder: String(attempt), steal: mode === "Steal" };
    const grant =
      mode === "Block"
        ? await this.waiting.claim(key, terms, this.random.between(1, this.settings.block_ms), NEVER)
        : await this.commands.claim(key, terms);
    if (grant && grant.token !== terms.token) throw new Error(`another's token: ${grant.token}`);
    return grant ? { Granted: grant.fence } : "Refused";
  }
}

const NEVER = new AbortController().signal;

function token(attempt: number): string {
  return `token-${attempt}`;
}

/** One that works under locks as applications do, with renewals, and notes when it surely held them. */
async function workUnderLocks(locks: Locks, random: Random, sections: Section[], stopped: () => boolean): Promise<void> {
  while (!stopped()) {
    const key = `section-${random.below(3)}`;
    const options = { ttlMs: random.between(900, 2500), waitMs: random.below(2) * 300 };
    try {
      await locks.withLock(key, options, async (lock) => {
        const section = { key, fence: lock.fence, enter_us: nowUs(), leave_us: 0 };
        const until = section.enter_us + random.below(10) ** 3 * 1000;
        do {
          const now_us = nowUs();
          if (!lock.held()) break;
          section.leave_us = now_us;
          await sleep(2);
        } while (nowUs() < until && !lock.signal.aborted);
        if (section.leave_us > 0) sections.push(section);
      });
    } catch (error) {
      if (!(error instanceof LockError)) throw error;
    }
    await sleep(random.below(20));
  }
}

/** What names no key, when all is quiet again: the locks that somebody holds all the time, and a label's own on all nodes. */
async function everywhere(commands: Commands): Promise<{ listed: number; revoked: number }> {
  const listed = await retrying(() => commands.list({ match: "kept-*" }), 10_000);
  const holder = `revoked-${process.pid}`;
  const keys = Array.from({ length: REVOKED }, (_, number) => `${holder}-${number}`);
  const revoked = await retrying(async () => {
    // One that was freed by a call whose answers were lost is claimed anew.
    await Promise.all(keys.map((key) => commands.claim(key, { ttlMs: 60_000, token: holder, holder })));
    return commands.revoke(holder);
  }, 10_000);
  return { listed: listed.length, revoked };
}

/** As many as the prover expects. */
const REVOKED = 30;

class Round {
  private stopped = false;
  private readonly sections: Section[] = [];
  private readonly callers: Caller[][];
  private readonly running: Promise<unknown>;

  constructor(
    job: Job,
    private readonly commands: Commands,
    waiting: Waiting,
    locks: Locks,
  ) {
    let number = 0;
    const stopped = () => this.stopped;
    this.callers = job.loads.map((settings) =>
      Array.from({ length: settings.clients }, () => {
        return new Caller(settings, commands, waiting, new Random(job.seed, ++number));
      }),
    );
    const workers = [1, 2].map(() => workUnderLocks(locks, new Random(job.seed, ++number), this.sections, stopped));
    this.running = Promise.all([...this.callers.flat().map((caller) => caller.run(stopped)), ...workers]);
    this.running.catch(fail);
  }

  async finish(): Promise<void> {
    this.stopped = true;
    await this.running;
    const lines = this.sections.map((section) => JSON.stringify({ Section: section }));
    lines.push(JSON.stringify({ Everywhere: await everywhere(this.commands) }));
    for (const [load, callers] of this.callers.entries()) {
      for (const { calls } of callers) {
        for (const call of calls) lines.push(JSON.stringify({ Call: { load, call } }));
      }
    }
    process.stdout.write([...lines, "done", ""].join("\n"));
  }
}

function fail(error: unknown): void {
  console.error(error);
  process.exit(1);
}

async function main(): Promise<void> {
  const driver = clusterDrivers.find(({ name }) => name === library);
  if (!driver) throw new Error(`no such client library: ${library}`);
  const connection: Connection = (await driver.open(ports.split(",").map(Number))).connection;
  const [commands, waiting] = [new Commands(connection), new Waiting(connection, 5000)];
  const locks = new Locks(connection, { holder: `worker-${process.pid}` });
  console.log("ready");
  let round: Round | undefined;
  for await (const line of createInterface({ input: process.stdin })) {
    if (line === "stop") await round?.finish();
    else round = new Round(JSON.parse(line) as Job, commands, waiting, locks);
  }
  // Whoever started it is gone, or has all it wanted.
  process.exit(0);
}

main().catch(fail);
