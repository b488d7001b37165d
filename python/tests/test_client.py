"""Goal: a Python program submits jobs, follows them and reads what they reported, and is told clearly what is wrong.

Method: a real musterd with local processes; between the two a port that loses answers; musterds that restart.
Usage: test_client.py BIN_FOLDER
"""

import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

PACKAGE = pathlib.Path(__file__).resolve().parent.parent
ROOT = PACKAGE.parent
sys.path[:0] = [str(PACKAGE), str(ROOT / "tests" / "system")]
import muster  # noqa: E402
from daemon import Musterd  # noqa: E402
from muster import _client, _controller  # noqa: E402

BIN = None
PROGRAM = """
import os, sys, muster
run = muster.init()
for step in range(1, 6):
    run.log(step, {"validation/loss": 2.0}, loss=1.0 / step, rate=float("nan"))
print("LR is", os.environ["LR"])
print("last line")
"""
ENDLESS = ["/bin/sh", "-c", "while :; do sleep 0.1; done"]


def program(name="one", **more):
    return {"name": name, "command": [sys.executable, "-c", PROGRAM], "env": {"LR": "1", "PYTHONPATH": str(PACKAGE)}, **more}


class LossyPort:
    """Passes connections on to `port`, and loses the first `losses` answers: the request arrives, the client hears nothing."""

    def __init__(self, test, port, losses):
        self.target, self.losses, self.requests = port, losses, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        test.addCleanup(self.listener.close)
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            with client, socket.create_connection(("127.0.0.1", self.target)) as server:
                request = self.whole(client)
                self.requests.append(request)
                server.sendall(request)
                answer = self.whole(server)
                if self.losses > 0:
                    self.losses -= 1
                else:
                    client.sendall(answer)

    @staticmethod
    def whole(connection):
        data = b""
        while b"\r\n\r\n" not in data:
            data += connection.recv(65536)
        head, body = data.split(b"\r\n\r\n", 1)
        size = re.search(rb"content-length: (\d+)", head.lower())
        while len(body) < int(size.group(1) if size else 0):
            body += connection.recv(65536)
        return head + b"\r\n\r\n" + body


class WithoutSettings(unittest.TestCase):
    """No setting of the person who runs the tests counts."""

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        before = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(before)))
        for name in list(os.environ):
            if name.startswith("MUSTER_"):
                del os.environ[name]
        os.environ["HOME"] = str(self.folder)
        os.environ.pop("XDG_DATA_HOME", None)
        here = os.getcwd()
        self.addCleanup(os.chdir, here)
        os.chdir(self.folder)

    def refused(self, call, *words):
        with self.assertRaises(muster.MusterError) as caught:
            call()
        for word in words:
            self.assertIn(word, str(caught.exception))
        return caught.exception


class Jobs(WithoutSettings):
    def setUp(self):
        super().setUp()
        self.musterd = Musterd(self, BIN)
        os.environ["MUSTER_DATA_FOLDER"] = str(self.musterd.data)

    def test_a_job_of_a_dictionary_runs_and_its_metrics_and_logs_are_read(self):
        os.environ["CONDA_PREFIX"] = "/conda"
        job = muster.submit(program(), set={"env.LR": "1e-4", "resources.cpus_per_rank": 1}, user="ada")
        self.assertEqual(job.wait(timeout=120, poll=0.1), "succeeded", job.logs())
        status = job.status()
        self.assertEqual((status.id, status.name, status.state, status.user, status.attempt, status.exit_code, status.step),
                         (job.id, "one", "succeeded", "ada", 1, None, 5))
        self.assertTrue(status.has_ended and status.ended_at.endswith("Z"))
        spec = status.raw["spec"]
        self.assertEqual((spec["working_folder"], spec["job_file"]), (str(self.folder), "the request"))
        self.assertEqual(spec["submitted_env"], _client.taken_variables(os.environ))
        self.assertEqual(spec["submitted_env"]["CONDA_PREFIX"], "/conda")
        self.assertEqual(job.logs(), "LR is 1e-4\nlast line\n")
        self.assertEqual(job.logs(rank=0, tail=1), "last line\n")
        rows = job.metrics()
        self.assertEqual([row["step"] for row in rows], [1, 2, 3, 4, 5])
        self.assertEqual({name: rows[3][name] for name in ("attempt", "loss", "validation/loss")},
                         {"attempt": 1, "loss": 0.25, "validation/loss": 2.0})
        self.assertLess(abs(rows[0]["at_ms"] / 1000 - time.time()), 600)
        self.assertEqual([set(row) for row in job.metrics("loss")], [{"attempt", "step", "at_ms", "loss"}] * 5)
        self.assertEqual(job.metrics(["nothing"]), [])
        self.assertEqual([one.id for one in muster.jobs([job, 77])], [job.id])

    def test_a_job_of_a_file_runs_where_the_file_is_and_several_ranks_are_told_apart(self):
        below = self.folder / "below"
        below.mkdir()
        (below / "base.toml").write_text('command = ["/bin/sh", "-c", "pwd; echo $LR $RANK"]\n')
        (below / "job.toml").write_text('name = "filed"\nextends = "base.toml"\n[env]\nLR = 7\n[resources]\nranks_per_node = 2\n')
        job = muster.submit("below/job.toml")
        self.assertEqual(job.wait(timeout=120, poll=0.1), "succeeded")
        self.assertEqual(job.logs(), f"rank 0: {below}\nrank 0: 7 0\nrank 1: {below}\nrank 1: 7 1\n")
        self.assertEqual(job.status().raw["spec"]["job_file"], str(below / "job.toml"))

    def test_jobs_are_cancelled_held_released_and_requeued(self):
        job = muster.submit({"name": "endless", "command": ENDLESS, "hold": True})
        self.assertIn("held", job.status().status)
        with self.assertRaises(TimeoutError):
            job.wait(timeout=0.3, poll=0.1)
        self.assertIn("release", job.why()["action"])
        self.assertEqual(job.release().raw["held_by"], "")
        self.assertNotEqual(job.hold().raw["held_by"], "")
        job.release()
        self.until(job, lambda status: status.state == "running")
        self.assertEqual(job.set_time_limit(3600).raw["time_limit_ms"], 3_600_000)
        job.requeue()
        self.until(job, lambda status: status.state == "running" and status.attempt == 2)
        self.refused(job.remove, "only a job that has ended can be removed")
        self.assertIn(job.cancel().state, ("stopping", "cancelled"))
        with self.assertRaises(muster.JobFailed) as caught:
            job.wait(timeout=60, poll=0.1, check=True)
        self.assertEqual(caught.exception.job_status.state, "cancelled")
        self.assertEqual(self.refused(job.cancel, "has been cancelled already").status, 409)
        job.remove()
        self.assertEqual(self.refused(job.status, "was removed by").status, 404)
        bad = muster.submit({"name": "bad", "command": ["/bin/sh", "-c", "exit 3"], "requeue": {"max_failed": 0}})
        self.assertEqual(bad.wait(timeout=60, poll=0.1), "failed")
        self.assertEqual((bad.status().exit_code, bad.status().cause), (3, "failed"))

    def test_a_sweep_is_every_combination_or_one_job_for_each_setting(self):
        sweep = muster.submit_sweep(program("tune"), sweep={"env.LR": [1e-4, "3e-4"]}, parallel=1)
        self.assertEqual([job.wait(timeout=120, poll=0.1) for job in sweep.jobs], ["succeeded"] * 2)
        self.assertEqual([job.logs(tail=2).split("\n")[0] for job in sweep.jobs], ["LR is 1e-04", "LR is 3e-4"])
        listed = muster.submit_sweep({"name": "map"}, settings=[{"command": ["/bin/echo", str(i)]} for i in range(3)])
        for number, job in enumerate(listed.jobs):
            self.assertEqual(job.wait(timeout=120, poll=0.1), "succeeded")
            self.assertEqual(job.logs(), f"{number}\n")
        self.assertEqual([one.name for one in muster.jobs(listed.jobs)], ["map-0000", "map-0001", "map-0002"])
        self.assertEqual(muster.jobs(listed.jobs)[0].sweep, listed.name)
        endless = muster.submit_sweep({"name": "long", "command": ENDLESS}, settings=[{"env.A": 1}, {"env.A": 2}])
        for job in endless.jobs:
            self.until(job, lambda status: status.state == "running")
        endless.cancel()
        self.assertEqual([job.wait(timeout=60, poll=0.1) for job in endless.jobs], ["cancelled"] * 2)

    def test_bad_input_is_told_with_place_value_and_remedy_and_nothing_is_submitted(self):
        error = self.refused(lambda: muster.submit(program(resources={"nodes": "two"})), 'job: resources.nodes "two": want a whole')
        self.assertEqual(error.status, 400)
        self.assertEqual((error.findings[0]["place"], error.findings[0]["key"], error.findings[0]["value"]),
                         ("job", "resources.nodes", "two"))
        file = self.folder / "job.toml"
        file.write_text('name = "n"\ncommand = ["a"]\n[env\n')
        self.refused(lambda: muster.submit(file), f"{file}:3:5: not TOML: the table's name does not end; write ] after it")
        self.refused(lambda: muster.submit(program(), set={"env.LR.x": 1, "nods": 2}), "set.nods: unknown key")
        self.refused(lambda: muster.submit(program(after=["99"])), "there is no job 99")
        self.refused(lambda: muster.submit("nothing.toml"), f"{self.folder}/nothing.toml: No such file", "want a job file's path")
        self.refused(lambda: muster.submit(program(env={"A": object()})), "env.A: want a text, a number", "not object")
        self.refused(lambda: muster.submit(program(env={"A": float("nan")})), "env.A: want a number")
        self.refused(lambda: muster.submit(program(env={"A": "x" * 5_000_000})), "more than 4194304")
        self.refused(lambda: muster.submit_sweep(program()), "the sweep varies no key")
        self.refused(lambda: muster.Job("7"), "Job('7'): want a job's number")
        self.refused(muster.Job(99).status, "there is no job 99")
        self.assertEqual(json.loads(self.musterd.muster("list", "--json").stdout), [])

    def test_a_lost_answer_submits_once(self):
        port = LossyPort(self, self.musterd.http, losses=3)
        job = muster.submit({"name": "once", "command": ["/bin/true"]}, address=port.address)
        self.assertEqual(len(port.requests), 4)
        self.assertEqual(job.wait(timeout=60, poll=0.1), "succeeded")
        self.assertEqual([one["id"] for one in json.loads(self.musterd.muster("list", "--json").stdout)], [job.id])
        # A requeue may not be sent twice.
        port.losses = 1
        error = self.refused(muster.Job(job.id, port.address).requeue, "it is not known whether the request was carried out")
        self.assertIsNone(error.status)

    def test_a_controller_that_restarts_is_waited_for(self):
        job = muster.submit({"name": "waits", "command": ["/bin/true"], "hold": True})
        self.musterd.process.terminate()
        self.musterd.process.wait(60)
        states = []
        waiting = threading.Thread(target=lambda: states.append(job.wait(timeout=180, poll=0.1)))
        waiting.start()
        submitted = []
        other = threading.Thread(target=lambda: submitted.append(muster.submit({"name": "new", "command": ["/bin/true"]})))
        other.start()
        again = Musterd(self, BIN, data=self.musterd.data)
        self.musterd = again
        job.release()
        waiting.join(120)
        other.join(120)
        self.assertEqual(states, ["succeeded"])
        self.assertEqual(submitted[0].wait(timeout=60, poll=0.1), "succeeded")

    def test_the_examples_of_the_documentation_run(self):
        text = (ROOT / "docs" / "api.md").read_text()
        shell, = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
        variables = {**os.environ, "MUSTER_HTTP_ADDRESS": f"127.0.0.1:{self.musterd.http}"}
        done = subprocess.run(["bash", "-euc", shell], env=variables, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.startswith('{"job_id":1,"already_submitted":false}{"id":1,"name":"hello"'), done.stdout)
        code, = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        done = subprocess.run([sys.executable, "-c", code], env={**variables, "PYTHONPATH": str(PACKAGE)}, capture_output=True, text=True,
                              timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertRegex(lines[0], "^succeeded ")
        self.assertEqual(lines[1], "hello")

    def test_a_wrong_token_names_its_origin(self):
        os.environ["MUSTER_TOKEN"] = "guess"
        error = self.refused(muster.Job(1).status, "MUSTER_TOKEN: the bearer token is wrong")
        self.assertEqual(error.status, 401)
        self.refused(lambda: muster.submit(program(env={"A": "x" * 3_000_000})), "MUSTER_TOKEN: the bearer token is wrong")

    def until(self, job, condition):
        end = time.monotonic() + 60
        while not condition(job.status()):
            self.assertLess(time.monotonic(), end, job.status())
            time.sleep(0.05)


class Settings(WithoutSettings):
    def ready(self, folder, http="127.0.0.1:4001", grpc="127.0.0.1:4000", **more):
        folder.mkdir(parents=True)
        (folder / "musterd.json").write_text(json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "grpc": grpc, "http": http,
                                                         **more}))

    def found(self, address=None):
        place = _controller.find(address)
        return place.address, place.token_file

    def test_the_first_setting_wins(self):
        home, data = self.folder / ".local/share/muster", self.folder / "data"
        self.assertEqual(self.found(), ("127.0.0.1:7601", str(home / "token")))
        self.ready(home, "0.0.0.0:5001", "0.0.0.0:5000")
        self.assertEqual(self.found(), ("127.0.0.1:5001", str(home / "token")))
        config = self.folder / ".config/muster/config.toml"
        config.parent.mkdir(parents=True)
        config.write_text('address = "127.0.0.1:5000"  # gRPC\ntoken_file = "~/t"\n')
        self.assertEqual(self.found(), ("127.0.0.1:5001", str(self.folder / "t")))
        (self.folder / "muster.toml").write_text("http_address = 'far:80'\n")
        self.assertEqual(self.found(), ("far:80", str(self.folder / "t")))
        self.ready(data)
        os.environ["MUSTER_DATA_FOLDER"] = "data"
        self.assertEqual(self.found(), ("127.0.0.1:4001", str(data / "token")))
        ready = json.loads((data / "musterd.json").read_text())
        (data / "musterd.json").write_text(json.dumps({**ready, "http": "0.0.0.0:4001", "host": "node7", "advertised": "10.0.0.7:4000"}))
        self.assertEqual(self.found()[0], "10.0.0.7:4001", "whoever listens everywhere is reached where it says")
        (data / "musterd.json").write_text(json.dumps(ready))
        os.environ["MUSTER_ADDRESS"] = "127.0.0.1:5000"
        self.assertEqual(self.found(), ("127.0.0.1:5001", str(data / "token")))
        os.environ["MUSTER_HTTP_ADDRESS"] = "http://[::1]:6000/"
        os.environ["MUSTER_TOKEN_FILE"] = "other"
        self.assertEqual(self.found(), ("[::1]:6000", str(self.folder / "other")))
        self.assertEqual(self.found("host:1")[0], "host:1")

    def test_a_rank_finds_the_controller_of_its_job(self):
        data = self.folder / "jobs" / "data"
        self.ready(data)
        os.environ["MUSTER_ATTEMPT_FOLDER"] = str(data / "jobs/7/attempt-2")
        os.environ["MUSTER_CONTROLLER"] = "head1:7600"
        self.assertEqual(self.found()[0], "127.0.0.1:7601", "a folder without a token is nobody's")
        (data / "token").write_text("secret")
        (self.folder / "muster.toml").write_text('http_address = "here:1"')
        self.assertEqual(self.found(), ("127.0.0.1:4001", str(data / "token")))
        ready = json.loads((data / "musterd.json").read_text())
        (data / "musterd.json").write_text(json.dumps({**ready, "host": "not-this-machine"}))
        self.assertEqual(self.found(), ("head1:4001", str(data / "token")), "its host, and the port of the dashboard")
        moved = {**ready, "host": "not-this-machine", "advertised": "10.0.0.7:4000"}
        (data / "musterd.json").write_text(json.dumps(moved))
        self.assertEqual(self.found()[0], "10.0.0.7:4001", "it has moved since the rank was started")
        os.environ["MUSTER_HTTP_ADDRESS"] = "variable:1"
        self.assertEqual(self.found()[0], "variable:1")

    def test_settings_that_make_no_sense_are_refused(self):
        for address in ("host", "host:0", "host:x", "http://a:1/b", "https://a:1", "a b:1"):
            self.refused(lambda: _controller.find(address), f'the argument address "{address}": want host:port')
        os.environ["MUSTER_ADDRESS"] = "10.0.0.5:7600"
        self.refused(_controller.find, 'MUSTER_ADDRESS "10.0.0.5:7600": this is the address for gRPC', "set MUSTER_HTTP_ADDRESS")

    def test_an_unreachable_controller_is_named_with_what_may_be_wrong(self):
        _controller.PATIENCE_SECONDS, before = 0.5, _controller.PATIENCE_SECONDS
        self.addCleanup(setattr, _controller, "PATIENCE_SECONDS", before)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        ended = subprocess.Popen(["/bin/true"])
        ended.wait()
        data = self.folder / "data"
        self.ready(data, f"127.0.0.1:{port}", pid=ended.pid)
        os.environ["MUSTER_DATA_FOLDER"] = str(data)
        (data / "token").write_text("t\n")
        stale = f"{data}/musterd.json was left by process {ended.pid}, which has ended; start it with muster up"
        self.refused(lambda: muster.submit(program()), stale)
        with socket.create_server(("127.0.0.1", port)) as stranger:
            self.refused(lambda: muster.submit(program()), stale)
            stranger.setblocking(False)
            self.assertRaises(BlockingIOError, stranger.accept)  # nobody has brought it the token
        del os.environ["MUSTER_DATA_FOLDER"]
        self.refused(lambda: muster.submit(program()), f"no musterd runs on {self.folder / '.local/share/muster'}; start it with muster up")
        os.environ["MUSTER_HTTP_ADDRESS"] = f"127.0.0.1:{port}"
        self.refused(muster.Job(1).status, "the token cannot be read: No such file or directory", ".local/share/muster/token")
        os.environ["MUSTER_TOKEN"] = "t"
        self.refused(lambda: muster.submit(program()), f"the controller at 127.0.0.1:{port} (MUSTER_HTTP_ADDRESS): no answer:",
                     "start it with musterd")


class Lists(unittest.TestCase):
    def test_a_command_takes_the_variables_that_muster_takes(self):
        source = (ROOT / "spec/variables.cpp").read_text()
        body = source[source.index("bool is_taken"):source.index("Environment taken_from")]
        self.assertEqual(set(re.findall(r'"(\w+)"', body)), _client.TAKEN_VARIABLES | {_client.TAKEN_PREFIX})

    def test_a_body_may_have_as_many_bytes_as_the_server_takes(self):
        header = (ROOT / "controller" / "http" / "http_server.h").read_text()
        factors = re.search(r"kMaxSubmissionBytes = ([\d *]+);", header).group(1).split(" * ")
        self.assertEqual(int(factors[0]) * int(factors[1]) * int(factors[2]), _controller.MOST_BODY_BYTES)

    def test_a_training_that_only_reports_loads_no_http(self):
        code = "import sys, muster; muster.init(); assert 'http.client' not in sys.modules and 'urllib.request' not in sys.modules"
        subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": str(PACKAGE)})


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
