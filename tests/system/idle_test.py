"""Goal: a musterd that has nothing to do sleeps, and is as quick as ever when somebody comes.

Method: real musterd; the kernel counts how often its threads have slept and were woken. On Slurm, programs before Slurm's own
ones count what it asks.
Usage: idle_test.py BIN_FOLDER
"""

import os
import pathlib
import shutil
import sys
import tempfile
import time
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "system"), str(TESTS / "peers")]
from daemon import JOB_LIMIT_S, Musterd, eventually  # noqa: E402
from private_slurm import PrivateSlurm, missing  # noqa: E402

BIN = None
COUNTED_S = 10
# Its own look at its ports, once a minute, would be counted by chance.
NO_PROBE = ["--probe-ms", "600000"]
TRUE = 'name = "true"\ncommand = ["/bin/true"]\n'
SLURM_COMMANDS = ("sacct", "sbatch", "scancel", "scontrol", "sinfo", "squeue")


def threads(pid):
    """{id: (name, how often it was woken)} of the threads of a process."""
    found = {}
    for status in pathlib.Path(f"/proc/{pid}/task").glob("*/status"):
        try:
            lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        except OSError:  # it has ended
            continue
        found[status.parent.name] = (lines["Name"].strip(), int(lines["voluntary_ctxt_switches"]))
    return found


def wakeups(pid, seconds):
    """(how often threads were woken, by name, within so many seconds)"""
    before = threads(pid)
    time.sleep(seconds)
    woken = {}
    for id, (name, count) in threads(pid).items():
        since = count - before.get(id, ("", 0))[1]
        woken[name] = woken.get(name, 0) + since
    return {name: count for name, count in woken.items() if count}


class IdleCase(unittest.TestCase):
    def assert_sleeps(self, musterd):
        # gRPC stays for some seconds after the last connection.
        asleep = eventually(lambda: not any("grpc" in name for name, _ in threads(musterd.process.pid).values()), 60)
        self.assertTrue(asleep, threads(musterd.process.pid))
        woken = wakeups(musterd.process.pid, COUNTED_S)
        self.assertLess(sum(woken.values()), 5 * COUNTED_S, woken)


class Idle(IdleCase):
    def test_sleeps_beside_jobs_that_wait(self):
        musterd = Musterd(self, BIN, flags=NO_PROBE)
        held = musterd.submit(TRUE, "--hold")
        after = musterd.submit(TRUE, "--after", f"succeeded:{held}")
        done = musterd.submit(TRUE)
        musterd.until(done, lambda shown: shown["state"] == "succeeded")
        self.assert_sleeps(musterd)
        begun = time.monotonic()
        self.assertEqual(musterd.muster("release", held).returncode, 0)
        for job in (held, after):
            musterd.until(job, lambda shown: shown["state"] == "succeeded")
        self.assertLess(time.monotonic() - begun, JOB_LIMIT_S)
        self.assert_sleeps(musterd)

    def test_who_comes_after_a_rest_is_answered_at_once(self):
        musterd = Musterd(self, BIN, flags=NO_PROBE)
        for _ in range(3):
            self.assert_sleeps(musterd)
            musterd.lists_at_once("after a rest")
            musterd.lists_at_once("right after it")


@unittest.skipIf(missing(), f"no Slurm here: {missing()}")
class OnSlurm(IdleCase):
    def setUp(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.calls = folder / "calls"
        self.calls.touch()
        for name in SLURM_COMMANDS:
            program = folder / name
            program.write_text(f'#!/bin/sh\necho {name} "$@" >> {self.calls}\nexec {shutil.which(name)} "$@"\n')
            program.chmod(0o755)
        self.slurm = PrivateSlurm(self, "--nodes", "2")
        self.musterd = Musterd(self, BIN, slurm="yes", env=self.slurm.env | {"PATH": f"{folder}:{os.environ['PATH']}"}, flags=NO_PROBE)

    def asked(self):
        return self.calls.read_text().splitlines()

    def assert_asks_nothing(self):
        self.assert_sleeps(self.musterd)
        before = self.asked()
        # Without attempts squeue was called every ten seconds once.
        time.sleep(15)
        self.assertEqual(self.asked()[len(before):], [])

    def test_slurm_is_asked_nothing_without_attempts_there(self):
        self.assert_asks_nothing()
        job = self.musterd.submit(TRUE + 'executor = "slurm"\n')
        self.musterd.until(job, lambda shown: shown["state"] == "succeeded")
        self.assert_asks_nothing()
        before = len(self.asked())
        self.assertEqual(self.musterd.muster("nodes").returncode, 0)
        self.assertGreater(len(self.asked()), before, "somebody asks")


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
