"""Goal: each recipe learns on real input, goes on after a rank is killed, and what it made can be used.
Method: docs/recipes.md's commands of the recipe (of chess-lora: those in its first lines), with the job file that muster init writes and
no other settings; two ranks as local processes; rank 1 is killed by SIGKILL in the middle. The untrained model is measured by
one step at a rate that changes nothing. One recipe has a short story, too: a tenth of its steps, which shows all but how well it
learns.

Usage: recipes_test.py BIN_FOLDER [TEST]
"""

import json
import os
import pathlib
import re
import shlex
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

from daemon import Musterd, eventually

BIN = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else pathlib.Path("build/bin")
PAGE = pathlib.Path(__file__).resolve().parent.parent.parent / "docs" / "recipes.md"
LIMIT_S = 600


def labels_in(file):
    """The labels of a file of prepared texts: little-endian int32 at the offset that the header names."""
    data = pathlib.Path(file).read_bytes()
    records, = struct.unpack_from("<Q", data, 24)
    labels, = struct.unpack_from("<Q", data, 64)
    return struct.unpack_from(f"<{records}i", data, labels)


def commands_of(recipe):
    """The commands that the example's first lines name, without the word muster: of data, of the job and of its use."""
    head = (PAGE.parent.parent / f"examples/recipes/{recipe}.toml").read_text()
    return [shlex.split(line) for line in re.findall(r"^#   \d\. muster ((?!init ).*)$", head, re.MULTILINE)]


def with_settings(words, settings):
    """A command with --set before each setting."""
    return [*words, *(word for setting in settings for word in ("--set", setting))]


def stories():
    """The commands of docs/recipes.md's recipes, without the word muster: those from `muster init RECIPE` on, by recipe."""
    block = re.search(r"^## Step by step$.*?^```sh$(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL).group(1)
    found = {}
    for words in filter(None, (shlex.split(line, comments=True) for line in block.splitlines())):
        if words[:2] == ["muster", "init"]:
            story = found[words[2]] = []
        if words[0] != "muster":
            raise ValueError(f"docs/recipes.md: no story runs this line: {words}")
        story.append(words[1:])
    return found


class Readme(unittest.TestCase):
    def test_has_four_commands_of_each_recipe_and_its_job_file_the_same_data(self):
        self.assertEqual(list(stories()), ["chess", "pythia", "t5", "bert", "dino"], "each has a story below")
        for recipe, (_, prepare, *_) in stories().items():
            self.assertEqual(commands_of(recipe)[0], prepare)


class Recipes(unittest.TestCase):
    def setUp(self):
        self.daemon = Musterd(self, BIN)
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("MUSTER_")}
        self.env |= {"MUSTER_ADDRESS": f"127.0.0.1:{self.daemon.grpc}", "MUSTER_TOKEN": self.daemon.token}

    def muster(self, *words):
        done = subprocess.run([BIN / "muster", *map(str, words)], capture_output=True, text=True, cwd=self.folder, env=self.env,
                              timeout=LIMIT_S)
        self.assertEqual(done.returncode, 0, f"{words}: {done.stdout}{done.stderr}")
        return done.stdout

    def begin(self, recipe):
        """Runs the first two commands of docs/recipes.md's story, and returns the other two."""
        init, prepare, submit, use = stories()[recipe]
        self.assertEqual([init, prepare[:2], submit[0]], [["init", recipe], ["data", "prepare"], "submit"])
        self.muster(*init)
        self.muster(*prepare)
        return submit, use

    def jobs(self):
        return {str(job["id"]) for job in json.loads(self.muster("list", "--json"))}

    def submit(self, words):
        """Starts a command. Returns its process and the jobs that it has made. With --follow it goes on until the end of its job."""
        before = self.jobs()
        log = self.enterContext(open(self.folder / f"submit-{len(before)}.log", "w+"))
        process = subprocess.Popen([BIN / "muster", *words, "--env", "OMP_NUM_THREADS=1"], cwd=self.folder, env=self.env, stdout=log,
                                   stderr=subprocess.STDOUT)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        if "--follow" in words:
            self.assertTrue(eventually(lambda: process.poll() is not None or self.jobs() - before, LIMIT_S))
        else:
            process.wait(LIMIT_S)
        made = self.jobs() - before
        self.assertTrue(made, (self.folder / log.name).read_text())
        return process, sorted(made, key=int)

    def values(self, job, series):
        """The values of a series by step, of the newest attempt that made the step."""
        rows = json.loads(self.muster("metrics", job, "--json"))
        return {row["step"]: row["series"][series] for row in rows if series in row["series"]}

    def until_done(self, job):
        def over():
            return self.daemon.show(job)["state"] in ("succeeded", "failed", "cancelled")
        self.assertTrue(eventually(over, LIMIT_S), self.daemon.show(job))
        view = self.daemon.show(job)
        self.assertEqual(view["state"], "succeeded", f"{view['reason']}\n{self.muster('logs', job)[-3000:]}")
        return view

    def untrained(self, file):
        """The job of one step that changes nothing, and is evaluated."""
        settings = ["train.steps=1", "train.epochs=0", "train.learning_rate=1e-12", "train.min_learning_rate=1e-12",
                    "train.warmup_steps=0", "train.validation_every_epochs=0", "train.validation_every_steps=1", "train.early_stop=0",
                    "train.early_stop_least=0", f"train.export_folder={self.folder}/untrained", "checkpoint.every_steps=0",
                    "checkpoint.best="]
        _, jobs = self.submit(with_settings(["submit", file], settings))
        for job in jobs:
            self.until_done(job)
        return jobs[0]

    def kill_a_rank(self, job, at_step, saved_step):
        def is_time():
            view = self.daemon.show(job)
            saved = (view["last_checkpoint_step"] or 0) >= saved_step
            return view["state"] in ("succeeded", "failed") or saved and (view["step"] or 0) >= at_step
        self.assertTrue(eventually(is_time, LIMIT_S))
        view = self.daemon.show(job)
        self.assertEqual(view["state"], "running", view["reason"])
        rank = next(rank for rank in view["ranks"] if rank["rank"] == 1)
        self.assertGreater(rank["pid"], 1)
        os.kill(rank["pid"], signal.SIGKILL)

    def train_with_a_killed_rank(self, words, at_step, saved_step=50):
        """Runs this command and kills rank 1 of each of its jobs, at a step after the first checkpoint, that of saved_step."""
        process, jobs = self.submit(words)
        for job in jobs:
            self.kill_a_rank(job, at_step, saved_step)
        for job in jobs:
            view = self.until_done(job)
            self.assertEqual([attempt["number"] for attempt in view["attempts"]], [1, 2], "one rank was killed once")
            self.assertGreaterEqual(view["attempts"][1]["resumed_from_step"], saved_step)
        self.assertEqual(process.wait(LIMIT_S), 0, words)
        return jobs

    def use(self, command, model, *words):
        """What a command of docs/recipes.md's says of its texts, and of another one, with --json."""
        name, usual, *texts = command
        lines = self.muster(name, model, *words, "--json", "--device", "cpu", "--", *texts, "a text of its own").splitlines()
        return usual, [json.loads(line) for line in lines]

    def best_step(self, job):
        """Of the checkpoint that checkpoint.best has kept."""
        found = sorted(self.daemon.data.glob(f"**/{job}/**/step-*/manifest.json"))
        self.assertTrue(found)
        return json.loads(found[-1].read_text())["extra"]["best"]["step"]

    def check_checkpoints(self, command, job, check):
        """The newest checkpoint has the weights of the export, and --best those of the best step."""
        usual, want = self.use(command, command[1])
        newest = self.use(command, job)[1]
        self.assertEqual(len(newest), len(want))
        for one, other in zip(newest, want, strict=True):
            check(one, other)
        best = self.best_step(job)
        self.assertEqual(self.use(command, job, "--best")[1], self.use(command, job, "--step", best)[1])

    def check_generated(self, one, other):
        self.assertEqual(one, other)
        self.assertTrue(one["text"])

    def check_classes(self, one, other):
        self.assertEqual([label["label"] for label in one["labels"]], [label["label"] for label in other["labels"]])
        for mine, theirs in zip(one["labels"], other["labels"], strict=True):
            self.assertAlmostEqual(mine["probability"], theirs["probability"], delta=1e-4)

    def check_vectors(self, one, other):
        self.assertEqual(one["text"], other["text"])
        for mine, theirs in zip(one["embedding"], other["embedding"], strict=True):
            self.assertAlmostEqual(mine, theirs, delta=1e-4)

    def tell(self, recipe, value, before, after):
        print(f"recipe {recipe}: {value} {before:.4g} untrained, {after:.4g} trained", flush=True)

    def best_of(self, job, series, better=max):
        return better(self.values(job, series).values())

    def test_a_llama_writes_legal_moves(self):
        submit, use = self.begin("chess")
        before = self.best_of(self.untrained(submit[-1]), "validation/legal_moves")
        job, = self.train_with_a_killed_rank(submit, at_step=120)
        after = self.best_of(job, "validation/legal_moves")
        self.tell("chess", "share of legal moves", before, after)
        self.assertGreater(after, 0.1)
        self.assertGreaterEqual(after, 3 * max(before, 1 / 64))
        print(self.muster(*use))
        self.adapters_learn_another_notation()

    def adapters_learn_another_notation(self):
        """muster init chess-lora, whose base is what chess has exported."""
        prepare, submit, use = commands_of("chess-lora")
        self.muster("init", "chess-lora")
        self.muster(*prepare)
        base = (self.folder / "models/chess/model.safetensors").read_bytes()
        before = self.best_of(self.untrained(submit[-1]), "validation/legal_moves")
        job, = self.train_with_a_killed_rank(submit, at_step=70)
        after = self.best_of(job, "validation/legal_moves")
        self.tell("chess-lora", "share of legal moves", before, after)
        self.assertGreaterEqual(after, 3 * max(before, 1 / 64))
        self.assertEqual((self.folder / "models/chess/model.safetensors").read_bytes(), base, "the model itself stays")
        print(self.muster(*use))
        self.check_checkpoints(use, job, self.check_generated)

    def test_a_pythia_learns_manual_pages(self):
        submit, use = self.begin("pythia")
        before = self.best_of(self.untrained(submit[-1]), "validation/perplexity")
        jobs = self.train_with_a_killed_rank(submit, at_step=80)
        losses = [self.values(job, "loss") for job in jobs]
        self.assertEqual(len(jobs), 2)
        self.assertEqual(losses[0].keys(), losses[1].keys())
        for step, loss in losses[0].items():  # gradients are summed in another order
            self.assertAlmostEqual(loss, losses[1][step], delta=1e-3 * loss, msg=f"DDP and FSDP are one training; step {step}")
        after = self.best_of(jobs[0], "validation/perplexity", min)
        self.tell("pythia", "perplexity of held-out pages", before, after)
        self.assertLess(after, before / 2)
        print(self.muster(*use))

    def test_a_t5_summarises_manual_pages(self):
        submit, use = self.begin("t5")
        untrained = self.untrained(submit[-1])
        before = self.best_of(untrained, "validation/loss")
        job, = self.train_with_a_killed_rank(submit, at_step=80)
        after = self.best_of(job, "validation/loss", min)
        self.tell("t5", "validation loss", before, after)
        self.assertLessEqual(after, before * 2 / 3)
        words = self.best_of(untrained, "validation/rouge1"), self.best_of(job, "validation/rouge1")
        self.tell("t5", "ROUGE-1", *words)
        self.assertGreater(words[1], words[0] + 0.01)
        # The last third of the epochs has a hundredth of the rate, so it cannot bring early_stop_least.
        view = self.daemon.show(job)
        self.assertLess(view["step"], view["steps_total"])
        self.assertIn("stopped early: ", self.muster("logs", job))
        print(self.muster(*use))
        self.check_checkpoints(use, job, self.check_generated)

    def test_a_bert_finds_the_section_of_a_package(self):
        submit, use = self.begin("bert")
        job, = self.train_with_a_killed_rank(submit, at_step=100)
        after = self.best_of(job, "validation/macro_f1")
        labels = [label for file in sorted((self.folder / "data/sections").glob("validation-*.mdat")) for label in labels_in(file)]
        share = max(labels.count(label) for label in set(labels)) / len(labels)
        majority = 2 * share / (1 + share) / len(set(labels))
        self.tell("bert", "macro-F1 (of the most frequent class, and of the model)", majority, after)
        self.assertGreaterEqual(after, 3 * majority)
        self.use_a_bert(use, job)

    def use_a_bert(self, use, job):
        print(self.muster(*use))
        self.check_checkpoints(use, job, self.check_classes)
        self.check_checkpoints(["embed", *use[1:]], job, self.check_vectors)

    def test_a_bert_begins_to_learn_and_goes_on(self):
        """A tenth of its steps, at a rate that surely lowers the loss. Their delay leaves time for the kill on a busy machine."""
        submit, use = self.begin("bert")
        settings = ["train.epochs=0", "train.steps=100", "train.learning_rate=3e-3", "train.step_delay_ms=100",
                    "train.validation_every_epochs=0", "train.validation_every_steps=50", "checkpoint.every_steps=20",
                    "requeue.backoff_initial=100ms"]
        job, = self.train_with_a_killed_rank(with_settings(submit, settings), at_step=30, saved_step=20)
        losses = self.values(job, "loss")
        self.assertEqual(sorted(losses), list(range(1, 101)), "every step is done")
        begin, end = (sum(losses[step] for step in steps) / 20 for steps in (range(1, 21), range(81, 101)))
        print(f"recipe bert: loss {begin:.4g} in the first 20 steps, {end:.4g} in the last 20", flush=True)
        self.assertLess(end, begin)
        self.use_a_bert(use, job)

    def test_a_vision_transformer_tells_textures_apart_without_labels(self):
        submit, use = self.begin("dino")
        job, = self.train_with_a_killed_rank(submit, at_step=100)
        accuracies = self.values(job, "validation/knn_accuracy")
        after = accuracies[max(accuracies)]  # at the end, which is what is exported
        pixels = self.best_of(job, "validation/pixel_knn_accuracy")
        self.tell("dino", "k-NN accuracy (of pixels, and of the teacher)", pixels, after)
        self.assertGreater(after, pixels + 0.03, "three of a hundred images more")
        # What an image is, its first bytes say.
        (self.folder / "photos").mkdir()
        for file in ("photo.jpg", "photos/1.ppm"):
            (self.folder / file).write_bytes(b"P6 32 32 255\n" + bytes(range(256)) * 12)
        vectors = self.muster(*use).splitlines()
        hidden_size = json.loads((self.folder / "models/dino/config.json").read_text())["hidden_size"]
        self.assertEqual([len(line.split()) for line in vectors], [hidden_size] * 2)
        self.assertEqual(self.muster(use[0], job, *use[2:]).splitlines(), vectors, "its newest checkpoint is what was exported")


if __name__ == "__main__":
    unittest.main()
