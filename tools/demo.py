"""The whole story on one machine: submit, shard, train, watch, lose a rank, requeue, resume.

Usage: demo.py --bin FOLDER [--keep]
Starts a private musterd in a folder of its own, submits examples/manpages-llama.toml, kills rank 1 on purpose at a known
step, waits for the requeue and the resume, and prints what happened. Exit status 0 if the story ended well.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
JOB_FILE = ROOT / "examples" / "manpages-llama.toml"
KILL_AT_STEP = 50  # between two checkpoints, so that the resume visibly rewinds
VICTIM = 1
START_LIMIT_S = 30
STORY_LIMIT_S = 600


class DemoFailed(Exception):
    """One sentence for the person who watches."""


def say(text=""):
    print(text, flush=True)


class Progress:
    """A bar on a terminal, a plain line every 25 steps elsewhere."""

    def __init__(self):
        self.terminal = sys.stdout.isatty()
        self.last_line = -1
        self.open = False

    def show(self, job):
        step, total, loss = job["step"], job["steps_total"], job["loss"]
        if not total:
            return
        text = f"attempt {len(job['attempts'])}  step {step}/{total}"
        if loss is not None:
            text += f"  loss {loss:.3f}"
        if self.terminal:
            filled = 30 * step // total
            print(f"\r  [{'#' * filled}{'.' * (30 - filled)}] {text}   ", end="", flush=True)
            self.open = True
        elif step // 25 != self.last_line:
            self.last_line = step // 25
            say(f"  {text}")

    def close(self):
        if self.open:
            print()
        self.open = False


class Demo:
    def __init__(self, bin_folder, keep):
        self.bin = pathlib.Path(bin_folder).resolve()
        self.keep = keep
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-demo-"))
        self.daemon = None
        self.job = None
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("MUSTER_")}

    def start_daemon(self):
        log = open(self.folder / "musterd.log", "w")
        self.daemon = subprocess.Popen(
            [self.bin / "musterd", "--data-folder", self.folder / "data", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"],
            stdout=log, stderr=subprocess.STDOUT, env=self.environment, start_new_session=True)
        ready = self.folder / "data" / "musterd.json"
        deadline = time.monotonic() + START_LIMIT_S
        while not ready.exists():
            if self.daemon.poll() is not None or time.monotonic() > deadline:
                tail = (self.folder / "musterd.log").read_text().strip().splitlines()[-3:]
                raise DemoFailed("musterd did not start: " + " / ".join(tail))
            time.sleep(0.02)
        addresses = json.loads(ready.read_text())
        token_file = self.folder / "data" / "token"
        self.environment.update(MUSTER_ADDRESS=addresses["grpc"], MUSTER_TOKEN_FILE=str(token_file))
        self.dashboard = f"http://{addresses['http']}/#token={token_file.read_text().strip()}"

    def muster(self, *arguments):
        done = subprocess.run([self.bin / "muster", *arguments], capture_output=True, text=True, env=self.environment,
                              timeout=60)
        if done.returncode not in (0, 1):
            raise DemoFailed(f"muster {' '.join(arguments)}: {done.stderr.strip() or 'exit ' + str(done.returncode)}")
        return done.stdout

    def show(self):
        return json.loads(self.muster("show", self.job, "--json"))

    def metrics(self):
        return json.loads(self.muster("metrics", self.job, "--json"))

    def until(self, what, done, progress=None):
        """Polls the job until `done(job)` gives something true, which it returns."""
        deadline = time.monotonic() + STORY_LIMIT_S
        while time.monotonic() < deadline:
            job = self.show()
            if progress:
                progress.show(job)
            found = done(job)
            if found:
                return found
            if job["state"] in ("failed", "cancelled"):
                raise DemoFailed(f"the job is {job['state']} while waiting for {what}: {job['reason']}")
            time.sleep(0.1)
        raise DemoFailed(f"no {what} within {STORY_LIMIT_S} s")

    def lose_a_rank(self, progress):
        job = self.until(f"step {KILL_AT_STEP}",
                         lambda j: j if j["step"] >= KILL_AT_STEP and j["last_checkpoint_step"] > 0 else None, progress)
        victim = next(r for r in job["ranks"] if r["rank"] == VICTIM)
        if victim["pid"] <= 1:
            raise DemoFailed(f"rank {VICTIM} has no process to kill: {victim}")
        progress.close()
        killed_at = time.time()
        os.kill(victim["pid"], signal.SIGKILL)
        say(f"killed rank {VICTIM} (pid {victim['pid']}) on purpose at step {job['step']}, "
            f"{job['step'] - job['last_checkpoint_step']} steps after the checkpoint of step {job['last_checkpoint_step']}")
        return killed_at

    def recover(self, killed_at, progress):
        ended = self.until("end of attempt 1",
                           lambda j: next((a for a in j["attempts"] if a["number"] == 1 and a["state"] == "ended"), None))
        say(f"attempt 1 ended: {ended['cause']}, {ended['reason']}")
        self.until("attempt 2", lambda j: len(j["attempts"]) >= 2, progress)

        def first_step(job):
            return next((m for m in self.metrics() if m["attempt"] == 2), None)

        first = self.until("the first step of attempt 2", first_step)
        attempt = self.show()["attempts"][1]
        progress.close()
        say(f"attempt 2 resumed from step {attempt['resumed_from_step']}; its first step is {first['step']}")
        return first["at_ms"] / 1000 - killed_at, attempt

    def summary(self, seconds, attempt):
        metrics = self.metrics()
        losses = [m["loss"] for m in metrics]
        speeds = sorted(m["tokens_per_s"] for m in metrics)
        job = self.show()
        say()
        say(f"  job {self.job}            {job['state']}")
        for a in job["attempts"]:
            say(f"  attempt {a['number']}        {a['cause']}: {a['reason']}")
        say(f"  loss             {losses[0]:.3f} first, {losses[-1]:.3f} last")
        say(f"  throughput       {speeds[len(speeds) // 2]:.0f} tokens/s (median step)")
        say(f"  kill to next step  {seconds:.1f} s")
        if job["state"] != "succeeded" or attempt["resumed_from_step"] <= 0 or not losses[-1] < 0.8 * losses[0]:
            raise DemoFailed("the story did not end as it should: see the lines above")

    def run(self):
        progress = Progress()
        self.start_daemon()
        self.job = self.muster("submit", str(JOB_FILE)).split()[0]
        say(f"musterd runs (pid {self.daemon.pid}); submitted {JOB_FILE.relative_to(ROOT)} as job {self.job}: two ranks, real text")
        say(f"dashboard: {self.dashboard}")
        killed_at = self.lose_a_rank(progress)
        seconds, attempt = self.recover(killed_at, progress)
        self.until("end of the job", lambda j: j["state"] == "succeeded", progress)
        progress.close()
        self.summary(seconds, attempt)
        if self.keep:
            say(f"\nmusterd keeps running. Look around with:\n  export MUSTER_ADDRESS={self.environment['MUSTER_ADDRESS']} "
                f"MUSTER_TOKEN_FILE={self.environment['MUSTER_TOKEN_FILE']}\n  {self.bin / 'muster'} show {self.job}\n"
                f"stop it with: kill {self.daemon.pid}")

    def clean_up(self, succeeded):
        if self.daemon is None or (self.keep and succeeded):
            return
        if self.daemon.poll() is None:
            if self.job and not succeeded:
                subprocess.run([self.bin / "muster", "cancel", self.job], capture_output=True, env=self.environment, timeout=20)
                subprocess.run([self.bin / "muster", "wait", self.job, "--timeout", "30s"], capture_output=True,
                               env=self.environment, timeout=40)
            self.daemon.terminate()
            try:
                self.daemon.wait(10)
            except subprocess.TimeoutExpired:
                self.daemon.kill()
                self.daemon.wait()
        if succeeded:
            shutil.rmtree(self.folder, ignore_errors=True)
        else:
            say(f"logs are in {self.folder}")


def main():
    parser = argparse.ArgumentParser(description="The whole story on one machine.")
    parser.add_argument("--bin", required=True, help="folder with musterd, muster, muster-worker, muster-supervisor")
    parser.add_argument("--keep", action="store_true", help="leave musterd running at the end")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    demo = Demo(options.bin, options.keep)
    succeeded = False
    try:
        demo.run()
        succeeded = True
        return 0
    except DemoFailed as failure:
        say(f"\ndemo: {failure}")
        return 1
    except KeyboardInterrupt:
        say("\ndemo: interrupted; cleaning up")
        return 130
    finally:
        demo.clean_up(succeeded)


if __name__ == "__main__":
    sys.exit(main())
