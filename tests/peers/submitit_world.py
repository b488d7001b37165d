"""One musterd for the tests of a process, and submitit's executors that submit to it."""

import contextlib
import datetime
import json
import os
import pathlib
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "system"))
from daemon import Musterd, eventually  # noqa: E402

BIN = pathlib.Path(os.environ.get("MUSTER_BIN_FOLDER", "build/bin"))
LIMIT_S = 90


class _AsTest:
    """What Musterd wants of a test, for all tests of a process."""

    def __init__(self, stack):
        self.stack = stack
        self.addCleanup = stack.callback
        self.enterContext = stack.enter_context
        self.case = unittest.TestCase()

    def __getattr__(self, name):
        return getattr(self.case, name)


class World(unittest.TestCase):
    """The environment of this process leads the command muster to the daemon, as a user's shell does. All tests of a process
    have one daemon: submitit knows a job by its number alone."""

    daemon = None

    @classmethod
    def setUpClass(cls):
        if World.daemon is not None:
            return
        stack = contextlib.ExitStack()
        unittest.addModuleCleanup(stack.close)
        World.daemon = cls.start_daemon(_AsTest(stack))
        os.environ.update({"PATH": f"{BIN}:{os.environ['PATH']}", "MUSTER_ADDRESS": f"127.0.0.1:{World.daemon.grpc}",
                           "MUSTER_TOKEN": World.daemon.token})

    @classmethod
    def start_daemon(cls, test):
        return Musterd(test, BIN)

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def executor(self, folder=None, *, init=None, **parameters):
        import submitit
        executor = submitit.AutoExecutor(folder or self.folder / "log", cluster="muster", **(init or {}))
        executor.update_parameters(**{"muster_signal_delay_s": 10, **parameters})
        return executor

    def job(self, job):
        """muster's view of a job of submitit."""
        return self.daemon.show(job.job_id)

    def causes(self, job):
        """Of all attempts of a job, once the job is over: an attempt has a cause only then, and submitit may know the result before."""
        return [attempt["cause"] for attempt in self.until_over(job)["attempts"]]

    def until(self, condition, what="", limit_s=LIMIT_S):
        self.assertTrue(eventually(condition, limit_s), f"{what}\n{self.daemon.log.read_text()[-3000:]}")

    def until_file(self, path):
        self.until(lambda: pathlib.Path(path).exists(), f"no {path}")

    def cancel(self, job):
        """Cancels it. Its result is an error as soon as muster knows of the end: submitit waits for 15 s for a result of others."""
        from submitit.core.utils import UncompletedJobError
        job.cancel()
        with self.assertRaisesRegex(UncompletedJobError, "cancelled"):
            job.result()
        raised = time.time()
        ended = datetime.datetime.fromisoformat(self.until_over(job)["ended_at"].replace("Z", "+00:00"))
        self.assertLess(raised - ended.timestamp(), 3, "two seconds are promised, and asking takes its time")

    def until_over(self, job):
        """muster's last word of a job, whose result may be there a moment earlier."""
        done = self.daemon.muster("wait", job.job_id, "--timeout", f"{LIMIT_S}s", limit_s=LIMIT_S + 10)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        return self.job(job)

    def muster(self, *arguments):
        done = self.daemon.muster(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def list(self):
        return json.loads(self.muster("list", "--json", "--limit", "1000"))
