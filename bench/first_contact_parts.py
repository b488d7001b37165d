"""The parts of first_contact.py: each does one thing on this machine and returns what it measured, or raises Failed."""

import json
import os
import random
import shlex
import shutil
import signal
import statistics
import subprocess
import time

import engine
import model_flops
from controller import Controller
from first_contact_plan import ROOT, WARM_UP, Failed, dev_command, job_text, peer_command

STANDSTILL_S = 900  # a job that shows nothing new for so long has failed
PEER_LIMIT_S = 3600
LINE_EVERY_S = 60


def write_text(plan):
    """Words without sense to train on: enough for some hundred batches of a rank, and always the same."""
    file = plan.folder / "text" / "words.txt"
    if file.exists():
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    draw = random.Random(1)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9))) for _ in range(2000)]
    wanted = min(max(200 * plan.tokens() * plan.ranks, 64 << 10), 12 << 20)
    file.write_text("\n".join(" ".join(draw.choices(words, k=12)) + "." for _ in range(wanted // 78)))


def need_disk(plan):
    """Two checkpoints are there while one replaces the other."""
    needed = 2 * model_flops.CHECKPOINT_BYTES * plan.shape.parameters()
    free = shutil.disk_usage(plan.folder).free
    if free < needed:
        raise Failed(f"two checkpoints need {needed / 1e9:.0f} GB in {plan.folder}, which has {free / 1e9:.0f} GB free: make room, or "
                     "choose another --folder or a smaller --shape")


class Story:
    """A part's job under a musterd of its own."""

    def __init__(self, plan, part):
        self.plan, self.part = plan, part

    def __enter__(self):
        if not (self.plan.binaries / "musterd").exists():
            raise Failed(f"there is no musterd in {self.plan.binaries}: run ./dev build{'' if self.plan.cpu else ' --preset cuda'}")
        need_disk(self.plan)
        write_text(self.plan)
        file = self.plan.folder / f"{self.part}.toml"
        file.write_text(job_text(self.plan, self.part))
        self.controller = Controller(self.plan.binaries, self.plan.folder).__enter__()
        submitted = self.muster("submit", file)
        if submitted.returncode:
            self.controller.__exit__()
            raise Failed(f"muster submit refuses {file}: {' '.join(submitted.stderr.split())}")
        self.job = submitted.stdout.strip()
        return self

    def __exit__(self, failure, *_):
        if failure:
            self.muster("cancel", self.job)
            self.muster("wait", self.job, "--timeout", f"{STANDSTILL_S}s")
        (self.plan.folder / f"{self.part}.log").write_text(self.muster("logs", self.job).stdout)
        self.controller.__exit__()

    def muster(self, *words):
        return subprocess.run([self.plan.binaries / "muster", *words], capture_output=True, text=True, env=self.controller.environment,
                              timeout=2 * STANDSTILL_S)

    def until(self, what, condition):
        """What the job shows once the condition holds."""
        seen, since, told = None, time.monotonic(), time.monotonic()
        while True:
            shown = self.controller.json("show", self.job)
            if condition(shown):
                return shown
            if shown["state"] in ("succeeded", "failed", "cancelled"):
                raise Failed(f"the job {shown['state']} before {what}: {shown['reason']}")
            now = (shown["state"], len(shown["attempts"]), shown["step"], shown["last_checkpoint_step"])
            if now != seen:
                seen, since = now, time.monotonic()
            if time.monotonic() - since > STANDSTILL_S:
                raise Failed(f"nothing new for {STANDSTILL_S} s while waiting for {what}: {shown['status']}, step {shown['step']}")
            if time.monotonic() - told > LINE_EVERY_S:
                told = time.monotonic()
                print(f"  {self.part}: {shown['status']}, step {shown['step']}, loss {shown['loss']}", flush=True)
            time.sleep(0.2)

    def end(self, state="succeeded"):
        return self.until("its end", lambda shown: shown["state"] == state)

    def steps(self, attempt):
        """The metrics of an attempt, by step."""
        return {row["step"]: row for row in self.controller.json("metrics", self.job, "--attempt", str(attempt))}

    def first_step_of(self, attempt):
        """(its number, when it was told in seconds) of the first step that an attempt has made."""
        self.until(f"attempt {attempt}", lambda shown: len(shown["attempts"]) >= attempt)
        self.until(f"a step of attempt {attempt}", lambda _: self.steps(attempt))
        step, row = min(self.steps(attempt).items())
        return step, row["at_ms"] / 1000

    def resumed(self, attempt):
        """(resumed from, last step of the attempt before, first step, when): an attempt must go on behind its checkpoint."""
        first, at = self.first_step_of(attempt)
        start = self.controller.json("show", self.job)["attempts"][attempt - 1]["resumed_from_step"]
        last = max(self.steps(attempt - 1))
        if not start or first != start + 1:
            raise Failed(f"attempt {attempt} resumed from step {start}, and its first step is {first}")
        return start, last, first, at


def train(plan, part):
    """A whole training, undisturbed. Every step must have been told once."""
    with Story(plan, part) as story:
        shown = story.end()
        rows = story.steps(1)
    if len(shown["attempts"]) != 1 or sorted(rows) != list(range(1, plan.steps + 1)):
        raise Failed(f"{len(shown['attempts'])} attempts told {len(rows)} steps; want one attempt and {plan.steps} steps")
    counted = [row for step, row in rows.items() if step > min(WARM_UP, plan.steps // 2)]
    series = "tensor_peak_bytes" if plan.cpu else "gpu_memory_peak"
    return {"steps": plan.steps, "step_ms": statistics.median(row["step_ms"] for row in counted),
            "memory_bytes": max(row["series"][series] for row in counted), "losses": [rows[step]["loss"] for step in sorted(rows)]}


def kill(plan, part):
    """SIGKILL of the last rank between two checkpoints."""
    every = plan.story_steps() // 4
    with Story(plan, part) as story:
        shown = story.until("a step between two checkpoints", lambda s: s["last_checkpoint_step"] and
                            every // 3 < s["step"] - s["last_checkpoint_step"] <= 2 * every // 3)
        saved, victim = shown["last_checkpoint_step"], shown["ranks"][-1]
        killed_at = time.time()
        os.kill(victim["pid"], signal.SIGKILL)
        start, last, first, at = story.resumed(2)
        reason = story.controller.json("show", story.job)["attempts"][0]["reason"]
        story.end()
        whole = sorted(set(story.steps(1)) | set(story.steps(2)))
    if start < saved or start % every or whole != list(range(1, plan.story_steps() + 1)):
        raise Failed(f"the newest checkpoint was of step {saved}, and attempt 2 resumed from step {start} and told steps {whole}")
    return {"rank": victim["rank"], "reason": reason, "resumed_from": start, "last": last, "first": first, "seconds": at - killed_at}


def stop(plan, part):
    """A requeue by a person, which loses no step, and a cancel, which leaves a checkpoint of the last one."""
    third = plan.story_steps() // 3
    with Story(plan, part) as story:
        story.until(f"step {third}", lambda shown: shown["step"] >= third)
        asked_at = time.time()
        story.muster("requeue", story.job)
        start, last, first, at = story.resumed(2)
        if start != last:
            raise Failed(f"attempt 1 made step {last}, but attempt 2 resumed from step {start}")
        story.until(f"step {2 * third}", lambda shown: shown["step"] >= 2 * third)
        story.muster("cancel", story.job)
        shown, end = story.end("cancelled"), max(story.steps(2))
    if shown["last_checkpoint_step"] != end:
        raise Failed(f"the last step before the cancel was {end}, and the last checkpoint is of step {shown['last_checkpoint_step']}")
    return {"resumed_from": start, "first": first, "seconds": at - asked_at, "cancelled_at": end}


def run_dev(plan, part):
    """A command of ./dev, whose output goes to the screen and into the folder."""
    last_line = "it said nothing"
    with open(plan.folder / f"{part}.log", "w") as log:
        done = subprocess.Popen(dev_command(part), cwd=ROOT, env={**os.environ, "MUSTER_EXPECT_GPUS": str(plan.machine.seen)},
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for line in done.stdout:
            print(line, end="", flush=True)
            log.write(line)
            last_line = line.strip() or last_line
    if done.wait():
        raise Failed(f"{shlex.join(dev_command(part))}: {last_line}; see {plan.folder / part}.log")
    return {"said": last_line}


def triton_missing(python):
    """What to do where the Python cannot compile for GPUs; empty where it can."""
    ask = ("import importlib.metadata as m, importlib.util as u\n"
           "print('' if u.find_spec('triton') else next(r.split(';')[0].strip() for r in m.requires('torch') if r.startswith('triton')))")
    wanted = subprocess.run([python, "-c", ask], capture_output=True, text=True).stdout.strip()
    return f"{python} cannot compile for GPUs: run {python} -m pip install --no-deps {shlex.quote(wanted)}" if wanted else ""


def fsdp2(plan, part):
    command = peer_command(plan)
    if engine.peer_python() is None:
        raise Failed("it wants a Python with PyTorch: run ./dev setup --peers, or set MUSTER_PEER_PYTHON")
    if not plan.cpu and (why := triton_missing(command[0])):
        raise Failed(why)
    version = subprocess.run([command[0], "-c", "import importlib.metadata as m; print(m.version('torch'))"], capture_output=True, text=True)
    log = plan.folder / f"{part}.log"
    with open(log, "w") as errors:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=errors, text=True, timeout=PEER_LIMIT_S,
                              env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode or not done.stdout.strip():
        raise Failed(f"engine_peer.py ended with {done.returncode}; see {log}")
    told = json.loads(done.stdout.splitlines()[-1])
    memory = told["peak_cuda_mb"]
    return {"torch": version.stdout.strip(), "step_ms": told["step_ms"], "memory_bytes": memory and memory * 1e6}


DO = {"build": run_dev, "tests": run_dev, "two_communicators": train, "one_communicator": train, "kill": kill, "stop": stop, "fsdp2": fsdp2}
