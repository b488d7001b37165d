"""Goal: every member of the files that transformers writes is read as transformers means it, or refused by name; and what muster
writes is a model that transformers loads without a word.

Method: the same tests with transformers 4.57 and with the newest one (run.py, `newest`). Models are tiny and random, with weights
large enough that no two logits are close. A training has one step with a rate so small that no weight moves, so that an export must
be the model that it began from.
Usage: MUSTER_BIN_FOLDER=... run.py, see run.py
"""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

# Pillow is beside the newest transformers alone. The packages of this Python come first.
sys.path.append(os.environ.get("MUSTER_NEWEST_PEERS", ""))

import transformers  # noqa: E402
from transformers import (  # noqa: E402
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    Dinov2Config,
    Dinov2Model,
    Dinov2WithRegistersConfig,
    Dinov2WithRegistersModel,
    GenerationConfig,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

BIN = pathlib.Path(os.environ["MUSTER_BIN_FOLDER"])
IS_5 = int(transformers.__version__.partition(".")[0]) >= 5
TEXTS = ["muster trains", "a checkpoint of a step, and then", "naïve café", "1. e4 e5 2. Nf3"]
CORPUS = ["muster trains models of any size", "a checkpoint holds the state of a step", "games begin with 1. e4 e5 2. Nf3",
          "naïve café, 25 €, and a smile 🙂"] * 4
DECODER = dict(vocab_size=384, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=128,
               bos_token_id=0, eos_token_id=1)
T5 = dict(vocab_size=384, d_model=32, d_kv=8, d_ff=56, num_layers=2, num_heads=4, decoder_start_token_id=0, pad_token_id=0,
          eos_token_id=1, dropout_rate=0.0)
BERT = dict(vocab_size=384, hidden_size=32, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4,
            max_position_embeddings=64, pad_token_id=0, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
DINO = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, patch_size=7, image_size=28)


def scrambled(model, seed=1):
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * (0.3 if parameter.dim() > 1 else 0.1) + (parameter.dim() == 1))
    return model.eval()


def byte_level(template="<s> $A", normalizer=None):
    tokenizer = Tokenizer(models.BPE())
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=330, special_tokens=["<s>", "</s>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=[("<s>", 0), ("</s>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")


def word_piece(lowercase=True):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(CORPUS + [text.upper() for text in CORPUS], trainers.WordPieceTrainer(
        vocab_size=200, special_tokens=names, show_progress=False))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return tokenizer


MARK = "\u2581"  # sentencepiece's space


def marked(model, trainer):
    """Pieces of words with sentencepiece's spaces."""
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def of_classes():
    """Tokenizers of the classes that families have: the name of the class and a tokenizer of it."""
    bpe = marked(models.BPE(unk_token="<unk>"), trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False))
    unigram = marked(models.Unigram(), trainers.UnigramTrainer(
        vocab_size=200, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False))
    unigram.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    neox = byte_level("$A", normalizers.NFC()).backend_tokenizer
    named = {"LlamaTokenizer": (bpe, {}), "T5Tokenizer": (unigram, {"extra_ids": 4}),
             "GPTNeoXTokenizer": (neox, {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "</s>", "pad_token": "</s>"}),
             "BertTokenizer": (word_piece(), {})}
    for name, (tokenizer, more) in named.items():
        if IS_5:
            model = json.loads(tokenizer.to_str())["model"]
            vocab = [tuple(piece) for piece in model["vocab"]] if name == "T5Tokenizer" else model["vocab"]
            merges = {"merges": [tuple(pair) for pair in model["merges"]]} if "merges" in model else {}
            yield name, getattr(transformers, name)(vocab=vocab, **merges, **more)
        else:
            yield name, getattr(transformers, name + "Fast")(tokenizer_object=tokenizer, **more)


def change(file, **members):
    """Sets members of a JSON file; None removes one."""
    json_of = json.loads(file.read_text()) if file.exists() else {}
    json_of |= members
    file.write_text(json.dumps({name: value for name, value in json_of.items() if value is not None}))


class Folder(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.first, self.export = self.folder / "model", self.folder / "export"

    def infer(self, *words, fails=False):
        done = subprocess.run([BIN / "muster-infer", *map(str, words)], capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 2 if fails else 0, done.stderr)
        return done.stderr if fails else done.stdout

    def greedy(self, folder):
        lines = self.infer("generate", folder, "--json", "--device", "cpu", "--max-new-tokens", 20, "--", *TEXTS).splitlines()
        return [json.loads(line)["tokens"] for line in lines]

    def check_greedy(self, folder, model, tokenizer, answers=False):
        """`answers`: of an encoder-decoder, whose answer begins with its first token."""
        want = []
        for text in TEXTS:
            ids = tokenizer(text, return_tensors="pt").input_ids
            with torch.no_grad():
                made = model.generate(ids, do_sample=False, num_beams=1, max_new_tokens=20, use_cache=False,
                                      attention_mask=torch.ones_like(ids))[0].tolist()
            want.append(made[1 if answers else ids.shape[1]:])
        self.assertEqual(self.greedy(folder), want)

    def prepare(self, *words):
        done = subprocess.run([BIN / "muster-data", "prepare", *map(str, words), "--to", self.folder / "data", "--validation", "0"],
                              capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)

    def rows(self, rows):
        file = self.folder / "rows.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return file

    def train(self, recipe, model, fails=False, data=None, **train):
        """One step on one rank that moves no weight, and its export. Returns what the rank says."""
        run = {"format": 1, "name": "small", "recipe": recipe, "model": model,
               "data": {"prepared": str(self.folder / "data"), **({"sequence_length": 32} if data is None else data)},
               "train": {"learning_rate": 1e-12, "schedule": "constant", "warmup_steps": 0, "weight_decay": 0, "batch_size": 2, "steps": 1,
                         "validation_every_steps": 0, "export_folder": str(self.export), **train},
               "checkpoint": {"every_steps": 0, "folder": str(self.folder / "checkpoints")}}
        (self.folder / "run.json").write_text(json.dumps(run))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        env = {name: value for name, value in os.environ.items() if not name.startswith("MUSTER_")}
        env |= {"WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1", "MUSTER_METRICS_FILE": str(self.folder / "metrics.jsonl")}
        done = subprocess.run([BIN / "muster-worker", "--run-file", self.folder / "run.json"], capture_output=True, text=True,
                              timeout=120, env=env)
        self.assertEqual(done.returncode != 0, fails, done.stderr)
        return done.stderr

    def loaded(self, kind, folder):
        """A model of transformers with nothing missing, unexpected or drawn."""
        model, info = kind.from_pretrained(folder, output_loading_info=True)
        for what in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
            self.assertFalse(info.get(what), what)
        return model.float().eval()


class Members(Folder):
    """Members that save_pretrained() writes, and all others that a configuration object has."""

    def check(self, model, use):
        """`use` returns what muster makes of the folder. It must be the same with all members."""
        model.save_pretrained(self.first)
        before = use()
        config = self.first / "config.json"
        plain = json.loads(config.read_text())
        every = json.loads(AutoConfig.from_pretrained(self.first).to_json_string(use_diff=False))
        config.write_text(json.dumps({**every, **plain}))
        self.assertEqual(use(), before)
        config.write_text(json.dumps(plain))
        change(config, logit_scale=0.5)
        self.assertIn("config.json has logit_scale = 0.5", self.infer(*self.command, fails=True))

    def of_decoder(self, model):
        byte_level().save_pretrained(self.first)
        self.command = ["generate", self.first, "--device", "cpu", "a"]
        self.check(model, lambda: self.greedy(self.first))
        change(self.first / "config.json", logit_scale=None)
        want = self.greedy(self.first)
        (self.first / "generation_config.json").write_text(GenerationConfig(bos_token_id=0, eos_token_id=1).to_json_string(use_diff=False))
        self.assertEqual(self.greedy(self.first), want)
        change(self.first / "generation_config.json", repetition_penalty=1.2)
        self.assertIn("repetition_penalty = 1.2", self.infer(*self.command, fails=True))

    def of_encoder(self, model):
        byte_level("<s> $A </s>").save_pretrained(self.first)
        self.command = ["embed", self.first, "--device", "cpu", "a"]
        self.check(model, lambda: self.infer(*self.command))

    def of_images(self, model):
        image = self.folder / "a.ppm"
        image.write_bytes(b"P6 40 32 255\n" + bytes(range(256)) * 15)
        self.command = ["embed", self.first, "--device", "cpu", image]
        self.check(model, lambda: self.infer(*self.command))

    def test_of_llama(self):
        self.of_decoder(scrambled(LlamaForCausalLM(LlamaConfig(**DECODER, intermediate_size=56, num_key_value_heads=2))))

    def test_of_gpt_neox(self):
        self.of_decoder(scrambled(GPTNeoXForCausalLM(GPTNeoXConfig(**DECODER, intermediate_size=72))))

    def test_of_t5(self):
        self.of_decoder(scrambled(T5ForConditionalGeneration(T5Config(**T5))))

    def test_of_bert(self):
        self.of_encoder(scrambled(BertForMaskedLM(BertConfig(**BERT))))

    def test_of_a_classifying_bert(self):
        self.of_encoder(scrambled(BertForSequenceClassification(BertConfig(**BERT, num_labels=3))))

    def test_of_dinov2(self):
        self.of_images(scrambled(Dinov2Model(Dinov2Config(**DINO))))

    def test_of_dinov2_with_registers(self):
        self.of_images(scrambled(Dinov2WithRegistersModel(Dinov2WithRegistersConfig(**DINO))))


# Another value of each member that has no simple one.
OTHER = {"hidden_act": "relu", "feed_forward_proj": "gated-gelu", "dense_act_fn": "silu", "position_embedding_type": "relative_key",
         "problem_type": "regression", "dtype": "float16", "id2label": {"0": "a", "1": "b"}, "label2id": {"a": 0, "b": 1},
         "rope_scaling": {"rope_type": "linear", "factor": 2.0}, "rope_theta": 500.0, "rotary_emb_base": 500, "rotary_pct": 0.5,
         "partial_rotary_factor": 0.5, "classifier_dropout": 0.25, "rms_norm_eps": 0.05, "layer_norm_eps": 0.05, "layer_norm_epsilon": 0.05,
         "head_dim": 16, "num_key_value_heads": 1, "num_attention_heads": 2, "num_heads": 2, "num_hidden_layers": 1, "num_layers": 1,
         "num_decoder_layers": 1, "image_size": 56, "patch_size": 14, "mlp_ratio": 2, "pruned_heads": {"0": [1]}, "eos_token_id": 7,
         "max_position_embeddings": 256, "relative_attention_num_buckets": 16, "relative_attention_max_distance": 40,
         "tokenizer_class": "PreTrainedTokenizerFast", "task_specific_params": {"a": {"b": 1}}, "prefix": "a", "finetuning_task": "a",
         "out_features": ["stem"], "out_indices": [0], "stage_names": ["stem"], "bad_words_ids": [[5]], "suppress_tokens": [5],
         "begin_suppress_tokens": [5], "forced_bos_token_id": 5, "forced_eos_token_id": 5, "exponential_decay_length_penalty": [5, 1.5],
         "cross_attention_hidden_size": 32, "per_layer_config": {"0": {"hidden_act": "relu"}}, "tie_last_hidden_states": True,
         "force_words_ids": [[5]], "constraints": [5], "sequence_bias": [[[5], 9.0]], "stop_strings": ["a"], "watermarking_config": {"bias": 9.0},
         "dola_layers": "low", "cache_implementation": "static", "cache_config": {"a": 1}, "compile_config": {"mode": "default"},
         "continuous_batching_config": {"block_size": 8}, "speculation_type": "a", "num_assistant_tokens_schedule": "heuristic",
         "min_length": 30, "min_new_tokens": 30, "no_repeat_ngram_size": 1, "encoder_no_repeat_ngram_size": 1, "guidance_scale": 3.0,
         "repetition_penalty": 9.0, "encoder_repetition_penalty": 0.1, "decoder_start_token_id": 9, "do_sample": True, "max_length": 3}
# Members of calls in Python, of backbones, and of how tokens are drawn, which the options of muster generate say. The result stays as it is.
OF_CALLS = {"return_dict", "torchscript", "output_attentions", "output_hidden_states", "output_scores", "output_logits", "use_cache",
            "return_dict_in_generate", "return_legacy_cache", "num_return_sequences", "num_beams", "num_beam_groups", "diversity_penalty",
            "do_sample", "temperature", "top_k", "top_p", "top_h", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff", "penalty_alpha",
            "length_penalty", "early_stopping", "renormalize_logits", "max_length", "max_new_tokens", "max_time", "low_memory",
            "is_assistant", "assistant_confidence_threshold", "assistant_early_exit", "assistant_lookbehind", "target_lookbehind",
            "num_assistant_tokens", "num_assistant_tokens_schedule", "prompt_lookup_num_tokens", "max_matching_ngram_size",
            "cache_implementation", "cache_config", "compile_config", "disable_compile", "prefill_chunk_size", "remove_invalid_values",
            "continuous_batching_config", "task_type", "_from_model_config", "_name_or_path", "task_specific_params", "prefix", "finetuning_task",
            "out_features", "out_indices"}
# Members that say which tensors there are: files that do not have them are refused without a word of the member.
OF_TENSORS = {"r", "target_modules", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
              "attention_bias", "mlp_bias", "qkv_bias", "tie_word_embeddings", "d_model", "d_kv", "d_ff", "num_layers", "num_decoder_layers",
              "num_heads", "relative_attention_num_buckets", "feed_forward_proj", "type_vocab_size", "max_position_embeddings", "image_size",
              "patch_size", "num_channels", "mlp_ratio", "use_swiglu_ffn", "use_mask_token", "num_register_tokens", "id2label"}
# Members of which muster has one value.
REFUSED = {
    "": {"pruned_heads", "tie_encoder_decoder", "add_cross_attention", "is_encoder_decoder", "per_layer_config", "tie_last_hidden_states"},
    "generation": {"min_length", "min_new_tokens", "repetition_penalty", "encoder_repetition_penalty", "no_repeat_ngram_size",
                   "encoder_no_repeat_ngram_size", "bad_words_ids", "force_words_ids", "forced_bos_token_id", "forced_eos_token_id",
                   "suppress_tokens", "begin_suppress_tokens", "exponential_decay_length_penalty", "sequence_bias", "guidance_scale",
                   "stop_strings", "watermarking_config", "token_healing", "dola_layers", "assistant_ensemble_weight", "max_cache_len",
                   "speculation_type", "use_mtp"},
    "llama": {"hidden_act", "pretraining_tp", "partial_rotary_factor"},
    "gpt_neox": {"partial_rotary_factor", "rope_theta", "rope_scaling", "rotary_emb_base", "rotary_pct"},
    "t5": {"is_decoder", "dense_act_fn", "is_gated_act", "decoder_start_token_id"},
    "bert": {"is_decoder", "position_embedding_type", "problem_type"},
    "bert_classifier": {"is_decoder", "position_embedding_type", "problem_type"},
    "adapter": {"use_dora", "use_qalora", "use_rslora", "lora_bias", "loftq_config", "fan_in_fan_out", "ensure_weight_tying",
                "alpha_pattern", "bias", "init_lora_weights", "layers_to_transform", "exclude_modules", "modules_to_save", "layer_replication",
                "peft_type",
                # It leads to a folder that is not there. The judge is told the folder.
                "base_model_name_or_path"},
    "dinov2": set(),
    "dinov2_with_registers": set(),
}

OTHER_OF_ADAPTER = {"rank_pattern": {"q_proj": 2}, "alpha_pattern": {"q_proj": 16}, "target_modules": ["q_proj"],
                    "exclude_modules": ["v_proj"], "layers_to_transform": [0], "bias": "all", "init_lora_weights": "pissa",
                    "modules_to_save": ["lm_head"], "layer_replication": [[0, 1]], "peft_type": "IA3"}
# Members of earlier and later releases of PEFT.
ADAPTER_OF_OTHERS = {"eva_config": None, "corda_config": None, "use_bdlora": None}


def other(name, value):
    if name in OTHER:
        return OTHER[name]
    if name == "rope_parameters":
        return {**value, "rope_theta": 500.0}
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value + 0.5
    return value + "x" if isinstance(value, str) else 5


class EachMember(Folder):
    """One member at a time gets another value. Then muster makes what transformers makes of the same folder, or names the member."""

    def setUp(self):
        super().setUp()
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()

    def check_member(self, name, value, file, before, refused):
        change(file, **{name: value})
        try:
            want = before if name in OF_CALLS else self.of_transformers()
        except Exception:  # whatever it says: it does not read such a file
            want = None
        done = subprocess.run([BIN / "muster-infer", *map(str, self.command)], capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            self.assertEqual(done.returncode, 2, done.stderr)
            if name not in OF_TENSORS:
                self.assertRegex(done.stderr, rf"\b{name}\b")
            if want is not None:
                self.assertIn(name, refused | OF_TENSORS)
            return
        self.assertIsNotNone(want, "transformers does not read it")
        self.assertTrue(self.are_equal(self.read(done.stdout), want), f"{done.stdout[:200]} {str(want)[:200]}")

    def check_all(self, family, more=(), but=()):
        before = self.of_transformers()
        file = self.first / "config.json"
        plain = json.loads(file.read_text())
        every = {**json.loads(AutoConfig.from_pretrained(self.first).to_json_string(use_diff=False)), **plain, **dict(more)}
        every = {name: value for name, value in {**every, **plain}.items() if name not in but}
        text = json.dumps(every)
        refused = REFUSED[""] | REFUSED["generation"] | REFUSED[family]
        for name, value in every.items():
            if name not in ("model_type", "architectures", "transformers_version"):
                with self.subTest(family, member=name):
                    file.write_text(text)
                    self.check_member(name, other(name, value), file, before, refused)

    def of_decoder(self, family, model, answers=False, **options):
        tokenizer = byte_level("$A </s>" if answers else "<s> $A")
        tokenizer.save_pretrained(self.first)
        model.save_pretrained(self.first)
        kind = AutoModelForSeq2SeqLM if answers else AutoModelForCausalLM
        ids = tokenizer(TEXTS[1], return_tensors="pt").input_ids
        self.judge_by_tokens(kind, ids, 1 if answers else ids.shape[1])
        self.check_all(family, **options)

    def judge_by_tokens(self, kind, ids, begin, **more):
        """Compared is what follows ids, and stands from `begin` on in what transformers returns."""

        def generated():
            made = kind.from_pretrained(self.first, dtype=torch.float32).eval().generate(
                ids, do_sample=False, num_beams=1, num_return_sequences=1, max_new_tokens=12, use_cache=False,
                attention_mask=torch.ones_like(ids), **more)
            return made[0].tolist()[begin:]

        self.of_transformers = generated
        self.command = ["generate", self.first, "--json", "--device", "cpu", "--max-new-tokens", 12, "--", TEXTS[1]]
        self.read = lambda text: json.loads(text)["tokens"]
        self.are_equal = lambda one, two: one == two

    def of_vectors(self, family, model, argument, vector):
        model.save_pretrained(self.first)

        def made():
            with torch.no_grad():
                return vector(AutoModel.from_pretrained(self.first, dtype=torch.float32).eval())

        self.of_transformers = made
        self.command = ["embed", self.first, "--json", "--device", "cpu", argument]
        self.read = lambda text: torch.tensor(json.loads(text)["embedding"])
        self.are_equal = lambda one, two: torch.allclose(one, two, rtol=1e-3, atol=1e-3)
        self.check_all(family)

    def test_of_llama(self):
        model = LlamaForCausalLM(LlamaConfig(**DECODER, intermediate_size=56, num_key_value_heads=2))
        self.of_decoder("llama", scrambled(model), more={"partial_rotary_factor": 1.0}.items())

    def test_of_llama_with_the_members_of_transformers_4(self):
        model = LlamaForCausalLM(LlamaConfig(**DECODER, intermediate_size=56, num_key_value_heads=2))
        self.of_decoder("llama", scrambled(model), more={"rope_theta": 10000.0, "rope_scaling": None}.items(), but=["rope_parameters"])

    def test_of_gpt_neox(self):
        self.of_decoder("gpt_neox", scrambled(GPTNeoXForCausalLM(GPTNeoXConfig(**DECODER, intermediate_size=72))))

    def test_of_t5(self):
        self.of_decoder("t5", scrambled(T5ForConditionalGeneration(T5Config(**T5))), answers=True)

    def of_bert(self, family, model):
        tokenizer = byte_level("<s> $A </s>")
        tokenizer.save_pretrained(self.first)
        ids = tokenizer(TEXTS[1], return_tensors="pt").input_ids
        self.of_vectors(family, scrambled(model), TEXTS[1], lambda made: made(ids).last_hidden_state[0, 0])

    def test_of_bert(self):
        self.of_bert("bert", BertForMaskedLM(BertConfig(**BERT)))

    def test_of_a_classifying_bert(self):
        self.of_bert("bert_classifier", BertForSequenceClassification(BertConfig(**BERT)))

    def of_dinov2(self, family, model):
        image = self.folder / "a.ppm"
        image.write_bytes(b"P6 28 28 255\n" + bytes(index * 7 % 256 for index in range(28 * 28 * 3)))
        self.first.mkdir()
        (self.first / "preprocessor_config.json").write_text(json.dumps(
            {"size": {"shortest_edge": 28}, "crop_size": 28, "image_mean": [0.5, 0.4, 0.3], "image_std": [0.3, 0.2, 0.1]}))
        pixels = torch.tensor([index * 7 % 256 for index in range(28 * 28 * 3)]).reshape(1, 28, 28, 3).permute(0, 3, 1, 2) / 255
        pixels = (pixels - torch.tensor([0.5, 0.4, 0.3]).view(3, 1, 1)) / torch.tensor([0.3, 0.2, 0.1]).view(3, 1, 1)
        self.of_vectors(family, scrambled(model), image, lambda made: made(pixels).last_hidden_state[0, 0])

    def test_of_dinov2(self):
        self.of_dinov2("dinov2", Dinov2Model(Dinov2Config(**DINO)))

    def test_of_dinov2_with_registers(self):
        self.of_dinov2("dinov2_with_registers", Dinov2WithRegistersModel(Dinov2WithRegistersConfig(**DINO)))

    def test_of_generation_config(self):
        model = LlamaForCausalLM(LlamaConfig(**DECODER, intermediate_size=56))
        byte_level().save_pretrained(self.first)
        scrambled(model).save_pretrained(self.first)
        tokenizer = AutoTokenizer.from_pretrained(self.first)
        ids = tokenizer(TEXTS[1], return_tensors="pt").input_ids
        self.judge_by_tokens(AutoModelForCausalLM, ids, ids.shape[1], tokenizer=tokenizer)
        before, file = self.of_transformers(), self.first / "generation_config.json"
        every = json.loads(GenerationConfig().to_json_string(use_diff=False))
        for name, value in every.items():
            if name != "transformers_version":
                with self.subTest(member=name):
                    file.write_text(json.dumps({"bos_token_id": 0, "eos_token_id": 1}))
                    self.check_member(name, other(name, value), file, before, REFUSED["generation"])

    def test_of_an_adapter(self):
        """Of adapter_config.json, with PEFT as the judge. All members that PEFT has are fed, also those that it writes as null."""
        from peft import LoraConfig, PeftModel, get_peft_model
        base = self.folder / "base"
        byte_level().save_pretrained(base)
        scrambled(LlamaForCausalLM(LlamaConfig(**DECODER, intermediate_size=56, num_key_value_heads=2))).save_pretrained(base)
        adapted = get_peft_model(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32),
                                 LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
        with torch.no_grad():
            for name, parameter in adapted.named_parameters():
                if "lora_" in name:
                    parameter.copy_(torch.randn_like(parameter) * 0.3)
        adapted.save_pretrained(self.first)

        class Adapted:
            @staticmethod
            def from_pretrained(folder, dtype):
                return PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base, dtype=dtype), folder)

        ids = AutoTokenizer.from_pretrained(base)(TEXTS[1], return_tensors="pt").input_ids
        self.judge_by_tokens(Adapted, ids, ids.shape[1])
        before, file = self.of_transformers(), self.first / "adapter_config.json"
        plain = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).generate(ids, do_sample=False, max_new_tokens=12)
        self.assertNotEqual(before, plain[0].tolist()[ids.shape[1]:], "adapters must matter, or equality says little")
        text = file.read_text()
        every = {**json.loads(text), **ADAPTER_OF_OTHERS}
        self.assertGreater(len(every), 35)
        for name, value in every.items():
            with self.subTest(member=name):
                file.write_text(text)
                self.check_member(name, OTHER_OF_ADAPTER[name] if name in OTHER_OF_ADAPTER else other(name, value), file, before,
                                  REFUSED["adapter"])


class Heads(Folder):
    def test_t5_with_a_head_of_its_own_as_this_version_saves_it(self):
        tokenizer = byte_level("$A </s>")
        for more in ({}, {"tie_word_embeddings": False}, {"tie_word_embeddings": False, "feed_forward_proj": "gated-gelu"}):
            with self.subTest(**more):
                made = scrambled(T5ForConditionalGeneration(T5Config(**T5, **more)))
                made.save_pretrained(self.first)
                tokenizer.save_pretrained(self.first)
                if more:  # the format of google/t5-v1_1, which both versions read
                    tensors = load_file(self.first / "model.safetensors")
                    torch.manual_seed(7)
                    tensors["lm_head.weight"] = torch.randn(384, 32) * 0.3
                    save_file(tensors, self.first / "model.safetensors", metadata={"format": "pt"})
                    change(self.first / "config.json", tie_word_embeddings=False, scale_decoder_outputs=None)
                model = self.loaded(AutoModelForSeq2SeqLM, self.first)
                self.check_greedy(self.first, model, tokenizer, answers=True)
                again = self.folder / "again"
                model.save_pretrained(again)
                tokenizer.save_pretrained(again)
                if IS_5 and more:
                    self.assertEqual(json.loads((again / "config.json").read_text())["scale_decoder_outputs"], False)
                self.check_greedy(again, model, tokenizer, answers=True)

    def test_t5_whose_shared_table_is_not_scaled(self):
        if not IS_5:
            self.skipTest("transformers 4 has no such model")
        tokenizer = byte_level("$A </s>")
        model = scrambled(T5ForConditionalGeneration(T5Config(**T5, tie_word_embeddings=False)))
        model.lm_head.weight = model.shared.weight
        model.save_pretrained(self.first)
        tokenizer.save_pretrained(self.first)
        model = AutoModelForSeq2SeqLM.from_pretrained(self.first).eval()
        self.assertFalse(model.config.scale_decoder_outputs)
        self.check_greedy(self.first, model, tokenizer, answers=True)

    def test_t5_goes_through_a_training_in_either_format(self):
        tokenizer = byte_level("$A </s>")
        tokenizer.save_pretrained(self.first)
        for more in ({}, {"tie_word_embeddings": False}):
            with self.subTest(**more):
                scrambled(T5ForConditionalGeneration(T5Config(**T5, **more))).save_pretrained(self.first)
                if more:
                    tensors = load_file(self.first / "model.safetensors")
                    tensors["lm_head.weight"] = torch.randn(384, 32)
                    save_file(tensors, self.first / "model.safetensors", metadata={"format": "pt"})
                    change(self.first / "config.json", tie_word_embeddings=False, scale_decoder_outputs=None)
                    AutoModelForSeq2SeqLM.from_pretrained(self.first).save_pretrained(self.first)
                model = AutoModelForSeq2SeqLM.from_pretrained(self.first).eval()
                self.check_greedy(self.first, model, tokenizer, answers=True)
                if not (self.folder / "data").exists():
                    self.prepare("--from", "jsonl", self.rows([{"input": text, "target": "a"} for text in TEXTS]),
                                 "--fields", "input,target", "--tokenizer", self.first)
                shutil.rmtree(self.folder / "checkpoints", ignore_errors=True)
                self.train("seq2seq", {"family": "t5", "pretrained": str(self.first)},
                           data={"sequence_length": 32, "target_length": 16})
                self.check_greedy(self.export, self.loaded(AutoModelForSeq2SeqLM, self.export), tokenizer, answers=True)
                self.check_greedy(self.export, model, tokenizer, answers=True)
                self.assertEqual(self.greedy(self.folder / "checkpoints"), self.greedy(self.export))

    def test_a_tied_head_beside_another_one_is_refused(self):
        for name, model, head in (
                ("llama", LlamaForCausalLM(LlamaConfig(**DECODER, intermediate_size=56, tie_word_embeddings=True)), "lm_head.weight"),
                ("gpt_neox", GPTNeoXForCausalLM(GPTNeoXConfig(**DECODER, intermediate_size=72, tie_word_embeddings=True)), "embed_out.weight"),
                ("t5", T5ForConditionalGeneration(T5Config(**T5)), "lm_head.weight")):
            with self.subTest(name):
                scrambled(model).save_pretrained(self.first)
                byte_level().save_pretrained(self.first)
                tensors = load_file(self.first / "model.safetensors")
                tensors[head] = torch.randn(384, 32)
                save_file(tensors, self.first / "model.safetensors", metadata={"format": "pt"})
                self.assertIn(f"{head} has other values than", self.infer("generate", self.first, "--device", "cpu", "a", fails=True))

    def test_the_first_token_of_answers_may_be_in_generation_config(self):
        tokenizer = byte_level("$A </s>")
        scrambled(T5ForConditionalGeneration(T5Config(**T5))).save_pretrained(self.first)
        tokenizer.save_pretrained(self.first)
        change(self.first / "config.json", decoder_start_token_id=None)
        (self.first / "generation_config.json").write_text(json.dumps({"decoder_start_token_id": 5, "eos_token_id": 1, "pad_token_id": 0}))
        model = AutoModelForSeq2SeqLM.from_pretrained(self.first).eval()
        self.check_greedy(self.first, model, tokenizer, answers=True)
        change(self.first / "config.json", decoder_start_token_id=0)
        self.assertIn("decoder_start_token_id = 5, and config.json has 0",
                      self.infer("generate", self.first, "--device", "cpu", "a", fails=True))


class Berts(Folder):
    @staticmethod
    def logits(model):
        ids = torch.arange(5, 17).unsqueeze(0)
        with torch.no_grad():
            return model(ids).logits

    def test_labels_keep_their_rows(self):
        labels = {0: "positive", 1: "negative", 2: "neutral"}
        model = scrambled(BertForSequenceClassification(BertConfig(**BERT, id2label=labels, label2id={b: a for a, b in labels.items()})))
        model.save_pretrained(self.first)
        byte_level("<s> $A </s>").save_pretrained(self.first)
        rows = [{"text": text, "label": label} for text, label in zip(TEXTS, ["neutral", "positive", "negative", "neutral"])]
        self.prepare("--from", "jsonl", self.rows(rows), "--fields", "text,label", "--tokenizer", self.first)
        self.train("classify", {"family": "bert", "pretrained": str(self.first)})
        kept = self.loaded(AutoModelForSequenceClassification, self.export)
        self.assertEqual(kept.config.id2label, labels)
        torch.testing.assert_close(self.logits(kept), self.logits(model), rtol=1e-5, atol=1e-5)
        want = self.infer("classify", self.first, "--device", "cpu", "--json", "--", *TEXTS)
        self.assertEqual(want, self.infer("classify", self.folder / "checkpoints", "--device", "cpu", "--json", "--", *TEXTS))

    def test_the_bias_of_an_untied_decoder(self):
        model = scrambled(BertForMaskedLM(BertConfig(**BERT, tie_word_embeddings=False)))
        model.save_pretrained(self.first)
        model = AutoModelForMaskedLM.from_pretrained(self.first).eval()
        byte_level("<s> $A </s>").save_pretrained(self.first)
        if IS_5:
            tensors = load_file(self.first / "model.safetensors")
            self.assertFalse(torch.equal(tensors["cls.predictions.bias"], tensors["cls.predictions.decoder.bias"]))
        self.prepare("--from", "jsonl", self.rows([{"text": text} for text in TEXTS]), "--tokenizer", self.first)
        self.train("masked_lm", {"family": "bert", "pretrained": str(self.first)})
        kept = self.loaded(AutoModelForMaskedLM, self.export)
        torch.testing.assert_close(self.logits(kept), self.logits(model), rtol=1e-5, atol=1e-5)


class Exports(Folder):
    """Models that begin from scratch."""

    def test_a_scaled_rope_has_its_factors(self):
        self.prepare("--from", "fixture")
        for kind, members in (("linear", {"factor": 8.0}),
                              ("llama3", {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192})):
            with self.subTest(kind):
                shutil.rmtree(self.folder / "checkpoints", ignore_errors=True)
                self.train("causal_lm", {"family": "llama", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
                                         "num_attention_heads": 2, "rope_type": kind})
                rope = json.loads((self.export / "config.json").read_text())["rope_scaling"]
                self.assertEqual({name: rope[name] for name in members}, members)
                model = self.loaded(AutoModelForCausalLM, self.export)
                ids = [ord(letter) for letter in "muster trains"]
                with torch.no_grad():
                    want = model.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=8, attention_mask=torch.ones(1, len(ids)))[0, len(ids):].tolist()
                line = json.loads(self.infer("generate", self.export, "muster trains", "--json", "--device", "cpu", "--max-new-tokens", 8))
                self.assertEqual(line["tokens"][:len(want)], want[:len(line["tokens"])])

    def test_a_dinov2_loads(self):
        self.prepare("--from", "shapes", "--count", 24, "--size", 28)
        self.train("dino", {"family": "dinov2", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 28,
                            "patch_size": 7}, data={"local_crops": 0}, prototypes=16, head_hidden_size=24, head_bottleneck_size=8)
        self.assertEqual(json.loads((self.export / "config.json").read_text())["mlp_ratio"], 4)
        self.loaded(AutoModel, self.export)


AS_THEY_ARE = {"truncation": False, "padding": False}  # rows are cut and filled by the trainings
# Members that some version writes for some class, or applies.
MORE_OF_TOKENIZERS = ("add_bos_token", "add_eos_token", "add_prefix_space", "do_lower_case", "strip_accents", "tokenize_chinese_chars",
                      "split_special_tokens", "legacy", "extra_ids", "padding_side", "truncation_side", "model_input_names", "errors",
                      "trim_offsets", "use_default_system_prompt", "additional_special_tokens", "extra_special_tokens", "from_slow",
                      "add_special_tokens", "do_basic_tokenize", "never_split", "wordpieces_prefix", "clean_text", "unk_token", "pad_token",
                      "cls_token", "sep_token", "mask_token", "bos_token", "eos_token", "chat_template", "max_length", "stride", "keep_accents")
# Members for which ids may differ, so that a value may be refused.
CHANGE_IDS = {"add_bos_token", "add_eos_token", "add_prefix_space", "do_lower_case", "strip_accents", "tokenize_chinese_chars",
              "split_special_tokens", "extra_ids", "additional_special_tokens", "extra_special_tokens", "from_slow", "added_tokens_decoder",
              "add_special_tokens", "wordpieces_prefix", "clean_text", "keep_accents"}


def of_tokenizer(name, value, tokenizer):
    """Other values of a member of tokenizer_config.json."""
    if name == "added_tokens_decoder":
        first = next(iter(value))
        return [{**value, first: {**value[first], "normalized": True}}, {**value, "400": {"content": "<tool>", "special": True}}, {}]
    if name.endswith("_token") and not name.startswith("add_"):
        return [tokenizer.convert_ids_to_tokens(2), "<absent>", {"content": tokenizer.convert_ids_to_tokens(1), "lstrip": True}, None]
    known = {"tokenizer_class": ["PreTrainedTokenizerFast"], "model_max_length": [16], "extra_ids": [0, 2, 100], "padding_side": ["left"],
             "truncation_side": ["left"], "model_input_names": [["input_ids"]], "errors": ["ignore"], "chat_template": ["{{ messages }}"],
             "additional_special_tokens": [["<tool>"], [tokenizer.convert_ids_to_tokens(2)], []], "never_split": [["a"]],
             "extra_special_tokens": [["<tool>"], {"image_token": "<tool>"}, [], {}], "max_length": [3], "stride": [1],
             "wordpieces_prefix": ["##", "@@"], "backend": ["tokenizers", None]}
    return known.get(name, [True, False, None])


class Tokenizers(Folder):
    """Members beside a tokenizer.json: equal ids, or a refusal that names the member. What one version applies and the other one
    passes over is refused, or has the meaning that it was written with."""

    TEXTS = ["muster trains", "A Checkpoint é", "</s> a <s> b", "step<tool>step"]

    def muster_ids(self):
        asked = json.dumps([text.encode().hex() for text in self.TEXTS]) + "\n"
        done = subprocess.run([BIN / "peers_tokenize", self.first], input=asked, capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            return done.stderr
        return [row["with_special"] for row in json.loads(done.stdout.splitlines()[1])]

    def check(self, refused=None, **members):
        """`refused`: the member that must be named. Without it ids must be equal."""
        file = self.first / "tokenizer_config.json"
        before = file.read_text()
        change(file, **members)
        with self.subTest(**members):
            got = self.muster_ids()
            if refused is None:
                self.assertEqual(got, AutoTokenizer.from_pretrained(self.first)(self.TEXTS).input_ids)
            else:
                self.assertIn(refused, str(got))
                self.assertIn("tokenizer_config.json: ", str(got))
        file.write_text(before)

    def test_a_tokenizer_as_it_is_saved(self):
        for tokenizer in (byte_level(), byte_level("$A </s>"), byte_level("$A")):
            tokenizer.save_pretrained(self.first)
            self.check()
            self.check(model_max_length=16, padding_side="left", clean_up_tokenization_spaces=True)
            self.check(split_special_tokens=True, refused="split_special_tokens")
            self.check(remove_space=True, refused="remove_space")
            self.check(added_tokens_decoder={"400": {"content": "<tool>", "special": True}}, refused="added_tokens_decoder.400")
            self.check(additional_special_tokens=["<tool>"], refused="additional_special_tokens")
            self.check(extra_special_tokens=["<tool>"], refused="extra_special_tokens")

    def test_of_each_class_as_it_is_saved(self):
        for name, tokenizer in of_classes():
            with self.subTest(name):
                shutil.rmtree(self.first, ignore_errors=True)
                tokenizer.save_pretrained(self.first)
                self.check()
                self.check(remove_space=True, refused="remove_space")

    def test_of_llama(self):
        byte_level().save_pretrained(self.first)
        self.check(add_bos_token=True, add_eos_token=True)
        self.check(add_bos_token=False)
        self.check(tokenizer_class="LlamaTokenizer", add_eos_token=True, backend=None, refused="add_eos_token")
        if not IS_5:  # there the class makes a pre-tokenizer of its own
            self.check(tokenizer_class="LlamaTokenizerFast")
            self.check(tokenizer_class="LlamaTokenizerFast", add_bos_token=False, refused="add_bos_token")

    def test_of_gpt_neox(self):
        byte_level("$A", normalizers.NFC()).save_pretrained(self.first)
        self.check(tokenizer_class="GPTNeoXTokenizer" + ("" if IS_5 else "Fast"))
        self.check(tokenizer_class="GPTNeoXTokenizer", add_bos_token=True, refused="add_bos_token")
        byte_level("<s> $A", normalizers.NFC()).save_pretrained(self.first)
        self.check(tokenizer_class="GPTNeoXTokenizer", refused="add_bos_token")
        if not IS_5:  # that passes the member over
            self.check(tokenizer_class="GPTNeoXTokenizerFast", add_bos_token=True)

    def test_of_bert(self):
        for lowercase in (True, False):
            tokenizer = transformers.BertTokenizerFast(tokenizer_object=word_piece(lowercase), do_lower_case=lowercase) if not IS_5 else \
                PreTrainedTokenizerFast(tokenizer_object=word_piece(lowercase), unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]",
                                        sep_token="[SEP]", mask_token="[MASK]")
            tokenizer.save_pretrained(self.first)
            name = "BertTokenizer" + ("" if IS_5 else "Fast")
            self.check(tokenizer_class=name, do_lower_case=lowercase)
            self.check(tokenizer_class=name, do_lower_case=not lowercase, refused="do_lower_case")
            self.check(tokenizer_class=name, do_lower_case=lowercase, strip_accents=not lowercase, refused="strip_accents")

    def check_each(self, name, value):
        """Whatever a member says: the ids of transformers, or a refusal that names it."""
        file = self.first / "tokenizer_config.json"
        before = file.read_text()
        members = json.loads(before)
        if members.get(name, "") != value:
            file.write_text(json.dumps({**members, name: value}))
            with self.subTest(member=name, value=value):
                got = self.muster_ids()
                try:
                    want = AutoTokenizer.from_pretrained(self.first)(self.TEXTS, **AS_THEY_ARE).input_ids
                except Exception:  # whatever it says: it does not read such a file
                    want = None
                if isinstance(got, str):
                    # `backend` says whose file it is, and so which members count.
                    self.assertRegex(got, rf"tokenizer_config.json: .*\b(add_)?{'' if name == 'backend' else name}\b")
                    if want is not None:
                        self.assertTrue(name in CHANGE_IDS or name.endswith("_token") or name == "backend", got)
                elif want is not None:
                    self.assertEqual(got, want)
                else:  # of another version's form, or without effect here
                    self.assertTrue(value in (None, [], {}) or name in ("extra_ids", "add_prefix_space"), "transformers does not read it")
        file.write_text(before)

    def test_each_member_of_each_class(self):
        for class_name, tokenizer in [("none", byte_level()), *of_classes()]:
            shutil.rmtree(self.first, ignore_errors=True)
            tokenizer.save_pretrained(self.first)
            written = json.loads((self.first / "tokenizer_config.json").read_text())
            with self.subTest(class_name):
                for name in {**written, **dict.fromkeys(MORE_OF_TOKENIZERS)}:
                    for value in of_tokenizer(name, written.get(name), tokenizer):
                        self.check_each(name, value)

    def test_what_a_training_exports_is_the_same_tokenizer(self):
        tokenizer = byte_level("<s> $A </s>")
        tokenizer.save_pretrained(self.first)
        model = scrambled(BertForMaskedLM(BertConfig(**BERT)))
        model.save_pretrained(self.first)
        self.prepare("--from", "jsonl", self.rows([{"text": text} for text in TEXTS]), "--tokenizer", self.first)
        self.train("masked_lm", {"family": "bert", "pretrained": str(self.first)})
        self.assertEqual(AutoTokenizer.from_pretrained(self.export)(self.TEXTS).input_ids, tokenizer(self.TEXTS).input_ids)


class Images(Folder):
    """Pictures that must be resized, against the processor of transformers. Of pictures that Pillow 13 resizes along columns first,
    such as one of 90 x 301, some values are one apart."""

    def setUp(self):
        super().setUp()
        try:
            from PIL import Image
        except ImportError:
            self.skipTest("no Pillow; ./dev setup --peers installs it beside the newest transformers")
        self.image = Image

    @staticmethod
    def processor(**settings):
        from transformers import BitImageProcessor
        try:
            return BitImageProcessor(**settings)
        except ImportError:  # the fast one, which wants torchvision, has the name of the other one
            from transformers.models.bit.image_processing_pil_bit import BitImageProcessorPil
            return BitImageProcessorPil(**settings)

    def check(self, model, processor, files):
        vectors = self.folder / "vectors"
        vectors.unlink(missing_ok=True)
        self.infer("embed", self.first, *files, "--device", "cpu", "--to", vectors)
        got = load_file(vectors)["embeddings"]
        for row, file in enumerate(files):
            with self.subTest(file.name), torch.no_grad():
                pixels = processor(self.image.open(file).convert("RGB"), return_tensors="pt")["pixel_values"].float()
                want = model(pixels).last_hidden_state[0, 0]
                torch.testing.assert_close(got[row], want, rtol=1e-4, atol=1e-4)

    def test_vectors_are_those_of_the_models_own_processor(self):
        model = scrambled(Dinov2Model(Dinov2Config(**{**DINO, "image_size": 56})))
        model.save_pretrained(self.first)
        mean, deviation = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
        processor = self.processor(size={"shortest_edge": 64}, crop_size={"height": 56, "width": 56}, image_mean=mean, image_std=deviation)
        processor.save_pretrained(self.first)
        torch.manual_seed(3)
        Image = self.image
        pictures = {"smooth": Image.linear_gradient("L").resize((640, 480)).convert("RGB"),
                    "tall": Image.effect_noise((90, 180), 60).convert("RGB"), "wide": Image.effect_noise((333, 70), 90).convert("RGB"),
                    "small": Image.effect_noise((40, 31), 60).convert("RGB"), "same": Image.effect_noise((64, 64), 60).convert("RGB")}
        gradient = Image.linear_gradient("L")
        pictures["alpha"] = Image.merge("RGBA", [gradient, gradient.rotate(90), gradient.rotate(180), Image.effect_noise((256, 256), 90)])
        pictures["gray_alpha"] = Image.merge("LA", [gradient, gradient.rotate(90)])
        files = []
        for name, picture in pictures.items():
            files.append(self.folder / f"{name}.png")
            picture.save(files[-1])
        self.check(model, processor, files)

    def test_members_that_are_absent_or_have_another_value(self):
        """Each member alone: the processor that transformers makes of the same file, or a refusal by name."""
        model = scrambled(Dinov2Model(Dinov2Config(**{**DINO, "image_size": 56})))
        model.save_pretrained(self.first)
        picture = self.folder / "a.png"
        self.image.merge("RGB", [self.image.linear_gradient("L").rotate(turn).resize((300, 260)) for turn in (0, 90, 180)]).save(picture)
        file = self.first / "preprocessor_config.json"
        command = ["embed", self.first, "--device", "cpu", picture]
        small = {"size": {"shortest_edge": 64}, "crop_size": {"height": 56, "width": 56}}
        for members in ({}, small,
                        {**small, "image_mean": [0.1, 0.2, 0.3]}, {**small, "image_std": [0.1, 0.2, 0.3]}, {**small, "image_mean": 0.4, "image_std": 0.6},
                        {"size": {"shortest_edge": 240}}, {"size": 230}, {"crop_size": 112}, {"do_convert_rgb": False}, {"do_convert_rgb": None}):
            with self.subTest(**members):
                file.write_text(json.dumps({"image_processor_type": "BitImageProcessor", **members}))
                self.check(model, self.processor(**members), [picture])
        every = json.loads(self.processor().to_json_string())
        others = {"do_resize": False, "do_center_crop": False, "do_rescale": False, "do_normalize": False, "resample": 2, "rescale_factor": 0.5,
                  "image_processor_type": "ViTImageProcessor", "size": {"height": 64, "width": 64}, "crop_size": {"height": 64, "width": 56},
                  "do_pad": True, "default_to_square": True, "data_format": "channels_last", "size_divisor": 32}
        silent = {"do_convert_rgb", "input_data_format", "device", "disable_grouping", "return_tensors", "image_seq_length", "pad_size",
                  "image_mean", "image_std"}
        self.assertLessEqual(set(every), set(others) | silent)
        for name, value in others.items():
            with self.subTest(name):
                file.write_text(json.dumps({**every, name: value}))
                self.assertIn(f"{name} = {json.dumps(value, separators=(',', ':'))}; ", self.infer(*command, fails=True))
        for name in set(every) - {"image_processor_type", "do_convert_rgb"}:
            with self.subTest(name, value=None):
                file.write_text(json.dumps({**every, name: None}))
                self.assertIn(f"{name} = null; ", self.infer(*command, fails=True))


if __name__ == "__main__":
    unittest.main()
