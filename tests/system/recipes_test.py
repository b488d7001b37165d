"""Goal: each recipe learns on real input, from its own example, goes on after a rank is killed, and what it made can be used.
Method: muster init writes the job file and muster data prepare makes the data; two ranks as local processes; rank 1 is killed
by SIGKILL in the middle. The untrained model is measured by one step at a rate that changes nothing.

Usage: recipes_test.py BIN_FOLDER [TEST]
"""

import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

from daemon import Musterd, eventually

BIN = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else pathlib.Path("build/bin")
LIMIT_S = 600


def labels_in(file):
    """The labels of a file of prepared texts: little-endian int32 at the offset that the header names."""
    data = pathlib.Path(file).read_bytes()
    records, = struct.unpack_from("<Q", data, 24)
    labels, = struct.unpack_from("<Q", data, 64)
    return struct.unpack_from(f"<{records}i", data, labels)


class Recipes(unittest.TestCase):
    def setUp(self):
        self.daemon = Musterd(self, BIN)
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def run_muster(self, *words, **options):
        done = subprocess.run([BIN / "muster", *map(str, words)], capture_output=True, text=True, cwd=self.folder,
                              timeout=LIMIT_S, **options)
        self.assertEqual(done.returncode, 0, f"{words}: {done.stdout}{done.stderr}")
        return done.stdout

    def prepare(self, *words):
        self.run_muster("data", "prepare", *words)

    def submit(self, file, *settings):
        words = [word for setting in settings for word in ("--set", setting)]
        done = self.daemon.muster("submit", self.folder / file, "--env", "OMP_NUM_THREADS=1", *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return re.search(r"\d+", done.stdout).group()

    def values(self, job, series):
        """The values of a series by step, of the newest attempt that made the step."""
        rows = json.loads(self.daemon.muster("metrics", job, "--json").stdout)
        return {row["step"]: row["series"][series] for row in rows if series in row["series"]}

    def until_done(self, job):
        def over():
            return self.daemon.show(job)["state"] in ("succeeded", "failed", "cancelled")
        self.assertTrue(eventually(over, LIMIT_S), self.daemon.show(job))
        view = self.daemon.show(job)
        log = self.daemon.muster("logs", job).stdout
        self.assertEqual(view["state"], "succeeded", f"{view['reason']}\n{log[-3000:]}")
        return view

    def untrained(self, file, *settings):
        job = self.submit(file, *settings, "train.steps=1", "train.learning_rate=1e-12", "train.min_learning_rate=1e-12",
                          "train.warmup_steps=0", "train.validation_every_steps=1", "train.early_stop=0",
                          f"train.export_folder={self.folder}/untrained", "checkpoint.every_steps=0", "checkpoint.best=")
        self.until_done(job)
        return job

    def train_with_a_killed_rank(self, file, *settings, at_step=20):
        job = self.submit(file, *settings, "checkpoint.every_steps=10")
        self.assertTrue(eventually(lambda: (self.daemon.show(job)["step"] or 0) >= at_step
                                   or self.daemon.show(job)["state"] in ("succeeded", "failed"), LIMIT_S))
        view = self.daemon.show(job)
        self.assertEqual(view["state"], "running", view["reason"])
        rank = next(rank for rank in view["ranks"] if rank["rank"] == 1)
        self.assertGreater(rank["pid"], 1)
        os.kill(rank["pid"], signal.SIGKILL)
        view = self.until_done(job)
        self.assertEqual([attempt["number"] for attempt in view["attempts"]], [1, 2], "one rank was killed once")
        self.assertGreaterEqual(view["attempts"][1]["resumed_from_step"], 10)
        return job

    def tell(self, recipe, value, before, after):
        print(f"recipe {recipe}: {value} {before:.4g} untrained, {after:.4g} trained", flush=True)

    def best_of(self, job, series, better=max):
        return better(self.values(job, series).values())

    def test_a_llama_writes_legal_moves(self):
        self.run_muster("init", "chess")
        self.prepare("--from", "chess", "--count", "1500", "--notation", "san", "--to", "data/chess")
        before = self.best_of(self.untrained("chess.toml"), "validation/legal_moves")
        job = self.train_with_a_killed_rank("chess.toml", "train.steps=300", at_step=100)
        after = self.best_of(job, "validation/legal_moves")
        self.tell("chess", "share of legal moves", before, after)
        self.assertGreater(after, 0.1)
        self.assertGreaterEqual(after, 3 * max(before, 1 / 64))
        print(self.run_muster("generate", "models/chess", "1. e4 e5 2. ", "--max-new-tokens", "16"))

    def test_a_pythia_learns_manual_pages(self):
        self.run_muster("init", "pythia")
        self.prepare("--from", "man", "--max-bytes", "2MiB", "--to", "data/man")
        text = (self.folder / "pythia.toml").read_text()
        (self.folder / "pythia.toml").write_text(text[:text.index("[sweep]")])
        before = self.best_of(self.untrained("pythia.toml"), "validation/perplexity")
        losses = []
        for strategy in ("no_shard", "full_shard"):
            job = self.train_with_a_killed_rank("pythia.toml", "train.steps=150", "train.validation_every_steps=50",
                                                f"fsdp.strategy={strategy}", at_step=40)
            losses.append(self.values(job, "loss"))
            after = self.best_of(job, "validation/perplexity", min)
        self.assertEqual(losses[0].keys(), losses[1].keys())
        for step, loss in losses[0].items():  # gradients are summed in another order
            self.assertAlmostEqual(loss, losses[1][step], delta=1e-3 * loss, msg=f"DDP and FSDP are one training; step {step}")
        self.tell("pythia", "perplexity of held-out pages", before, after)
        self.assertLess(after, before / 2)

    def test_a_t5_summarises_manual_pages(self):
        self.run_muster("init", "t5")
        self.prepare("--from", "man-pairs", "--prefix", "summarize: ", "--count", "2000", "--to", "data/summaries")
        settings = ["train.generated_samples=8"]
        before = self.best_of(self.untrained("t5.toml", *settings, "train.epochs=0"), "validation/loss")
        job = self.train_with_a_killed_rank("t5.toml", *settings, "train.epochs=3")
        after = self.best_of(job, "validation/loss", min)
        self.tell("t5", "validation loss", before, after)
        self.assertLessEqual(after, before * 2 / 3)
        self.assertGreaterEqual(self.best_of(job, "validation/rouge1"), 0)
        print(self.run_muster("generate", "models/t5", "summarize: ls lists files", "--max-new-tokens", "24"))

    def test_a_bert_finds_the_section_of_a_package(self):
        self.run_muster("init", "bert")
        self.prepare("--from", "packages", "--to", "data/sections")
        job = self.train_with_a_killed_rank("bert.toml", "train.early_stop=0", "train.epochs=0", "train.steps=600",
                                            "train.validation_every_epochs=0", "train.validation_every_steps=200", at_step=100)
        after = self.best_of(job, "validation/macro_f1")
        labels = [label for file in sorted((self.folder / "data/sections").glob("validation-*.mdat")) for label in labels_in(file)]
        share = max(labels.count(label) for label in set(labels)) / len(labels)
        majority = 2 * share / (1 + share) / len(set(labels))
        self.tell("bert", "macro-F1 (of the most frequent class, and of the model)", majority, after)
        self.assertGreaterEqual(after, 3 * majority)
        print(self.run_muster("classify", "models/bert", "Perl module that parses dates"))

    def test_a_vision_transformer_tells_textures_apart_without_labels(self):
        self.run_muster("init", "dino")
        self.prepare("--from", "textures", "--count", "2000", "--size", "32", "--validation", "0.15", "--to", "data/textures")
        job = self.train_with_a_killed_rank("dino.toml", at_step=100)
        after = self.best_of(job, "validation/knn_accuracy")
        pixels = self.best_of(job, "validation/pixel_knn_accuracy")
        self.tell("dino", "k-NN accuracy (of pixels, and of the teacher)", pixels, after)
        self.assertGreater(after, pixels)
        (self.folder / "image.ppm").write_bytes(b"P6 32 32 255\n" + bytes(range(256)) * 12)
        vectors = self.run_muster("embed", "models/dino", "image.ppm")
        self.assertEqual(len(vectors.split()), json.loads((self.folder / "models/dino/config.json").read_text())["hidden_size"])
        self.assertEqual(self.daemon.muster("embed", job, self.folder / "image.ppm").stdout, vectors, "its newest checkpoint is what was exported")


if __name__ == "__main__":
    unittest.main()
