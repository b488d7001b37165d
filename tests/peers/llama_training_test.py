"""Goal: a Llama learns under muster as it learns under transformers.

Method: transformers writes tiny random models, and transformers with AdamW trains each on the same batches as peers_engine_rank.
Usage: MUSTER_BIN_FOLDER=... run.py, see tests/peers/run.py
"""

import pathlib
import tempfile
import unittest

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers import LlamaForCausalLM

import llama_peer
from engine_judges import train_plainly
from engine_program import EngineTest

STEPS, SEQUENCES, POSITIONS, RATE = 20, 8, 32, 1e-3


def loss_of(model, ids, targets):
    logits = model(ids, use_cache=False).logits
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction="sum")


class Llama(EngineTest):
    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        llama_peer.make(cls.folder)
        torch.manual_seed(11)
        # Few batches, so that the model learns them.
        tokens = torch.randint(llama_peer.SIZES["vocab_size"], (2, SEQUENCES, POSITIONS + 1)).repeat(STEPS // 2, 1, 1)
        ids, targets = tokens[:, :, :-1].contiguous(), tokens[:, :, 1:].contiguous()
        targets[:, :4, :9] = -100
        cls.batches = list(zip(ids, targets))
        for name in llama_peer.CASES:
            save_file({"ids": ids, "targets": targets}, cls.folder / name / "batches.safetensors")

    def check(self, name):
        folder = self.folder / name
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                model = LlamaForCausalLM.from_pretrained(folder, torch_dtype=torch.float32)
                want = train_plainly(model, self.batches, ranks, RATE, loss_of=loss_of)
                self.assertLess(want[0][-1], 0.9 * want[0][0], "it must learn, or equality says little")
                got = self.train_by_engine(folder, folder / f"{ranks}.out", model="llama", world_size=ranks, rate=RATE)
                self.check_close(got[0], want[0], 1e-6, 1e-5, "loss")
                self.check_close(got[1], want[1], 1e-5, 1e-5, "norm")
                self.check_weights(got[2], want[2], 1e-4)

    def test_with_heads_of_their_own(self):
        self.check("untied")

    def test_with_a_tied_head(self):
        self.check("tied")

    def test_with_grouped_heads_from_bf16_files(self):
        self.check("grouped")

    def test_with_one_key_value_head(self):
        self.check("one_kv_head")


if __name__ == "__main__":
    unittest.main()
