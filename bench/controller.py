"""A private musterd for benchmarks: its own folder and ports, stopped by its own process id."""

import json
import os
import pathlib
import subprocess
import tempfile
import time

TRAINING = """
name = "bench"
[resources]
ranks_per_node = 2
[model]
family = "llama"
hidden_size = 32
intermediate_size = 64
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 2
[data]
source = "fixture"
sequence_length = 32
[train]
steps = 100000
micro_batch_size = 2
batch_size = 4
validation_every_steps = 0
step_delay_ms = 20
[checkpoint]
every_steps = 20
[requeue]
max_failed = 1000
max_rank_silent = 1000
"""


class Controller:
    """`parent`: where its folder is made, which has the checkpoints of its jobs; None: in TMPDIR."""

    def __init__(self, binaries, parent=None):
        self.binaries = binaries
        self.temporary = tempfile.TemporaryDirectory(prefix="muster-bench-", dir=parent, ignore_cleanup_errors=True)
        self.folder = pathlib.Path(self.temporary.name)
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("MUSTER_")}

    def __enter__(self):
        self.log = open(self.folder / "musterd.log", "w")
        self.start()
        return self

    def start(self):
        """Starts musterd, a second time on what the first one stored."""
        ready = self.folder / "data" / "musterd.json"
        ready.unlink(missing_ok=True)
        self.daemon = subprocess.Popen(
            [self.binaries / "musterd", "--data-folder", self.folder / "data", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"],
            stdout=self.log, stderr=self.log, env=self.environment)
        self.wait(ready.exists, 60, "musterd to be ready")
        addresses = json.loads(ready.read_text())
        self.http = addresses["http"]
        self.environment["MUSTER_ADDRESS"] = addresses["grpc"]
        self.environment["MUSTER_TOKEN_FILE"] = str(self.folder / "data" / "token")

    def stop(self):
        self.daemon.terminate()
        try:
            self.daemon.wait(15)
        except subprocess.TimeoutExpired:
            self.daemon.kill()

    def __exit__(self, *_):
        for job in self.json("list"):
            if job["state"] not in ("succeeded", "failed", "cancelled"):
                self.muster("cancel", str(job["id"]))
                self.muster("wait", str(job["id"]), "--timeout", "60s")
        self.stop()
        self.log.close()
        self.temporary.cleanup()

    def muster(self, *arguments):
        done = subprocess.run([self.binaries / "muster", *arguments], capture_output=True, text=True, env=self.environment,
                              timeout=120)
        return done.stdout

    def json(self, *arguments):
        return json.loads(self.muster(*arguments, "--json"))

    def first_step(self, job, attempt):
        """None: there is no such attempt yet, or it has made none."""
        return next((m for m in self.json("metrics", job) if m["attempt"] == attempt), None)

    def submit(self, text):
        file = self.folder / f"job-{time.monotonic_ns()}.toml"
        file.write_text(text)
        return self.muster("submit", str(file)).strip()

    @staticmethod
    def wait(condition, limit_s, what):
        deadline = time.monotonic() + limit_s
        while True:
            found = condition()
            if found:
                return found
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {limit_s} s for {what}")
            time.sleep(0.02)
