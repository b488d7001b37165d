"""Goal: on a real GPU a training survives kills with the numbers of an undisturbed one, no GPU has two attempts at any moment, and
out of memory, a kernel that never ends and what a job sees are told as they are.

Method: a real musterd with the driver's own list of GPUs, our engine on the GPU, and PyTorch with NCCL. Kills come at random times.
A judge of its own looks which processes have a GPU's device file open. MUSTER_GPU_KILLS is the number of kills; the seed is printed.
Usage: MUSTER_BIN_FOLDER=... run.py, see tests/peers/run.py. Without a GPU the tests are skipped (tools/testing/gpus.py).
"""

import glob
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import threading
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "system"), str(HERE.parents[1] / "tools" / "testing")]
import gpus  # noqa: E402
from daemon import Musterd, eventually  # noqa: E402

BIN = pathlib.Path(os.environ["MUSTER_BIN_FOLDER"])
KILLS = int(os.environ.get("MUSTER_GPU_KILLS", "12"))
SEED = int(os.environ.get("MUSTER_GPU_SEED", "1"))
IS_A_GPU = re.compile(r"/dev/nvidia\d+$")
HUNG_AFTER_S = 14
STEPS = 300
# Eight seconds of steps. A job is to be killed many times, so no failure counts as final.
TRAINING = f"""name = "trains"
executor = "local"
[resources]
gpus_per_rank = 1
[model]
family = "llama"
hidden_size = 256
num_hidden_layers = 4
num_attention_heads = 4
[data]
source = "fixture"
sequence_length = 64
[train]
steps = {STEPS}
micro_batch_size = 4
precision = "bf16"
deterministic = true
step_delay_ms = 25
validation_every_steps = 0
[checkpoint]
every_steps = 10
[requeue]
max_failed = 100000
max_rank_silent = 100000
max_rank_hung = 100000
max_same_error = 100000
max_controller_lost = 100000
backoff_initial = "100ms"
backoff_max = "100ms"
"""
WAYS = {"called": TRAINING, "replayed": TRAINING.replace("deterministic = true", "deterministic = true\ncuda_graph = true"),
        "saved beside the training": TRAINING.replace("every_steps = 10", "every_steps = 10\nasynchronous = true")}
# Takes all but 300 MiB of the GPU's memory, until nobody has its input any more.
STRANGER = """
import sys, torch
free, _ = torch.cuda.mem_get_info()
taken = torch.empty(free - (300 << 20), dtype=torch.uint8, device="cuda")
print(taken.numel(), "bytes", flush=True)
sys.stdin.read()
"""


def variables_of(pid):
    try:
        words = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    return dict(word.decode(errors="replace").split("=", 1) for word in words if b"=" in word)


def processes():
    """(process id, what it runs) of every process that can be seen."""
    for folder in glob.glob("/proc/[0-9]*"):
        try:
            yield int(folder[6:]), pathlib.Path(folder, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            pass


def has_a_gpu(pid):
    for link in glob.glob(f"/proc/{pid}/fd/*"):
        try:
            if IS_A_GPU.match(os.readlink(link)):
                return True
        except OSError:
            pass
    return False


class Judge(threading.Thread):
    """Looks all the time which attempts have a GPU's device file open."""

    def __init__(self):
        super().__init__(daemon=True)
        self.looks, self.with_a_gpu, self.twice = 0, 0, []
        self.over = threading.Event()

    def run(self):
        while not self.over.wait(0.02):
            attempts = set()
            for pid, _ in processes():
                variables = variables_of(pid)
                if "MUSTER_JOB_ID" in variables and has_a_gpu(pid):
                    attempts.add((variables["MUSTER_JOB_ID"], variables.get("MUSTER_ATTEMPT")))
            self.looks += 1
            self.with_a_gpu += bool(attempts)
            if len(attempts) > 1:
                self.twice.append(attempts)

    def stop(self):
        self.over.set()
        self.join()


class GpuStories(unittest.TestCase):
    def setUp(self):
        self.musterd = Musterd(self, BIN)

    def own(self, how, gpus=1):
        """A job of gpu_trainer.py. The submitter's PYTHONPATH is the job's: it has the package."""
        command = json.dumps([sys.executable, str(HERE / "gpu_trainer.py"), how])
        return self.musterd.submit(
            f'name = "{how}"\ncommand = {command}\nexecutor = "local"\n[resources]\n' + (f"gpus_per_rank = {gpus}\n" if gpus else "") +
            f'[liveness]\nhung_after = "{HUNG_AFTER_S}s"\n[requeue]\nmax_failed = 0\nmax_out_of_memory = 0\nbackoff_initial = "100ms"\n')

    def end_of(self, job):
        return self.musterd.until(job, lambda shown: shown["state"] in ("succeeded", "failed", "cancelled"))

    def log_of(self, job):
        return self.musterd.muster("logs", job).stdout

    def losses(self, job):
        rows = json.loads(self.musterd.muster("metrics", job, "--json").stdout)
        return {row["step"]: row["series"]["loss"] for row in rows if "loss" in row["series"]}

    def all_losses(self, job):
        """The last rows may come a moment after the news of the end."""
        eventually(lambda: len(self.losses(job)) == STEPS, 60)
        return self.losses(job)

    def pids_of(self, job, program):
        return [pid for pid, command in processes() if program in command.split(" ")[0] and variables_of(pid).get("MUSTER_JOB_ID") == job]

    def agents(self):
        return [pid for pid, command in processes() if "muster-agent" in command.split(" ")[0] and str(self.musterd.data) in command]

    def kill_and_start_again(self):
        self.musterd.process.kill()
        self.musterd.process.wait()
        self.musterd = Musterd(self, BIN, data=self.musterd.data)

    def hurt(self, chance, jobs):
        """One fault, whatever runs now. Returns its name, or None if nobody was there to be hurt."""
        kind = chance.choice(("rank", "rank", "agent", "musterd", "stopped rank"))
        if kind == "musterd":
            self.kill_and_start_again()
            return kind
        pids = self.agents() if kind == "agent" else [pid for job in jobs for pid in self.pids_of(job, "muster-worker")]
        if not pids:
            return None
        try:
            os.kill(chance.choice(pids), signal.SIGSTOP if kind == "stopped rank" else signal.SIGKILL)
        except ProcessLookupError:
            return None
        return kind

    def test_kills_change_no_number_and_no_gpu_has_two_attempts(self):
        wanted = {}
        for way, text in WAYS.items():
            undisturbed = self.musterd.submit(text)
            self.assertEqual(self.end_of(undisturbed)["state"], "succeeded", self.log_of(undisturbed))
            wanted[way] = self.all_losses(undisturbed)
            self.assertEqual(len(wanted[way]), STEPS)
        print(f"seed {SEED}", file=sys.stderr)
        chance, hurts, jobs = random.Random(SEED), [], {}  # jobs: number to way
        judge = Judge()
        judge.start()
        self.addCleanup(judge.stop)
        while len(hurts) < KILLS:
            open_jobs = [job for job in jobs if self.musterd.show(job)["state"] not in ("succeeded", "failed", "cancelled")]
            while len(open_jobs) < 2:  # so that one waits for the GPU of the other
                way = chance.choice(tuple(WAYS))
                open_jobs.append(self.musterd.submit(WAYS[way]))
                jobs[open_jobs[-1]] = way
            time.sleep(chance.random() * 2)  # where the training is then, nobody knows
            if (kind := self.hurt(chance, open_jobs)) is not None:
                hurts.append(kind)
        for job, way in jobs.items():
            shown = self.end_of(job)
            self.assertEqual(shown["state"], "succeeded", f"{shown['reason']}\n{self.log_of(job)[-3000:]}")
            self.assertEqual(self.all_losses(job), wanted[way], f"job {job}, {way}")
        judge.stop()
        attempts = sum(len(self.musterd.show(job)["attempts"]) for job in jobs)
        print(f"{ {kind: hurts.count(kind) for kind in sorted(set(hurts))} }: {len(jobs)} trainings in {attempts} attempts; "
              f"{judge.looks} looks, {judge.with_a_gpu} with a GPU in use", file=sys.stderr)
        self.assertEqual(judge.twice, [])
        self.assertGreater(judge.with_a_gpu, len(jobs))

    def test_a_job_sees_its_gpus_and_no_others(self):
        for gpus, seen in ((0, "GPUs: 0"), (1, "GPUs: 1")):
            job = self.own("sees", gpus)
            shown = self.end_of(job)
            self.assertEqual(shown["state"], "succeeded", shown["reason"])
            self.assertIn(seen, self.log_of(job))

    def test_what_a_training_uses_of_its_gpu_is_told(self):
        job = self.musterd.submit(TRAINING.replace("step_delay_ms = 25", "step_delay_ms = 1").replace(f"steps = {STEPS}", "steps = 100000"))

        def told():
            """Percent and bytes; 0 where nothing is told yet."""
            use = next((rank["use"] or {} for rank in self.musterd.show(job)["ranks"]), {})
            return use.get("gpu_percent") or 0, use.get("gpu_memory_bytes") or 0

        self.assertTrue(eventually(lambda: told()[0] > 0 and told()[1] > 100 << 20, 60), f"{told()}\n{self.log_of(job)[-2000:]}")
        top = self.musterd.muster("top", "--once").stdout
        self.assertRegex(top, r"GPU", top)
        self.musterd.muster("cancel", job)
        self.assertEqual(self.end_of(job)["state"], "cancelled")

    def test_a_gpu_without_memory_is_the_reason(self):
        job = self.own("runs_out")
        shown = self.end_of(job)
        self.assertEqual(shown["state"], "failed")
        self.assertRegex(shown["reason"], r"CUDA out of memory|OutOfMemoryError")
        # Somebody whom muster does not know has the memory of the GPU.
        stranger = subprocess.Popen([sys.executable, "-c", STRANGER], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
        self.addCleanup(stranger.wait)
        self.addCleanup(stranger.stdin.close)
        print("the stranger takes", stranger.stdout.readline().strip(), file=sys.stderr)
        stranger.stdout.close()
        large = TRAINING.replace("hidden_size = 256", "hidden_size = 2048").replace("[checkpoint]", "[fsdp]\ncheck_memory = false\n[checkpoint]")
        job = self.musterd.submit(re.sub(r"\[requeue\][^[]*", "[requeue]\nmax_out_of_memory = 0\n", large))
        shown = self.end_of(job)
        self.assertEqual((shown["state"], shown["attempts"][-1]["cause"]), ("failed", "out_of_memory"), f"{shown['reason']}\n{self.log_of(job)}")
        self.assertIn("out of memory", shown["reason"])

    def test_a_kernel_that_never_ends_is_a_hang_whose_gpu_is_free_again(self):
        job = self.own("hangs")
        suspected = self.musterd.until(job, lambda shown: "suspected" in shown["status"] or shown["state"] == "failed")
        self.assertEqual(suspected["status"], "running, suspected", suspected)
        shown = self.end_of(job)
        self.assertEqual((shown["state"], [one["cause"] for one in shown["attempts"]]), ("succeeded", ["rank_hung", "completed"]),
                         f"{shown['reason']}\n{self.log_of(job)}")
        kept = json.loads(self.musterd.muster("stacks", job, "--attempt", "1", "--json").stdout)
        self.assertEqual([(one["why"], one["given"]) for one in kept["sets"]], [("suspected", 1), ("before_end", 1)], kept)
        for number in (str(one["number"]) for one in kept["sets"]):
            view = json.loads(self.musterd.muster("stacks", job, "--attempt", "1", "--set", number, "--json").stdout)
            self.assertIn("waits_for_the_gpu", view["ranks"][0]["text"])


if __name__ == "__main__":
    verdict, why = gpus.judge(1, len(glob.glob("/dev/nvidia[0-9]*")))
    if verdict != gpus.RUNS:
        print(f"{verdict}: {why}", file=sys.stderr)
        sys.exit(77 if verdict == gpus.SKIPPED else 1)
    import torch  # takes seconds
    if torch.version.cuda is None:
        print(f"skipped: PyTorch of {sys.executable} is built without CUDA; set MUSTER_PEER_PYTHON to another Python", file=sys.stderr)
        sys.exit(77)
    unittest.main()
