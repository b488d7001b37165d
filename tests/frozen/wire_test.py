"""Goal: programs of the last released version and today's understand each other, in both directions.

Method: frozen_wire is compiled from the frozen .proto files alone, and speaks with the programs of this build.
Usage: wire_test.py BIN_FOLDER FROZEN_WIRE
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import freeze  # noqa: E402

BIN = FROZEN = None


class Wire(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def test_an_older_client_and_an_older_rank_work_with_this_musterd(self):
        with freeze.daemon(BIN, self.folder / "data") as musterd:
            done = subprocess.run([FROZEN, "client", musterd.address], capture_output=True, text=True, timeout=120,
                                  env=os.environ | {"MUSTER_TOKEN": musterd.token})
            self.assertEqual((done.returncode, done.stdout), (0, "state succeeded, attempts 1\nlog hello\nlisted 1, newest frozen\n"), done.stderr)
            job = musterd.ended(musterd.submit(f'name = "older"\nlauncher = "own"\ncommand = ["{FROZEN}", "rank"]\n'))
            shown = json.loads(musterd.muster("show", job, "--json"))
            self.assertEqual((shown["state"], len(shown["attempts"]), shown["step"]), ("succeeded", 1, 3), musterd.muster("logs", job))
            metrics = json.loads(musterd.muster("metrics", job, "--json"))
            self.assertEqual([round(row["loss"], 3) for row in metrics], [1.0, 0.5, 0.333])

    def test_this_muster_works_with_an_older_controller_and_says_what_that_does_not_know(self):
        old = subprocess.Popen([FROZEN, "controller"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(old.wait, 60)
        self.addCleanup(old.stdout.close)
        self.addCleanup(old.stdin.close)
        environment = freeze.ENVIRONMENT | {"MUSTER_ADDRESS": f"127.0.0.1:{int(old.stdout.readline())}", "MUSTER_TOKEN": "any"}

        def muster(*words, text=None):
            return subprocess.run([BIN / "muster", *words], capture_output=True, text=True, timeout=60, env=environment, input=text)

        self.assertRegex(muster("list").stdout, r"\n *7 +old +succeeded")
        self.assertIn("all ranks ended with exit code 0", muster("show", "7").stdout)
        self.assertIn("musterd 0.1.0, process 4711", muster("status").stdout)
        self.assertEqual(muster("submit", "-", text='name = "a"\ncommand = ["true"]\n').stdout, "8\n")
        done = muster("hold", "7")
        self.assertEqual(done.returncode, 4)
        self.assertIn("is older than this muster and does not know this call: upgrade musterd, or use the muster of its version", done.stderr)


if __name__ == "__main__":
    BIN, FROZEN = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
