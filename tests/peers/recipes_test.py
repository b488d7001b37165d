"""Goal: whole trainings by muster-worker follow the same trainings written with transformers and FSDP2, and transformers loads what
they export.

Method: the recipes of bench/recipes.py with small models, twenty steps on two ranks, and the same batches on both sides. Each side
draws its own crops of images, so of DINOv2 the export alone is compared.
Usage: MUSTER_BIN_FOLDER=... run.py, see run.py
"""

import dataclasses
import json
import os
import pathlib
import sys
import tempfile
import unittest

import torch
import transformers
from safetensors.torch import load_file, load_model

os.environ["MUSTER_PEER_PYTHON"] = sys.executable
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "bench"))
import recipes  # noqa: E402

STEPS = 20
SMALL = {
    "llama": {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2},
    "gpt_neox": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2},
    "t5": {"d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2},
    "bert": {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2},
    "dinov2": {"hidden_size": 64, "num_hidden_layers": 2},
}
# Few samples, so that those of a machine with few manual pages and packages last for all steps.
BATCHES = {"gpt_neox": 8, "t5": 4, "bert": 16}
LOADED_AS = {"llama": "AutoModelForCausalLM", "gpt_neox": "AutoModelForCausalLM", "t5": "AutoModelForSeq2SeqLM",
             "bert": "AutoModelForSequenceClassification", "dinov2": "AutoModel"}


class Recipes(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.bench = recipes.Bench(pathlib.Path(os.environ["MUSTER_BIN_FOLDER"]), self.folder, rounds=1, quick=True)
        self.bench.steps = STEPS

    def train(self, name, sides=("muster", "fsdp2")):
        """Trains on each side. Returns what the sides told by side, and the folder with `export` and `state.safetensors`."""
        recipe = recipes.RECIPES[name]
        batch = BATCHES.get(recipe.family, recipe.train["batch_size"])
        recipe = dataclasses.replace(recipe, sizes={**recipe.sizes, **SMALL[recipe.family]}, train={**recipe.train, "batch_size": batch})
        file = self.bench.set_up(name, recipe)
        records = sum(part["records"] for part in json.loads((file.parent / "data/data.json").read_text())["splits"]["train"]["files"])
        if recipe.family in ("t5", "bert") and records < STEPS * batch:
            self.skipTest(f"this machine has {records} samples for it, and {STEPS} steps take {STEPS * batch}")
        run = json.loads(file.read_text())
        run["train"] |= {"export_folder": str(file.parent / "export"), "full_state_file": str(file.parent / "state.safetensors")}
        file.write_text(json.dumps(run))
        return {side: self.bench.run(side, file, 0) for side in sides}, file.parent

    def check_losses(self, told):
        ours, peer = told["muster"], told["fsdp2"]
        self.assertEqual(len(ours["loss"]), STEPS)
        for mine, theirs in zip(ours["tokens"], peer["tokens"], strict=True):
            self.assertLess(abs(mine - theirs), 0.5, "other batches")
        self.assertNotAlmostEqual(peer["loss"][-1], peer["loss"][0], 3, "weights must move, or equality says little")
        difference = max(abs(mine - theirs) / abs(theirs) for mine, theirs in zip(ours["loss"], peer["loss"], strict=True))
        print(f"{self.id().rpartition('.')[2]}: losses differ by at most {difference:.1e} of themselves")
        self.assertLessEqual(difference, 1e-4)

    def check_export(self, folder, family):
        kind = getattr(transformers, LOADED_AS[family])
        model, info = kind.from_pretrained(folder / "export", torch_dtype=torch.float32, output_loading_info=True)
        for what in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
            self.assertFalse(info[what], what)
        before = kind.from_pretrained(folder / "model", torch_dtype=torch.float32)
        moved = [name for name, value in model.state_dict().items() if not torch.equal(value, before.state_dict()[name])]
        self.assertTrue(moved, "the trained weights, not the first ones")
        load_model(before, folder / "state.safetensors")
        for name, value in model.state_dict().items():
            self.assertTrue(torch.equal(value, before.state_dict()[name]), f"{name} in the file of the full state")
        self.assertTrue(load_file(folder / "state.safetensors"))

    def check(self, name):
        told, folder = self.train(name)
        self.check_losses(told)
        self.check_export(folder, recipes.RECIPES[name].family)

    def test_causal_lm_of_packed_games_with_llama(self):
        self.check("causal_lm, Llama")

    def test_causal_lm_of_manual_pages_with_gpt_neox(self):
        self.check("causal_lm, GPT-NeoX")

    def test_seq2seq_of_padded_pairs_with_t5(self):
        self.check("seq2seq, T5")

    def test_classify_of_descriptions_with_bert(self):
        self.check("classify, BERT")

    def test_dino_exports_the_teachers_backbone(self):
        _, folder = self.train("dino, DINOv2", sides=("muster",))
        self.check_export(folder, "dinov2")


if __name__ == "__main__":
    unittest.main()
