"""Goal: running out of descriptors, or a crowd at the ports, costs nobody anything but those in the crowd.

Method: real daemons with 64, 1,024 and as many descriptors as there may be; crowds of connections from this process that say
nothing, or nonsense, or what ranks say. Loopback alone.
Usage: descriptors_test.py BIN_FOLDER
"""

import contextlib
import ctypes
import hashlib
import hmac
import os
import pathlib
import re
import resource
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import strangers  # noqa: E402
from daemon import AT_ONCE_S, JOB_LIMIT_S, START_LIMIT_S, TRAINING, Musterd, eventually  # noqa: E402

BIN = None
CROWD = 1100
RANKS = 5000


class Descriptors(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.own_limit = strangers.raise_own_limit()
        if cls.own_limit < CROWD + 500:
            raise unittest.SkipTest(f"this process may have only {cls.own_limit} descriptors")

    def crowds_at(self, *pairs):
        """A crowd at each of these daemons, which says this. The crowds come and go one after the other, so that each daemon has
        the processors to itself then, and all stand there in the same seconds, as far as this process may have so many connections."""
        at_once = (self.own_limit - 500) // CROWD
        if len(pairs) > at_once:
            self.crowds_at(*pairs[at_once:])
            pairs = pairs[:at_once]
        with contextlib.ExitStack() as stack:
            crowds = [stack.enter_context(strangers.Crowd(daemon.grpc)) for daemon, _ in pairs]
            for crowd, (daemon, says) in zip(crowds, pairs):
                crowd.add(CROWD, says)
                daemon.lists_at_once("with a crowd of strangers")
            time.sleep(5)
            for daemon, _ in pairs:
                daemon.lists_at_once("after five seconds of it")
                self.assertLess(daemon.descriptors(), resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE)[0])
            for crowd, (daemon, _) in zip(crowds, pairs):
                crowd.close()
                daemon.lists_at_once("when the crowd has left")
        time.sleep(1)
        for daemon, _ in pairs:
            daemon.lists_at_once("a second later")

    def test_idle_connections_shut_nobody_out(self):
        self.crowds_at(*((Musterd(self, BIN, limit), says) for limit in (1024, 64) for says in (b"", strangers.HELLO)))

    def test_a_training_does_not_notice(self):
        trainings = []
        for limit in (1024, 64):
            daemon = Musterd(self, BIN, limit)
            trainings.append((daemon, daemon.submit(TRAINING)))
        for daemon, job in trainings:
            shown = daemon.until(job, lambda shown: shown["state"] == "failed" or (shown["step"] or 0) > 2)
            self.assertEqual(shown["state"], "running", shown)
        for says in (b"", strangers.HELLO):
            self.crowds_at(*((daemon, says) for daemon, _ in trainings))
        for daemon, job in trainings:
            done = daemon.until(job, lambda shown: shown["state"] in ("succeeded", "failed"))
            self.assertEqual((done["state"], len(done["attempts"])), ("succeeded", 1), done)

    def test_five_thousand_ranks_and_a_crowd(self):
        daemon = Musterd(self, BIN, f"1024:{self.own_limit}")
        places = int(re.search(r"(\d+) connections of ranks", daemon.log.read_text()).group(1))
        wanted = 2 * RANKS
        if places < wanted or self.own_limit < wanted + CROWD + 500:
            self.skipTest(f"the hard limit of open files ({self.own_limit}) leaves {places} connections for ranks")
        # Each job has one rank, which has a connection, and so has the task beside it.
        file = daemon.folder / "ranks.toml"
        file.write_text('name = "rank"\ncommand = ["true"]\n')
        done = daemon.muster("submit", file, "--sweep", f"env.N=1..{RANKS}", "--hold", limit_s=JOB_LIMIT_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        tokens = self.tokens(daemon.data, range(1, RANKS + 1))
        says = {job: strangers.HELLO + strangers.heartbeat(token, job, 1, 0) for job, token in tokens.items()}
        again = {says[job]: strangers.heartbeat(token, job, 1, 0, stream=3) for job, token in tokens.items()}
        with strangers.Callers(daemon.grpc) as ranks, strangers.Crowd(daemon.grpc) as others:
            begun = time.monotonic()
            for words in says.values():
                ranks.add(2, words)
            eventually(lambda: ranks.answers.get(1, 0) >= wanted, JOB_LIMIT_S)
            print(f"{wanted} connections of ranks in {time.monotonic() - begun:.1f} s, {ranks.again} of them at a later try; "
                  f"musterd has {daemon.descriptors()} descriptors and {daemon.memory_mib()} MiB", file=sys.stderr)
            self.assertEqual((ranks.answers.get(1), ranks.cut), (wanted, 0), daemon.log.read_text()[-2000:])
            daemon.lists_at_once(f"with {wanted} connections of ranks")
            others.add(CROWD)
            others.add(200, strangers.HELLO)
            daemon.lists_at_once("with strangers besides")
            ranks.say(again)
            eventually(lambda: ranks.answers.get(3, 0) + ranks.cut >= wanted, JOB_LIMIT_S)
            self.assertEqual((ranks.answers.get(3), ranks.cut), (wanted, 0), "connections of ranks were cut")

    @staticmethod
    def tokens(data, jobs):
        """What the ranks of each job's first attempt show, made as musterd makes it."""
        with contextlib.closing(sqlite3.connect(data / "muster.db")) as store:
            secret = store.execute("SELECT value FROM meta WHERE key = 'secret'").fetchone()[0]
        secret = secret if isinstance(secret, bytes) else secret.encode()
        return {job: hmac.new(secret, f"{job}.1".encode(), hashlib.sha256).hexdigest() for job in jobs}

    def test_idle_connections_to_the_dashboard_shut_nobody_out(self):
        daemon = Musterd(self, BIN, 1024)
        with socket.create_connection(("127.0.0.1", daemon.http)) as known, strangers.Crowd(daemon.http) as crowd:
            self.assertEqual(daemon.get(known), 200)
            crowd.add(CROWD)
            crowd.add(300, b"GET / HTTP/1.1\r\nHost: loc")
            self.assertEqual(daemon.get(known), 200, "who has shown the token keeps the connection")
            before = time.monotonic()
            with socket.create_connection(("127.0.0.1", daemon.http)) as newcomer:
                self.assertEqual(daemon.get(newcomer), 200)
            self.assertLess(time.monotonic() - before, AT_ONCE_S)
            daemon.lists_at_once("with a crowd at the dashboard")

    def test_programs_get_the_limit_that_musterd_was_started_with(self):
        daemon = Musterd(self, BIN, "300:1024")
        job = daemon.submit('name = "limit"\ncommand = ["/bin/sh", "-c", "ulimit -Sn; ulimit -Hn"]\n')
        daemon.until(job, lambda shown: shown["state"] == "succeeded")
        log = daemon.data / "jobs" / job / "attempt-1" / "logs" / "rank-0.log"
        self.assertEqual(log.read_text().split(), ["300", "1024"])
        self.assertEqual(resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE), (1024, 1024))

    def test_too_few_descriptors_are_refused_with_the_remedy(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(["prlimit", "--nofile=48", BIN / "musterd", "--data-folder", pathlib.Path(folder) / "data"],
                                  capture_output=True, text=True, timeout=START_LIMIT_S)
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr, "musterd: the limit of open files is 48, and musterd needs 64: raise it with ulimit -n, or "
                                      "LimitNOFILE\n")

    def test_a_launch_without_descriptors_waits_and_costs_no_budget(self):
        daemon = Musterd(self, BIN, 64)
        gate = daemon.folder / "gate"
        waits = f"until [ -e {gate} ]; do sleep 0.05; done"
        first = daemon.submit(f'name = "first"\ncommand = ["/bin/sh", "-c", "{waits}"]\n')
        second = daemon.submit('name = "second"\ncommand = ["/bin/true"]\n[requeue]\nmax_failed = 0\n',
                               "--after", first)
        daemon.until(first, lambda shown: shown["state"] == "running")
        daemon.limit(3)
        gate.touch()
        self.assertTrue(eventually(lambda: "not started yet, and tried again" in daemon.log.read_text(), 60),
                        daemon.log.read_text())
        self.assertIn("Too many open files", daemon.log.read_text())
        time.sleep(3)
        daemon.limit(64)
        done = daemon.until(second, lambda shown: shown["state"] in ("succeeded", "failed"))
        self.assertEqual((done["state"], len(done["attempts"])), ("succeeded", 1), done)

    def listening_socket(self, daemon, port):
        """A copy of the daemon's listening socket."""
        libc = ctypes.CDLL(None, use_errno=True)
        pidfd = os.pidfd_open(daemon.process.pid)
        try:
            for number in sorted(int(name) for name in os.listdir(f"/proc/{daemon.process.pid}/fd")):
                copy = libc.syscall(438, pidfd, number, 0)  # pidfd_getfd
                if copy < 0:
                    if ctypes.get_errno() == 1:
                        self.skipTest("the kernel lets nobody look into another process (pidfd_getfd)")
                    continue
                try:
                    one = socket.socket(fileno=copy)
                except OSError:
                    os.close(copy)
                    continue
                if (one.family == socket.AF_INET and one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) and
                        one.getsockname()[1] == port):
                    return one
                one.close()
        finally:
            os.close(pidfd)
        self.fail("no listening socket")

    def test_a_listening_socket_that_breaks_is_opened_anew(self):
        daemon = Musterd(self, BIN, 1024)
        for port in (daemon.grpc, daemon.http):
            with self.listening_socket(daemon, port) as broken:
                broken.shutdown(socket.SHUT_RDWR)
        # Whoever calls between the end of the old socket and the first moment of the new one is refused.
        self.assertTrue(eventually(lambda: daemon.muster("list").returncode == 0, AT_ONCE_S), daemon.log.read_text())
        self.assertTrue(eventually(lambda: self.answers_a_person(daemon), AT_ONCE_S), daemon.log.read_text())

    @staticmethod
    def answers_a_person(daemon):
        try:
            with socket.create_connection(("127.0.0.1", daemon.http), timeout=AT_ONCE_S) as person:
                return daemon.get(person) == 200
        except OSError:
            return False

    def test_a_port_that_stays_dead_ends_the_daemon_with_a_clear_line(self):
        daemon = Musterd(self, BIN, 1024, flags=("--probe-ms", "300"))
        time.sleep(1)
        daemon.lists_at_once("while its ports are looked at")
        daemon.limit(3)
        self.assertEqual(daemon.process.wait(60), 1, daemon.log.read_text())
        self.assertRegex(daemon.log.read_text(), r"critical the (gRPC|dashboard) port \d+ has not answered 3 times, although it was "
                         r"opened again: Too many open files; musterd exits so that its service starts it again; running attempts go on")


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
