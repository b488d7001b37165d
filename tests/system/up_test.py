"""Goal: one person has a controller by one word, without root, and loses nothing by ending it; two persons never meet.

Method: the real programs in a home of the test's own. systemd alone is played, by a systemctl and a loginctl in PATH.
Usage: up_test.py BIN_FOLDER
"""

import contextlib
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from daemon import START_LIMIT_S, eventually  # noqa: E402

BIN = None
USUAL_PORTS = range(20000, 30000)
CLAIM = socket.socket(socket.AF_UNIX)


def claimed_ports():
    """A range of ports that no other test has: a port that a test has left for a moment is its own again afterwards. The claim
    ends with this process."""
    for low in range(20100, 30000, 100):
        try:
            CLAIM.bind(f"\0muster-test-ports-{low}")
            return f"{low}-{low + 99}"
        except OSError:
            continue
    raise RuntimeError("no range of ports is free")


WITH_SLURM = ("up", "--", "--ports", claimed_ports())
UP = (*WITH_SLURM, "--slurm", "no")
FAKE_SYSTEMD = pathlib.Path(__file__).resolve().parent / "fake_systemd.py"


def start_ticks(pid):
    """When the process started; None: there is no such process, or it is a zombie."""
    try:
        words = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if words[0] == "Z" else int(words[19])


class Person:
    """A person with a home of their own, who says `muster ...`. `become`: the words that run a command as that user."""

    def __init__(self, test, home, bin_folder=None, become=(), variables=()):
        self.test, self.home, self.become = test, home, list(become)
        self.bin = bin_folder or BIN
        self.data = home / ".local/share/muster"
        self.environment = {"HOME": str(home), "PATH": f"{self.bin}:/usr/bin:/bin", "TMPDIR": tempfile.gettempdir(), **dict(variables)}
        test.addCleanup(self.leave)

    def start(self, *words, **options):
        return subprocess.Popen([*self.become, "env", "-i", *(f"{k}={v}" for k, v in self.environment.items()), self.bin / "muster", *words],
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/", **options)

    def muster(self, *words, rc=0):
        process = self.start(*words)
        out, err = process.communicate(timeout=START_LIMIT_S)
        self.test.assertEqual(process.returncode, rc, f"muster {' '.join(map(str, words))}: {out}{err}")
        return out + err

    def ready(self):
        return json.loads((self.data / "musterd.json").read_text())

    def status(self):
        return json.loads(self.start("status", "--json").communicate(timeout=START_LIMIT_S)[0])

    def submit(self, text, *more):
        file = self.home / f"job-{time.monotonic_ns()}.toml"
        file.write_text(text)
        file.chmod(0o644)
        return re.search(r"\d+", self.muster("submit", file, *more)).group()

    def leave(self):
        """Whatever happened, no musterd of this person stays."""
        try:
            ready = self.ready()
        except (OSError, ValueError):
            return
        self.start("down", "--cancel").communicate(timeout=START_LIMIT_S)
        if ready["pid"] > 1 and start_ticks(ready["pid"]) == ready["start_time"]:
            os.kill(ready["pid"], signal.SIGKILL)
        # One that found another running may still be on its way out, and write to its log.
        self.test.assertTrue(eventually(lambda: not self.has_musterd(), START_LIMIT_S))

    def has_musterd(self):
        """True while a musterd with this person's home runs, also one that is about to end."""
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (process / "comm").read_text() == "musterd\n" and f"HOME={self.home}".encode() in (process / "environ").read_bytes().split(b"\0"):
                    return True
        return False


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (self.folder / "home").mkdir()
        self.person = Person(self, self.folder / "home")
        self.data, self.muster, self.submit = self.person.data, self.person.muster, self.person.submit

    def gate(self):
        """A job that runs until the returned file is there, and has begun."""
        end, begun = self.folder / "end", self.folder / "begun"
        job = self.submit(f'name = "gate"\ncommand = ["/bin/sh", "-c", "touch {begun}; while [ ! -e {end} ]; do sleep 0.05; done"]\n')
        self.assertTrue(eventually(begun.exists, 60))
        return job, end


class Up(Case):
    def test_one_word_starts_a_controller_that_needs_nothing_of_the_terminal(self):
        said = self.muster("up", "--", "--slurm", "no")
        ready = self.person.ready()
        self.assertIn(f"(process {ready['pid']})", said)
        self.assertRegex(said, r"dashboard +http://127\.0\.0\.1:\d+/#token=")
        for address in (ready["grpc"], ready["http"]):
            host, port = address.rsplit(":", 1)
            self.assertEqual(host, "127.0.0.1")
            self.assertIn(int(port), USUAL_PORTS)
        process = pathlib.Path(f"/proc/{ready['pid']}")
        self.assertEqual(os.getsid(ready["pid"]), ready["pid"], "a session of its own")
        self.assertEqual(os.readlink(process / "fd/0"), "/dev/null")
        self.assertEqual(os.readlink(process / "fd/2"), str(self.data / "musterd.log"))
        self.assertEqual(stat.S_IMODE(self.data.stat().st_mode), 0o700)
        self.assertEqual(stat.S_IMODE((self.data / "musterd.log").stat().st_mode), 0o600)
        blocked = int(re.search(r"SigBlk:\s*(\w+)", (process / "status").read_text()).group(1), 16)
        self.assertEqual(blocked, 0, "signals of the command line that started it are not blocked")
        job = self.submit('name = "first"\ncommand = ["/bin/true"]\n')
        self.muster("wait", job)
        self.assertIn("musterd 0.1.0 is ready", (self.data / "musterd.log").read_text())

    def test_a_second_word_says_that_it_runs_already(self):
        self.muster(*UP)
        before = self.person.ready()
        said = self.muster("up")
        self.assertIn(f"runs already (process {before['pid']})", said)
        self.assertEqual(self.person.ready(), before)
        self.assertIn("musterd ran already, so the flags after -- were not used", self.muster(*UP))

    def test_two_at_once_start_one(self):
        both = [self.person.start(*UP) for _ in range(2)]
        said = [process.communicate(timeout=START_LIMIT_S) for process in both]
        self.assertEqual([process.returncode for process in both], [0, 0], said)
        pids = {re.search(r"\(process (\d+)\)", out).group(1) for out, _ in said}
        self.assertEqual(pids, {str(self.person.ready()["pid"])})

    def test_status_says_what_is_there_and_its_exit_code_whether_it_is_up(self):
        down = self.muster("status", rc=4)
        self.assertIn(f"down: controller unreachable; no musterd runs on {self.data}", down)
        self.assertIn("muster up", down)
        self.assertEqual(self.person.status()["up"], False)
        self.muster(*UP)
        self.muster("wait", self.submit('name = "a"\ncommand = ["/bin/true"]\n'))
        self.muster("wait", self.submit('name = "b"\ncommand = ["/bin/false"]\n'), rc=1)
        said = self.muster("status")
        ready = self.person.ready()
        for words in (f"up: musterd 0.1.0, process {ready['pid']}, since 20", "1 succeeded", "1 failed", str(self.data), ready["grpc"],
                      f"http://{ready['http']}/"):
            self.assertIn(words, said)
        status = self.person.status()
        self.assertEqual((status["up"], status["jobs"], status["address"]), (True, {"succeeded": 1, "failed": 1}, ready["grpc"]))

    def test_musterds_own_words_say_why_it_does_not_start(self):
        self.assertIn("--bogus", self.muster("up", "--", "--bogus", rc=4))
        said = self.muster("up", "--", "--local-cores", "many", rc=4)
        self.assertIn("musterd did not start: --local-cores many: want auto, off, or a number", said)
        self.assertIn(str(self.data / "musterd.log"), said)
        self.assertFalse((self.data / "musterd.json").exists())
        self.assertIn("MUSTER_DATA_FOLDER", self.muster("up", "--", "--data-folder", "/x", rc=2))
        self.muster(*UP)

    def test_with_slurm_the_port_of_ranks_is_open_to_nodes_and_that_is_said(self):
        tools = self.folder / "tools"
        tools.mkdir()
        for name in ("sbatch", "sinfo", "squeue", "scontrol", "scancel"):
            (tools / name).write_text("#!/bin/sh\nexit 0\n")
            (tools / name).chmod(0o755)
        (self.folder / "slurm.conf").touch()
        self.person.environment["PATH"] = f"{tools}:{self.person.environment['PATH']}"
        self.person.environment["SLURM_CONF"] = str(self.folder / "slurm.conf")
        said = " ".join(self.muster(*WITH_SLURM).split())
        ready = self.person.ready()
        hundreds = WITH_SLURM[-1][:3]
        self.assertRegex(ready["grpc"], rf"^0\.0\.0\.0:{hundreds}\d\d$")
        self.assertRegex(ready["http"], rf"^127\.0\.0\.1:{hundreds}\d\d$")
        self.assertIn("can be reached from other machines, and tokens travel unencrypted", said)
        self.assertEqual(self.person.status()["address"], "127.0.0.1:" + ready["grpc"].rsplit(":", 1)[1])


class Down(Case):
    def test_jobs_run_on_and_the_next_start_goes_on_with_them(self):
        self.muster(*UP)
        before = self.person.ready()
        job, end = self.gate()
        said = self.muster("down")
        self.assertIn("musterd has ended; 1 job runs on, and the next muster up goes on with them", said)
        self.assertIsNone(start_ticks(before["pid"]))
        self.assertFalse((self.data / "musterd.json").exists())
        self.assertIn("no musterd runs on", self.muster("down"))
        self.assertIn("1 job goes on", self.muster(*UP))
        after = self.person.ready()
        self.assertEqual((after["grpc"], after["http"]), (before["grpc"], before["http"]), "running ranks know no other address")
        end.touch()
        self.muster("wait", job)
        self.assertEqual(len(json.loads(self.muster("show", job, "--json"))["attempts"]), 1)

    def test_cancel_ends_jobs_first(self):
        self.muster(*UP)
        job, _ = self.gate()
        self.assertIn("musterd has ended\n", self.muster("down", "--cancel"))
        self.muster(*UP)
        self.assertEqual(json.loads(self.muster("show", job, "--json"))["state"], "cancelled")

    def test_a_process_that_has_the_number_of_a_killed_musterd_is_left_alone(self):
        self.muster(*UP)
        ready = self.person.ready()
        os.kill(ready["pid"], signal.SIGKILL)
        self.assertTrue(eventually(lambda: start_ticks(ready["pid"]) is None, 30))
        other = subprocess.Popen(["sleep", "600"])
        self.addCleanup(other.wait)
        self.addCleanup(other.kill)
        (self.data / "musterd.json").write_text(json.dumps({**ready, "pid": other.pid}))
        self.assertIn("no musterd runs on", self.muster("down"))
        self.assertIsNone(other.poll())


class Evidence(Case):
    def kill_musterd(self):
        ready = self.person.ready()
        os.kill(ready["pid"], signal.SIGKILL)
        self.assertTrue(eventually(lambda: start_ticks(ready["pid"]) is None, 30))
        return ready

    def test_the_port_of_a_killed_musterd_gets_no_token(self):
        self.muster(*UP)
        ready = self.kill_musterd()
        host, port = ready["grpc"].rsplit(":", 1)
        stranger = socket.socket()
        self.addCleanup(stranger.close)
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

        def takes_the_port():
            try:
                stranger.bind((host, int(port)))
                return True
            except OSError:  # the last threads of the killed process have it still
                return False

        self.assertTrue(eventually(takes_the_port, 30))
        stranger.listen()
        said = self.muster("list", rc=4)
        self.assertIn(f"was left by process {ready['pid']}, which has ended: start it with muster up", said)
        self.assertIn("was left by process", self.muster("status", rc=4))
        self.assertEqual(select.select([stranger], [], [], 0)[0], [], "nobody has connected")
        self.muster(*UP)
        self.assertNotEqual(self.person.ready()["grpc"], ready["grpc"])
        self.muster("list")

    def test_without_a_musterd_nobody_is_asked_at_the_usual_port(self):
        said = self.muster("list", rc=4)
        self.assertIn(f"controller unreachable; no musterd runs on {self.data}: start it with muster up, or set --address", said)

    def test_a_musterd_on_another_host_is_not_started_a_second_time(self):
        self.muster(*UP)
        ready = self.person.ready()
        self.muster("down")
        (self.data / "musterd.json").write_text(json.dumps({**ready, "host": "node17"}))
        with open(self.data / "muster.db.lock", "r+b") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for words, rc in ((UP, 2), (("down",), 2), (("status",), 4), (("uninstall", "--yes"), 2)):
                self.assertIn("belongs to a musterd on host node17", self.muster(*words, rc=rc))
            self.assertTrue((self.data / "muster.db").exists())
        self.muster(*UP)
        self.assertEqual(self.person.ready()["host"], socket.gethostname(), "a lock on a disk of this machine is the whole truth")


class Offer(Case):
    def on_a_terminal(self, answer, *words):
        """What a command says on a terminal where a person answers, and its exit code."""
        pid, terminal = pty.fork()
        if pid == 0:
            try:
                os.execve(BIN / "muster", ["muster", *words], self.person.environment)
            finally:
                os._exit(126)
        said, answered = b"", False
        end = time.monotonic() + START_LIMIT_S
        while time.monotonic() < end:
            if select.select([terminal], [], [], 0.2)[0]:
                try:
                    more = os.read(terminal, 65536)
                except OSError:
                    break
                if not more:
                    break
                said += more
            if not answered and b"[Y/n] " in said:
                os.write(terminal, answer)
                answered = True
        else:
            os.kill(pid, signal.SIGKILL)
        os.close(terminal)
        return said.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def test_who_has_none_is_offered_one(self):
        self.person.environment |= {"TERM": "dumb"}
        said, rc = self.on_a_terminal(b"n\n", "list")
        self.assertEqual(rc, 4, said)
        self.assertFalse(self.data.exists())
        file = self.folder / "job.toml"
        file.write_text('name = "mine"\ncommand = ["/bin/true"]\n')
        said, rc = self.on_a_terminal(b"\n", "submit", str(file), "--wait")
        self.assertEqual(rc, 0, said)
        self.assertIn("No musterd of yours runs on this machine. Start one now (muster up)?", said)
        self.assertIn("mine", self.muster("list"))

    def test_who_names_a_controller_is_not_asked(self):
        said, rc = self.on_a_terminal(b"\n", "--address", "127.0.0.1:1", "list")
        self.assertEqual(rc, 4, said)
        self.assertNotIn("Start one now", said)


class Uninstall(Case):
    def test_it_removes_what_is_musterds_and_nothing_else(self):
        self.muster(*UP)
        job, end = self.gate()
        outside = self.folder / "outside"
        saves = self.submit(f'name = "saves"\ncommand = ["/bin/sh", "-c", "mkdir -p $MUSTER_CHECKPOINT_FOLDER; '
                            f'touch $MUSTER_CHECKPOINT_FOLDER/kept"]\n[checkpoint]\nfolder = "{outside}"\n')
        self.muster("wait", saves)
        (self.data / "jobs/mine.txt").write_text("not a job")
        configuration = self.person.home / ".config/muster/config.toml"
        configuration.parent.mkdir(parents=True)
        configuration.write_text("")
        self.assertIn("1 job has not ended: --cancel", self.muster("uninstall", "--yes", rc=2))
        self.assertIn("nothing was removed: want --yes", self.muster("uninstall", rc=2))
        plan = " ".join(self.muster("uninstall", "--dry-run").split())
        for words in (f"goes {self.data}: 2 jobs with logs and checkpoints", "programs", str(configuration)):
            self.assertIn(words, plan)
        pid = self.person.ready()["pid"]
        said = self.muster("uninstall", "--yes", "--cancel")
        self.assertIn("holds files that are not musterd's", said)
        self.assertIsNone(start_ticks(pid))
        self.assertEqual(sorted(str(file.relative_to(self.data)) for file in self.data.rglob("*")), ["jobs", "jobs/mine.txt"])
        self.assertTrue(list(outside.rglob("kept")))
        self.assertFalse(configuration.parent.exists())
        self.muster("uninstall", "--yes")
        self.assertFalse(end.exists())

    def test_jobs_that_run_without_musterd_are_a_refusal_too(self):
        self.muster(*UP)
        _, end = self.gate()
        self.muster("down")
        self.assertIn("job 1 runs: muster up, and then muster uninstall again", self.muster("uninstall", "--yes", rc=2))
        self.assertTrue((self.data / "jobs/1").exists())
        self.muster("uninstall", "--yes", "--keep-data")
        self.assertTrue((self.data / "muster.db").exists())
        self.muster(*UP)
        end.touch()
        self.muster("wait", "1")
        self.muster("uninstall", "--yes")
        self.assertFalse(self.data.exists())


class Service(Case):
    """systemd is played by fake_systemd.py, which starts what a unit says."""

    def setUp(self):
        super().setUp()
        tools, self.state = self.folder / "tools", self.folder / "systemd"
        tools.mkdir(), self.state.mkdir()
        for name in ("systemctl", "loginctl"):
            (tools / name).write_text(f"#!/bin/sh\nexec python3 -B {FAKE_SYSTEMD} {name} \"$@\"\n")
            (tools / name).chmod(0o755)
        self.person.environment |= {"PATH": f"{tools}:{self.person.environment['PATH']}", "FAKE_SYSTEMD": str(self.state)}
        self.unit = self.person.home / ".config/systemd/user/muster.service"

    def asked(self):
        return (self.state / "asked").read_text().splitlines()

    def test_a_unit_runs_it_where_the_users_manager_outlives_the_login(self):
        self.assertIn("muster.service of systemd --user starts it again", " ".join(self.muster(*UP).split()))
        self.assertIn("loginctl enable-linger", self.asked())
        text = self.unit.read_text()
        for line in ("KillMode=process", "Restart=on-failure", f'"{self.data}" "--listen" "auto"', f'Environment="PATH={self.person.environment["PATH"]}"',
                     "WantedBy=default.target"):
            self.assertIn(line, text)
        pid = self.person.ready()["pid"]
        self.assertEqual((self.state / "muster.service.pid").read_text(), str(pid))
        self.assertIn("systemd --user", self.muster("status"))
        self.assertIn("runs already", self.muster("up"))
        job, end = self.gate()
        self.muster("down")
        self.assertIn("systemctl --user disable --now muster.service", self.asked())
        self.assertIsNone(start_ticks(pid))
        self.muster(*UP)
        end.touch()
        self.muster("wait", job)
        self.muster("uninstall", "--yes")
        self.assertFalse(self.unit.exists())
        self.assertFalse(self.data.exists())

    def test_without_lingering_it_runs_detached_and_says_why(self):
        (self.state / "refuses-linger").touch()
        said = " ".join(self.muster(*UP).split())
        self.assertIn("none: after a reboot say muster up again; systemd --user ends with your last login", said)
        self.assertFalse(self.unit.exists())
        self.assertEqual(os.getsid(self.person.ready()["pid"]), self.person.ready()["pid"])

    def test_a_unit_that_does_not_start_leaves_nothing_behind(self):
        said = self.muster("up", "--", "--local-cores", "many", rc=4)
        self.assertIn("musterd did not start: --local-cores many: want auto", said)
        self.assertFalse(self.unit.exists())
        self.muster("up", "--no-service", "--", "--slurm", "no")
        self.assertFalse(self.unit.exists())

    def test_a_folder_of_another_name_has_a_unit_of_its_own(self):
        self.person.environment["MUSTER_DATA_FOLDER"] = str(self.folder / "other data%1")
        self.person.data = self.folder / "other data%1"
        self.muster(*UP)
        self.assertEqual([re.sub("[0-9a-f]{16}", "#", file.name) for file in self.unit.parent.iterdir()], ["muster-#.service"])
        self.muster("uninstall", "--yes")
        self.assertEqual(list(self.unit.parent.iterdir()), [])


@unittest.skipUnless(os.geteuid() == 0 and shutil.which("setpriv"), "only root can be two users")
class TwoPersons(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.folder.chmod(0o755)
        programs = self.folder / "bin"
        programs.mkdir()
        for name in ("muster", "musterd", "muster-agent"):  # the build may lie where others cannot go
            shutil.copy2(BIN / name, programs / name)
        self.persons = []
        for user in (61001, 61002):
            home = self.folder / f"home{user}"
            home.mkdir(mode=0o700)
            os.chown(home, user, user)
            become = ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups")
            self.persons.append(Person(self, home, programs, become))

    def test_they_never_meet(self):
        one, two = self.persons
        both = [person.start(*UP) for person in self.persons]
        said = [process.communicate(timeout=START_LIMIT_S) for process in both]
        self.assertEqual([process.returncode for process in both], [0, 0], said)
        addresses = {person.ready()[key] for person in self.persons for key in ("grpc", "http")}
        self.assertEqual(len(addresses), 4)
        for person, name in ((one, "of-one"), (two, "of-two")):
            person.muster("wait", person.submit(f'name = "{name}"\ncommand = ["/usr/bin/id", "-u"]\n'))
            self.assertEqual(person.muster("logs", "1").split()[-1], person.become[1].split("=")[1])
        self.assertIn("of-one", one.muster("list"))
        self.assertNotIn("of-two", one.muster("list"))
        self.assertNotIn("of-one", two.muster("list"))
        self.assertIn("refuses the token", two.muster("--address", one.ready()["grpc"], "list", rc=4))
        two.environment["MUSTER_DATA_FOLDER"] = str(one.data)
        two.muster("list", rc=4)
        self.assertIn("belongs to another user", two.muster("down", rc=2))
        two.muster("up", rc=2)
        del two.environment["MUSTER_DATA_FOLDER"]
        one.muster("down")
        one.muster("status", rc=4)
        two.muster("status")
        two.muster("down")


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
