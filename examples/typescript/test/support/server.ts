// Real servers for the tests: own port, own folder, on loopback, ended by the test that started them.

import { spawn, type ChildProcess } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createConnection, createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

const ROOT = findRoot();
export const MODULE = resolve(process.env["PRLOCK_MODULE"] ?? join(ROOT, "target/release/libprlock.so"));

/** The project's folder: tests run from `dist`, or from a copy of the example elsewhere. */
function findRoot(): string {
  const named = process.env["PRLOCK_ROOT"];
  if (named) return named;
  for (let folder = import.meta.dirname; folder !== "/"; folder = resolve(folder, "..")) {
    if (existsSync(join(folder, "Cargo.lock")) && existsSync(join(folder, "redis.conf"))) return folder;
  }
  throw new Error("the project's folder is not above this one: name it in PRLOCK_ROOT");
}

function program(): string {
  const kinds: Record<string, [string, string]> = {
    redis7: ["PRLOCK_REDIS7", "redis-server"],
    redis8: ["PRLOCK_REDIS8", join(ROOT, ".cache/servers/redis8/redis-server")],
    valkey8: ["PRLOCK_VALKEY8", join(ROOT, ".cache/servers/valkey8/valkey-server")],
    valkey9: ["PRLOCK_VALKEY9", join(ROOT, ".cache/servers/valkey9/valkey-server")],
  };
  const kind = kinds[process.env["PRLOCK_SERVER"] || "redis7"];
  if (!kind) throw new Error("PRLOCK_SERVER can be redis7, redis8, valkey8 or valkey9");
  return process.env[kind[0]] || kind[1];
}

export interface ServerOptions {
  /** Without the module, as a server that lost it. */
  module?: boolean;
  port?: number;
  args?: string[];
}

export class Server {
  private constructor(
    readonly port: number,
    readonly args: string[],
    private readonly folder: string,
    private readonly process: ChildProcess,
    private readonly exited: Promise<unknown>,
  ) {}

  static async start(options: ServerOptions = {}): Promise<Server> {
    const port = options.port ?? (await freePort());
    const folder = mkdtempSync(join(tmpdir(), "prlock-client-test-"));
    const args = ["--port", String(port), "--bind", "127.0.0.1", "--dir", folder, "--save", "", "--logfile", "log"];
    args.push("--maxmemory-policy", "noeviction", "--enable-debug-command", "local", "--repl-diskless-sync-delay", "0");
    if (options.module !== false) {
      if (!existsSync(MODULE)) throw new Error(`${MODULE} is missing: run 'make build' in the project's folder`);
      args.push("--loadmodule", MODULE);
    }
    args.push(...(options.args ?? []));
    const child = spawn(program(), args, { stdio: "ignore" });
    const exited = new Promise((resolve) => child.once("exit", resolve));
    child.once("error", () => {});
    const server = new Server(port, args, folder, child, exited);
    const until = Date.now() + 20_000;
    for (;;) {
      if (child.exitCode !== null || Date.now() > until) throw new Error(`the server did not start: ${server.log()}`);
      if ((await server.raw(["PING"]).catch(() => "")).match(/^(\+PONG|-NOAUTH)/)) return server;
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }

  get url(): string {
    return `redis://127.0.0.1:${this.port}`;
  }

  /** One command on a connection of its own, without any client library; gives the first line(s) of the reply. */
  raw(args: string[]): Promise<string> {
    return new Promise((resolve, reject) => {
      const socket = createConnection(this.port, "127.0.0.1", () => socket.write(encode(args)));
      socket.once("data", (data) => {
        resolve(data.toString());
        socket.destroy();
      });
      socket.once("error", reject);
      socket.once("close", () => reject(new Error("closed")));
    });
  }

  /** The number that the raw reply holds. */
  async number(...args: string[]): Promise<number> {
    const reply = await this.raw(args);
    if (!reply.startsWith(":")) throw new Error(`${args[0]}: no number: ${reply}`);
    return Number(reply.slice(1));
  }

  /** One field of INFO. */
  async info(section: string, field: string): Promise<string | undefined> {
    const reply = await this.raw(["INFO", section]);
    return new RegExp(`^${field}:(.*?)\r?$`, "m").exec(reply)?.[1];
  }

  /** Moves the whole slot, with the locks in it, to the other node, whatever each client believes. */
  async moveSlot(slot: number, target: Server): Promise<void> {
    await this.beginToMoveSlot(slot, target);
    const keys = [...(await this.raw(["CLUSTER", "GETKEYSINSLOT", String(slot), "1000"])).matchAll(/\$\d+\r\n(.*?)\r\n/g)];
    for (const [, key] of keys) await this.moveKey(key as string, target);
    const id = await target.nodeId();
    for (const node of [target, this]) await node.ok("CLUSTER", "SETSLOT", String(slot), "NODE", id);
  }

  async beginToMoveSlot(slot: number, target: Server): Promise<void> {
    await target.ok("CLUSTER", "SETSLOT", String(slot), "IMPORTING", await this.nodeId());
    await this.ok("CLUSTER", "SETSLOT", String(slot), "MIGRATING", await target.nodeId());
  }

  async moveKey(key: string, target: Server): Promise<void> {
    await this.ok("MIGRATE", "127.0.0.1", String(target.port), key, "0", "5000");
  }

  async nodeId(): Promise<string> {
    return (await this.raw(["CLUSTER", "MYID"])).split("\r\n")[1] as string;
  }

  async ok(...args: string[]): Promise<void> {
    const reply = await this.raw(args);
    if (!reply.startsWith("+OK")) throw new Error(`${args.join(" ")}: ${reply}`);
  }

  signal(signal: NodeJS.Signals): void {
    this.process.kill(signal);
  }

  async stop(): Promise<void> {
    this.process.kill("SIGCONT");
    this.process.kill("SIGKILL");
    await this.exited;
    rmSync(this.folder, { recursive: true, force: true });
  }

  private log(): string {
    const path = join(this.folder, "log");
    return existsSync(path) ? readFileSync(path, "utf8").slice(-2000) : "no log";
  }
}

export function encode(args: string[]): string {
  return `*${args.length}\r\n` + args.map((arg) => `$${Buffer.byteLength(arg)}\r\n${arg}\r\n`).join("");
}

export function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const probe = createServer().listen(0, "127.0.0.1", () => {
      const { port } = probe.address() as AddressInfo;
      probe.close(() => resolve(port));
    });
  });
}

/** Nodes that share the slots of one cluster evenly, without replicas. */
export async function startCluster(count: number): Promise<Server[]> {
  const nodes: Server[] = [];
  for (let node = 0; node < count; node++) {
    const args = ["--cluster-enabled", "yes", "--cluster-port", String(await freePort()), "--cluster-node-timeout", "5000"];
    nodes.push(await Server.start({ args }));
  }
  const [first] = nodes as [Server];
  const bus = /--cluster-port (\d+)/;
  const share = Math.ceil(16_384 / count);
  for (const [index, node] of nodes.entries()) {
    const last = Math.min(16_383, (index + 1) * share - 1);
    await node.ok("CLUSTER", "ADDSLOTSRANGE", String(index * share), String(last));
    const port = bus.exec(node.args.join(" "))?.[1] as string;
    if (node !== first) await first.ok("CLUSTER", "MEET", "127.0.0.1", String(node.port), port);
  }
  for (const node of nodes) {
    await until("the cluster serves", async () => {
      const info = await node.raw(["CLUSTER", "INFO"]);
      return info.includes("cluster_state:ok") && info.includes(`cluster_known_nodes:${count}`);
    });
  }
  return nodes;
}

/** Waits until it is so; fails after ten seconds. */
export async function until(what: string, check: () => Promise<boolean> | boolean): Promise<void> {
  const end = Date.now() + 10_000;
  while (!(await check())) {
    if (Date.now() > end) throw new Error(`not within 10 s: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
