"""Goal: a model file of sentencepiece gives the ids and texts that sentencepiece gives.

Method: sentencepiece trains models of each kind on the licenses that Debian brings, which stay as they are. Both sides encode
and decode the same texts, which are random mixtures of words, spaces, scripts and unknown characters. Left out is where transformers' fast
tokenizers, which tokens/ follows, differ from sentencepiece themselves: special tokens and byte pieces written in a text,
and characters that a charsmap composes of more than five bytes.
"""

import hashlib
import io
import json
import os
import pathlib
import random
import subprocess
import tempfile
import unittest

import sentencepiece

LICENSES = pathlib.Path("/usr/share/common-licenses")
PROGRAM = pathlib.Path(os.environ["MUSTER_BIN_FOLDER"]) / "peers_tokenize"
TEXTS = 400
MARK = "\u2581"  # sentencepiece's space
PARTS = [
    "the ", "Gradient", " checkpoint", "\n\n", "\t", "   ", " ", "I'm we'll", "0123456789", "--", "\r\n", "aa", "x" * 12,
    " " * 30, "\x00", "\x1b[31m", "\x7f", "\u00e9", "e\u0301", "\u00c5ngstr\u00f6m", "\u212b ", "\ufb01ne", "\u1e9e\u0131",
    "stra\u00dfe", "\u2126\u00b5", "\u4e2d\u6587\u5b57", "\u65e5\u672c\u8a9e\u3002", "\ud55c\uad6d\uc5b4", "\uff21\uff22\uff11",
    "\u0627\u0644\u0639\u0631\u0628\u064a\u0629", "\U0001f1e9\U0001f1ea", "\U0001d518", "\u200b", "\ufeff", "\ufffd",
    "\u00a0\u2003\u3000", "\u2028\u2029", "\u00ad", "\ue000", "\U0010ffff", "\u00bd", "\u2026"]


def texts(with_marks):
    chosen = random.Random(9)
    corpus = (LICENSES / "GPL-3").read_text()
    parts = PARTS + ([MARK, MARK + "the", " " + MARK] if with_marks else [])
    made = ["", " ", "\n", *parts]
    while len(made) < TEXTS:
        mixture = [chosen.choice(parts) for _ in range(chosen.randrange(1, 9))]
        begin = chosen.randrange(len(corpus))
        mixture.insert(chosen.randrange(len(mixture)), corpus[begin:begin + chosen.randrange(60)])
        made.append("".join(mixture))
    return made[:TEXTS]


def lines():
    files = sorted(path for path in LICENSES.iterdir() if not path.is_symlink())
    return [line for path in files for line in path.read_text().splitlines() if line]


class Same(unittest.TestCase):
    """A class below has the options of one model, and the ids that are put around a text."""

    options = None
    file = "tokenizer.model"
    prefix, suffix = [], []
    with_marks = True

    def test_the_same_ids_and_texts(self):
        if self.options is None:
            self.skipTest("has no model")
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines()), model_writer=model, minloglevel=2, num_threads=1, hard_vocab_limit=False,
            **{"vocab_size": 1200, "character_coverage": 0.999, **self.options})
        judge = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / self.file).write_bytes(model.getvalue())
            self.compare(folder, judge, model.getvalue())

    def compare(self, folder, judge, model):
        asked = texts(self.with_marks)
        done = subprocess.run([PROGRAM, folder], input=json.dumps([text.encode().hex() for text in asked]) + "\n",
                              capture_output=True, text=True, timeout=200)
        self.assertEqual(done.returncode, 0, done.stderr)
        about, rows = (json.loads(line) for line in done.stdout.rstrip("\n").split("\n"))
        self.check_about(about, judge, model)
        self.assertEqual(len(rows), TEXTS)
        kinds, ties = set(), 0
        for text, row in zip(asked, rows):
            want = judge.encode(text)
            if self.is_tie(row["plain"], want):
                ties += 1
                want = row["plain"]
            self.assertEqual(row["plain"], want, f"{text!r}: {judge.encode(text, out_type=str)}")
            self.assertEqual(row["plain_in_batch"], want, repr(text))
            self.assertEqual(row["with_special"], self.prefix + want + self.suffix, repr(text))
            kinds.update("unknown" if judge.is_unknown(piece) else "byte" if judge.is_byte(piece) else "known"
                         for piece in want)
            # sentencepiece writes an unknown piece as a text of its own; decoding here leaves it out.
            if judge.unk_id() not in want:
                self.assertEqual(row["decoded"], judge.decode(want), repr(text))
        self.assertLess(ties, TEXTS / 10)  # most are runs of spaces, which are cut in several ways
        self.assertEqual(kinds, {"known", "byte" if self.options.get("byte_fallback") else "unknown"})

    def is_tie(self, ids, want):
        """Whether a Unigram model scores both equally, because they have the same pieces in another order.

        sentencepiece adds scores in fp32, whose rounding then decides; tokenizers adds them in fp64.
        """
        return self.options["model_type"] == "unigram" and ids != want and sorted(ids) == sorted(want)

    def check_about(self, about, judge, model):
        self.assertEqual(about["kind"], "sentencepiece")
        self.assertEqual(about["sha256"], hashlib.sha256(model).hexdigest())
        self.assertEqual(about["vocabulary"], judge.get_piece_size() + (100 if self.suffix else 0))
        roles = {"pad": judge.pad_id(), "bos": judge.bos_id(), "eos": judge.eos_id(), "unk": judge.unk_id()}
        self.assertEqual(about["special"], {role: number for role, number in roles.items() if number >= 0})


class PlainUnigram(Same):
    options = {"model_type": "unigram"}


class PlainUnigramThatKeepsSpaces(Same):
    options = {"model_type": "unigram", "normalization_rule_name": "identity", "remove_extra_whitespaces": False,
               "add_dummy_prefix": False, "allow_whitespace_only_pieces": True, "split_by_whitespace": False}


class PlainBpe(Same):
    options = {"model_type": "bpe"}


class PlainBpeWithBytes(Same):
    options = {"model_type": "bpe", "byte_fallback": True, "normalization_rule_name": "nmt_nfkc_cf"}


class Llama(Same):
    """With the options that Llama's model was trained with."""

    options = {"model_type": "bpe", "byte_fallback": True, "normalization_rule_name": "identity",
               "remove_extra_whitespaces": False, "split_digits": True, "allow_whitespace_only_pieces": True}
    prefix = [1]


class T5(Same):
    """With the options that T5's model was trained with. transformers takes a mark in a text for a space."""

    options = {"model_type": "unigram", "pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    file = "spiece.model"
    suffix = [1]
    with_marks = False


if __name__ == "__main__":
    unittest.main()
