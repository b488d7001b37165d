"""What Hydra's launcher tells muster of a multirun, without Hydra."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(PACKAGE))
from hydra_plugins.hydra_muster_launcher.told import numbers_of, settings, settings_of  # noqa: E402


class Told(unittest.TestCase):
    def test_overrides_are_settings(self):
        self.assertEqual(settings(["lr=0.1", "+model=big=wide", "~optimizer.decay", "layers=[8,8]"]),
                         {"lr": "0.1", "model": "big=wide", "optimizer.decay": "(left out)", "layers": "[8,8]"})

    def test_those_in_which_the_jobs_differ_are_shown(self):
        self.assertEqual(settings_of([["lr=0.1", "seed=1", "bad=2"], ["lr=0.2", "seed=1"]]),
                         [{"lr": "0.1", "bad": "2"}, {"lr": "0.2"}])
        self.assertEqual(settings_of([["lr=0.1"]]), [{}])

    def test_numbers_are_series(self):
        self.assertEqual(numbers_of(2), {"objective": 2.0})
        self.assertEqual(numbers_of((1, 2.5)), {"objective_0": 1.0, "objective_1": 2.5})
        self.assertEqual(numbers_of({"val loss": 1.5, "name": "x"}), {"objective_val_loss": 1.5})
        for nothing in (None, True, "2", [], [1, "2"], object()):
            self.assertEqual(numbers_of(nothing), {}, nothing)

    def test_the_result_is_of_the_newest_step_that_was_reported(self):
        with tempfile.TemporaryDirectory() as folder:
            for reports, step in ((False, 1), (True, 7)):
                file = Path(folder) / f"report-{reports}.jsonl"
                program = f"""
import muster
from hydra_plugins.hydra_muster_launcher.told import OwnReport
report = OwnReport(["lr=0.1"])
if {reports}: muster.init().log(7, loss=1.0)
report.tell_result(2.5, "minimize")
"""
                subprocess.run([sys.executable, "-B", "-c", program], check=True,
                               env={**os.environ, "PYTHONPATH": str(PACKAGE), "MUSTER_REPORT": str(file)})
                lines = [json.loads(line) for line in file.read_text().splitlines()]
                self.assertIn({"config": {"lr": "0.1"}}, lines)
                self.assertEqual(lines[-2:], [{"series": {"objective": {"over_ranks": "rank0", "better": "lower"}}},
                                              {"step": step, "objective": 2.5}])


if __name__ == "__main__":
    unittest.main()
