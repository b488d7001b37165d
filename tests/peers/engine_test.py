"""Goal: the engine trains as PyTorch does, at every world size, in fp32 and in bf16, whatever the strategy.

Method: Python writes weights and batches, peers_engine_rank trains on them with a process a rank, and PyTorch trains the same
model on the same batches. The small model has tied, frozen and unused parameters. The ranks' parts of a batch have unlike
numbers of targets that count.
Usage: MUSTER_BIN_FOLDER=... run.py, see tests/peers/run.py
"""

import pathlib
import tempfile
import unittest

import torch
from safetensors.torch import save_file

from engine_judges import SmallModel, train_by_fsdp2, train_plainly
from engine_program import EngineTest

STEPS, SEQUENCES, POSITIONS, RATE = 100, 12, 5, 3e-4
OTHER_STRATEGIES = ("shard_grad_op", "zero1", "no_shard", "hybrid_shard")


class Engine(EngineTest):
    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)
        torch.manual_seed(7)
        cls.weights = {name: value.clone() for name, value in SmallModel().state_dict().items()}
        # Few batches, so that the model learns them.
        tokens = torch.randint(19, (4, SEQUENCES, POSITIONS + 1)).repeat(STEPS // 4, 1, 1)
        ids, targets = tokens[:, :, :-1].contiguous(), tokens[:, :, 1:].contiguous()
        targets[:, :3, 1:] = -100  # at four ranks the first has a fifth of the others' targets
        targets[torch.rand(targets.shape) < 0.1] = -100
        cls.batches = list(zip(ids, targets))
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        save_file(cls.weights, cls.folder / "model.safetensors")
        save_file({"ids": ids, "targets": targets}, cls.folder / "batches.safetensors")

    def train(self, ranks, dtype="fp32", strategy="full_shard"):
        out = self.folder / f"{ranks}-{dtype}-{strategy}.out"
        return self.train_by_engine(self.folder, out, world_size=ranks, dtype=dtype, strategy=strategy, rate=RATE)

    def plain(self, ranks, **options):
        model = SmallModel()
        model.load_state_dict(self.weights)
        return train_plainly(model, self.batches, ranks, RATE, **options)

    def fsdp2(self, ranks, **options):
        return train_by_fsdp2(self.weights, self.batches, ranks, RATE, **options)

    def check(self, got, want, first, later, of_weights):
        self.assertLess(want[0][-1], 0.9 * want[0][0], "it must learn, or equality says little")
        self.check_close(got[0], want[0], first, later, "loss")
        self.check_close(got[1], want[1], first, first, "norm")
        self.check_weights(got[2], want[2], of_weights)
        self.assertTrue(torch.equal(got[2]["head"], got[2]["embedding"]), "tied")
        for name, value in got[2].items():
            if name.endswith("unused"):
                self.assertTrue(torch.equal(value, self.weights[name]), name)

    def check_fp32(self, got, want):
        self.check(got, want, 1e-6, 1e-5, 1e-4)

    def check_bf16(self, got, want, ranks):
        self.assertFalse(got[0] == self.train(ranks)[0], "the losses must be those of numbers rounded to bf16")
        self.check(got, want, 1e-2, 1e-2, 1e-2)

    def test_in_fp32_as_plain_pytorch(self):
        for ranks in (1, 2, 4):
            with self.subTest(ranks=ranks):
                self.check_fp32(self.train(ranks), self.plain(ranks))

    def test_in_fp32_as_fsdp2(self):
        for ranks in (2, 4):
            with self.subTest(ranks=ranks):
                self.check_fp32(self.train(ranks), self.fsdp2(ranks))

    def test_in_bf16_as_plain_pytorch(self):
        for ranks in (1, 2, 4):
            with self.subTest(ranks=ranks):
                self.check_bf16(self.train(ranks, "bf16"), self.plain(ranks, dtype_of=lambda parameter: torch.bfloat16), ranks)

    def test_in_bf16_as_fsdp2(self):
        self.check_bf16(self.train(2, "bf16"), self.fsdp2(2, is_bf16=True), 2)

    def test_with_bf16_matrices_and_fp32_vectors_as_plain_pytorch(self):
        def dtype_of(parameter):
            return torch.bfloat16 if parameter.dim() >= 2 else torch.float32
        for ranks in (1, 2, 4):
            with self.subTest(ranks=ranks):
                self.check_bf16(self.train(ranks, "mixed"), self.plain(ranks, dtype_of=dtype_of), ranks)

    def test_every_strategy_gives_the_same_curve_at_four_ranks(self):
        for dtype in ("fp32", "mixed"):
            losses, norms, weights = self.train(4, dtype)
            for strategy in OTHER_STRATEGIES:
                with self.subTest(strategy=strategy, dtype=dtype):
                    got = self.train(4, dtype, strategy)
                    self.assertTrue(got[0] == losses, "losses differ")
                    self.check_close(got[1], norms, 1e-6, 1e-6, "norm")  # rounds by the shards
                    for name, value in weights.items():
                        self.assertTrue(torch.equal(got[2][name], value), name)


if __name__ == "__main__":
    unittest.main()
