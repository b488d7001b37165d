"""Goal: a hang of PyTorch is suspected within 15 s, with stacks that name the place, and ends the attempt at its limit: inside a
collective that one rank never enters, in a process of a DataLoader, at a barrier that one rank passes by.

Method: released PyTorch, two ranks with gloo, a real musterd; the limit is liveness.hung_after.
Usage: MUSTER_BIN_FOLDER=... run.py, see tests/peers/run.py
"""

import json
import os
import pathlib
import re
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "system"))
from daemon import Musterd  # noqa: E402
from hangs import HUNG_AFTER_S, check_hang, frames, is_alive  # noqa: E402

BIN = pathlib.Path(os.environ["MUSTER_BIN_FOLDER"])


class TorchHangs(unittest.TestCase):
    def setUp(self):
        self.musterd = Musterd(self, BIN, flags=("--local-cores", "off"))

    def hang(self, how):
        """The submitter's PYTHONPATH is the job's: it has the package."""
        command = json.dumps([sys.executable, str(HERE / "torch_hangs.py"), how])
        self.job = self.musterd.submit(
            f'name = "{how}"\ncommand = {command}\nexecutor = "local"\n[env]\nOMP_NUM_THREADS = "1"\n[resources]\nranks_per_node = 2\n'
            f'[liveness]\nhung_after = "{HUNG_AFTER_S}s"\n[requeue]\nbackoff_initial = "100ms"\n')
        return check_hang(self, self.musterd, self.job)

    def test_inside_a_collective(self):
        for view in self.hang("collective"):
            self.assertEqual(frames(view, 1)[:2], ["prepares_forever", "main"])
            self.assertIn("all_reduce", frames(view, 0))
            self.assertIn("reduces", frames(view, 0))
            self.assertRegex(view["summary"], r"rank 1 stands at main \(.*torch_hangs\.py:\d+\), in prepares_forever")

    def test_inside_a_data_loader(self):
        views = self.hang("loader")
        said = self.musterd.muster("logs", self.job, "--attempt", "1", "--rank", "1").stdout
        loader = int(re.search(r"the loader is (\d+)", said).group(1))
        for view in views:
            self.assertIn("_next_data", frames(view, 1))
            self.assertIn("all_reduce", frames(view, 0))
            self.assertRegex(view["ranks"][1]["text"], rf"== process {loader} \(.*\) == state of each thread, by the kernel")
        self.assertFalse(is_alive(loader), "it ends with its attempt")

    def test_at_a_barrier(self):
        for view in self.hang("barrier"):
            self.assertIn("barrier", frames(view, 0))
            self.assertIn("saves_together", frames(view, 0))
            self.assertEqual(frames(view, 1)[:3], ["wait", "wait", "saves_together"])
            self.assertRegex(view["summary"], r"rank 1 stands at saves_together \(.*torch_hangs\.py:\d+\)")


if __name__ == "__main__":
    unittest.main()
