// A network that breaks where the test says: between client and server, seen command by command.

import { createConnection, createServer, type AddressInfo, type Server, type Socket } from "node:net";

/** What happens to a command on its way. */
export type Fate =
  /** The connection breaks before the server sees it. */
  | "lost"
  /** The server carries it out; the connection breaks before the reply. */
  | "unanswered"
  /** Nothing is heard any more on this connection, and nothing closes. */
  | "silence"
  /** The network keeps it, and all that follows on this connection, until `deliver`; the client may be gone by then. */
  | "kept"
  /** The server never sees it; the client gets this reply. */
  | { answer: string };

export class Proxy {
  private readonly plan: { command: string; fate: Fate; times: number }[] = [];
  private readonly sockets = new Set<Socket>();
  private readonly kept: { server: Socket; data: Buffer[] }[] = [];
  private down = false;
  /** What met its fate. */
  readonly struck: string[] = [];

  private constructor(
    private readonly listener: Server,
    private readonly target: number,
  ) {}

  static start(target: number): Promise<Proxy> {
    return new Promise((resolve) => {
      const listener = createServer((client) => proxy.serve(client));
      const proxy = new Proxy(listener, target);
      listener.listen(0, "127.0.0.1", () => resolve(proxy));
    });
  }

  get port(): number {
    return (this.listener.address() as AddressInfo).port;
  }

  /** The next time(s) that the command passes, this happens. */
  next(command: string, fate: Fate, times = 1): void {
    this.plan.push({ command, fate, times });
  }

  /** Nobody gets through, and all that are connected are cut off. */
  cut(): void {
    this.down = true;
    for (const socket of this.sockets) socket.destroy();
  }

  mend(): void {
    this.down = false;
  }

  /** Whether something like this was kept. */
  keeps(pattern: RegExp): boolean {
    return this.kept.some(({ data }) => pattern.test(Buffer.concat(data).toString("latin1")));
  }

  /** What was kept arrives, and then its connections close. Gives what arrived. */
  async deliver(): Promise<string> {
    const arrived = this.kept.splice(0).map(async ({ server, data }) => {
      const all = Buffer.concat(data);
      // Read to its end, it has been carried out.
      await new Promise((resolve) => {
        server.once("close", resolve);
        server.resume();
        server.end(all);
      });
      return all.toString("latin1");
    });
    return (await Promise.all(arrived)).join("");
  }

  stop(): Promise<void> {
    this.cut();
    return new Promise((resolve) => this.listener.close(() => resolve()));
  }

  private serve(client: Socket): void {
    if (this.down) return void client.destroy();
    const server = createConnection(this.target, "127.0.0.1");
    const both = [client, server];
    let silent = false;
    let kept: Buffer[] | undefined;
    for (const socket of both) {
      this.sockets.add(socket);
      socket.on("error", () => {});
      socket.on("close", () => {
        this.sockets.delete(socket);
        for (const other of both) if (!other.destroyed && !(kept && other === server)) other.end();
      });
    }
    server.on("data", (data) => {
      if (!silent) client.write(data);
    });
    client.on("data", (data) => {
      if (kept) return void kept.push(data);
      if (silent) return;
      const fate = this.fateOf(data);
      if (fate === "lost") {
        for (const socket of both) socket.destroy();
      } else if (fate === "unanswered") {
        silent = true;
        server.write(data);
        server.once("data", () => both.forEach((socket) => socket.destroy()));
      } else if (fate === "silence") {
        silent = true;
      } else if (fate === "kept") {
        kept = [data];
        this.kept.push({ server, data: kept });
      } else if (fate) {
        client.write(fate.answer);
      } else {
        server.write(data);
      }
    });
  }

  private fateOf(data: Buffer): Fate | undefined {
    const text = data.toString("latin1").toUpperCase();
    const step = this.plan.find(({ command, times }) => times > 0 && text.includes(command));
    if (!step) return undefined;
    step.times--;
    this.struck.push(step.command);
    return step.fate;
  }
}
