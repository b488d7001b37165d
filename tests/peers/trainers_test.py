"""Goal: the trainers that people arrive with lose a rank and go on, with a true FROM and the curve that they computed.

Method: examples/python as they are, on released packages and a real musterd, as local processes and on a private Slurm of two
nodes; SIGKILL after a checkpoint.
Usage: MUSTER_BIN_FOLDER=... run.py, see tests/peers/run.py
"""

import json
import os
import pathlib
import re
import signal
import sys
import tempfile
import unittest
from unittest import mock

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tests" / "system"))
from daemon import Musterd  # noqa: E402
from private_slurm import PrivateSlurm, missing  # noqa: E402

BIN = pathlib.Path(os.environ["MUSTER_BIN_FOLDER"])
# Python reads it at the start of each process. 400 steps take 2.4 s, so on a busy machine the job may be over before its rank
# is killed. The first attempt therefore takes 50 ms a step.
SLOW_FIRST_ATTEMPT = """
import os, time
if os.environ.get("MUSTER_ATTEMPT") == "1":
    import muster.hf
    at_once = muster.hf.Callback.on_step_end
    def later(self, *arguments, **named):
        time.sleep(0.05)
        return at_once(self, *arguments, **named)
    muster.hf.Callback.on_step_end = later
"""
PRINTED = re.compile(r"step (\d+) loss ([\d.]+)")


class Trainers(unittest.TestCase):
    two_ranks = ()  # what makes the examples with two ranks run there

    def start(self):
        return Musterd(self, BIN)

    def setUp(self):
        # The submitter's PATH is the job's: python3 is this Python there.
        folder = pathlib.Path(sys.executable).parent
        path = f"{folder}:{os.environ['PATH']}"
        self.enterContext(mock.patch.dict(os.environ, {"PATH": path, "OMP_NUM_THREADS": "1"}))
        self.musterd = self.start()

    def submit(self, example, *more):
        done = self.musterd.muster("submit", SOURCE / "examples" / "python" / f"{example}.toml", "--env", "OMP_NUM_THREADS=1", *more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return re.search(r"\d+", done.stdout).group()

    def kill_a_rank(self, job, example):
        """The newest rank, once the job has a checkpoint and some steps after it. Returns the step of that checkpoint."""
        shown = self.musterd.until(
            job, lambda job: 0 < (job["last_checkpoint_step"] or 0) < (job["step"] or 0)
            or job["state"] in ("succeeded", "failed"))
        self.assertEqual(shown["state"], "running", shown)
        os.kill(self.process_of(shown["ranks"][-1]["rank"], example), signal.SIGKILL)
        return shown["last_checkpoint_step"]

    def process_of(self, rank, example):
        """Its process id here: a node of the private Slurm may number its processes by itself."""
        wanted = [f"RANK={rank}\0", f"MUSTER_ATTEMPT_FOLDER={self.musterd.data}/"]
        found = []
        for folder in pathlib.Path("/proc").glob("[1-9]*"):
            try:
                variables = "\0" + (folder / "environ").read_text(errors="replace")
                if example + ".py" in (folder / "cmdline").read_text() and all("\0" + one in variables for one in wanted):
                    found.append(int(folder.name))
            except OSError:  # it has ended
                continue
        self.assertEqual(len(found), 1, found)
        self.assertGreater(found[0], 1)
        return found[0]

    def check_resumed(self, job, saved, steps):
        """The job ended well on its second attempt. Returns where that attempt began, and (attempt, step) to loss."""
        shown = self.musterd.until(job, lambda job: job["state"] in ("succeeded", "failed", "cancelled"))
        ends = [one["reason"] for one in shown["attempts"]]
        if (shown["state"], len(ends)) != ("succeeded", 2):
            logs = [self.musterd.muster("logs", job, "--attempt", str(i + 1)).stdout[-3000:] for i in range(len(ends))]
            self.fail(f"{shown['state']}, its attempts ended so: {ends}\n" + "\n".join(logs))
        self.assertIn("SIGKILL", shown["attempts"][0]["reason"])
        begun = shown["attempts"][1]["resumed_from_step"]
        self.assertGreaterEqual(begun, saved)
        self.assertEqual(shown["step"], steps)
        rows = json.loads(self.musterd.muster("metrics", job, "--json").stdout)
        second = [row["step"] for row in rows if row["attempt"] == 2]
        self.assertEqual(second, list(range(begun + 1, steps + 1)), "every step after FROM, each once")
        return begun, {(row["attempt"], row["step"]): row.get("loss") for row in rows}

    def printed(self, job, attempt, ranks):
        """The mean over the ranks of what each has printed, by step."""
        said = {}
        for rank in range(ranks):
            text = self.musterd.muster("logs", job, "--attempt", str(attempt), "--rank", str(rank)).stdout
            for step, loss in PRINTED.findall(text):
                said.setdefault(int(step), []).append(float(loss))
        return {step: sum(losses) / ranks for step, losses in said.items() if len(losses) == ranks}

    def check_curve(self, job, losses, begun, ranks):
        """What a killed rank printed in its last tenth of a second is in no report. The steps up to its checkpoint are."""
        compared = 0
        for attempt in (1, 2):
            for step, loss in self.printed(job, attempt, ranks).items():
                if (attempt, step) in losses and (attempt == 2 or step <= begun):
                    self.assertAlmostEqual(losses[attempt, step], loss, delta=2e-6 * max(1, abs(loss)), msg=f"{attempt}: {step}")
                    compared += attempt == 1 or step > begun
        self.assertGreater(compared, 20)

    def test_fsdp2_with_distributed_checkpoints_on_two_ranks(self):
        job = self.submit("fsdp2", "--env", "STEPS=600", *self.two_ranks)
        saved = self.kill_a_rank(job, "fsdp2")
        begun, losses = self.check_resumed(job, saved, 600)
        self.assertEqual(begun % 40, 0, "a checkpoint of its own rhythm")
        self.check_curve(job, losses, begun, 2)

    def test_a_lightning_module_on_two_ranks(self):
        job = self.submit("lightning_module", "--env", "STEPS=1000", *self.two_ranks)
        saved = self.kill_a_rank(job, "lightning_module")
        begun, losses = self.check_resumed(job, saved, 1000)
        self.assertEqual(begun % 100, 0, "a checkpoint of its own rhythm")
        self.check_curve(job, losses, begun, 2)

    def test_the_trainer_of_transformers(self):
        slow = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (slow / "sitecustomize.py").write_text(SLOW_FIRST_ATTEMPT)
        job = self.submit("hf_trainer", "--env", "STEPS=400", "--env", f"PYTHONPATH={slow}:{SOURCE / 'python'}")
        saved = self.kill_a_rank(job, "hf_trainer")
        begun, losses = self.check_resumed(job, saved, 400)
        self.assertEqual(begun % 20, 0, "a checkpoint of its own rhythm")
        folder = pathlib.Path(self.musterd.show(job)["checkpoint_folder"])
        history = json.loads((folder / "checkpoint-400" / "trainer_state.json").read_text())["log_history"]
        own = {entry["step"]: entry["loss"] for entry in history if "loss" in entry}
        self.assertEqual(sorted(own), list(range(5, 401, 5)))
        for step, loss in own.items():
            self.assertAlmostEqual(losses[1 if step <= begun else 2, step], loss, places=6, msg=f"step {step}")


class Files(unittest.TestCase):
    """What a killed trainer has left, which needs no job."""

    def test_a_checkpoint_of_a_killed_trainer_is_passed_over(self):
        import muster.hf
        with tempfile.TemporaryDirectory() as folder:
            self.assertIsNone(muster.hf.newest_checkpoint(folder))
            for step, state in ((20, "{}"), (100, "{}"), (120, '{"log_his'), (140, None)):
                checkpoint = pathlib.Path(folder) / f"checkpoint-{step}"
                checkpoint.mkdir()
                if state is not None:
                    (checkpoint / "trainer_state.json").write_text(state)
            self.assertEqual(muster.hf.newest_checkpoint(folder), f"{folder}/checkpoint-100")

    def test_a_torn_file_of_lightning_is_passed_over(self):
        import muster.lightning
        import torch
        with tempfile.TemporaryDirectory() as folder:
            callback = muster.lightning.Callback(folder)
            self.assertIsNone(callback.newest_checkpoint())
            os.makedirs(callback.folder)
            torch.save({"global_step": 100}, f"{callback.folder}/step-100.ckpt")
            whole = pathlib.Path(callback.folder, "step-100.ckpt").read_bytes()
            pathlib.Path(callback.folder, "step-200.ckpt").write_bytes(whole[:-1])
            pathlib.Path(callback.folder, "step-300.ckpt").write_bytes(b"")
            self.assertEqual(callback.newest_checkpoint(), f"{callback.folder}/step-100.ckpt")


@unittest.skipIf(missing(), f"no Slurm here: {missing()}")
class TrainersOnSlurm(Trainers):
    two_ranks = ("--set", "resources.nodes=2", "--set", "resources.ranks_per_node=1")

    def start(self):
        slurm = PrivateSlurm(self, "--nodes", "2")
        return Musterd(self, BIN, slurm="yes", env=slurm.env)


if __name__ == "__main__":
    unittest.main()
