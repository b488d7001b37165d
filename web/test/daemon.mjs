// The real musterd with its own data folder and ports, and real jobs in it. Everything it starts ends with it.
import { execFile, spawn } from "node:child_process";
import { existsSync, openSync } from "node:fs";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { eventually } from "./support.mjs";

const ENDED = ["succeeded", "failed", "cancelled"];

/// A TCP port that no other test takes until its claim is closed, as in tests/claimed_port.h.
async function claimPort() {
  for (;;) {
    const number = 61000 + Math.floor(Math.random() * 4536);
    const claim = createServer();
    const claimed = await new Promise((resolve) => {
      claim.once("error", () => resolve(false));
      claim.listen(`\0muster-test-port-${number}`, () => resolve(true));
    });
    if (claimed) return { number, claim: claim.unref() };
  }
}

export class Daemon {
  submitted = [];

  static async start() {
    const daemon = new Daemon();
    daemon.programs = process.env.MUSTER_PROGRAMS;
    if (!daemon.programs) throw new Error("MUSTER_PROGRAMS is not set: run the tests through ctest");
    daemon.folder = await mkdtemp(join(tmpdir(), "muster-real-"));
    daemon.data = join(daemon.folder, "data");
    daemon.ports = [await claimPort(), await claimPort()]; // kept, so that ranks and pages find a restarted daemon
    [daemon.listen, daemon.http] = daemon.ports.map((port) => `127.0.0.1:${port.number}`);
    await daemon.launch();
    daemon.token = (await readFile(join(daemon.data, "token"), "utf8")).trim();
    daemon.url = `http://${daemon.http}`;
    return daemon;
  }

  async launch() {
    const addresses = join(this.data, "musterd.json");
    await rm(addresses, { force: true });
    const log = openSync(join(this.folder, "musterd.log"), "a");
    const argv = ["--data-folder", this.data, "--listen", this.listen, "--http", this.http];
    this.process = spawn(join(this.programs, "musterd"), argv, { stdio: ["ignore", log, log] });
    this.exited = new Promise((resolve) => this.process.once("exit", resolve));
    await eventually(() => existsSync(addresses), "musterd is ready");
  }

  async kill(signal = "SIGKILL") {
    this.process.kill(signal);
    await this.exited;
  }

  async cli(...argv) {
    const env = { ...process.env, MUSTER_ADDRESS: this.listen, MUSTER_TOKEN_FILE: join(this.data, "token"), HOME: this.folder };
    return (await promisify(execFile)(join(this.programs, "muster"), argv, { env })).stdout;
  }

  /// The number of the new job, as text.
  async submit(toml) {
    const file = join(this.folder, `job-${this.submitted.length}.toml`);
    await writeFile(file, toml);
    const id = /^\d+/.exec(await this.cli("submit", file))[0];
    this.submitted.push(id);
    return id;
  }

  show = async (id) => JSON.parse(await this.cli("show", id, "--json"));
  untilJob = (id, done, what) => eventually(async () => {
    const job = await this.show(id);
    return done(job) && job;
  }, what);

  async stop() {
    if (this.process.exitCode !== null || this.process.signalCode !== null) await this.launch();
    for (const id of this.submitted) if (!ENDED.includes((await this.show(id)).state)) await this.cli("cancel", id);
    for (const id of this.submitted) await this.untilJob(id, (job) => ENDED.includes(job.state), `the end of job ${id}`);
    await this.kill("SIGTERM");
    for (const port of this.ports) port.claim.close();
    await rm(this.folder, { recursive: true });
  }
}

/// A small two-rank Llama on the built-in text. `more`: further tables of the job file.
export function trainingJob({ name = "training", steps, every_steps, step_delay_ms, validate = 0, requeue = "", more = "" }) {
  return `name = "${name}"
[resources]
ranks_per_node = 2
[model]
family = "llama"
hidden_size = 32
intermediate_size = 64
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 2
[data]
source = "fixture"
sequence_length = 32
[train]
steps = ${steps}
micro_batch_size = 2
batch_size = 8
learning_rate = 1e-2
warmup_steps = 5
validation_every_steps = ${validate}
step_delay_ms = ${step_delay_ms}
[checkpoint]
every_steps = ${every_steps}
[requeue]
backoff_initial = "100ms"
${requeue}
${more}`;
}

/// A job of one rank that runs a shell script.
export function shellJob(name, script, more = "") {
  return `name = "${name}"\ncommand = ["/bin/bash", "-c", '''${script}''']\n${more}`;
}
