"""Goal: ordinary trainers that pause as people's do are ended by nobody: slow imports, a download before the first step, evaluations of
a minute and of seven, with and without a word, five minutes between two steps, an end long after the last step.

Method: released packages and a real musterd, local processes; the limits of muster are its own. All trainers of a test run beside each
other, since they wait for most of it.
Usage: MUSTER_BIN_FOLDER=... run.py, see tests/peers/run.py
"""

import json
import os
import pathlib
import sys
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "system"))
from daemon import Musterd  # noqa: E402

BIN = pathlib.Path(os.environ["MUSTER_BIN_FOLDER"])
PROGRAM = str(HERE / "patient.py")
TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "2", PROGRAM, "torch")
ACCELERATE = ("-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no",
              "--dynamo_backend", "no", PROGRAM, "accelerate")
# What [report] of a job file says of a program that knows nothing of muster.
REPORT = "[report.log]\nstep = 'step (\\d+)'\nloss = 'loss (\\S+)'\n"

# The name of a trainer: its command, its ranks (0: it starts them itself), and its pauses. The longest are submitted first.
TRAINERS = {
    "ddp-evaluates-400": ((PROGRAM, "torch"), 2, "evaluates=400"),
    "ddp-evaluates-400-and-talks": ((PROGRAM, "torch"), 2, "evaluates=400 talks=1"),
    "torchrun-evaluates-400": (TORCHRUN, 0, "evaluates=400"),
    "lightning-evaluates-400": ((PROGRAM, "lightning"), 1, "evaluates=400"),
    "transformers-evaluates-400": ((PROGRAM, "transformers"), 1, "evaluates=400"),
    "accelerate-evaluates-400": ((PROGRAM, "accelerate"), 2, "evaluates=400"),
    "report-evaluates-400": ((PROGRAM, "plain"), 1, "evaluates=400"),
    "ddp-has-a-gap": ((PROGRAM, "torch"), 2, "gap=300"),
    "lightning-has-a-gap": ((PROGRAM, "lightning"), 1, "gap=300"),
    "accelerate-has-a-gap": (ACCELERATE, 0, "gap=300 ends=25"),
    "ddp-ends-25": ((PROGRAM, "torch"), 2, "imports=20 evaluates=60 ends=25"),
    "ddp-ends-60": ((PROGRAM, "torch"), 2, "imports=20 evaluates=60 ends=60 talks=1"),
    "ddp-downloads": ((PROGRAM, "torch"), 2, "imports=20 downloads=120"),
    "torchrun-ends-25": (TORCHRUN, 0, "imports=20 evaluates=60 ends=25"),
    "torchrun-ends-60": (TORCHRUN, 0, "imports=20 evaluates=60 ends=60"),
    "lightning-ends-25": ((PROGRAM, "lightning"), 2, "imports=20 evaluates=60 ends=25"),
    "lightning-ends-60": ((PROGRAM, "lightning"), 1, "imports=20 evaluates=60 ends=60 talks=1"),
    "transformers-ends-25": ((PROGRAM, "transformers"), 1, "imports=20 evaluates=60 ends=25"),
    "transformers-ends-60": ((PROGRAM, "transformers"), 1, "downloads=120 evaluates=60 ends=60 talks=1"),
    "accelerate-ends-60": ((PROGRAM, "accelerate"), 2, "imports=20 evaluates=60 ends=60"),
}
# Longer than a suspicion needs, also of steps that are slow beside others.
IN_SHORT = {
    "ddp": ((PROGRAM, "torch"), 2, "imports=5 evaluates=30 ends=14"),
    "accelerate": (ACCELERATE, 0, "evaluates=30 ends=14"),
    "transformers": ((PROGRAM, "transformers"), 1, "evaluates=30 ends=14"),
    "report": ((PROGRAM, "plain"), 1, "imports=14 evaluates=30 ends=14"),
}


class Patience(unittest.TestCase):
    def setUp(self):
        self.musterd = Musterd(self, BIN, flags=("--local-cores", "off"))

    def submit(self, name, command, ranks, pauses):
        """The submitter's PYTHONPATH is the job's: it has the package."""
        argv = json.dumps([sys.executable, *command, *pauses.split()])
        shape = f"[resources]\nranks_per_node = {ranks}\n" if ranks else ""
        return self.musterd.submit(
            f'name = "{name}"\nlauncher = "{"muster" if ranks else "own"}"\ncommand = {argv}\nexecutor = "local"\n{shape}'
            f'{REPORT if "plain" in command else ""}[env]\nOMP_NUM_THREADS = "1"\n')

    def check(self, trainers, within_s):
        jobs = {name: self.submit(name, *trainer) for name, trainer in trainers.items()}
        until = time.monotonic() + within_s
        for job in jobs.values():
            self.musterd.muster("wait", job, "--timeout", f"{max(1, round(until - time.monotonic()))}s", limit_s=within_s + 60)
        for name, job in jobs.items():
            with self.subTest(name):
                shown = self.musterd.show(job)
                log = self.musterd.muster("logs", job).stdout[-3000:]
                self.assertEqual((shown["state"], len(shown["attempts"])), ("succeeded", 1),
                                 f"{shown['attempts']}\n{log}\n{self.musterd.muster('events', job).stdout}")
        return jobs

    def events_of(self, job):
        return self.musterd.muster("events", job).stdout

    def test_of_twenty_ordinary_trainers(self):
        self.assertEqual(len(TRAINERS), 20)
        jobs = self.check(TRAINERS, 900)
        self.assertIn("has made no progress for", self.events_of(jobs["ddp-evaluates-400"]), "a pause so long is suspected")

    def test_in_short(self):
        jobs = self.check(IN_SHORT, 240)
        self.assertIn("has made no progress for", self.events_of(jobs["ddp"]), "a pause so long is suspected")


if __name__ == "__main__":
    unittest.main()
