"""Goal: the job file that `muster init program` writes for an unchanged trainer runs, and its reports arrive.

Method: small trainers in folders of their own, with released torch, transformers, accelerate and lightning, and a real musterd.
Usage: MUSTER_BIN_FOLDER=... run.py, see tests/peers/run.py
"""

import json
import os
import pathlib
import re
import sys
import tempfile
import textwrap
import unittest
from unittest import mock

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tests" / "system"))
from daemon import Musterd, eventually  # noqa: E402

BIN = pathlib.Path(os.environ["MUSTER_BIN_FOLDER"])

TORCH = """
    import torch
    import torch.distributed as dist

    def main():
        dist.init_process_group("gloo")
        weight = torch.zeros(1, requires_grad=True)
        for step in range(1, 6):
            loss = ((weight - dist.get_world_size()) ** 2).sum()
            loss.backward()
            with torch.no_grad():
                weight -= 0.1 * weight.grad
                weight.grad.zero_()
            if dist.get_rank() == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
        dist.destroy_process_group()

    if __name__ == "__main__":
        main()
"""
LIGHTNING = """
    import lightning as L
    import torch

    class Line(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)
        def training_step(self, batch, index):
            loss = self.layer(batch[0]).pow(2).mean()
            print(f"step {self.global_step + 1} loss {loss.item():.4f}", flush=True)
            return loss
        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    if __name__ == "__main__":
        data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(5, 1)), batch_size=1)
        L.Trainer(accelerator="cpu", devices=1, max_epochs=1, logger=False, enable_checkpointing=False,
                  enable_progress_bar=False).fit(Line(), data)
"""
TRANSFORMERS = """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 20
        def __getitem__(self, index):
            ids = torch.arange(8)
            return {"input_ids": ids, "labels": ids}

    def main():
        model = LlamaForCausalLM(LlamaConfig(vocab_size=16, hidden_size=8, intermediate_size=16, num_hidden_layers=1,
                                             num_attention_heads=2))
        args = TrainingArguments("out", max_steps=5, per_device_train_batch_size=2, logging_steps=1, save_strategy="no",
                                 report_to=[], use_cpu=True, disable_tqdm=True)
        Trainer(model, args, train_dataset=Rows()).train()

    if __name__ == "__main__":
        main()
"""


class InitProgram(unittest.TestCase):
    def setUp(self):
        # The submitter's PATH is the job's: python3 is this Python there.
        path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
        self.enterContext(mock.patch.dict(os.environ, {"PATH": path, "OMP_NUM_THREADS": "1"}))
        self.musterd = Musterd(self, BIN)
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        before = os.getcwd()
        os.chdir(self.folder)
        self.addCleanup(os.chdir, before)

    def steps_of(self, sources):
        """The steps that the job of the written file reports, each with the value of its loss."""
        for name, text in sources.items():
            (self.folder / name).write_text(textwrap.dedent(text).lstrip())
        written = self.musterd.muster("init", "program")
        self.assertEqual(written.returncode, 0, written.stderr)
        text = (self.folder / "train.toml").read_text()
        # This machine has few GPUs or none, and the trainers want none.
        done = self.musterd.muster("submit", "train.toml", "--set", "gpus_per_rank=0", "--env", "OMP_NUM_THREADS=1")
        self.assertEqual(done.returncode, 0, f"{done.stderr}\n{text}")
        job = re.search(r"\d+", done.stdout).group()
        shown = self.musterd.until(job, lambda job: job["state"] in ("succeeded", "failed", "cancelled"))
        log = self.musterd.muster("logs", job).stdout[-3000:]
        self.assertEqual((shown["state"], len(shown["attempts"])), ("succeeded", 1), f"{shown['reason']}\n{log}\n{text}")

        def told():
            rows = json.loads(self.musterd.muster("metrics", job, "--json").stdout)
            return {row["step"]: row["loss"] for row in rows}

        eventually(lambda: len(told()) >= 5, 60)  # the last rows may come a moment after the news of the end
        return told()

    def test_a_loop_of_torch_that_torchrun_starts(self):
        losses = self.steps_of({"train.py": TORCH, "go.sh": "#!/bin/bash\ntorchrun --nproc_per_node=2 train.py\n"})
        self.assertEqual(sorted(losses), [1, 2, 3, 4, 5])
        self.assertEqual(losses[1], 4, "the loss of two ranks")

    def test_a_loop_that_accelerate_starts(self):
        losses = self.steps_of({
            "train.py": TORCH,
            "go.sh": "accelerate launch --multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no "
                     "--dynamo_backend no train.py\n"})
        self.assertEqual(losses[1], 4, "the loss of two ranks")

    def test_lightning(self):
        self.assertEqual(sorted(self.steps_of({"train.py": LIGHTNING})), [1, 2, 3, 4, 5])

    def test_the_trainer_of_transformers(self):
        self.assertEqual(sorted(self.steps_of({"train.py": TRANSFORMERS}))[:5], [1, 2, 3, 4, 5])


if __name__ == "__main__":
    unittest.main()
