"""Goal: many jobs cost little: no files while they wait, few squeue, and no other user's time.

Method: real musterd on a private Slurm whose partition is down, so that jobs stay in its queue; a squeue and
a sbatch before the real ones count the calls. Cases with "thousands" in their names are the same with the numbers that are promised.
Usage: many_jobs_test.py BIN_FOLDER
"""

import http.client
import json
import os
import pathlib
import shutil
import sys
import tempfile
import time
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "system"), str(TESTS / "peers")]
from daemon import Musterd, eventually  # noqa: E402
from private_slurm import PrivateSlurm, missing  # noqa: E402

BIN = None
LIMIT_S = 240
ELEMENT = """name = "element"
command = ["/bin/sh", "-c", "test -f $MUSTER_CHECKPOINT_FOLDER/FENCE && echo $STEP"]
[env]
STEP = "0"
"""


@unittest.skipIf(missing(), f"no Slurm here: {missing()}")
class ManyJobs(unittest.TestCase):
    def setUp(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.calls = self.counted(folder, "squeue")
        self.submissions = self.counted(folder, "sbatch")
        self.slurm = PrivateSlurm(self, "--conf", "MaxJobCount=20000")
        self.partition("DOWN")
        self.musterd = Musterd(self, BIN, slurm="yes", env=self.slurm.env | {"PATH": f"{folder}:{os.environ['PATH']}"})
        # Its own end, with thousands of jobs to cancel, is not looked at.
        self.addCleanup(lambda: self.slurm.run("scancel", "-u", str(os.getuid())))

    @staticmethod
    def counted(folder, name):
        """A program before Slurm's own one of this name; the file that it makes has one byte a call."""
        calls = folder / f"{name}.calls"
        calls.touch()
        program = folder / name
        program.write_text(f"#!/bin/sh\necho >> {calls}\nexec {shutil.which(name)} \"$@\"\n")
        program.chmod(0o755)
        return calls

    def partition(self, state):
        self.slurm.run("scontrol", "update", "PartitionName=main", f"State={state}")

    def submit_as(self, user, jobs, **more):
        """Submits a sweep by the HTTP API, where a submission says whose it is."""
        body = {"job": {"name": "element", "command": ["true"], "env": {"STEP": "0"}}, "folder": "/tmp", "user": user,
                "sweep": {"env.STEP": f"0..{jobs - 1}"}} | more
        connection = http.client.HTTPConnection("127.0.0.1", self.musterd.http, timeout=60)
        connection.request("POST", "/api/v1/sweeps", json.dumps(body),
                           {"Authorization": f"Bearer {self.musterd.token}", "X-Muster": "1"})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        self.assertEqual(answer.status, 201, text)
        return json.loads(text)["sweep"]

    def jobs(self, sweep):
        return json.loads(self.musterd.muster("list", "--sweep", sweep, "--limit", "10000", "--json").stdout)

    def queued(self, sweep):
        """How many of its jobs have been handed over by now."""
        return sum(job["state"] != "pending" for job in self.jobs(sweep))

    def until_queued(self, sweep, count):
        self.assertTrue(eventually(lambda: self.queued(sweep) == count, LIMIT_S), self.musterd.log.read_text()[-4000:])

    def hand_over(self, count, arrays):
        """Seconds until so many elements are in Slurm's queue."""
        begun = time.monotonic()
        file = self.musterd.folder / "sweep.toml"
        file.write_text(ELEMENT)
        done = self.musterd.muster("submit", file, "--sweep", f"env.STEP=0..{count - 1}")
        self.assertEqual(done.returncode, 0, done.stderr)
        sweep = done.stdout.strip()
        self.until_queued(sweep, count)
        took = time.monotonic() - begun
        files = [path for path in self.musterd.data.rglob("*") if path.is_file() and path.parent != self.musterd.data]
        self.assertLessEqual(len(files), 4 * arrays, files)
        self.assertFalse((self.musterd.data / "jobs").exists())
        return sweep, took

    def test_waiting_elements_cost_no_files_and_begin_as_others_do(self):
        sweep, _ = self.hand_over(60, 1)
        jobs = sorted(job["id"] for job in self.jobs(sweep))
        begin, left = jobs[:6], jobs[6:]
        self.assertEqual(self.musterd.muster("cancel", *map(str, left)).returncode, 0)
        self.assertTrue(eventually(lambda: all(job["state"] == "cancelled" for job in self.jobs(sweep) if job["id"] in left), LIMIT_S))
        self.partition("UP")
        for index, job in enumerate(begin):
            shown = self.musterd.until(job_id := str(job), lambda shown: shown["state"] in ("succeeded", "failed"))
            self.assertEqual((shown["state"], len(shown["attempts"])), ("succeeded", 1), self.musterd.log.read_text()[-4000:])
            self.assertIn(str(index), self.musterd.muster("logs", job_id).stdout)
            fence = self.musterd.data / "jobs" / job_id / "checkpoints" / "FENCE"
            self.assertTrue(fence.read_text().startswith(f"job {job} attempt 1"), fence.read_text())
        self.assertEqual(sorted(int(path.name) for path in (self.musterd.data / "jobs").iterdir()), begin,
                         "what was cancelled before its start left nothing")
        array = next((self.musterd.data / "slurm").iterdir())
        self.assertEqual(self.musterd.muster("rm", "--yes", *map(str, jobs[1:])).returncode, 0)
        self.assertTrue(eventually(lambda: len(list((self.musterd.data / "jobs").iterdir())) == 1, LIMIT_S))
        self.assertTrue((array / "set_launch.json").exists(), "one job of the sweep is left")
        self.assertEqual(self.musterd.muster("rm", "--yes", str(jobs[0])).returncode, 0)
        self.assertTrue(eventually(lambda: not array.exists(), LIMIT_S))

    def test_thousands_of_elements_are_handed_over_by_one_sbatch_each_thousand(self):
        # How long that takes is promised by bench/slurm_crowd.py.
        _, took = self.hand_over(5000, 5)
        print(f"5000 elements in Slurm's queue after {took:.1f} s", file=sys.stderr)
        self.assertEqual(self.submissions.stat().st_size, 5, "calls of sbatch")

    def test_an_element_found_after_a_crash_is_the_same(self):
        sweep, _ = self.hand_over(20, 1)
        self.musterd.process.kill()
        self.musterd.process.wait()
        self.musterd = Musterd(self, BIN, slurm="yes", env=self.slurm.env, data=self.musterd.data)
        self.partition("UP")
        self.assertTrue(eventually(lambda: all(job["state"] == "succeeded" for job in self.jobs(sweep)), LIMIT_S),
                        self.musterd.log.read_text()[-4000:])
        self.assertEqual([len(job["attempts"]) for job in self.jobs(sweep)], [1] * 20)

    def squeue_calls(self, count):
        """One by one, so that the hand-over takes its time; then at rest."""
        before, begun = self.calls.stat().st_size, time.monotonic()
        sweep = self.submit_as("ada", count, parallel=count)
        self.until_queued(sweep, count)
        calls, took = self.calls.stat().st_size - before, time.monotonic() - begun
        self.assertLessEqual(calls, took + 4 + 1, "one a second, and a burst")
        # Once each has been listed.
        self.assertTrue(eventually(lambda: self.calls.stat().st_size >= before + calls + 2, 30))
        before = self.calls.stat().st_size
        time.sleep(16)
        self.assertLessEqual(self.calls.stat().st_size - before, 4, "one in five seconds at rest")

    def test_squeue_is_called_once_a_second_and_seldom_at_rest(self):
        self.squeue_calls(60)

    def test_squeue_is_called_once_a_second_and_seldom_at_rest_beside_thousands(self):
        self.squeue_calls(1400)

    def beside(self, count, parallel):
        """Seconds until a job of one user is in Slurm's queue beside so many of another, and how many of these waited still."""
        crowd = self.submit_as("ada", count, parallel=parallel)
        self.assertTrue(eventually(lambda: self.queued(crowd) > 2, LIMIT_S))
        begun = time.monotonic()
        one = self.submit_as("bob", 1)
        self.until_queued(one, 1)
        return time.monotonic() - begun, count - self.queued(crowd)

    def test_a_user_does_not_wait_for_anothers_crowd(self):
        took, waited = self.beside(200, 200)
        print(f"in the queue after {took:.1f} s, before {waited} of 200", file=sys.stderr)
        self.assertGreater(waited, 60)

    def test_a_user_does_not_wait_for_anothers_thousands(self):
        took, waited = self.beside(5000, 5000)
        print(f"in the queue after {took:.1f} s, before {waited} of 5000", file=sys.stderr)
        # How long that takes is promised by bench/slurm_crowd.py.
        self.assertGreater(waited, 4000)


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
