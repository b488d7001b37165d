"""Goal: bench/first_contact.sh tells the truth of a kill, a stop and both communicator modes, and ends with its table.

Method: the real script with --cpu: two ranks, a tiny model, a real musterd and the programs of the build.
Usage: first_contact_test.py BIN_FOLDER TEST...
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT_S = 500
BIN = None


class FirstContact(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def script(self, *options):
        """(exit status, results by part, the table) of the script on CPUs."""
        done = subprocess.run([ROOT / "bench" / "first_contact.sh", "--cpu", "--bin", BIN, "--folder", self.folder, *options],
                              capture_output=True, text=True, timeout=LIMIT_S)
        self.said = done.stdout + done.stderr
        return done.returncode, json.loads((self.folder / "results.json").read_text())["parts"], (self.folder / "table.md").read_text()

    def test_a_kill_costs_steps_and_a_stop_costs_none(self):
        status, results, table = self.script("--only", "kill,stop")
        self.assertEqual(status, 0, self.said)
        kill, stop = results["kill"], results["stop"]
        self.assertEqual((kill["resumed_from"] % 20, kill["first"]), (0, kill["resumed_from"] + 1))
        self.assertGreater(kill["last"], kill["resumed_from"], "it was killed between two checkpoints")
        self.assertIn("rank 1", kill["reason"])
        self.assertGreaterEqual(stop["resumed_from"], 26)
        self.assertEqual(stop["first"], stop["resumed_from"] + 1)
        self.assertGreater(stop["cancelled_at"], stop["resumed_from"])
        self.assertIn(f"- kill: rank 1 was killed ({kill['reason']}); attempt 2 resumed from step {kill['resumed_from']}", table)
        self.assertIn("a requeue lost no step", table)
        self.assertEqual([path.name for path in self.folder.glob("muster-bench-*")], [], "checkpoints are removed")

    def test_both_modes_train_alike_and_stand_in_one_table_with_what_was_published(self):
        status, results, table = self.script("--only", "two_communicators,one_communicator", "--steps", "12")
        self.assertEqual(status, 0, self.said)
        two, one = results["two_communicators"], results["one_communicator"]
        self.assertEqual((two["steps"], len(two["losses"])), (12, 12))
        self.assertEqual(two["losses"], one["losses"], "on CPUs the modes have equal bits")
        for what in ("muster, reductions on a communicator of their own", "muster, one communicator"):
            self.assertRegex(table, rf"\| {re.escape(what)} \| 2 \| [\d.,]+ ms \| [\d,]+ \| [\d.]+ MiB \| - \|")
        self.assertIn("| torchtitan, FSDP2 compiled (published) | 8 | 2,457 ms | 6,667 | 77.0 GiB | 39.0 % |", table)

    def test_without_programs_the_remedy_is_told(self):
        status, results, table = self.script("--only", "kill", "--bin", self.folder)
        remedy = f"there is no musterd in {self.folder}: run ./dev build"
        self.assertEqual((status, results), (1, {"kill": {"failed": remedy}}))
        self.assertIn(f"- kill: FAILED: {remedy}", table)


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
