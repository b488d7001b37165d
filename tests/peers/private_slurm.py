"""A private Slurm of a test's own, which ends with the test. tools/cluster starts it."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile

TOOL = pathlib.Path(__file__).resolve().parent.parent.parent / "tools" / "cluster"
LIMIT_S = 60


class PrivateSlurm:
    def __init__(self, test, *options):
        self.folder = tempfile.mkdtemp(prefix="muster-slurm-", dir="/tmp")  # paths of sockets are short
        test.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.keeper = subprocess.Popen(
            ["python3", "-B", TOOL, "start", "--folder", self.folder, "--foreground", "--die-with-parent", *options],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        test.addCleanup(self.stop)
        report = json.loads(self.keeper.stdout.readline() or '{"error": "no report"}')
        test.assertNotIn("error", report)
        self.env = {"SLURM_CONF": f"{self.folder}/slurm.conf"}

    def stop(self):
        self.keeper.stdin.close()
        self.keeper.stdout.close()
        self.keeper.wait(LIMIT_S)

    def run(self, *command):
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **self.env}, timeout=LIMIT_S)
        if done.returncode != 0:
            raise RuntimeError(f"{command}: {done.stderr}")
        return done.stdout.strip()


def missing():
    """Why there can be no such Slurm here; empty: there can."""
    return " ".join(name for name in ("slurmctld", "slurmd", "munged", "sbatch") if not shutil.which(name, path="/usr/sbin:/usr/bin"))
