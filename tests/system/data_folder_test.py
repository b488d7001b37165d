"""Goal: a data folder belongs to one controller, at one place, and to its user alone.

Method: real daemons and local jobs; real copies of a folder beside the running original.
Usage: data_folder_test.py BIN_FOLDER
"""

import contextlib
import json
import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from daemon import START_LIMIT_S, TRAINING, Musterd, eventually  # noqa: E402

BIN = None


def refused(bin_folder, data, *flags, slurm="no", env=None):
    """What a musterd says that does not start."""
    done = subprocess.run([bin_folder / "musterd", "--data-folder", data, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0",
                           "--slurm", slurm, *flags], capture_output=True, text=True, timeout=START_LIMIT_S,
                          env={**os.environ, **(env or {})})
    assert done.returncode == 2, f"{done.returncode}: {done.stderr}"
    return done.stderr


class Copies(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def test_a_copy_beside_the_original_touches_nothing_of_it(self):
        original = Musterd(self, BIN)
        marks = self.folder / "marks"
        job = original.submit(f'name = "long"\ncommand = ["/bin/sh", "-c", "echo began >> {marks}; while [ ! -e {marks}.end ]; do '
                              f'sleep 0.1; done; echo ended >> {marks}"]\n')
        waiting = original.submit('name = "next"\ncommand = ["/bin/true"]\n', "--after", job)
        original.until(job, lambda shown: shown["state"] == "running")
        copy = self.folder / "copy"
        shutil.copytree(original.data, copy, copy_function=shutil.copy2, ignore=lambda _, names: [n for n in names if n.endswith(".sock")])

        said = refused(BIN, copy)
        for word in (str(original.data), str(copy), "--moved", "--fork"):
            self.assertIn(word, said)
        self.assertEqual(said, refused(BIN, copy), "once more: nothing has changed")

        fork = Musterd(self, BIN, flags=("--fork",), data=copy)
        for number in (job, waiting):
            shown = fork.show(number)
            self.assertEqual(shown["state"], "cancelled", shown)
            self.assertIn("the job stays with the controller whose data folder was copied", shown["reason"])
        own = fork.submit('name = "own"\ncommand = ["/bin/true"]\n')
        fork.until(own, lambda shown: shown["state"] == "succeeded")
        time.sleep(5)  # as long as a copy of before took to end the original's job, and more
        self.assertEqual(marks.read_text(), "began\n")
        shown = original.show(job)
        self.assertEqual((shown["state"], len(shown["attempts"])), ("running", 1), shown)
        pathlib.Path(f"{marks}.end").touch()
        for number in (job, waiting):
            shown = original.until(number, lambda shown: shown["state"] in ("succeeded", "failed", "cancelled"))
            self.assertEqual((shown["state"], len(shown["attempts"])), ("succeeded", 1), shown)
        self.assertEqual(marks.read_text(), "began\nended\n", "it ran once")
        self.assertEqual(fork.show(job)["state"], "cancelled")

    def test_a_folder_that_has_moved_goes_on_when_told_so_once(self):
        first = Musterd(self, BIN)
        job = first.submit('name = "held"\ncommand = ["/bin/true"]\n', "--hold")
        first.process.terminate()
        first.process.wait(60)
        moved = self.folder / "moved"
        shutil.copytree(first.data, moved)
        self.assertIn("--moved", refused(BIN, moved))
        second = Musterd(self, BIN, flags=("--moved",), data=moved)
        self.assertEqual(second.muster("release", job).returncode, 0)
        second.until(job, lambda shown: shown["state"] == "succeeded")
        second.process.terminate()
        second.process.wait(60)
        third = Musterd(self, BIN, data=moved)
        self.assertEqual(third.show(job)["state"], "succeeded")


class Programs(unittest.TestCase):
    """A folder of programs in which the agent is missing, on a machine with Slurm's commands (which only have to be there)."""

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        for name in ("musterd", "muster", "muster-worker"):
            shutil.copy2(BIN / name, self.bin / name)
        slurm = self.folder / "slurm"
        slurm.mkdir()
        for name in ("sbatch", "sinfo", "squeue", "scontrol", "scancel"):
            (slurm / name).write_text("#!/bin/sh\nexit 0\n")
            (slurm / name).chmod(0o755)
        (slurm / "slurm.conf").write_text("ClusterName=none\n")
        self.env = {"PATH": f"{slurm}:{os.environ['PATH']}", "SLURM_CONF": str(slurm / "slurm.conf")}

    def test_who_insists_on_slurm_is_refused_and_told_the_file(self):
        said = refused(self.bin, self.folder / "data", slurm="yes", env=self.env)
        self.assertEqual(said, f"musterd: --slurm yes: {self.bin / 'muster-agent'} is missing or cannot be run; install muster-agent "
                         "beside musterd (./dev build makes all programs), or name it with --agent, and start musterd again\n")

    def test_otherwise_slurm_is_off_and_the_doctor_is_not_content(self):
        daemon = Musterd(self, self.bin, slurm="auto", env=self.env)
        doctor = daemon.muster("doctor", "--json")
        self.assertNotEqual(doctor.returncode, 0)
        self.assertRegex(doctor.stdout, r'"verdict": ?"bad",\s*"text": ?"no job can go to Slurm: .*/bin/muster-agent is missing')
        self.assertIn(f"no job can go to Slurm: {self.bin / 'muster-agent'} is missing or cannot be run", daemon.log.read_text())
        self.assertIn("no job can run: ", doctor.stdout)

    def test_an_agent_that_goes_later_is_told_too(self):
        shutil.copy2(BIN / "muster-agent", self.bin / "muster-agent")
        daemon = Musterd(self, self.bin, slurm="auto", env=self.env)
        self.assertNotIn("no job can", daemon.muster("doctor").stdout)
        (self.bin / "muster-agent").unlink()
        self.assertIn("no job can run: ", " ".join(daemon.muster("doctor").stdout.split()))


def open_to_all(folder):
    """The files below that everybody can read: their own mode, and that of every folder on the way."""
    found = []
    for path in sorted(folder.iterdir()):
        mode = path.lstat().st_mode
        if path.is_dir() and mode & 0o001:
            found += open_to_all(path)
        elif path.is_file() and mode & 0o004:
            found.append(path)
    return found


class Privacy(unittest.TestCase):
    def test_a_folder_that_is_open_to_others_is_told_and_holds_nothing_they_can_read(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        os.umask(0o022)
        data = folder / "data"
        data.mkdir(mode=0o755)
        daemon = Musterd(self, BIN, data=data)
        remedy = f"{data} is open to everybody on this machine (mode 0755), and logs and job folders are in it: chmod 700 {data}"
        self.assertIn(remedy, daemon.log.read_text())
        doctor = daemon.muster("doctor", "--json")
        self.assertIn(remedy, doctor.stdout)
        self.assertNotEqual(doctor.returncode, 0)
        job = daemon.submit(TRAINING.replace("steps = 60", "steps = 4").replace("every_steps = 20", "every_steps = 2"))
        daemon.until(job, lambda shown: shown["state"] == "succeeded")
        self.assertTrue((data / "jobs" / job / "attempt-1" / "run.json").exists())
        self.assertTrue((data / "jobs" / job / "checkpoints" / "FENCE").exists())
        readable = [path for path in open_to_all(data) if "step-" not in path.parent.name]
        self.assertEqual(readable, [], "musterd's own files")
        data.chmod(0o700)
        self.assertNotIn("open to everybody", daemon.muster("doctor").stdout)


class Root(unittest.TestCase):
    def test_a_daemon_of_root_says_so_at_its_start_and_by_doctor(self):
        daemon = Musterd(self, BIN)
        for text in (daemon.log.read_text(), daemon.muster("doctor").stdout):
            self.assertEqual("musterd runs as root, and so does every job" in " ".join(text.split()), os.geteuid() == 0, text)


class Ageing(unittest.TestCase):
    def test_old_rows_of_single_ranks_leave_a_daemon_that_runs(self):
        daemon = Musterd(self, BIN)
        job = daemon.submit('name = "tells"\ncommand = ["/bin/sh", "-c", "for i in 1 2 3; do echo step $i loss 0.$i; done"]\n'
                            "[report]\nlog = {step = 'step (\\d+)', loss = 'loss ([\\d.]+)'}\n")
        daemon.until(job, lambda shown: shown["state"] == "succeeded")
        self.assertTrue(eventually(lambda: len(self.metrics(daemon, job)) == 3, 60), self.metrics(daemon, job))
        before = self.metrics(daemon, job)
        daemon.stop()
        metrics = daemon.data / "metrics.db"
        with contextlib.closing(sqlite3.connect(metrics)) as database, database:
            self.assertEqual(database.execute("SELECT count(*) FROM series_values").fetchone(), (3,))
            self.assertGreater(database.execute("UPDATE metric_hours SET hour = hour - 50").rowcount, 0)
        self.assertEqual(self.rows_after_a_while(daemon.data, "--rank-metrics-days", "3"), 3, "not old enough yet")
        self.assertEqual(self.rows_after_a_while(daemon.data, "--rank-metrics-days", "2"), 0)
        again = Musterd(self, BIN, data=daemon.data)
        self.assertEqual(self.metrics(again, job), before, "what people see is kept")

    @staticmethod
    def metrics(daemon, job):
        return json.loads(daemon.muster("metrics", job, "--json").stdout)

    def rows_after_a_while(self, data, *flags):
        """How many rows of single ranks there are when a daemon has looked for old ones, which it first does after a minute."""
        daemon = Musterd(self, BIN, flags=flags, data=data)

        def rows():
            with contextlib.closing(sqlite3.connect(data / "metrics.db")) as database:
                return database.execute("SELECT count(*) FROM series_values").fetchone()[0]

        eventually(lambda: rows() == 0, 90)
        daemon.stop()
        return rows()


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
