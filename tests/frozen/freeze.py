"""Makes the folder of a version that is released: its wire, a store with jobs of every kind, and what muster says of it.

Usage: python3 -B tests/frozen/freeze.py BIN_FOLDER VERSION
"""

import contextlib
import json
import os
import pathlib
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
LIMIT_S = 180
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "USER": "ann", "LOGNAME": "ann", "LANG": "C.UTF-8"}
SUCCEEDS = """name = "curve"
command = ["/bin/sh", "-c", "for i in 3 2 1; do echo step $i loss: $i.5; done"]
[report.log]
loss = "loss: ([0-9.]+)"
[env]
COLOUR = "blue"
"""
FAILS = """name = "fails"
command = ["/bin/sh", "-c", "echo 'ValueError: bad' >&2; exit 3"]
[requeue]
max_failed = 1
backoff_initial = "1ms"
backoff_max = "1ms"
"""
TRAINS = """name = "training"
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
steps = 4
micro_batch_size = 2
batch_size = 8
validation_every_steps = 0
[checkpoint]
every_steps = 2
"""
SHORT = 'name = "{}"\ncommand = ["/bin/true"]\n'


class Daemon:
    """A musterd on a data folder, for the story here and for tests of the folder."""

    def __init__(self, bin_folder, data, *flags):
        self.bin, self.data = pathlib.Path(bin_folder), pathlib.Path(data)
        self.log = self.data.parent / "musterd.err"
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([self.bin / "musterd", "--data-folder", data, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0",
                                             "--slurm", "no", *flags], stderr=log, stdin=subprocess.DEVNULL, env=ENVIRONMENT)
        self.until(lambda: (self.data / "musterd.json").exists() or self.process.poll() is not None)
        if self.process.poll() is not None:
            raise AssertionError(self.log.read_text())
        self.address = json.loads((self.data / "musterd.json").read_text())["grpc"]
        self.token = (self.data / "token").read_text().strip()

    def until(self, condition):
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"it did not happen within {LIMIT_S} s: {self.log.read_text()}")
            time.sleep(0.1)

    def end(self):
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(60)

    def muster(self, *words, text=None):
        done = subprocess.run([self.bin / "muster", *words], input=text, capture_output=True, text=True, timeout=60, cwd="/tmp",
                              env=ENVIRONMENT | {"MUSTER_ADDRESS": self.address, "MUSTER_TOKEN": self.token})
        if done.returncode:
            raise AssertionError(f"muster {words}: {done.stderr}")
        return done.stdout

    def submit(self, text, *words):
        return self.muster("submit", "-", *words, text=text).split()[0]

    def state(self, job):
        return json.loads(self.muster("show", job, "--json"))["state"]

    def ended(self, job):
        self.until(lambda: self.state(job) in ("succeeded", "failed", "cancelled"))
        return job


@contextlib.contextmanager
def daemon(*words):
    made = Daemon(*words)
    try:
        yield made
    finally:
        made.end()


def story(musterd):
    """Jobs of every kind. Returns their numbers."""
    curve = musterd.ended(musterd.submit(SUCCEEDS))
    fails = musterd.ended(musterd.submit(FAILS))
    training = musterd.ended(musterd.submit(TRAINS))
    musterd.submit(SHORT.format("swept"), "--sweep", "env.SEED=1,2,3")
    musterd.until(lambda: not json.loads(musterd.muster("list", "--json", "--state", "running", "--state", "pending")))
    cancelled = musterd.submit(SHORT.format("cancelled"), "--hold")
    musterd.muster("cancel", cancelled)
    removed = musterd.ended(musterd.submit(SHORT.format("removed")))
    musterd.muster("rm", removed)
    musterd.muster("admin", "drain", "--reason", "release")
    waiting = musterd.submit(SHORT.format("waiting"))
    held = musterd.submit(SHORT.format("held"), "--hold")
    after = musterd.submit(SHORT.format("after"), "--after", held)
    return [curve, fails, training, cancelled, waiting, held, after]


def told(musterd, jobs):
    """What muster says of the jobs, without what depends on the place and the moment."""
    said = {"list": json.loads(musterd.muster("list", "--json", "--limit", "1000")), "audit": json.loads(musterd.muster("admin", "audit", "--json"))}
    for job in jobs:
        said[f"show {job}"] = json.loads(musterd.muster("show", job, "--json"))
        said[f"spec {job}"] = musterd.muster("spec", job)
        for what in ("events", "metrics"):
            said[f"{what} {job}"] = json.loads(musterd.muster(what, job, "--json"))
    return json.loads(json.dumps(said).replace(str(musterd.data), "@DATA@"))


def dump(file):
    """A database as SQL, without the place where it lay."""
    with contextlib.closing(sqlite3.connect(file)) as database:
        lines = [f"PRAGMA user_version = {database.execute('PRAGMA user_version').fetchone()[0]};",
                 f"PRAGMA application_id = {database.execute('PRAGMA application_id').fetchone()[0]};",
                 *(line for line in database.iterdump() if not line.startswith("INSERT INTO \"meta\" VALUES('place'"))]
    return "\n".join(lines).replace(socket.gethostname(), "node1") + "\n"


def load(sql, file):
    """Makes the database of a dump, as one of the folder that it lies in."""
    with contextlib.closing(sqlite3.connect(file)) as database:
        database.executescript(sql.read_text().replace("@DATA@", str(file.parent)))
    os.chmod(file, 0o600)


def main():
    bin_folder, version = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
    folder = HERE / version
    if folder.exists():
        raise SystemExit(f"freeze: {folder} is there, and a released version is never changed")
    made = folder.with_suffix(".new")
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    shutil.copytree(ROOT / "proto/muster", made / "proto/muster")
    with tempfile.TemporaryDirectory(prefix="muster-frozen-") as temporary:
        data = pathlib.Path(temporary) / "data"
        with daemon(bin_folder, data) as musterd:
            jobs = story(musterd)
        with daemon(bin_folder, data) as musterd:  # without what the one before has in memory alone
            expected = told(musterd, jobs)
        for name in ("muster", "metrics"):
            (made / f"{name}.sql").write_text(dump(data / f"{name}.db").replace(str(data), "@DATA@"))
        text = json.dumps({"jobs": jobs, "told": expected}, indent=1).replace(socket.gethostname(), "node1")
        (made / "told.json").write_text(text + "\n")
    made.rename(folder)


if __name__ == "__main__":
    main()
