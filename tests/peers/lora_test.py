"""Goal: adapters train under muster as they train under PEFT, and PEFT reads the adapters that muster exports.

Method: transformers writes a tiny random model. muster-worker trains adapters on it, and exports them apart and merged. PEFT starts
from the adapters that muster drew, which a training exports whose rate is too small to move them. A batch is all of the data, so the
order of its rows does not matter.
Usage: MUSTER_BIN_FOLDER=... run.py, see tests/peers/run.py
"""

import contextlib
import json
import os
import pathlib
import random
import socket
import subprocess
import tempfile
import unittest

import torch
import torch.nn.functional as F
from peft import PeftModel
from safetensors.torch import load_file, load_model

from engine_judges import train_plainly
from engine_program import EngineTest
import families_peer

MUSTER_WORKER = pathlib.Path(os.environ["MUSTER_BIN_FOLDER"]) / "muster-worker"
MUSTER_INFER = pathlib.Path(os.environ["MUSTER_BIN_FOLDER"]) / "muster-infer"
STEPS, ROWS, POSITIONS, RATE = 20, 8, 32, 1e-2
SEPARATOR = 256  # the token that muster puts behind a text


@contextlib.contextmanager
def claimed_port():
    """As ClaimedPort in tests/claimed_port.h."""
    while True:
        number = random.SystemRandom().randint(61000, 65535)
        with socket.socket(socket.AF_UNIX) as claim, socket.socket() as trial:
            try:
                claim.bind(f"\0muster-test-port-{number}")
                trial.bind(("", number))
            except OSError:
                continue
            trial.close()
            yield number
            return


class Lora(EngineTest):
    family = None  # of the subclass

    def setUp(self):
        if self.family is None:
            self.skipTest("the base of the families")
        torch.set_num_threads(1)
        torch.manual_seed(5)
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (self.folder / "text").mkdir()
        text = torch.randint(97, 105, (ROWS * POSITIONS,))  # few letters, which are soon learned
        (self.folder / "text" / "text").write_bytes(bytes(text.tolist()))
        tokens = torch.cat([text, torch.tensor([SEPARATOR])])
        self.batch = tokens[:-1].view(ROWS, POSITIONS), tokens[1:].view(ROWS, POSITIONS)

    def peer(self):
        return families_peer.FAMILIES[self.family]

    def make_base(self, case):
        model = self.peer().build(case)
        with torch.no_grad():  # as families_peer.make()
            for parameter in model.parameters():
                parameter.mul_(3.0) if parameter.dim() > 1 else parameter.add_(0.1 * torch.randn_like(parameter))
        model.save_pretrained(self.folder / "base")

    def train_by_muster(self, ranks, export, **train):
        """Trains, unless the checkpoints of the same rate are of the last step. Exports, and returns losses and norms."""
        out = self.folder / export
        run = {
            "format": 1,
            "name": export,
            "model": {"family": self.family, "pretrained": str(self.folder / "base")},
            "data": {"source": "folder", "path": str(self.folder / "text"), "sequence_length": POSITIONS, "validation_fraction": 0,
                     "cache_folder": str(self.folder / "cache")},
            "train": {"steps": STEPS, "batch_size": ROWS, "micro_batch_size": 2, "schedule": "constant", "warmup_steps": 0,
                      "clip_norm": 0, "validation_every_steps": 0, "export_folder": str(out), **train},
            "checkpoint": {"every_steps": 0, "folder": str(self.folder / f"checkpoints-{train['learning_rate']}")},
        }
        run_file = self.folder / f"{export}.json"
        run_file.write_text(json.dumps(run))
        with claimed_port() as port:
            processes = []
            for rank in range(ranks):
                environment = {"RANK": rank, "WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": 1,
                               "HOME": self.folder, "MUSTER_METRICS_FILE": self.folder / f"{export}.{rank}.jsonl"}
                processes.append(subprocess.Popen([MUSTER_WORKER, "--run-file", run_file], text=True, stdout=subprocess.PIPE,
                                                  stderr=subprocess.STDOUT,
                                                  env={name: str(value) for name, value in environment.items()}))
            try:
                said = [process.communicate(timeout=100)[0] for process in processes]
            finally:
                for process in processes:
                    process.kill()
        self.assertEqual([process.returncode for process in processes], [0] * ranks, said)
        lines = [json.loads(line) for line in (self.folder / f"{export}.0.jsonl").read_text().splitlines()]
        steps = [line for line in lines if "loss" in line]
        return [line["loss"] for line in steps], [line["grad_norm"] for line in steps]

    def load_by_peft(self, adapters, **more):
        return PeftModel.from_pretrained(self.peer().load(self.folder / "base"), self.folder / adapters, **more)

    @staticmethod
    def loss_of(model, ids, targets):
        logits = model(input_ids=ids, use_cache=False).logits
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")

    def check_exports(self):
        ids = torch.randint(families_peer.VOCABULARY, (2, POSITIONS))
        with torch.no_grad():
            base, merged, apart = (model.eval()(input_ids=ids, use_cache=False).logits for model in (
                self.peer().load(self.folder / "base"), self.peer().load(self.folder / "merged"), self.load_by_peft("apart")))
        self.assertGreater((merged - base).abs().max().item(), 0.05, "adapters must matter, or equality says little")
        difference = (merged - apart).abs().max().item()
        print(f"{self.id().rpartition('.')[2]}: logits of the exports differ by at most {difference:.1e}")
        self.assertLessEqual(difference, 1e-4)

    def check_full_state(self):
        """The file of train.full_state_file gives a fresh PyTorch model all weights of the merged export."""
        want = self.peer().load(self.folder / "merged").state_dict()
        model = self.peer().load(self.folder / "base")
        load_model(model, self.folder / "merged.safetensors")
        for name, value in model.state_dict().items():
            self.assertTrue(torch.equal(value, want[name]), name)

    def check_uses(self):
        """What muster-infer writes with the checkpoint's adapters, with PEFT's files and with the merged model."""
        written = []
        for model in (f"checkpoints-{RATE}", "apart", "merged"):
            done = subprocess.run([MUSTER_INFER, "generate", self.folder / model, "--device", "cpu", "--tokenizer", "bytes",
                                   "--max-new-tokens", "12", "--json", "--", "abcabc"], capture_output=True, text=True, timeout=100)
            self.assertEqual(done.returncode, 0, done.stderr)
            written.append(json.loads(done.stdout))
        self.assertEqual(written[0], written[1])
        self.assertEqual(written[0], written[2])

    def check(self, case, ranks, layers, **options):
        self.make_base(case)
        options |= {"lora_layers": layers} if layers else {}
        self.train_by_muster(ranks, "first", learning_rate=1e-30, export_merged=False, **options)
        model = self.load_by_peft("first", is_trainable=True)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                self.assertLess(parameter.abs().max().item(), 1e-25, name)
        losses, norms, weights = train_plainly(model, [self.batch] * STEPS, 1, RATE, loss_of=self.loss_of)
        self.assertLess(losses[-1], 0.95 * losses[0], "it must learn, or equality says little")

        got = self.train_by_muster(ranks, "apart", learning_rate=RATE, export_merged=False, **options)
        self.check_close(got[0], losses, 1e-6, 1e-5, "loss")
        self.check_close(got[1], norms, 1e-5, 1e-5, "norm")
        adapters = {name.replace(".default.", "."): value for name, value in weights.items() if "lora_" in name}
        exported = load_file(self.folder / "apart" / "adapter_model.safetensors")
        self.assertEqual(exported.keys(), adapters.keys())
        self.check_weights(exported, adapters, 1e-4)

        again = self.train_by_muster(ranks, "merged", learning_rate=RATE, full_state_file=str(self.folder / "merged.safetensors"), **options)
        self.assertEqual(again[0], [], "the last step's checkpoint is there")
        self.check_exports()
        self.check_full_state()
        self.check_uses()


class Llama(Lora):
    family = "llama"

    def test_with_the_standard_layers(self):
        self.check("grouped", ranks=2, layers=None, lora_rank=4)

    def test_with_a_tied_head(self):
        self.check("tied", ranks=1, layers="o_proj down_proj", lora_rank=2, lora_alpha=16)

    def test_with_every_layer_and_its_bias(self):
        layers = "q_proj k_proj v_proj o_proj gate_proj up_proj down_proj lm_head"
        self.check("attention_bias", ranks=2, layers=layers, lora_rank=3, lora_alpha=5)


class GptNeoX(Lora):
    family = "gpt_neox"

    def test_with_the_standard_layer(self):
        self.check("parallel", ranks=2, layers=None, lora_rank=4)

    def test_with_every_layer(self):
        layers = "query_key_value dense dense_h_to_4h dense_4h_to_h embed_out"
        self.check("sequential", ranks=1, layers=layers, lora_rank=3, lora_alpha=5)


if __name__ == "__main__":
    unittest.main()
