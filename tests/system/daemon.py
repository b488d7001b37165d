"""musterd as a test starts it: a folder of its own, any ports, no Slurm; and the command line that talks to it."""

import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time

START_LIMIT_S = 120
STOP_LIMIT_S = 60
WITHOUT_RANKS = ("pending", "queued", "waiting", "held")
WITH_RANKS = ("running", "stopping")
AT_ONCE_S = 8  # a command on a busy machine; a port that is shut takes ten seconds to say so
JOB_LIMIT_S = 180
# A Llama of two ranks on the built-in text, a quarter of a second a step.
TRAINING = """name = "training"
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
steps = 60
micro_batch_size = 2
batch_size = 8
step_delay_ms = 250
validation_every_steps = 0
[checkpoint]
every_steps = 20
"""


def pause_after(look_s):
    """Between two looks, which are often programs of their own. Tests that wait must not keep the processors busy."""
    time.sleep(min(max(0.05, 6 * look_s), 0.4))


def eventually(condition, limit_s):
    deadline = time.monotonic() + limit_s
    while True:
        begun = time.monotonic()
        if condition():
            return True
        if time.monotonic() > deadline:
            return False
        pause_after(time.monotonic() - begun)


class Musterd:
    """One daemon. `limit`: its descriptors, as prlimit wants them (soft:hard)."""

    def __init__(self, test, bin_folder, limit=None, flags=(), data=None, slurm="no", env=None):
        self.folder = pathlib.Path(test.enterContext(tempfile.TemporaryDirectory()))
        self.bin = pathlib.Path(bin_folder)
        self.data = data or self.folder / "data"
        self.log = self.folder / "musterd.err"
        (self.data / "musterd.json").unlink(missing_ok=True)  # of the folder that this one is a copy of
        # prlimit becomes musterd, so its process id is known.
        limited = ["prlimit", f"--nofile={limit}"] if limit else []
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [*limited, self.bin / "musterd", "--data-folder", self.data, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0",
                 "--slurm", slurm, *flags], stderr=log, stdin=subprocess.DEVNULL, env={**os.environ, **(env or {})})
        test.addCleanup(self.stop)
        self.test = test
        test.assertTrue(eventually(lambda: (self.data / "musterd.json").exists() or self.process.poll() is not None,
                                   START_LIMIT_S), "musterd is not ready")
        test.assertIsNone(self.process.poll(), self.log.read_text())
        ready = json.loads((self.data / "musterd.json").read_text())
        self.grpc = int(ready["grpc"].rsplit(":", 1)[1])
        self.http = int(ready["http"].rsplit(":", 1)[1])
        self.token = (self.data / "token").read_text().strip()

    def stop(self):
        if self.process.poll() is None:
            if waiting := self.jobs_in(WITHOUT_RANKS):
                self.muster("cancel", *waiting)
            for job in self.jobs_in(WITH_RANKS):
                self.muster("cancel", job)
                self.muster("wait", job, "--timeout", "40s")
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def jobs_in(self, states):
        """The numbers of at most 1,000 jobs in these states."""
        asked = [word for state in states for word in ("--state", state)]
        return [str(job["id"]) for job in json.loads(self.muster("list", "--json", "--limit", "1000", *asked).stdout or "[]")]

    def client_environment(self):
        own = {name: value for name, value in os.environ.items() if not name.startswith("MUSTER_")}
        return own | {"MUSTER_ADDRESS": f"127.0.0.1:{self.grpc}", "MUSTER_TOKEN": self.token}

    def muster(self, *arguments, limit_s=60):
        return subprocess.run([self.bin / "muster", *arguments], capture_output=True, text=True, env=self.client_environment(),
                              timeout=limit_s)

    def start(self, *arguments, stderr):
        """The command line as a process of its own, which the caller ends."""
        return subprocess.Popen([self.bin / "muster", *arguments], env=self.client_environment(), stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=stderr)

    def lists_at_once(self, when):
        before = time.monotonic()
        done = self.muster("list")
        took = time.monotonic() - before
        print(f"muster list {when}: {took:.2f} s", file=sys.stderr)
        self.test.assertEqual(done.returncode, 0, f"{when}: {done.stderr}{self.log.read_text()}")
        self.test.assertLess(took, AT_ONCE_S, when)

    def submit(self, text, *more):
        file = self.folder / f"job-{time.monotonic_ns()}.toml"
        file.write_text(text)
        done = self.muster("submit", file, *more)
        self.test.assertEqual(done.returncode, 0, done.stderr)
        return re.search(r"\d+", done.stdout).group()

    def show(self, job):
        return json.loads(self.muster("show", job, "--json").stdout)

    def until(self, job, condition):
        """What the job is once the condition holds. Fails after JOB_LIMIT_S in which the job did not come on."""
        seen, since = None, time.monotonic()
        while True:
            begun = time.monotonic()
            if condition(shown := self.show(job)):
                return shown
            looked = time.monotonic()
            now = (shown["state"], len(shown["attempts"]), shown["step"], shown["last_checkpoint_step"])
            if now != seen:
                seen, since = now, looked
            self.test.assertLess(looked - since, JOB_LIMIT_S, f"the job stands still: {shown}\n{self.log.read_text()}")
            pause_after(looked - begun)

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def memory_mib(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) // 1024

    def limit(self, soft):
        hard = resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE)[1]
        resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE, (soft, hard))

    def get(self, connection, path="/api/v1/jobs"):
        """The status of an HTTP request on this connection, with the token; 0: it was closed."""
        connection.settimeout(AT_ONCE_S)
        try:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.token}\r\n\r\n".encode())
            answer = b""
            while b"\r\n\r\n" not in answer:
                more = connection.recv(65536)
                if not more:
                    return 0
                answer += more
            head, body = answer.split(b"\r\n\r\n", 1)
            size = int(re.search(rb"content-length: (\d+)", head.lower()).group(1))
            while len(body) < size:
                body += connection.recv(65536)
            return int(head.split()[1])
        except (ConnectionError, TimeoutError):
            return 0
