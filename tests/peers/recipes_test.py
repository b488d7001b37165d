"""Goal: whole trainings by muster-worker follow the same trainings written with transformers and FSDP2, and transformers loads what
they export, tokenizer and generation_config.json included.

Method: the recipes of bench/recipes.py with small models, twenty steps on two ranks, and the same batches on both sides. Each side
draws its own crops of images, so of DINOv2 the export alone is compared. The tokenizers of class Exports are trained on a few lines by
the package tokenizers, and the answers of what was exported are compared between muster and transformers.
Usage: MUSTER_BIN_FOLDER=... run.py, see run.py
"""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import torch
import transformers
from safetensors.torch import load_file, load_model
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

os.environ["MUSTER_PEER_PYTHON"] = sys.executable
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "bench"))
import recipes  # noqa: E402
from forked import Programs  # noqa: E402

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


class Bench(recipes.Bench):
    """Its programs of Python are forked, since nobody asks for their memory here."""

    def __init__(self, programs, folder):
        super().__init__(pathlib.Path(os.environ["MUSTER_BIN_FOLDER"]), folder, rounds=1, quick=True)
        self.programs = programs

    def wait(self, number, err):
        if status := self.programs.wait(number):
            raise recipes.Failed(f"ended with {status}: {err.read_text()[-3000:]}")

    def make_model(self, file, sizes):
        err = file.parent / "make.log"
        number = self.programs.start(recipes.PEER, "make", file, file.parent / "model", json.dumps(sizes),
                                     env={"RANK": "0", "TMPDIR": str(file.parent)}, err=err)
        self.wait(number, err)

    def train_by_peer(self, file, store, name):
        folder = file.parent
        ranks = [(self.programs.start(recipes.PEER, "train", file, store, env=env, folder=folder, out=folder / f"{name}.{rank}.out",
                                      err=folder / f"{name}.{rank}.log"), folder / f"{name}.{rank}.log")
                 for rank, env in enumerate(recipes.variables_of_ranks(folder, name))]
        for rank in ranks:
            self.wait(*rank)
        return [0]


class Recipe(unittest.TestCase):
    modules = ()  # what the programs import besides

    @classmethod
    def setUpClass(cls):
        cls.programs = cls.enterClassContext(Programs(recipes.PEER, *cls.modules, env={"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}))

    def setUp(self):
        torch.set_num_threads(1)
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.bench = Bench(self.programs, self.folder)
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


class CausalLm(Recipe):
    modules = ("peft", "transformers.models.llama.modeling_llama", "transformers.models.gpt_neox.modeling_gpt_neox")

    def test_of_packed_games_with_llama(self):
        self.check("llama")

    def test_with_adapters_of_a_llama(self):
        self.check("lora")

    def test_of_manual_pages_with_gpt_neox(self):
        self.check("gpt_neox")


class OtherRecipes(Recipe):
    modules = ("transformers.models.t5.modeling_t5", "transformers.models.bert.modeling_bert", "transformers.models.dinov2.modeling_dinov2")

    def test_seq2seq_of_padded_pairs_with_t5(self):
        self.check("t5")

    def test_classify_of_descriptions_with_bert(self):
        self.check("bert")

    def test_dino_exports_the_teachers_backbone(self):
        _, folder = self.train("dinov2", sides=("muster",))
        self.check_export(folder, "dinov2")


LINES = ["the train takes the long way home", "a checkpoint holds the state of a step", "ranks meet at the port of rank zero",
         "a lost node costs one attempt alone"]
CHAT = "{% for message in messages %}<{{ message['role'] }}> {{ message['content'] }}\n{% endfor %}"
SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]
SIZES = {"hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64}


def byte_level(template):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(LINES, trainers.BpeTrainer(
        vocab_size=320, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=[("<s>", 1), ("</s>", 2)])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>",
                                                unk_token="<unk>", chat_template=CHAT)


def word_piece():
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(LINES, trainers.WordPieceTrainer(vocab_size=120, special_tokens=names))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return transformers.BertTokenizerFast(tokenizer_object=tokenizer, chat_template=CHAT)


class Exports(unittest.TestCase):
    """A model of save_pretrained() with a tokenizer of its own, trained by muster-worker, is such a folder again."""

    def setUp(self):
        torch.manual_seed(5)
        self.bin = pathlib.Path(os.environ["MUSTER_BIN_FOLDER"])
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.first, self.export = self.folder / "model", self.folder / "export"

    def muster(self, *words):
        done = subprocess.run([self.bin / "muster", *map(str, words)], capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def train(self, recipe, model, tokenizer, rows, steps, fields=(), **train):
        """Trains `model` on rows of JSON with its tokenizer, and returns what AutoTokenizer finds in the export."""
        model.save_pretrained(self.first)
        tokenizer.save_pretrained(self.first)
        self.assertTrue((self.first / "chat_template.jinja").exists(), "transformers keeps it in a file of its own")
        (self.folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        self.muster("data", "prepare", "--from", "jsonl", self.folder / "rows.jsonl", *fields, "--tokenizer", self.first,
                    "--to", self.folder / "data", "--validation", 0)
        run = {"format": 1, "name": "small", "recipe": recipe,
               "model": {"family": model.config.model_type, "pretrained": str(self.first)},
               "data": {"prepared": str(self.folder / "data"), "sequence_length": 32},
               "train": {**recipes.TRAIN, "learning_rate": 5e-3, "weight_decay": 0, "batch_size": 8, "steps": steps,
                         "export_folder": str(self.export), **train},
               "checkpoint": {"every_steps": 0, "folder": str(self.folder / "checkpoints")}}
        (self.folder / "run.json").write_text(json.dumps(run))
        recipes.run_ranks([self.bin / "muster-worker", "--run-file", self.folder / "run.json"], self.folder, "train")
        kept = transformers.AutoTokenizer.from_pretrained(self.export)
        self.assertIs(type(kept), type(tokenizer))
        for text in [*LINES, "A naïve café, 25 €, 🙂", "</s> [MASK] <unk>"]:
            self.assertEqual(kept(text).input_ids, tokenizer(text).input_ids, text)
        chat = [{"role": "user", "content": LINES[0]}]
        self.assertEqual(kept.apply_chat_template(chat, tokenize=False), tokenizer.apply_chat_template(chat, tokenize=False))
        self.assertEqual(kept.special_tokens_map, tokenizer.special_tokens_map)
        return kept

    def loaded(self, kind):
        model, info = kind.from_pretrained(self.export, torch_dtype=torch.float32, output_loading_info=True)
        self.assertFalse(info["missing_keys"] or info["unexpected_keys"] or info["mismatched_keys"], info)
        before = kind.from_pretrained(self.first, torch_dtype=torch.float32).state_dict()
        self.assertTrue(any(not torch.equal(value, before[name]) for name, value in model.state_dict().items()), "it was trained")
        return model.eval()

    def check_generation(self, model, tokenizer, prompts, ends):
        """Texts end at the second of `ends`, which generation_config.json alone names."""
        want = transformers.GenerationConfig.from_pretrained(self.first).to_dict()
        self.assertEqual(transformers.GenerationConfig.from_pretrained(self.export).to_dict(), want)
        self.assertEqual(want["eos_token_id"], ends)
        for prompt in prompts:
            rows = tokenizer(prompt, return_tensors="pt", return_token_type_ids=False)
            with torch.no_grad():
                ids = model.generate(**rows, do_sample=False, num_beams=1, max_new_tokens=24)[0].tolist()
            self.assertEqual(ids[-1], ends[1], "generation_config.json ends the text, or it says little")
            text = tokenizer.decode(ids, skip_special_tokens=True)
            self.assertGreater(len(text), 20)
            self.assertEqual(self.muster("generate", self.export, prompt, "--device", "cpu", "--max-new-tokens", 24), text + "\n")

    def test_a_llama_with_byte_level_bpe(self):
        tokenizer = byte_level("<s> $A")
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, vocab_size=len(tokenizer), bos_token_id=1, eos_token_id=2))
        ends = [2, tokenizer.convert_tokens_to_ids("Ċ")]
        model.generation_config = transformers.GenerationConfig(bos_token_id=1, eos_token_id=ends, pad_token_id=0, max_length=48)
        rows = [{"text": "\n".join(LINES[i % 4:] + LINES[:i % 4]) + "\n"} for i in range(64)]
        tokenizer = self.train("causal_lm", model, tokenizer, rows, steps=60)
        model = self.loaded(transformers.AutoModelForCausalLM)
        self.check_generation(model, tokenizer, [" ".join(line.split()[:3]) for line in LINES], ends)

    def test_a_t5_with_byte_level_bpe(self):
        tokenizer = byte_level("$A </s>")
        model = transformers.T5ForConditionalGeneration(transformers.T5Config(
            vocab_size=len(tokenizer), d_model=48, d_kv=12, d_ff=64, num_layers=2, num_heads=4, dropout_rate=0, pad_token_id=0, eos_token_id=2,
            decoder_start_token_id=0))
        ends = [2, tokenizer.convert_tokens_to_ids("Ċ")]
        model.generation_config = transformers.GenerationConfig(decoder_start_token_id=0, eos_token_id=ends, pad_token_id=0, max_length=48)
        rows = [{"in": line.split()[1], "out": line + "\n, and more"} for line in LINES * 16]
        tokenizer = self.train("seq2seq", model, tokenizer, rows, steps=80, fields=["--fields", "input=in,target=out"])
        model = self.loaded(transformers.AutoModelForSeq2SeqLM)
        self.check_generation(model, tokenizer, [line.split()[1] for line in LINES], ends)

    def test_a_bert_with_word_pieces_that_classifies(self):
        tokenizer = word_piece()
        labels = ["trains", "steps", "ports", "nodes"]
        model = transformers.BertForSequenceClassification(transformers.BertConfig(
            **SIZES, **recipes.NO_DROPOUT, vocab_size=len(tokenizer), num_labels=4))
        rows = [{"text": line, "label": label} for line, label in zip(LINES, labels, strict=True)] * 16
        tokenizer = self.train("classify", model, tokenizer, rows, steps=6,
                               fields=["--fields", "text,label", "--labels", ",".join(labels)], head="by_number")
        model = self.loaded(transformers.AutoModelForSequenceClassification)
        for line in LINES:
            with torch.no_grad():
                want = model(**tokenizer(line, return_tensors="pt")).logits[0].softmax(-1)
            got = json.loads(self.muster("classify", self.export, line, "--device", "cpu", "--json", "--top", 4))["labels"]
            self.assertEqual({one["label"] for one in got}, set(labels))
            for one in got:
                self.assertAlmostEqual(one["probability"], want[model.config.label2id[one["label"]]].item(), places=4)

    def test_a_bert_with_word_pieces_that_fills_in(self):
        tokenizer = word_piece()
        model = transformers.BertForMaskedLM(transformers.BertConfig(**SIZES, **recipes.NO_DROPOUT, vocab_size=len(tokenizer)))
        self.train("masked_lm", model, tokenizer, [{"text": line} for line in LINES * 16], steps=6)
        self.loaded(transformers.AutoModelForMaskedLM)


if __name__ == "__main__":
    unittest.main()
