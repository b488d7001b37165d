"""Goal: where a site ends processes on login nodes, muster up --in-slurm keeps a controller in Slurm: it moves from node to node, and
no rank and no command of a person loses it.

Method: the real programs on a private Slurm of two nodes, each with an address, a host name and processes of its own. This machine
is the login node. Its name service knows no node.
Usage: in_slurm_test.py BIN_FOLDER
"""

import json
import os
import pathlib
import re
import sys
import tempfile
import unittest
import urllib.request

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "system"), str(TESTS / "peers")]
from daemon import START_LIMIT_S, eventually  # noqa: E402
from own_test import JOB  # noqa: E402
from private_slurm import PrivateSlurm, missing  # noqa: E402
from up_test import WITH_SLURM, Person  # noqa: E402

BIN = None
UP = ("up", "--in-slurm", "--time", "30", *WITH_SLURM[1:])
LIVE = "PENDING,RUNNING,COMPLETING,CONFIGURING,SUSPENDED"


@unittest.skipIf(missing(), f"no Slurm here: {missing()}")
@unittest.skipUnless(os.geteuid() == 0, "only root can give nodes addresses of their own")
class InSlurm(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.slurm = PrivateSlurm(self, "--nodes", "2", "--network", "separate")
        self.person = Person(self, self.folder / "home", BIN, variables=self.slurm.env)
        self.person.home.mkdir()
        self.person.environment["PATH"] = f"{BIN}:/usr/local/bin:/usr/bin:/bin"
        self.muster, self.data = self.person.muster, self.person.data
        self.script = self.data / "musterd.sbatch"

    def jobs(self, states=LIVE):
        """The numbers of musterd's Slurm jobs."""
        rows = self.slurm.run("squeue", "-h", "-a", "-t", states, "-O", "JobID:20,Comment:300").splitlines()
        return sorted(int(row.split()[0]) for row in rows if row.split()[1:] == [f"musterd:{self.data}"])

    def here(self):
        return self.person.status()["slurm"]

    def follows(self, before):
        """What is known once a musterd of a later Slurm job is ready."""
        def has_moved():
            try:
                return self.person.ready()["slurm_job"] != before["job"] and self.person.status()["up"]
            except OSError:  # no musterd is ready
                return False
        self.assertTrue(eventually(has_moved, START_LIMIT_S), (self.data / "musterd.log").read_text())
        return self.here()

    def test_ranks_and_people_follow_it_from_node_to_node(self):
        said = " ".join(self.muster(*UP).split())
        ready = self.person.ready()
        self.assertRegex(ready["advertised"], r"^10\.213\.\d+\.[12]:\d+$", "the address that Slurm has for the node")
        first = self.here()
        self.assertIn(f"slurm job {first['job']} on {first['node']} until 20", said)
        self.assertIn("can be reached from other machines, and tokens travel unencrypted", said)
        link = re.search(r"(http://10\.213\.\d+\.[12]:\d+)/#token=(\S+)", said)
        asked = urllib.request.Request(f"{link.group(1)}/api/v1/jobs", headers={"Authorization": f"Bearer {link.group(2)}"})
        self.assertEqual(urllib.request.urlopen(asked, timeout=60).status, 200)
        self.assertTrue(eventually(lambda: len(self.jobs()) == 2, 60), "one runs, and one is queued")
        self.assertIn(f"dashboard {link.group(1)}/;", " ".join(self.muster("status").split()))
        self.assertIn("runs already", self.muster(*UP))
        self.assertEqual(len(self.jobs()), 2)

        end, file = self.folder / "end", self.folder / "job.toml"
        file.write_text(JOB.format(end=end))
        waits = self.person.start("submit", file, "--wait")
        job = re.search(r"\d+", waits.stdout.readline()).group()
        os.set_blocking(waits.stderr.fileno(), False)
        told = []

        def is_back():
            try:
                told.append(os.read(waits.stderr.fileno(), 65536).decode())
            except BlockingIOError:
                pass
            return "the controller is back" in "".join(told)

        def step():
            return json.loads(self.muster("show", job, "--json"))["step"] or 0

        self.assertTrue(eventually(lambda: step() > 3, 120), self.muster("why", job))
        # The limit is near, and the next job gets another node.
        self.slurm.run("scontrol", "update", f"NodeName={first['node']}", "State=DRAIN", "Reason=test")
        self.slurm.run("scancel", "--batch", "--signal=USR1", first["job"])
        second = self.follows(first)
        self.assertNotEqual(second["node"], first["node"])
        self.assertNotEqual(self.person.ready()["advertised"], ready["advertised"])
        self.assertTrue(eventually(is_back, 60), f"the command that waits has lost it: {told}")
        known = step()
        self.assertTrue(eventually(lambda: step() > known + 3, 120), self.muster("why", job))
        # It is killed, and has said nothing to anybody.
        self.slurm.run("scontrol", "update", f"NodeName={first['node']}", "State=RESUME")
        self.assertTrue(eventually(lambda: len(self.jobs()) == 2, 60), "the second one has a successor, too")
        self.slurm.run("scancel", "--full", "--signal=KILL", second["job"])
        self.follows(second)
        known = step()
        self.assertTrue(eventually(lambda: step() > known + 3, 120), self.muster("why", job))
        end.touch()
        out, err = waits.communicate(timeout=START_LIMIT_S)
        self.assertEqual(waits.returncode, 0, out + err)
        shown = json.loads(self.muster("show", job, "--json"))
        self.assertEqual((shown["state"], len(shown["attempts"])), ("succeeded", 1), shown)
        steps = [row["step"] for row in json.loads(self.muster("metrics", job, "--json"))]
        self.assertEqual(steps, list(range(1, shown["step"] + 1)), "each step is told once")

        self.assertIn("musterd has ended", self.muster("down"))
        self.assertEqual(self.jobs(), [])
        self.assertFalse(self.script.exists())
        self.assertFalse((self.data / "musterd.json").exists())
        self.assertIn("no musterd runs on", self.muster("down"))
        self.assertNotIn("slurm", self.person.status())

    def test_running_jobs_outlive_down_and_a_controller_elsewhere_goes_on_with_them(self):
        self.muster(*UP)
        end = self.folder / "end"
        job = self.person.submit(JOB.format(end=end))
        self.assertTrue(eventually(lambda: json.loads(self.muster("show", job, "--json"))["step"], 120))
        self.assertIn("1 job runs on, and the next muster up goes on with them", self.muster("down"))
        self.assertEqual(self.jobs(), [])
        self.assertIn("1 job goes on", self.muster(*WITH_SLURM))
        self.assertNotIn("slurm_job", self.person.ready())
        self.assertIn("end it with muster down first", self.muster(*UP, rc=2))
        end.touch()
        self.muster("wait", job)

    def test_a_job_that_waits_is_told_and_taken_back(self):
        up = self.person.start(*UP[:4], "--sbatch=--hold", *UP[4:])
        line = up.stderr.readline()
        self.assertRegex(line, r"muster: Slurm job \d+ waits: ")
        said = " ".join(self.muster("status", rc=4).split())
        self.assertIn(f"slurm {' '.join(line.split()[1:])}", said)
        self.assertEqual(self.here(), {"job": None, "node": None, "ends": None, "next_job": str(self.jobs()[0])})
        self.muster("down")
        _, err = up.communicate(timeout=START_LIMIT_S)
        self.assertEqual(up.returncode, 4, err)
        self.assertEqual((self.jobs(), self.script.exists()), ([], False))

    def test_what_slurm_or_musterd_refuses_leaves_nothing_behind(self):
        self.assertIn("Slurm refuses the job: ", self.muster("up", "--in-slurm", "--partition", "nosuch", rc=5))
        self.assertFalse(self.script.exists())
        self.assertIn("--partition is for a Slurm job: add --in-slurm", self.muster("up", "--partition", "main", rc=2))
        self.assertIn("want options of sbatch", self.muster("up", "--in-slurm", "--sbatch", "mem=2G", rc=2))
        said = self.muster("up", "--in-slurm", "--", "--local-cores", "many", rc=4)
        self.assertIn("musterd did not start in Slurm: --local-cores many: want auto", said)
        self.assertEqual((self.jobs(), self.script.exists()), ([], False))

    def test_a_start_that_fails_for_now_is_tried_again_by_the_next_job(self):
        self.data.mkdir(parents=True, mode=0o700)
        (self.data / "muster.db").write_text("no database " * 1000)
        said = self.muster(*UP, rc=4)
        self.assertIn("musterd did not start in Slurm: ", said)
        self.assertIn("the next job tries again: muster status and squeue -j ", said)
        (self.data / "muster.db").unlink()
        self.assertTrue(eventually(lambda: self.person.status()["up"], START_LIMIT_S), (self.data / "musterd.log").read_text())
        self.muster("uninstall", "--yes")
        self.assertEqual((self.jobs(), self.data.exists()), ([], False))


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
