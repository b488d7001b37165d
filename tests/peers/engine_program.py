"""Runs peers_engine_rank, and compares its training with another."""

import os
import pathlib
import subprocess
import unittest

from safetensors.torch import load_file

PROGRAM = pathlib.Path(os.environ["MUSTER_BIN_FOLDER"]) / "peers_engine_rank"


class EngineTest(unittest.TestCase):
    def train_by_engine(self, folder, out, **options):
        """Trains on the weights and batches in `folder`, unless the file `out` is there. Returns losses, norms and weights."""
        if not out.exists():
            pairs = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
            done = subprocess.run([PROGRAM, folder, out, *pairs], capture_output=True, text=True, timeout=200)
            self.assertEqual(done.returncode, 0, done.stderr)
        trained = load_file(out)
        weights = {name.removeprefix("weight/"): value for name, value in trained.items() if name.startswith("weight/")}
        return trained["losses"].tolist(), trained["norms"].tolist(), weights

    def check_close(self, got, want, first, later, what):
        """Relative differences are at most `first` in the first step, and `later` in the others."""
        self.assertEqual(len(got), len(want))
        differences = [abs(one - other) / abs(other) for one, other in zip(got, want)]
        print(f"{self.id().rpartition('.')[2]}: {what} differs by {differences[0]:.1e} in the first step, by at most "
              f"{max(differences):.1e} in {len(got)}")
        for step, difference in enumerate(differences):
            self.assertLessEqual(difference, first if step == 0 else later, f"{what} of step {step + 1}: {got[step]}, not {want[step]}")

    def check_weights(self, got, want, most):
        for name, value in want.items():
            self.assertLessEqual((got[name] - value).norm().item(), most * value.norm().item(), name)
