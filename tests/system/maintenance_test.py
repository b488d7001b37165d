"""Goal: an admin drains musterd, backs it up while it runs, upgrades it under running jobs, and takes an upgrade back.

Method: real daemons and local jobs. What a next version does to the database is done by hand.
Usage: maintenance_test.py BIN_FOLDER
"""

import json
import os
import pathlib
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from daemon import Musterd, eventually  # noqa: E402

BIN = None
LASTS = 'name = "lasts"\ncommand = ["/bin/sh", "-c", "echo began >> {0}; until [ -e {0}.end ]; do sleep 0.1; done; echo ended >> {0}"]\n'
SHORT = 'name = "short"\ncommand = ["/bin/true"]\n'


def end(daemon):
    """Ends musterd in order. Its jobs go on."""
    daemon.process.terminate()
    daemon.process.wait(60)


class Maintenance(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.marks = self.folder / "marks"

    def admin(self, data, *words, bin_folder=None, code=0):
        """muster admin ... as musterd's user, on its host."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MUSTER_")}
        done = subprocess.run([(bin_folder or BIN) / "muster", "admin", *words], capture_output=True, text=True,
                              timeout=120, env=environment | {"MUSTER_DATA_FOLDER": str(data)})
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout if code == 0 else done.stderr

    def lasting(self, daemon):
        job = daemon.submit(LASTS.format(self.marks))
        daemon.until(job, lambda shown: shown["state"] == "running" and self.marks.exists())
        return job

    def finish(self, daemon, job):
        """The job ends by itself, after one attempt."""
        pathlib.Path(f"{self.marks}.end").touch()
        shown = daemon.until(job, lambda shown: shown["state"] in ("succeeded", "failed", "cancelled"))
        self.assertEqual((shown["state"], len(shown["attempts"])), ("succeeded", 1), shown)
        self.assertEqual(self.marks.read_text(), "began\nended\n", "it ran once")


class Drain(Maintenance):
    def test_nothing_starts_before_resume_and_what_runs_goes_on(self):
        daemon = Musterd(self, BIN)
        job = self.lasting(daemon)
        done = daemon.muster("admin", "drain", "--reason", "new driver")
        self.assertEqual((done.returncode, done.stdout), (0, "musterd is drained: no attempt starts before muster admin resume\n"
                                                          "1 attempt running, which will go on\n"), done.stderr)
        waiting = daemon.submit(SHORT)
        why = daemon.muster("why", waiting).stdout
        self.assertIn("it is drained by ", why)
        self.assertIn(": new driver", " ".join(why.split()))
        self.assertIn("muster admin resume", why)
        self.assertIn("no attempt starts: drained by ", " ".join(daemon.muster("status").stdout.split()))
        self.assertIn("musterd is already drained", daemon.muster("admin", "drain", "--reason", "new driver").stdout)

        wait = daemon.start("admin", "drain", "--reason", "new driver", "--wait", stderr=subprocess.DEVNULL)
        self.finish(daemon, job)
        self.assertEqual(wait.wait(60), 0)
        self.assertEqual(daemon.show(waiting)["state"], "pending")

        end(daemon)
        again = Musterd(self, BIN, data=daemon.data)
        self.assertEqual(again.show(waiting)["state"], "pending", "the order outlasts a restart")
        self.assertEqual(again.muster("admin", "resume").stdout, "attempts start again\n")
        again.until(waiting, lambda shown: shown["state"] == "succeeded")
        self.assertEqual(again.muster("admin", "resume").stdout, "musterd was not drained\n")
        audit = json.loads(again.muster("admin", "audit", "--json").stdout)
        self.assertEqual([entry["action"] for entry in audit], ["resume", "drain"])
        self.assertIn("  resume: {", again.muster("admin", "audit").stdout)


class Backups(Maintenance):
    def test_a_backup_of_a_musterd_that_runs_brings_it_back_after_a_disaster(self):
        daemon = Musterd(self, BIN)
        job = self.lasting(daemon)
        file = self.folder / "backup.db"
        said = self.admin(daemon.data, "backup", file)
        self.assertRegex(said, r"backup\.db: 1 job, 1 of them not ended; schema \d+; \d+\.\d MB\nwithout metrics, which --metrics adds; ")
        self.assertEqual(stat.S_IMODE(file.stat().st_mode), 0o600)
        self.assertIn("is there already: name another file, or remove it", self.admin(daemon.data, "backup", file, code=1))
        self.assertIn("is in use by process", self.admin(daemon.data, "restore", file, code=1))
        later = daemon.submit(SHORT)
        daemon.until(later, lambda shown: shown["state"] == "succeeded")
        end(daemon)
        (daemon.data / "muster.db").write_bytes(b"nothing that SQLite knows")
        (daemon.data / "token").unlink()

        said = self.admin(daemon.data, "restore", file)
        self.assertIn("muster.db was there before, and is ", said)
        self.assertRegex(said, r"data: 1 job, 1 of them not ended; .*; the backup was made at 20")
        self.assertTrue(said.endswith("next: start musterd\n"), said)
        again = Musterd(self, BIN, data=daemon.data)
        self.assertEqual(again.token, daemon.token, "the people's token came back")
        self.assertNotEqual(again.submit(SHORT), later, "the number of a job that is not known any more is not given again")
        self.finish(again, job)

    def test_a_backup_elsewhere_is_told_what_to_do_next_and_has_curves_if_asked(self):
        daemon = Musterd(self, BIN)
        job = daemon.submit('name = "curve"\ncommand = ["/bin/sh", "-c", "echo loss: 2.5"]\n[report.log]\nloss = "loss: ([0-9.]+)"\n')
        daemon.until(job, lambda shown: shown["state"] == "succeeded")
        file = self.folder / "backup.db"
        self.assertRegex(self.admin(daemon.data, "backup", file, "--metrics"), r"backup\.db\.metrics: metrics; ")
        end(daemon)
        other = self.folder / "other"
        said = self.admin(other, "restore", file)
        self.assertIn(f"start musterd, with --moved if no musterd uses {daemon.data} any more, or with --fork to try the backup", said)
        again = Musterd(self, BIN, data=other, flags=("--moved",))
        self.assertEqual(again.muster("metrics", job).stdout, Musterd(self, BIN, data=daemon.data).muster("metrics", job).stdout)
        self.assertEqual(again.token, daemon.token)

    def test_what_cannot_be_is_told_in_a_line(self):
        data = self.folder / "data"
        for words, told in ((("backup", self.folder / "b"), f"{data}/muster.db: there is no such file; name musterd's data folder"),
                            (("restore", self.folder / "b"), f"{self.folder}/b: there is no such backup")):
            said = self.admin(data, *words, code=1)
            self.assertEqual(said.count("\n"), 1, said)
            self.assertTrue(said.startswith(f"musterd: {told}"), said)
        self.assertFalse((self.folder / "b").exists())


class Upgrade(Maintenance):
    """Two folders of programs stand for two versions."""

    def setUp(self):
        super().setUp()
        self.next = self.folder / "next"
        self.next.mkdir()
        for name in ("musterd", "muster", "muster-agent"):
            shutil.copy2(BIN / name, self.next / name)

    def test_a_running_job_outlives_an_upgrade_and_a_rollback(self):
        daemon = Musterd(self, BIN)
        job = self.lasting(daemon)
        end(daemon)
        upgraded = Musterd(self, self.next, data=daemon.data)
        upgraded.until(job, lambda shown: shown["state"] == "running")
        end(upgraded)
        with sqlite3.connect(daemon.data / "muster.db") as database:  # what the next version may have added
            version, = database.execute("PRAGMA user_version").fetchone()
            database.execute("ALTER TABLE jobs ADD COLUMN colour TEXT")
            database.execute("CREATE TABLE colours (name TEXT PRIMARY KEY) STRICT")
            database.execute(f"PRAGMA user_version = {version + 1}")
        database.close()
        rolled_back = Musterd(self, BIN, data=daemon.data)
        self.assertIn(f"has schema version {version + 1}, of a newer muster", rolled_back.log.read_text())
        short = rolled_back.submit(SHORT)
        rolled_back.until(short, lambda shown: shown["state"] == "succeeded")
        self.finish(rolled_back, job)

    def test_a_schema_that_an_older_version_cannot_read_is_refused_and_not_changed(self):
        daemon = Musterd(self, BIN)
        end(daemon)
        file = daemon.data / "muster.db"
        with sqlite3.connect(file) as database:
            database.execute("PRAGMA user_version = 99")
            database.execute("UPDATE meta SET value = '99' WHERE key = 'min_reader'")
        database.close()
        before = file.read_bytes()
        done = subprocess.run([BIN / "musterd", "--data-folder", daemon.data, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn("use the newer muster that wrote it, or restore the copy that it made before it changed the schema", done.stderr)
        self.assertEqual(file.read_bytes(), before)


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv[1])
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
