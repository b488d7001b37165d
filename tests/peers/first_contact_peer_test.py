"""Goal: bench/first_contact.sh measures compiled FSDP2 with the model and batch of muster's rows.

Method: the part fsdp2 of the real script with --cpu: two ranks of the Python that runs this test, with Gloo.
Usage: see tests/peers/run.py
"""

import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT_S = 550


class Fsdp2(unittest.TestCase):
    def test_its_row_stands_in_the_table(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        done = subprocess.run([ROOT / "bench" / "first_contact.sh", "--cpu", "--only", "fsdp2", "--steps", "6", "--folder", folder],
                              env={**os.environ, "MUSTER_PEER_PYTHON": sys.executable}, capture_output=True, text=True, timeout=LIMIT_S)
        log = folder / "fsdp2.log"
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr + (log.read_text() if log.exists() else ""))
        told = json.loads((folder / "results.json").read_text())["parts"]["fsdp2"]
        self.assertEqual(told["torch"], importlib.metadata.version("torch"))
        self.assertGreater(told["step_ms"], 0)
        self.assertRegex((folder / "table.md").read_text(), rf"\| FSDP2, compiled, torch {told['torch'].split('+')[0]}\S* \| 2 \| [\d.,]+ ms \|")


if __name__ == "__main__":
    unittest.main()
