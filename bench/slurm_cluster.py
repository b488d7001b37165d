"""A private Slurm for benchmarks, and a musterd that uses it."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from controller import Controller

ROOT = pathlib.Path(__file__).resolve().parent.parent


class Cluster:
    """Ends, with all its jobs, when this process does."""

    def __init__(self, *options):
        self.options = options

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="muster-bench-slurm-")
        self.process = subprocess.Popen(
            [sys.executable, "-B", ROOT / "tools" / "cluster", "start", "--folder", self.folder, "--foreground", "--die-with-parent",
             "--remove-folder", *self.options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        told = json.loads(self.process.stdout.readline())
        if "error" in told:
            raise RuntimeError(told["error"])
        self.environment = {"SLURM_CONF": f"{self.folder}/slurm.conf"}
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(30)

    def run(self, *command):
        return subprocess.run(command, env=os.environ | self.environment, capture_output=True, text=True, timeout=60).stdout

    def tool(self, *command):
        subprocess.run([sys.executable, "-B", ROOT / "tools" / "cluster", command[0], "--folder", self.folder, *command[1:]],
                       check=True, capture_output=True, timeout=60)


class SlurmController(Controller):
    def __init__(self, binaries, cluster, path=""):
        super().__init__(binaries)
        self.environment |= cluster.environment
        if path:
            self.environment["PATH"] = f"{path}:{self.environment['PATH']}"
