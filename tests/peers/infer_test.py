"""muster-infer against transformers: the same folder of save_pretrained() gives the same tokens, texts and vectors.

The models are tiny and random, with weights large enough that no two logits are close. The tokenizer is a byte-level BPE that
is trained here.
"""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (AutoModelForCausalLM, BertConfig, BertForMaskedLM, BertForSequenceClassification, Dinov2Config,
                          Dinov2Model, Dinov2WithRegistersConfig, Dinov2WithRegistersModel, GPTNeoXConfig, GPTNeoXForCausalLM,
                          LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration)

MUSTER_INFER = pathlib.Path(os.environ["MUSTER_BIN_FOLDER"]) / "muster-infer"
TEXTS = ["muster trains", "a checkpoint of a step, and then", "é", "1. e4 e5 2. Nf3 Nc6 3. Bb5"]
CORPUS = ["muster trains models of any size", "a checkpoint holds the state of a step", "games begin with 1. e4 e5 2. Nf3",
          "naïve café, 25 €, and a smile 🙂"] * 4


def make_tokenizer(folder, template="<s> $A"):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=330, special_tokens=["<s>", "</s>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=[("<s>", 0), ("</s>", 1)])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    fast.save_pretrained(folder)
    return fast


SIZES = dict(vocab_size=384, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, max_position_embeddings=128,
             bos_token_id=0, eos_token_id=1)
CASES = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, intermediate_size=56, num_key_value_heads=2)),
    "llama_tied": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, intermediate_size=56, tie_word_embeddings=True)),
    "gpt_neox": lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**SIZES, intermediate_size=72)),
    "gpt_neox_sequential": lambda: GPTNeoXForCausalLM(
        GPTNeoXConfig(**SIZES, intermediate_size=72, use_parallel_residual=False, rotary_pct=0.5)),
}


def infer(test, *arguments):
    done = subprocess.run([MUSTER_INFER, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    test.assertEqual(done.returncode, 0, done.stderr)
    return done.stdout


def enlarge(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4.0) if parameter.dim() > 1 else parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


class EncoderDecoders(unittest.TestCase):
    def test_greedy_answers_are_those_of_transformers(self):
        sizes = dict(vocab_size=384, d_model=32, d_kv=8, d_ff=56, num_layers=2, num_decoder_layers=3, num_heads=4,
                     decoder_start_token_id=0, pad_token_id=0, eos_token_id=1)
        for seed, more in enumerate([{}, dict(feed_forward_proj="gated-gelu", tie_word_embeddings=False)]):
            with self.subTest(**more), tempfile.TemporaryDirectory() as folder:
                torch.manual_seed(seed)
                model = T5ForConditionalGeneration(T5Config(**sizes, **more))
                with torch.no_grad():
                    for parameter in model.parameters():
                        parameter.mul_(1.5)
                model = model.eval()
                model.save_pretrained(folder)
                tokenizer = make_tokenizer(folder, template="$A </s>")
                lines = infer(self, "generate", folder, "--json", "--device", "cpu", "--max-new-tokens", 30, "--", *TEXTS).splitlines()
                for text, line in zip(TEXTS, lines, strict=True):
                    ids = tokenizer(text, return_tensors="pt").input_ids
                    with torch.no_grad():
                        # The cache of transformers has as many layers as the encoder.
                        want = model.generate(ids, do_sample=False, num_beams=1, max_new_tokens=30,
                                              use_cache=False)[0].tolist()[1:]
                    self.assertEqual(json.loads(line)["tokens"], want, text)


class Encoders(unittest.TestCase):
    SIZES = dict(vocab_size=384, hidden_size=32, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4,
                 max_position_embeddings=64, type_vocab_size=2, pad_token_id=2)

    def test_labels_and_probabilities_are_those_of_transformers(self):
        with tempfile.TemporaryDirectory() as folder:
            torch.manual_seed(3)
            labels = {0: "chess", 1: "mail", 2: "games"}
            model = enlarge(BertForSequenceClassification(
                BertConfig(**self.SIZES, id2label=labels, label2id={name: i for i, name in labels.items()})))
            model.save_pretrained(folder)
            tokenizer = make_tokenizer(folder, template="<s> $A </s>")
            lines = infer(self, "classify", folder, "--json", "--device", "cpu", "--", *TEXTS).splitlines()
            for text, line in zip(TEXTS, lines, strict=True):
                with torch.no_grad():
                    want = model(tokenizer(text, return_tensors="pt").input_ids).logits[0].softmax(-1)
                got = json.loads(line)["labels"]
                self.assertEqual([one["label"] for one in got], [labels[i] for i in want.argsort(descending=True).tolist()])
                for one in got:
                    self.assertAlmostEqual(one["probability"], want[model.config.label2id[one["label"]]].item(), places=4)

    def test_vectors_are_the_last_hidden_states(self):
        for make in (BertForMaskedLM, BertForSequenceClassification):
            with self.subTest(make=make.__name__), tempfile.TemporaryDirectory() as folder:
                torch.manual_seed(4)
                model = enlarge(make(BertConfig(**self.SIZES)))
                model.save_pretrained(folder)
                tokenizer = make_tokenizer(folder, template="<s> $A </s>")
                for pool in ("cls", "mean"):
                    file = pathlib.Path(folder) / f"{pool}.vectors"
                    infer(self, "embed", folder, "--device", "cpu", "--pool", pool, "--to", file, "--", *TEXTS)
                    with safe_open(file, "pt") as opened:
                        self.assertEqual(json.loads(opened.metadata()["texts"]), list(TEXTS))
                    for row, text in zip(load_file(file)["embeddings"], TEXTS, strict=True):
                        with torch.no_grad():
                            states = model.bert(tokenizer(text, return_tensors="pt").input_ids).last_hidden_state[0]
                        torch.testing.assert_close(row, states.mean(0) if pool == "mean" else states[0], rtol=1e-4, atol=1e-4)


class Images(unittest.TestCase):
    """The images have the size of the preprocessor, so that nobody resizes them."""

    def test_vectors_are_those_of_transformers(self):
        sizes = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, patch_size=7)
        for make, size in ((lambda: Dinov2Model(Dinov2Config(image_size=28, **sizes)), 28),
                           (lambda: Dinov2Model(Dinov2Config(image_size=42, **sizes)), 28),
                           (lambda: Dinov2WithRegistersModel(Dinov2WithRegistersConfig(image_size=28, num_register_tokens=3, **sizes)), 28)):
            with self.subTest(make=make), tempfile.TemporaryDirectory() as name:
                folder = pathlib.Path(name)
                torch.manual_seed(6)
                model = enlarge(make())
                model.save_pretrained(folder)
                (folder / "preprocessor_config.json").write_text(json.dumps(
                    {"crop_size": {"height": size, "width": size}, "size": {"shortest_edge": 32},
                     "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225], "do_resize": True}))
                images = torch.randint(0, 256, (3, 32, 32, 3), dtype=torch.uint8)
                (folder / "images").mkdir()
                for number, image in enumerate(images):
                    (folder / f"images/{number}.ppm").write_bytes(b"P6 32 32 255\n" + image.numpy().tobytes())
                edge = (32 - size) // 2
                seen = images[:, edge:edge + size, edge:edge + size].permute(0, 3, 1, 2) / 255
                seen = (seen - torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)) / torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
                with torch.no_grad():
                    states = model(seen).last_hidden_state
                patches = states[:, 1 + getattr(model.config, "num_register_tokens", 0):]
                for pool, want in (("cls", states[:, 0]), ("mean", patches.mean(1))):
                    file = folder / f"{pool}.vectors"
                    infer(self, "embed", folder, folder / "images", "--device", "cpu", "--pool", pool, "--batch", 2, "--to", file)
                    torch.testing.assert_close(load_file(file)["embeddings"], want, rtol=1e-4, atol=1e-4)
                with safe_open(file, "pt") as opened:
                    named = json.loads(opened.metadata()["images"])
                self.assertEqual(named, [str(folder / f"images/{number}.ppm") for number in range(3)])
                line = json.loads(infer(self, "embed", folder, folder / "images/1.ppm", "--device", "cpu", "--json"))
                self.assertEqual(line["image"], str(folder / "images/1.ppm"))
                torch.testing.assert_close(torch.tensor(line["embedding"]), states[1, 0], rtol=1e-4, atol=1e-4)

    def test_what_is_no_image_is_named(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            Dinov2Model(Dinov2Config(hidden_size=32, num_hidden_layers=1, num_attention_heads=4, patch_size=7, image_size=28)).save_pretrained(folder)
            (folder / "text.png").write_text("no picture")
            for arguments, complaint in (([folder / "text.png"], "text.png"), ([folder / "missing.png"], "missing.png"),
                                         ([folder / "text.png", "--pool", "last"], "want cls or mean")):
                done = subprocess.run([MUSTER_INFER, "embed", folder, *map(str, arguments)], capture_output=True, text=True, timeout=120)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(complaint, done.stderr)


class Decoders(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.models = {}
        for seed, (name, make) in enumerate(CASES.items()):
            torch.manual_seed(seed)
            folder = pathlib.Path(cls.holder.name) / name
            model = make().eval()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.mul_(4.0) if parameter.dim() > 1 else parameter.add_(0.1 * torch.randn_like(parameter))
            model.save_pretrained(folder, max_shard_size="30KB")
            tokenizer = make_tokenizer(folder)
            cls.models[name] = (folder, AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.float32).eval(), tokenizer)

    @classmethod
    def tearDownClass(cls):
        cls.holder.cleanup()

    def infer(self, *arguments):
        done = subprocess.run([MUSTER_INFER, *map(str, arguments)], capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_greedy_tokens_and_their_text_are_those_of_transformers(self):
        for name, (folder, model, tokenizer) in self.models.items():
            lines = self.infer("generate", folder, "--json", "--device", "cpu", "--max-new-tokens", 40, "--", *TEXTS).splitlines()
            for text, line in zip(TEXTS, lines, strict=True):
                with self.subTest(model=name, text=text):
                    ids = tokenizer(text, return_tensors="pt").input_ids
                    with torch.no_grad():
                        want = model.generate(ids, do_sample=False, max_new_tokens=40, pad_token_id=1,
                                              attention_mask=torch.ones_like(ids))[0].tolist()
                    got = json.loads(line)
                    self.assertEqual(got["tokens"], want[ids.shape[1]:])
                    whole = tokenizer.decode(want, skip_special_tokens=True)
                    self.assertEqual(got["prompt"] + got["text"], whole)
                    self.assertEqual(got["ended"], want[-1] == 1)

    def test_a_single_text_is_printed_whole(self):
        for name, (folder, model, tokenizer) in self.models.items():
            with self.subTest(model=name):
                got = self.infer("generate", folder, "--device", "cpu", "--max-new-tokens", 40, TEXTS[1])
                ids = tokenizer(TEXTS[1], return_tensors="pt").input_ids
                with torch.no_grad():
                    want = model.generate(ids, do_sample=False, max_new_tokens=40, pad_token_id=1)[0]
                self.assertEqual(got, tokenizer.decode(want, skip_special_tokens=True) + "\n")

    def test_vectors_are_the_last_hidden_states(self):
        for name, (folder, model, tokenizer) in self.models.items():
            for pool in ("mean", "last"):
                with self.subTest(model=name, pool=pool):
                    file = folder / f"{pool}.vectors"
                    self.infer("embed", folder, "--device", "cpu", "--pool", pool, "--to", file, "--", *TEXTS)
                    got = load_file(file)["embeddings"]
                    for row, text in enumerate(TEXTS):
                        with torch.no_grad():
                            states = model(**tokenizer(text, return_tensors="pt", return_token_type_ids=False),
                                           output_hidden_states=True).hidden_states[-1][0]
                        want = states.mean(0) if pool == "mean" else states[-1]
                        torch.testing.assert_close(got[row], want, rtol=1e-4, atol=1e-4)

    def test_a_nucleus_has_the_tokens_that_transformers_leaves(self):
        """Draws of many texts with one beginning stay within the nucleus of transformers, and reach most of its weight."""
        from transformers import TopPLogitsWarper
        folder, model, tokenizer = self.models["llama"]
        ids = tokenizer(TEXTS[0], return_tensors="pt").input_ids
        with torch.no_grad():
            logits = model(ids).logits[:, -1] / 3.0
        kept = TopPLogitsWarper(0.8)(ids, logits).softmax(-1)[0]
        draws = 400
        lines = self.infer("generate", folder, "--json", "--device", "cpu", "--temperature", 3, "--top-p", 0.8,
                           "--max-new-tokens", 1, "--batch", 100, "--", *([TEXTS[0]] * draws)).splitlines()
        counts = torch.zeros(kept.shape[0])
        for line in lines:
            counts[json.loads(line)["tokens"][0]] += 1
        self.assertEqual(counts.sum(), draws)
        self.assertTrue((kept[counts > 0] > 0).all())
        # Five standard deviations for each token.
        self.assertTrue(((counts / draws - kept).abs() <= 5 * (kept * (1 - kept) / draws).sqrt() + 1e-6).all())


if __name__ == "__main__":
    unittest.main()
