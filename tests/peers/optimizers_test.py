"""Goal: optimizers that save memory train as the programs that people know them from, at every world size.

Method: a small Llama of transformers, whose matrices are large enough to be quantised, is trained for 200 steps by PyTorch and by
peers_engine_rank, on the same batches. torchao is not installed with the other peers: `optimizers_test.py --write`, where it is,
writes the losses of its AdamW8bit to tests/golden/adamw8bit_of_torchao.json, and the codes of one step. The losses are as close to
those of moments in fp32, so tests/fsdp/moments_test.cpp compares the codes.
Usage: MUSTER_BIN_FOLDER=... run.py, see tests/peers/run.py
"""

import json
import pathlib
import sys
import tempfile
import unittest

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

import engine_judges

STEPS, SEQUENCES, POSITIONS, VOCABULARY, RATE = 200, 12, 16, 64, 5e-4
ADAFACTOR_RATE = 0.005  # relative to the weights
RANKS = (1, 2, 3)
GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "adamw8bit_of_torchao.json"


def make_model():
    torch.manual_seed(7)
    return LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                                        num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=POSITIONS,
                                        tie_word_embeddings=False))


def make_batches():
    """Few batches, so that the model learns them."""
    torch.manual_seed(11)
    tokens = torch.randint(VOCABULARY, (4, SEQUENCES, POSITIONS + 1)).repeat(STEPS // 4, 1, 1)
    return tokens[:, :, :-1].contiguous(), tokens[:, :, 1:].contiguous()


def loss_of(model, ids, targets):
    logits = model(ids, use_cache=False).logits
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction="sum")


def train(make_optimizer=engine_judges.make_optimizer):
    """The losses of PyTorch."""
    torch.set_num_threads(1)
    return engine_judges.train_plainly(make_model(), list(zip(*make_batches())), 1, RATE, loss_of=loss_of,
                                       make_optimizer=make_optimizer)[0]


def groups_of(model):
    """As engine_judges.make_optimizer()."""
    return [{"params": [p for p in model.parameters() if (p.dim() >= 2) == decays],
             "weight_decay": engine_judges.DECAY if decays else 0.0} for decays in (True, False)]


class MuonWithAdamW:
    """torch.optim.Muon moves the matrices of layers, AdamW the rest."""

    def __init__(self, model, rate):
        matrices = [p for name, p in model.named_parameters() if ".layers." in name and p.dim() == 2]
        ids = {id(p) for p in matrices}
        rest = [{**group, "params": [p for p in group["params"] if id(p) not in ids]} for group in groups_of(model)]
        self.both = (torch.optim.Muon(matrices, rate, adjust_lr_fn="match_rms_adamw"),
                     torch.optim.AdamW(rest, rate, engine_judges.BETAS, fused=True))

    def step(self):
        for optimizer in self.both:
            optimizer.step()

    def zero_grad(self):
        for optimizer in self.both:
            optimizer.zero_grad()


def adamw_of_torchao(model, rate):
    from torchao.optim import AdamW8bit
    torch.compiler.set_stance("force_eager")
    return AdamW8bit(groups_of(model), rate, engine_judges.BETAS)


def first_moments_of_torchao():
    """Codes, as hexadecimal digits, and scales after one step from a gradient that tests/fsdp/moments_test.cpp makes, too."""
    shares = [(i * 2654435761) % 2**32 / 2**31 - 1 for i in range(4096)]
    weight = torch.nn.Parameter(torch.zeros(4096))
    weight.grad = torch.tensor([x * x * x * x * x for x in shares], dtype=torch.float64).float()
    torch.compiler.set_stance("force_eager")
    from torchao.optim import AdamW8bit
    optimizer = AdamW8bit([weight], 1e-2, engine_judges.BETAS)
    optimizer.step()
    states = {name: optimizer.state[weight][name] for name in ("exp_avg", "exp_avg_sq")}
    return {f"{name}_{what}": bytes(state.codes.tolist()).hex() if what == "codes" else state.scale.tolist()
            for name, state in states.items() for what in ("codes", "scales")}


def engine_test():
    """Imported late: it wants the programs of a build, which --write does not need."""
    from engine_program import EngineTest

    class Optimizers(EngineTest):
        @classmethod
        def setUpClass(cls):
            cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
            make_model().save_pretrained(cls.folder)
            ids, targets = make_batches()
            save_file({"ids": ids, "targets": targets}, cls.folder / "batches.safetensors")

        def losses(self, optimizer, ranks, rate=RATE):
            out = self.folder / f"{optimizer}-{ranks}.out"
            return self.train_by_engine(self.folder, out, model="llama", world_size=ranks, rate=rate, optimizer=optimizer)[0]

        def check(self, optimizer, want, first, quarter, whole, rate=RATE):
            """Relative differences are at most `first` in the first step, `quarter` in the first quarter and `whole` in all. Roundings
            grow tenfold in 25 steps once a code of a moment differs: by that, one engine at 1 and at 4 ranks differs as much."""
            self.assertEqual(len(want), STEPS)
            self.assertLess(want[-1], 0.5 * want[0], "it must learn, or equality says little")
            for ranks in RANKS:
                with self.subTest(ranks=ranks):
                    got = self.losses(optimizer, ranks, rate)
                    self.check_close(got[:STEPS // 4], want[:STEPS // 4], first, quarter, f"loss of {optimizer} at {ranks} ranks")
                    self.check_close(got, want, first, whole, f"loss of {optimizer} at {ranks} ranks")

        def test_moments_in_bf16_train_as_those_in_fp32(self):
            self.check("adamw_bf16", train(), 1e-6, 1e-4, 0.08)

        def test_adafactor_trains_as_that_of_torch(self):
            want = train(lambda model, rate: torch.optim.Adafactor(model.parameters(), ADAFACTOR_RATE))
            self.check("adafactor", want, 1e-6, 1e-4, 0.05, ADAFACTOR_RATE)

        def test_muon_trains_as_that_of_torch(self):
            self.check("muon", train(MuonWithAdamW), 1e-6, 1e-4, 0.1)

        def test_moments_in_int8_train_as_those_of_torchao(self):
            want = json.loads(GOLDEN.read_text())["losses"]
            self.check("adamw_int8", want, 1e-6, 2e-4, 0.1)
            self.assertNotEqual(self.losses("adamw_int8", 1), self.losses("adamw", 1))

    return Optimizers


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        import torchao
        versions = {"torchao": torchao.__version__, "torch": torch.__version__.split("+")[0]}
        GOLDEN.write_text(json.dumps({**versions, **first_moments_of_torchao(), "losses": train(adamw_of_torchao)}, indent=0) + "\n")
    else:
        Optimizers = engine_test()
        unittest.main()
