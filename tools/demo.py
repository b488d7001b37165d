"""The whole story on one machine: submit, shard, train, watch, lose a rank, requeue, resume.

Usage: demo.py --bin FOLDER [--keep]
Starts a private musterd in its own folder, submits examples/manpages-llama.toml, kills rank 1 at a known step, waits for
the requeue and the resume, and prints what happened. Exit status 0 if the job succeeded.
"""

import argparse
import json
import os
import pathlib
import re
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
CALL_LIMIT_S = 60
STORY_LIMIT_S = 600  # shorter than the test's limit, so that it cleans up by itself


class DemoFailed(Exception):
    """The demo failed. The text is one sentence for the user."""


class Stopped(BaseException):
    """A signal asked the demo to end."""

    def __init__(self, number):
        super().__init__(number)
        self.number = number


class Signals:
    """Turns Ctrl-C, kill and a closed terminal into an orderly end. They cannot interrupt the clean-up."""

    def __init__(self):
        self.held = False
        self.pending = None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self.take)

    def take(self, number, _frame):
        self.pending = number
        if not self.held:
            raise Stopped(number)

    def hold(self):
        self.held = True

    def release(self):
        self.held = False
        if self.pending is not None:
            raise Stopped(self.pending)


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
        if not total or not job["attempts"]:
            return
        text = f"attempt {len(job['attempts'])}  step {step}/{total}"
        if loss is not None:
            text += f"  loss {loss:.3f}"
        if self.terminal:
            room = shutil.get_terminal_size().columns - len(text) - 6
            width = max(0, min(30, room))
            filled = width * step // total
            bar = f"[{'#' * filled}{'.' * (width - filled)}] " if width >= 5 else ""
            print(f"\r  {bar}{text}\x1b[K", end="", flush=True)
            self.open = True
        elif step // 25 != self.last_line:
            self.last_line = step // 25
            say(f"  {text}")

    def close(self):
        if self.open:
            print()
        self.open = False

    def note(self, text):
        """Prints a line above the bar."""
        if self.open:
            print("\r\x1b[K", end="")
        self.open = False
        say(text)


class Demo:
    def __init__(self, bin_folder, keep, signals):
        self.signals = signals
        self.bin = pathlib.Path(bin_folder).resolve()
        self.keep = keep
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-demo-"))
        self.daemon = None
        self.cleaning = False
        self.job = None
        self.deadline = time.monotonic() + STORY_LIMIT_S
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("MUSTER_")}

    def start_daemon(self):
        ready = self.folder / "data" / "musterd.json"
        ready.unlink(missing_ok=True)
        with open(self.folder / "musterd.log", "a") as log:
            self.signals.hold()  # a signal here could leave a daemon that the clean-up does not know
            try:
                self.daemon = subprocess.Popen(
                    [self.bin / "musterd", "--data-folder", self.folder / "data", "--listen", "127.0.0.1:0",
                     "--http", "127.0.0.1:0"],
                    stdout=log, stderr=subprocess.STDOUT, env=self.environment, start_new_session=True)
            except OSError as error:
                raise DemoFailed(f"{self.bin / 'musterd'} does not start ({error.strerror}); build it with ./dev build") from error
        if not self.cleaning:
            self.signals.release()
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

    def muster(self, *arguments, fine=(0, 1)):
        try:
            # The command runs in its own session, so that Ctrl-C reaches only the demo. The clean-up then uses the same
            # command.
            done = subprocess.run([self.bin / "muster", *arguments], capture_output=True, text=True, env=self.environment,
                                  timeout=CALL_LIMIT_S, start_new_session=True)
        except subprocess.TimeoutExpired:
            raise DemoFailed(f"muster {' '.join(arguments)}: no answer in {CALL_LIMIT_S} s") from None
        if done.returncode not in fine:
            raise DemoFailed(f"muster {' '.join(arguments)}: {done.stderr.strip() or 'exit ' + str(done.returncode)}")
        return done.stdout

    def show(self):
        return json.loads(self.muster("show", self.job, "--json"))

    def metrics(self):
        return json.loads(self.muster("metrics", self.job, "--json"))

    def until(self, what, done, progress=None):
        """Polls the job until `done(job)` returns a true value, and returns that value."""
        while time.monotonic() < self.deadline:
            job = self.show()
            if progress:
                progress.show(job)
            found = done(job)
            if found:
                return found
            if job["state"] in ("failed", "cancelled"):
                raise DemoFailed(f"the job is {job['state']} while waiting for {what}: {job['reason']}")
            time.sleep(0.1)
        raise DemoFailed(f"no {what} within the {STORY_LIMIT_S} s that the whole story may take")

    def text_of_the_run(self):
        """The name of the training text, from the worker's log: the manual pages, or the built-in text where pages are few."""
        said = re.search(r"tokens from (.+), batch ", self.muster("logs", self.job, "--attempt", "1", "--rank", "0"))
        return said.group(1) if said else None

    def last_checkpoint(self, attempt):
        """The newest step on disk that the attempt saved; 0 without any."""
        steps = [0]
        for manifest in pathlib.Path(self.show()["checkpoint_folder"]).glob("step-*/manifest.json"):
            try:
                saved = json.loads(manifest.read_text())
            except (OSError, ValueError):  # an older checkpoint that is being removed
                continue
            if saved["attempt"] == attempt:
                steps.append(saved["step"])
        return max(steps)

    def lose_a_rank(self, progress):
        job = self.until(f"step {KILL_AT_STEP}",
                         lambda j: j if j["step"] >= KILL_AT_STEP and j["last_checkpoint_step"] > 0 else None, progress)
        victim = next((r for r in job["ranks"] if r["rank"] == VICTIM), None)
        if victim is None or victim["pid"] <= 1:
            raise DemoFailed(f"rank {VICTIM} has no process to kill: {victim}")
        progress.close()
        killed_at = time.time()
        os.kill(victim["pid"], signal.SIGKILL)
        say(f"killed rank {VICTIM} (pid {victim['pid']}) on purpose at step {job['step']}")
        return killed_at

    def recover(self, killed_at, progress):
        ended = self.until("end of attempt 1",
                           lambda j: next((a for a in j["attempts"] if a["number"] == 1 and a["state"] == "ended"), None))
        saved = self.last_checkpoint(1)
        say(f"attempt 1 ended: {ended['cause']}, {ended['reason']}; its last checkpoint is of step {saved}")
        self.until("attempt 2", lambda j: len(j["attempts"]) >= 2, progress)

        def first_step(job):
            return next((m for m in self.metrics() if m["attempt"] == 2), None)

        first = self.until("the first step of attempt 2", first_step)
        attempt = self.show()["attempts"][1]
        progress.close()
        resumed = attempt["resumed_from_step"]
        say(f"attempt 2 resumed from step {resumed}; its first step is {first['step']}")
        if saved <= 0 or (resumed, first["step"]) != (saved, saved + 1):
            raise DemoFailed(f"attempt 2 should have gone on from the last checkpoint, that of step {saved}")
        return first["at_ms"] / 1000 - killed_at

    def summary(self, seconds, text):
        metrics = self.metrics()
        # A step has no loss if rank 0 died before it reported the step.
        losses = [m["loss"] for m in metrics if m["loss"] is not None]
        speeds = sorted(m["tokens_per_s"] for m in metrics if m["tokens_per_s"] is not None)
        job = self.show()
        rows = [(f"job {self.job}", job["state"])]
        rows += [(f"attempt {a['number']}", f"{a['cause']}: {a['reason']}") for a in job["attempts"]]
        rows += [("text", text),
                 ("loss", f"{losses[0]:.3f} first, {losses[-1]:.3f} last"),
                 ("throughput", f"{speeds[len(speeds) // 2]:.0f} tokens/s (median step)"),
                 ("kill to next step", f"{seconds:.1f} s")]
        say()
        for label, text in rows:
            say(f"  {label:<19}{text}")
        if job["state"] != "succeeded" or not losses[-1] < 0.8 * losses[0]:
            raise DemoFailed("the story did not end as it should: see the lines above")

    def run(self):
        progress = Progress()
        self.start_daemon()
        self.job = self.muster("submit", str(JOB_FILE)).split()[0]
        say(f"musterd runs (pid {self.daemon.pid}); submitted {JOB_FILE.relative_to(ROOT)} as job {self.job}")
        say(f"dashboard: {self.dashboard}")
        self.until("first step", lambda j: j["step"] >= 1, progress)
        text = self.text_of_the_run()
        if text is None:
            raise DemoFailed("the log of rank 0 does not say what it learns from")
        progress.note(f"two ranks learn from {text}")
        killed_at = self.lose_a_rank(progress)
        seconds = self.recover(killed_at, progress)
        self.until("end of the job", lambda j: j["state"] == "succeeded", progress)
        progress.close()
        self.summary(seconds, text)
        if self.keep:
            say(f"\nmusterd keeps running. Look around with:\n"
                f"  export MUSTER_ADDRESS={self.environment['MUSTER_ADDRESS']}\n"
                f"  export MUSTER_TOKEN_FILE={self.environment['MUSTER_TOKEN_FILE']}\n"
                f"  {self.bin / 'muster'} show {self.job}\n"
                f"Stop it and remove what it wrote with:\n"
                f"  kill {self.daemon.pid} && tail --pid={self.daemon.pid} -f /dev/null && rm -r {self.folder}")

    def end_jobs(self):
        """Cancels every job that has not ended. Ranks outlive their daemon, and a submission may have been interrupted."""
        for job in json.loads(self.muster("list", "--json")):
            if job["state"] not in ("succeeded", "failed", "cancelled"):
                self.muster("cancel", str(job["id"]), fine=(0, 2))  # 2: the job ended meanwhile
                self.muster("wait", str(job["id"]), "--timeout", "45s")

    def stop_daemon(self):
        self.daemon.terminate()
        try:
            self.daemon.wait(10)
        except subprocess.TimeoutExpired:
            self.daemon.kill()
            self.daemon.wait()

    def clean_up(self, keep_logs):
        """Ends all processes. Removes all files, unless the demo failed and the logs say why."""
        self.cleaning = True
        try:
            if "MUSTER_ADDRESS" in self.environment:
                if self.daemon.poll() is not None:  # the daemon died, but the ranks live on
                    self.start_daemon()
                self.end_jobs()
        except DemoFailed as failure:
            keep_logs = True
            print(f"demo: cleaning up: {failure}", file=sys.stderr)
        finally:
            if self.daemon is not None:
                self.stop_daemon()
        if keep_logs:
            print(f"logs are in {self.folder}", file=sys.stderr)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description="The whole story on one machine.")
    parser.add_argument("--bin", required=True, help="folder with musterd, muster, muster-data, muster-worker, muster-agent")
    parser.add_argument("--keep", action="store_true", help="leave musterd running at the end")
    options = parser.parse_args()
    signals = Signals()
    demo = Demo(options.bin, options.keep, signals)
    keep_running = keep_logs = False
    try:
        demo.run()
        keep_running = options.keep
        return 0
    except DemoFailed as failure:
        print(f"\ndemo: {failure}", file=sys.stderr)
        keep_logs = True
        return 1
    except BrokenPipeError:  # the reader of the output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Stopped as stop:
        print("\ndemo: interrupted; stopping the ranks and musterd", file=sys.stderr)
        return 128 + stop.number
    finally:
        signals.hold()
        if not keep_running:
            demo.clean_up(keep_logs)


if __name__ == "__main__":
    sys.exit(main())
