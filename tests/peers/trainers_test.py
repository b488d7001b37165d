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
import subprocess
import sys
import tempfile
import textwrap
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


class Sections(unittest.TestCase):
    """What the callbacks tell of where a trainer is, in the report file of a rank without muster."""

    def run_program(self, text):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        report = pathlib.Path(folder, "rank-0.jsonl")
        environment = {**os.environ, "MUSTER_REPORT": str(report), "MUSTER_CHECKPOINT_FOLDER": folder, "OMP_NUM_THREADS": "1",
                       "PYTHONPATH": f"{SOURCE / 'python'}:{os.environ.get('PYTHONPATH', '')}"}
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(text)], env=environment, capture_output=True, text=True,
                              cwd=folder, timeout=240)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        told = []
        for line in map(json.loads, report.read_text().splitlines()):
            if "section" in line:
                told.append(line["section"])
            elif "checkpoint" in line:
                told.append(f"saved {line['step']}")
            elif "step" in line and told[-1:] != [line["step"]]:  # an evaluation logs its step once more
                told.append(line["step"])
            elif line.get("status"):
                told.append(line["status"])
        return told

    def test_the_trainer_of_transformers_tells_its_sections(self):
        told = self.run_program("""
            import muster.hf, torch
            from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

            class Characters(torch.utils.data.Dataset):
                def __len__(self): return 64
                def __getitem__(self, index): return {"input_ids": torch.arange(8), "labels": torch.arange(8)}

            class Quiet(Trainer):
                def evaluate(self, *arguments, **more):
                    muster.init().status("prepares the evaluation")
                    return super().evaluate(*arguments, **more)
                def save_model(self, *arguments, **more):
                    muster.init().status("writes")
                    return super().save_model(*arguments, **more)

            model = LlamaForCausalLM(LlamaConfig(vocab_size=16, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
                                                 num_attention_heads=2, max_position_embeddings=8))
            args = TrainingArguments("out", max_steps=4, per_device_train_batch_size=2, logging_steps=1, save_strategy="steps",
                                     save_steps=2, eval_strategy="steps", eval_steps=2, report_to=[], use_cpu=True,
                                     disable_tqdm=True)
            data = Characters()
            trainer = Quiet(model, args, train_dataset=data, eval_dataset=torch.utils.data.Subset(data, range(4)),
                            callbacks=[muster.hf.Callback()])
            trainer.train()
            muster.init().status("uploads")
            trainer.evaluate()
            trainer.predict(torch.utils.data.Subset(data, range(4)))
            trainer.train()
        """)
        rounds = ["evaluate", 2, "prepares the evaluation", 2, "checkpoint", "writes", "saved 2", "step", 3, "evaluate", 4,
                  "prepares the evaluation", 4, "checkpoint", "writes", "saved 4", "end"]
        first = told.index("uploads")
        self.assertEqual(told[:1 + len(rounds)], [1, *rounds])
        self.assertEqual(set(told[1 + len(rounds):first]) - {4}, set(), "only numbers of the whole training, at its last step")
        again = told.index("step", first)
        self.assertEqual([one for one in told[first:again] if isinstance(one, str)],
                         ["uploads", "prepares the evaluation", "evaluate", "end", "evaluate", "end"])

    def test_lightning_tells_its_sections(self):
        told = self.run_program("""
            import muster.lightning, os, torch
            from lightning.pytorch import LightningModule, Trainer
            from lightning.pytorch.callbacks import ModelCheckpoint

            class Model(LightningModule):
                def __init__(self):
                    super().__init__()
                    self.layer = torch.nn.Linear(4, 1)
                def training_step(self, batch, index): return self.layer(batch).pow(2).mean()
                def validation_step(self, batch, index): muster.init().status("validates")
                def test_step(self, batch, index): muster.init().status("tests")
                def on_save_checkpoint(self, checkpoint): muster.init().status("writes")
                def configure_optimizers(self): return torch.optim.SGD(self.parameters(), lr=0.01)

            trainer = Trainer(max_steps=4, accelerator="cpu", devices=1, logger=False, enable_progress_bar=False,
                              enable_model_summary=False, num_sanity_val_steps=0, val_check_interval=2, limit_val_batches=1,
                              limit_test_batches=1, default_root_dir=os.environ["MUSTER_CHECKPOINT_FOLDER"], max_epochs=-1,
                              callbacks=[muster.lightning.Callback(), ModelCheckpoint(every_n_train_steps=2, save_top_k=-1)])
            loader = torch.utils.data.DataLoader(torch.randn(64, 4), batch_size=4)
            model = Model()
            trainer.fit(model, loader, loader)
            muster.init().status("uploads")
            trainer.test(model, loader)
        """)
        words = [one for one in told if not (isinstance(one, str) and one.startswith("saved"))]
        self.assertEqual(words[:words.index("uploads")],
                         [1, 2, "checkpoint", "writes", "evaluate", "validates", "step", 2, 3, 4, "checkpoint", "writes",
                          "evaluate", "validates", "step", 4, "end"], told)
        self.assertEqual(words[words.index("uploads"):], ["uploads", "evaluate", "tests", "end"])


@unittest.skipIf(missing(), f"no Slurm here: {missing()}")
class TrainersOnSlurm(Trainers):
    two_ranks = ("--set", "resources.nodes=2", "--set", "resources.ranks_per_node=1")

    def start(self):
        slurm = PrivateSlurm(self, "--nodes", "2")
        return Musterd(self, BIN, slurm="yes", env=slurm.env)


if __name__ == "__main__":
    unittest.main()
