"""Goal: models learn under muster as they learn under transformers.

Method: transformers writes tiny random models, and transformers with AdamW trains each on the same batches as peers_engine_rank.
Dropout is 0, because no two programs draw alike.
Usage: MUSTER_BIN_FOLDER=... run.py, see tests/peers/run.py
"""

import json
import pathlib
import tempfile
import unittest

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

import engine_judges
from engine_program import EngineTest
import families_peer

STEPS, SEQUENCES, POSITIONS, RATE = 20, 8, 32, 1e-3


def without_dropout(file):
    config = json.loads(file.read_text())
    file.write_text(json.dumps({name: 0.0 if "dropout" in name else value for name, value in config.items()}))


class Family(EngineTest):
    family = None  # of the subclass
    of_all_batches = {}  # more tensors for the engine
    weight_of = staticmethod(engine_judges.weight_of)

    @classmethod
    def make_batches(cls):
        """Tensors by name, of as many batches as there are steps. Few of them differ, so that the model learns them."""
        tokens = torch.randint(families_peer.VOCABULARY, (2, SEQUENCES, POSITIONS + 1)).repeat(STEPS // 2, 1, 1)
        ids, targets = tokens[:, :, :-1].contiguous(), tokens[:, :, 1:].contiguous()
        targets[:, :4, :9] = -100
        return {"ids": ids, "targets": targets}

    @staticmethod
    def loss_of(model, ids, targets):
        """The sum of the losses of the targets that count."""
        logits = model(ids, use_cache=False).logits
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction="sum")

    @classmethod
    def setUpClass(cls):
        if cls.family is None:
            raise unittest.SkipTest("the base of the families")
        torch.set_num_threads(1)
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        families_peer.make(cls.folder, cls.family)
        torch.manual_seed(11)
        batches = cls.make_batches()
        cls.batches = list(zip(*batches.values()))
        for name in families_peer.FAMILIES[cls.family].cases:
            save_file({**batches, **cls.of_all_batches}, cls.folder / name / "batches.safetensors")
            without_dropout(cls.folder / name / "config.json")

    def check(self, name, noise=None):
        """`noise`: the end of names of parameters that cannot change the loss. Their gradients are rounding noise, which AdamW makes
        steps of, so their last values say nothing."""
        folder = self.folder / name
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                model = families_peer.FAMILIES[self.family].load(folder)
                want = engine_judges.train_plainly(model, self.batches, ranks, RATE, loss_of=self.loss_of, weight_of=self.weight_of)
                self.assertLess(want[0][-1], 0.95 * want[0][0], "it must learn, or equality says little")
                got = self.train_by_engine(folder, folder / f"{ranks}.out", model=self.family, world_size=ranks, rate=RATE)
                self.check_close(got[0], want[0], 1e-6, 1e-5, "loss")
                self.check_close(got[1], want[1], 1e-5, 1e-5, "norm")
                compared = {key: value for key, value in want[2].items() if noise is None or not key.endswith(noise)}
                self.check_weights(got[2], compared, 1e-4)


class Llama(Family):
    family = "llama"

    def test_with_heads_of_their_own(self):
        self.check("untied")

    def test_with_a_tied_head(self):
        self.check("tied")

    def test_with_grouped_heads_from_bf16_files(self):
        self.check("grouped")

    def test_with_one_key_value_head(self):
        self.check("one_kv_head")

    def test_with_the_rope_of_llama_3(self):
        self.check("llama3_rope")

    def test_with_wide_heads(self):
        self.check("head_dim")

    def test_with_linearly_scaled_rope(self):
        self.check("linear_rope")

    def test_with_biases_of_attention(self):
        self.check("attention_bias")

    def test_with_biases_of_the_mlp(self):
        self.check("mlp_bias")


class GptNeoX(Family):
    """Elements of keys that no rotation turns have no use of a bias: it moves all scores of a query alike."""

    family = "gpt_neox"
    NOISE = "query_key_value.bias"

    def test_with_parallel_residuals(self):
        self.check("parallel", noise=self.NOISE)

    def test_with_another_base_of_the_rotation(self):
        self.check("half_turned", noise=self.NOISE)

    def test_with_another_activation(self):
        self.check("gelu_new", noise=self.NOISE)

    def test_without_biases_of_attention(self):
        self.check("no_attention_bias")

    def test_with_sequential_residuals(self):
        self.check("sequential")

    def test_with_a_tied_head(self):
        self.check("tied")

    def test_with_all_elements_turned(self):
        self.check("all_turned")


class T5(Family):
    """Texts have padding, and some targets do not count."""

    family = "t5"

    @classmethod
    def make_batches(cls):
        peer = families_peer.FAMILIES[cls.family]
        two = [peer.inputs(rows=SEQUENCES, source=POSITIONS) for _ in range(2)]
        return {name: torch.stack([one[name] for one in two]).repeat(STEPS // 2, 1, 1) for name in ("ids", "targets", "mask")}

    @staticmethod
    def loss_of(model, ids, targets, mask):
        logits = model(input_ids=ids, attention_mask=mask, labels=targets).logits
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")

    def test_with_a_tied_head(self):
        self.check("relu_tied")

    def test_with_a_gate_and_a_head_of_its_own(self):
        self.check("gated_gelu_untied")

    def test_with_a_deeper_encoder(self):
        self.check("deep_encoder")

    def test_with_a_deeper_decoder(self):
        self.check("deep_decoder")

    def test_with_few_buckets(self):
        self.check("few_buckets")

    def test_with_another_gate_from_bf16_files(self):
        self.check("gated_silu")

    def test_from_a_file_with_every_name_of_the_table(self):
        self.check("old_file")

    def test_with_gelu_and_another_epsilon(self):
        self.check("gelu")

    def test_with_other_ids_of_special_tokens(self):
        self.check("odd_tokens")


class Bert(Family):
    """Rows have padding and two token types. A bias of keys moves all scores of a query alike."""

    names = None  # of what a batch has, in the order of loss_of()

    @classmethod
    def make_batches(cls):
        two = [families_peer.FAMILIES[cls.family].inputs(rows=SEQUENCES) for _ in range(2)]
        return {name: torch.stack([one[name] for one in two]).repeat(STEPS // 2, *[1] * two[0][name].dim()) for name in cls.names}

    def check(self, name):
        super().check(name, noise=".key.bias")

    @staticmethod
    def logits_of(model, ids, mask, types):
        return model(input_ids=ids, attention_mask=mask, token_type_ids=types).logits


class MaskedBert(Bert):
    family, names = "bert", ("ids", "targets", "mask", "types")

    @classmethod
    def loss_of(cls, model, ids, targets, *more):
        return F.cross_entropy(cls.logits_of(model, ids, *more).flatten(0, 1), targets.flatten(), reduction="sum")

    def test_with_a_tied_decoder(self):
        self.check("masked_tied")

    def test_with_a_decoder_of_its_own(self):
        self.check("masked_untied")

    def test_with_another_activation_and_epsilon(self):
        self.check("masked_gelu_new")


class ClassifyingBert(Bert):
    """Classes have unequal weights, so parts of a batch weigh unequally, too."""

    family, names = "bert", ("ids", "labels", "mask", "types")
    of_all_batches = {"class_weights": torch.tensor([0.5, 1.0, 3.0])}

    @classmethod
    def loss_of(cls, model, ids, labels, *more):
        return F.cross_entropy(cls.logits_of(model, ids, *more), labels, cls.of_all_batches["class_weights"], reduction="sum")

    @classmethod
    def weight_of(cls, batch):
        return cls.of_all_batches["class_weights"][batch[1]].sum().item()

    def test_with_gelu(self):
        self.check("classes")

    def test_with_silu_and_three_token_types(self):
        self.check("classes_silu")

    def test_from_bf16_files(self):
        self.check("classes_bf16")


if __name__ == "__main__":
    unittest.main()
