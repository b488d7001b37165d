"""Goal: on a cluster one word is enough, too: ranks on nodes reach the controller that a person has started by muster up.

Method: the real programs, in a home of the test's own, on a private Slurm of two nodes.
Usage: own_test.py BIN_FOLDER
"""

import json
import pathlib
import sys
import tempfile
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "system"), str(TESTS / "peers")]
from daemon import eventually  # noqa: E402
from private_slurm import PrivateSlurm, missing  # noqa: E402
from up_test import WITH_SLURM, Person  # noqa: E402

BIN = None
JOB = """name = "steps"
executor = "slurm"
command = ["/bin/sh", "-c", "step=0; while [ ! -e {end} ]; do step=$((step + 1)); echo '{{\\"step\\": '$step', \\"loss\\": 1.5}}' >> $MUSTER_REPORT; sleep 0.1; done"]
[resources]
nodes = 2
ranks_per_node = 1
"""


@unittest.skipIf(missing(), f"no Slurm here: {missing()}")
class OnSlurm(unittest.TestCase):
    def test_ranks_on_nodes_find_it_before_and_after_it_was_down(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        slurm = PrivateSlurm(self, "--nodes", "2")
        person = Person(self, folder / "home", BIN, variables=slurm.env)
        person.home.mkdir()
        person.environment["PATH"] = f"{BIN}:{slurm.env.get('PATH', '')}:/usr/local/bin:/usr/bin:/bin"
        said = " ".join(person.muster(*WITH_SLURM).split())
        self.assertIn("can be reached from other machines, and tokens travel unencrypted", said)
        self.assertRegex(person.ready()["grpc"], r"^0\.0\.0\.0:2\d{4}$")
        end = folder / "end"
        job = person.submit(JOB.format(end=end))

        def step():
            return json.loads(person.muster("show", job, "--json"))["step"] or 0

        self.assertTrue(eventually(lambda: step() > 3, 120), person.muster("why", job))
        before = person.ready()
        self.assertIn("1 job runs on, and the next muster up goes on with them", person.muster("down"))
        person.muster(*WITH_SLURM)
        self.assertEqual(person.ready()["grpc"], before["grpc"])
        known = step()
        self.assertTrue(eventually(lambda: step() > known + 3, 120), person.muster("why", job))
        end.touch()
        person.muster("wait", job)
        self.assertEqual(len(json.loads(person.muster("show", job, "--json"))["attempts"]), 1)


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
