"""Goal: the worker's ROUGE is that of rouge-score, and its accuracy and F1 are those of torchmetrics, within 1e-9.

Method: pairs of texts and of labels are drawn at random, peers_metrics computes our numbers, and the packages compute theirs.
Usage: MUSTER_BIN_FOLDER=... run.py, see tests/peers/run.py
"""

import json
import os
import pathlib
import random
import subprocess
import unittest
from unittest import mock

PROGRAM = pathlib.Path(os.environ["MUSTER_BIN_FOLDER"]) / "peers_metrics"
PAIRS, WITHIN = 300, 1e-9
# Few words, so that texts have much in common. Some are one word only for some readers.
WORDS = ["the", "a", "cat", "Cat", "sat", "on", "mat", "it", "42", "4", "2", "don't", "re-read", "x_y", "\u00e9t\u00e9", "na\u00efve",
         "\u212aelvin", "\u0130stanbul", "kelvin", "\u03a3\u0391\u03a3", "\u4e2d\u6587", "\U0001f600", "...", "\u2028", "\u0660", "\u00b2"]
GAPS = [" ", " ", " ", "  ", ", ", ".\n", "\n", "\n\n", "\t", "\r\n", "\u00a0", ""]


def answers(questions):
    """What peers_metrics says to each of them."""
    asked = "".join(json.dumps(question) + "\n" for question in questions)
    done = subprocess.run([PROGRAM], input=asked, capture_output=True, text=True, timeout=100)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def text(dice, words):
    return "".join(dice.choice(WORDS) + dice.choice(GAPS) for _ in range(words))


def changed(dice, words):
    """Another text with most of these words in their order."""
    kept = [word for word in words.split(" ") if dice.random() < 0.8]
    if len(kept) > 1 and dice.random() < 0.5:
        cut = dice.randrange(len(kept))
        kept = kept[cut:] + kept[:cut]
    return " ".join(kept) + dice.choice(GAPS) + text(dice, dice.randrange(4))


class Rouge(unittest.TestCase):
    def test_of_random_texts_is_that_of_rouge_score(self):
        from rouge_score.rouge_scorer import RougeScorer
        dice = random.Random(24)
        targets = [text(dice, dice.choice((0, 1, 2, 5, 20, 60, 150))) for _ in range(PAIRS)]
        pairs = [(target, changed(dice, target) if dice.random() < 0.7 else text(dice, dice.randrange(60))) for target in targets]
        got = answers({"target": target, "prediction": prediction} for target, prediction in pairs)
        kinds = ["rouge1", "rouge2", "rougeL", "rougeLsum"]
        judge = RougeScorer(kinds, use_stemmer=False)
        differ = 0  # pairs whose sentences matter
        for (target, prediction), scores in zip(pairs, got, strict=True):
            want = judge.score(target, prediction)
            differ += want["rougeL"] != want["rougeLsum"]
            for kind in kinds:
                for ours, theirs in zip(scores[kind], want[kind], strict=True):
                    self.assertAlmostEqual(ours, theirs, delta=WITHIN, msg=f"{kind} of {target!r} and {prediction!r}")
        self.assertGreater(differ, PAIRS / 4, "the two kinds of rougeL must differ, or equality says little")


class Classification(unittest.TestCase):
    def test_of_random_labels_is_that_of_torchmetrics(self):
        import torch
        from torchmetrics.functional import classification
        # It divides in fp32, which differs by more than 1e-9. Here it divides in fp64.
        self.enterContext(mock.patch.object(torch.Tensor, "float", torch.Tensor.double))
        torch.set_default_dtype(torch.float64)
        self.addCleanup(torch.set_default_dtype, torch.float32)
        dice = random.Random(24)
        questions = []
        for _ in range(PAIRS):
            classes = dice.randrange(2, 12)
            present = dice.sample(range(classes), dice.randrange(1, classes + 1))  # the others have no sample
            truths = [dice.choice(present) for _ in range(dice.choice((1, 3, 20, 100)))]
            guesses = [truth if dice.random() < 0.6 else dice.randrange(classes) for truth in truths]
            questions.append({"classes": classes, "truths": truths, "guesses": guesses})
        for question, got in zip(questions, answers(questions), strict=True):
            classes = question["classes"]
            guesses, truths = torch.tensor(question["guesses"]), torch.tensor(question["truths"])

            def judge(metric, average):
                return getattr(classification, metric)(guesses, truths, classes, average=average)

            want = {"accuracy": judge("multiclass_accuracy", "micro").tolist(),
                    "macro_f1": judge("multiclass_f1_score", "macro").tolist(),
                    "precision": judge("multiclass_precision", "none").tolist(),
                    "recall": judge("multiclass_recall", "none").tolist(), "f1": judge("multiclass_f1_score", "none").tolist()}
            for name, value in want.items():
                ours, theirs = (torch.tensor(values, dtype=torch.float64) for values in (got[name], value))
                self.assertEqual(ours.shape, theirs.shape, name)
                self.assertLessEqual((ours - theirs).abs().max().item(), WITHIN, f"{name} of {question}: {got[name]}, not {value}")
            table = classification.multiclass_confusion_matrix(guesses, truths, classes)
            self.assertEqual(got["counts"], table.flatten().tolist())


if __name__ == "__main__":
    unittest.main()
