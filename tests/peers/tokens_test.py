"""Goal: tokens/ gives the ids and texts that the library tokenizers gives, and the special tokens that transformers finds.

Method: the library trains tokenizers of each kind on texts of this repository. Both sides encode and decode the same
texts, which are random mixtures of what goes wrong: bytes that are not UTF-8, special tokens in the text, marks, long
runs, empty texts.
"""

import hashlib
import json
import os
import pathlib
import random
import subprocess
import tempfile
import unittest

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ["MUSTER_BIN_FOLDER"]) / "peers_tokenize"
TEXTS = 500
MARK = "\u2581"  # sentencepiece's space
PARTS = [
    b"the ", b"Gradient", b" checkpoint", b"\n\n", b"\t", b"   ", b" ", b"I'm we'll", b"0123456789", b"--", b"\r\n",
    b"a" * 300, b" " * 70, b"\x00", b"\x1b[31m", b"\x7f",
    b"\xff", b"\xc3", b"\xe2\x82", b"\xed\xa0\x80", b"\xf0\x9f\x98", b"\xc0\xaf", b"\xf4\x90\x80\x80",
    *(text.encode() for text in (
        "\u00e9", "e\u0301", "\u00c5ngstr\u00f6m", "\u212b", "\ufb01ne", "\u1e9e\u0130\u0131", "stra\u00dfe", "\u2126\u00b5",
        "\u4e2d\u6587\u5b57", "\u65e5\u672c\u8a9e\u3002", "\ud55c\uad6d\uc5b4", "\u1112\u1161\u11ab",
        "\u0627\u0644\u0639\u0631\u0628\u064a\u0629", "\u05d0\u05b8\u05d1", "\u0928\u092e\u0938\u094d\u0924\u0947",
        "\U0001f469\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "\U0001d518", "\u0300" * 40,
        "\u200b\u200e\u2060", "\ufeff", "\ufffd", "\u00a0\u2003\u3000", "\u2028\u2029", "\u00ad", "\ue000", "\U0010ffff",
        MARK, "\u0120", "##ing", "[CLS]", "[SEP]", "[MASK]", "[PAD]", "[UNK]", "[cls]", "[ CLS ]",
        "<s>", "</s>", "<unk>", "<pad>", "<0x41>", "<|endoftext|>", "<|end|>", "<S>"))]


def hostile_texts():
    chosen = random.Random(5)
    corpus = (ROOT / "README.md").read_bytes()
    texts = [b"", b" ", b"\n", *PARTS]
    while len(texts) < TEXTS:
        parts = [chosen.choice(PARTS) for _ in range(chosen.randrange(1, 9))]
        begin = chosen.randrange(len(corpus))
        parts.insert(chosen.randrange(len(parts)), corpus[begin:begin + chosen.randrange(60)])
        if chosen.random() < 0.2:
            parts.append(bytes(chosen.randrange(256) for _ in range(20)))
        texts.append(b"".join(parts))
    return texts[:TEXTS]


def training_texts():
    files = sorted(path for folder in ("docs", "fsdp/engine", "data/chess") for path in (ROOT / folder).rglob("*")
                   if path.suffix in (".md", ".h", ".cpp"))
    return [line for path in files for line in path.read_text().splitlines() if line]


class Same(unittest.TestCase):
    """A class below makes one tokenizer, in make(), and names its special tokens."""

    special = {}

    def test_the_same_ids_texts_and_special_tokens(self):
        if type(self) is Same:
            self.skipTest("has no tokenizer")
        with tempfile.TemporaryDirectory() as folder:
            PreTrainedTokenizerFast(tokenizer_object=self.make(), **self.special).save_pretrained(folder)
            self.compare(pathlib.Path(folder))

    def compare(self, folder):
        judge = Tokenizer.from_file(str(folder / "tokenizer.json"))
        raw = hostile_texts()
        asked = json.dumps([text.hex() for text in raw]) + "\n"
        done = subprocess.run([PROGRAM, folder], input=asked, capture_output=True, text=True, timeout=200)
        self.assertEqual(done.returncode, 0, done.stderr)
        about, rows = (json.loads(line) for line in done.stdout.rstrip("\n").split("\n"))
        self.check_about(about, judge, folder)
        self.assertEqual(len(rows), TEXTS)
        for text, row in zip(raw, rows):
            text = text.decode(errors="replace")
            plain, both = judge.encode(text, add_special_tokens=False).ids, judge.encode(text).ids
            want = {"plain": plain, "with_special": both, "plain_in_batch": plain, "with_special_in_batch": both,
                    "decoded": judge.decode(both), "decoded_with_special": judge.decode(both, skip_special_tokens=False)}
            self.assertEqual(row, want, repr(text))
            self.assertEqual(both, about["prefix"] + plain + about["suffix"], repr(text))

    def check_about(self, about, judge, folder):
        loaded = PreTrainedTokenizerFast.from_pretrained(folder)
        roles = {role: getattr(loaded, f"{role}_token_id") for role in ("pad", "bos", "eos", "unk", "mask", "cls", "sep")}
        self.assertEqual(about["special"], {role: number for role, number in roles.items() if number is not None})
        self.assertEqual(about["vocabulary"], max(judge.get_vocab().values()) + 1)
        self.assertEqual(about["kind"], "tokenizer.json")
        self.assertEqual(about["sha256"], hashlib.sha256((folder / "tokenizer.json").read_bytes()).hexdigest())


class ByteLevelBpe(Same):
    """As GPT-2 and GPT-NeoX."""

    special = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>", "pad_token": "<pad>"}

    def make(self):
        made = Tokenizer(models.BPE())
        made.normalizer = normalizers.NFC()
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
        made.post_processor = processors.ByteLevel(trim_offsets=True)
        made.train_from_iterator(training_texts(), trainers.BpeTrainer(
            vocab_size=1500, special_tokens=["<|endoftext|>", "<pad>"], show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
        return made


class WordPiece(Same):
    """As BERT."""

    special = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}

    def make(self):
        made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        made.normalizer = normalizers.BertNormalizer(lowercase=True)
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        made.decoder = decoders.WordPiece()
        made.train_from_iterator(training_texts(), trainers.WordPieceTrainer(
            vocab_size=1500, special_tokens=list(self.special.values()), show_progress=False))
        made.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[(name, made.token_to_id(name)) for name in ("[CLS]", "[SEP]")])
        return made


class Unigram(Same):
    """As T5."""

    special = {"unk_token": "<unk>", "pad_token": "<pad>", "eos_token": "</s>"}

    def make(self):
        made = Tokenizer(models.Unigram())
        made.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(" {2,}", " ")])
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
        made.decoder = decoders.Metaspace(prepend_scheme="always")
        made.train_from_iterator(training_texts(), trainers.UnigramTrainer(
            vocab_size=1500, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False))
        made.post_processor = processors.TemplateProcessing(
            single="$A </s>", special_tokens=[("</s>", made.token_to_id("</s>"))])
        return made


class ByteFallback(Same):
    """As Llama and CodeLlama: no pre-tokenizer, and bytes for what is no piece."""

    special = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}

    def make(self):
        learner = Tokenizer(models.BPE())
        learner.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
        learner.train_from_iterator(training_texts(), trainers.BpeTrainer(
            vocab_size=1000, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False))
        learned = json.loads(learner.to_str())["model"]
        # What the trainer does not do: each byte is a piece.
        ids = dict(learned["vocab"])
        for byte in range(256):
            ids[f"<0x{byte:02X}>"] = len(ids)
        merges = [tuple(pair) for pair in learned["merges"]]
        made = Tokenizer(models.BPE(ids, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
        made.add_special_tokens(["<unk>", "<s>", "</s>"])
        made.normalizer = learner.normalizer
        made.decoder = decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(),
                                          decoders.Strip(" ", 1, 0)])
        made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
        return made


if __name__ == "__main__":
    unittest.main()
