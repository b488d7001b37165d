"""Goal: ordinary trainers that pause as people's do are ended by nobody: a slow import, an evaluation of a minute without a word,
an end long after the last step.

Method: released packages and a real musterd, local processes of two ranks; the limits of muster are its own.
Usage: MUSTER_BIN_FOLDER=... run.py, see tests/peers/run.py
"""

import json
import os
import pathlib
import re
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "system"))
from daemon import Musterd  # noqa: E402

BIN = pathlib.Path(os.environ["MUSTER_BIN_FOLDER"])
PROGRAM = str(HERE / "patient.py")
EVALUATION_S = 60


class Patience(unittest.TestCase):
    def setUp(self):
        self.musterd = Musterd(self, BIN)

    def submit(self, name, command, ranks=2, launcher="muster"):
        """The submitter's PYTHONPATH is the job's: it has the package."""
        path = self.musterd.folder / f"{name}.toml"
        resources = f"[resources]\nranks_per_node = {ranks}\n" if launcher == "muster" else ""
        path.write_text(f'name = "{name}"\nlauncher = "{launcher}"\ncommand = {json.dumps([sys.executable, *command])}\n'
                        f'executor = "local"\n{resources}[env]\nOMP_NUM_THREADS = "1"\n')
        done = self.musterd.muster("submit", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        return re.search(r"\d+", done.stdout).group()

    def check(self, *jobs):
        """All of them run at the same time, since they wait for most of it."""
        for job in jobs:
            shown = self.musterd.until(job, lambda job: job["state"] in ("succeeded", "failed", "cancelled"))
            log = self.musterd.muster("logs", job).stdout[-3000:]
            self.assertEqual((shown["state"], len(shown["attempts"])), ("succeeded", 1),
                             f"{shown['attempts']}\n{log}\n{self.musterd.muster('events', job).stdout}")

    def test_of_ddp(self):
        self.check(*(self.submit(f"ddp-{end}", [PROGRAM, "torch", str(EVALUATION_S), str(end)]) for end in (25, 60)))

    def test_of_torchrun(self):
        torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2", PROGRAM, "torch", str(EVALUATION_S)]
        self.check(*(self.submit(f"torchrun-{end}", [*torchrun, str(end)], launcher="own") for end in (25, 60)))

    def test_of_lightning(self):
        self.check(*(self.submit(f"lightning-{end}", [PROGRAM, "lightning", str(EVALUATION_S), str(end)]) for end in (25, 60)))

    def test_of_the_trainer_of_transformers(self):
        program = [PROGRAM, "transformers", str(EVALUATION_S)]
        self.check(*(self.submit(f"transformers-{end}", [*program, str(end)], ranks=1) for end in (25, 60)))


if __name__ == "__main__":
    unittest.main()
