"""Goal: whoever has no token, and whoever has one rank's, costs those in the crowd alone: people and ranks are served, musterd
stays small and never ends, and no attempt does.

Method: a real musterd with 1,024 descriptors, a training of two ranks and a sweep; attackers.py as processes of their own, one
attack after the other, with a restart of musterd in the middle of one. Loopback alone, and each attack has its end.
Usage: crowd_test.py BIN_FOLDER
"""

import json
import pathlib
import re
import signal
import socket
import statistics
import subprocess
import sys
import time
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import attackers  # noqa: E402
import strangers  # noqa: E402
from daemon import JOB_LIMIT_S, TRAINING, Musterd, eventually  # noqa: E402

BIN = None
LIST_LIMIT_S = 1.0
MOST_MIB = 50
# A machine that is busy with other work is slow without any attack.
TIMES_AT_REST = 4
SWEEP = """name = "sweep"
command = ["/bin/sleep", "2"]
"""
PEOPLE = "a crowd at the gRPC port"
DASHBOARD = "a crowd at the dashboard port"
# musterd looks at its ports each second, so that three failures in a row would end it within an attack.
PROBES = ("--probe-ms", "1000")


class Crowds(unittest.TestCase):
    def setUp(self):
        strangers.raise_own_limit()
        self.daemon = Musterd(self, BIN, 1024, flags=PROBES)
        self.training = self.daemon.submit(TRAINING.replace("steps = 60", "steps = 100000"))
        file = self.daemon.folder / "sweep.toml"
        file.write_text(SWEEP)
        done = self.daemon.muster("submit", file, "--sweep", "env.N=0..1999", "--parallel", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.sweep = re.search(r"\bs\d+\b", done.stdout).group()
        self.addCleanup(self.end_the_sweep)
        self.daemon.until(self.training, lambda shown: (shown["step"] or 0) > 2)
        self.at_rest = statistics.median(self.list_s() for _ in range(5))
        self.memory = self.daemon.memory_mib()

    def end_the_sweep(self):
        """Its jobs write into the folder, which is removed afterwards."""
        self.daemon.muster("cancel", "--sweep", self.sweep)
        eventually(lambda: self.active_jobs() == [], JOB_LIMIT_S)

    def active_jobs(self):
        return self.jobs("running", "stopping")

    def jobs(self, *states):
        """Those of the sweep in these states, at most 1,000."""
        asked = [word for state in states for word in ("--state", state)]
        return json.loads(self.daemon.muster("list", "--sweep", self.sweep, "--limit", "1000", "--json", *asked).stdout or "[]")

    def list_s(self):
        begun = time.monotonic()
        done = self.daemon.muster("list")
        took = time.monotonic() - begun
        self.assertEqual(done.returncode, 0, f"after {took:.1f} s: {done.stderr}{self.daemon.log.read_text()[-3000:]}")
        return took

    def alone_s(self):
        """How long a command takes that asks no controller: what the machine alone costs now, which other tests keep busy."""
        begun = time.monotonic()
        self.assertEqual(self.daemon.muster("help").returncode, 0)
        return time.monotonic() - begun

    def token_of_a_rank(self):
        """The token of a command that runs on, and its job."""
        file = self.daemon.folder / "rank-token"
        job = self.daemon.submit(f'name = "rank"\ncommand = ["/bin/sh", "-c", "echo $MUSTER_RANK_TOKEN > {file}; sleep 600"]\n')
        self.assertTrue(eventually(lambda: file.exists() and file.read_text().endswith("\n"), JOB_LIMIT_S))
        return file.read_text().strip(), job, "1"

    def attack(self, names, seconds, rank=(), meanwhile=None):
        """`muster list` over and over while these attacks run. `meanwhile` is called once in the middle. Returns how long people
        may wait in these seconds."""
        port = {True: self.daemon.http, False: self.daemon.grpc}
        running = [subprocess.Popen([sys.executable, "-B", pathlib.Path(attackers.__file__), name,
                                     str(port[attackers.ATTACKS[name].dashboard]), str(seconds),
                                     *(rank if name in attackers.WITH_A_TOKEN else ())], stdout=subprocess.PIPE, text=True)
                   for name in names]
        for one in running:
            self.addCleanup(self.end, one)
        begun = time.monotonic()
        times, alone, memory = [], [], 0
        time.sleep(0.3)
        while time.monotonic() < begun + seconds:
            if meanwhile and time.monotonic() > begun + seconds / 2:
                meanwhile()
                meanwhile = None
            times.append(self.list_s())
            alone.append(self.alone_s())
            memory = max(memory, self.daemon.memory_mib())
            time.sleep(0.1)  # people pause, too
        did = [json.loads(one.communicate(timeout=seconds + 60)[0]) for one in running]
        what = " and ".join(names)
        grown = memory - self.memory
        print(f"{what}: muster list median {statistics.median(times):.2f} s, most {max(times):.2f} s, {len(times)} times (at rest "
              f"{self.at_rest:.2f} s, muster help {statistics.median(alone):.2f} s); musterd {grown:+} MiB; attackers {did}",
              file=sys.stderr)
        limit_s = max(LIST_LIMIT_S, TIMES_AT_REST * max(self.at_rest, statistics.median(alone)))
        self.assertLess(statistics.median(times), limit_s, what)
        self.assertLessEqual(grown, MOST_MIB, what)
        self.assertIsNone(self.daemon.process.poll(), self.daemon.log.read_text())
        self.assertTrue(all(one["connections"] > 0 for one in did), did)
        return limit_s

    @staticmethod
    def end(process):
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()

    def restart(self):
        self.daemon.process.send_signal(signal.SIGKILL)
        self.daemon.process.wait()
        self.before = self.daemon.log.read_text()
        ports = (self.daemon.grpc, self.daemon.http)
        self.daemon = Musterd(self, BIN, 1024, flags=PROBES, data=self.daemon.data)
        self.assertEqual((self.daemon.grpc, self.daemon.http), ports)

    def nobody_was_ended(self):
        shown = self.daemon.show(self.training)
        self.assertEqual((shown["state"], len(shown["attempts"])), ("running", 1), shown["attempts"])
        step = shown["step"]
        self.daemon.until(self.training, lambda now: (now["step"] or 0) > step)
        self.assertEqual(self.jobs("failed"), [])
        self.assertEqual([job for job in self.jobs("running", "succeeded") if len(job["attempts"]) > 1], [])
        self.assertNotEqual(self.jobs("succeeded"), [], "the sweep goes on")
        log = self.daemon.log.read_text()
        self.assertNotRegex(log, r"critical|opened again|silent for")

    def metric(self, name):
        request = urllib.request.Request(f"http://127.0.0.1:{self.daemon.http}/metrics",
                                         headers={"Authorization": f"Bearer {self.daemon.token}"})
        page = []

        def is_there():
            """In a crowd it may take several tries."""
            try:
                with urllib.request.urlopen(request, timeout=10) as answer:
                    page.append(answer.read().decode())
            except OSError:
                return False
            return True

        self.assertTrue(eventually(is_there, 60))
        found = re.search(rf"^{re.escape(name)} (\S+)$", page[0], re.M)
        self.assertIsNotNone(found, name)
        return float(found.group(1))

    def all_attacks(self, seconds):
        for name in attackers.ATTACKS:
            if name not in (*attackers.WITH_A_TOKEN, *attackers.AT_THE_DASHBOARD):
                self.attack([name], seconds)
        self.assertGreater(self.metric('muster_connections_turned_away_total{port="gRPC"}'), 100)
        self.nobody_was_ended()

    def test_a_crowd_is_a_state_that_people_are_told(self):
        def doctor_tells():
            said = self.daemon.muster("doctor")
            self.assertRegex(said.stdout + said.stderr,
                             PEOPLE + r": \d+ connections were turned away .*for want of a place.*, most of them from 127.0.0.1")
            self.assertEqual(self.metric('muster_crowd{port="gRPC"}'), 1)

        self.attack(["Silent"], 5, meanwhile=doctor_tells)
        self.assertIn(PEOPLE, self.daemon.log.read_text())
        self.assertTrue(eventually(lambda: "the crowd at the gRPC port is over" in self.daemon.log.read_text(), 60))
        self.nobody_was_ended()

    def test_no_attack_without_a_token_is_noticed(self):
        self.all_attacks(2.5)

    def page_s(self):
        """How long somebody with the token waits for a page of the dashboard, tries included."""
        begun = time.monotonic()
        while time.monotonic() - begun < 60:
            try:
                with socket.create_connection(("127.0.0.1", self.daemon.http), timeout=60) as one:
                    if self.daemon.get(one) == 200:
                        return time.monotonic() - begun
            except OSError:
                pass
            time.sleep(0.05)
        self.fail("the dashboard does not answer")

    def attacks_at_the_dashboard(self, seconds):
        """Each of them: people see their pages, the crowd is named, and musterd's own look at the port ends nothing."""
        pid = self.daemon.process.pid
        for name in attackers.AT_THE_DASHBOARD:
            pages = []

            def look():
                pages.extend(self.page_s() for _ in range(5))
                said = self.daemon.muster("doctor")
                self.assertRegex(said.stdout + said.stderr, DASHBOARD + r": \d+ connections were turned away", name)
                self.assertEqual(self.metric('muster_crowd{port="dashboard"}'), 1, name)

            limit_s = self.attack([name], seconds, meanwhile=look)
            print(f"{name}: a page median {statistics.median(pages):.2f} s, most {max(pages):.2f} s", file=sys.stderr)
            self.assertLess(statistics.median(pages), limit_s, name)
        self.assertTrue(eventually(lambda: self.metric('muster_crowd{port="dashboard"}') == 0, 60), "a calm follows")
        self.assertEqual((self.daemon.process.pid, self.daemon.process.poll()), (pid, None))
        self.assertIn(DASHBOARD, self.daemon.log.read_text())
        self.nobody_was_ended()

    def test_no_attack_at_the_dashboard_is_noticed(self):
        self.attacks_at_the_dashboard(6)

    def test_after_a_restart_in_a_crowd_people_are_known(self):
        known = self.daemon.data / "known-networks"
        self.assertTrue(eventually(lambda: known.exists() and " 127.0.0.1\n" in known.read_text(), 60))
        known.write_text("nonsense\n" + known.read_text())
        self.restart()
        self.assertIn(f"{known}: what is no network was left out (lines: 1)", self.daemon.log.read_text())
        self.nobody_was_ended()

    def all_attacks_with_a_token(self, seconds):
        rank = self.token_of_a_rank()
        for name in attackers.WITH_A_TOKEN:
            people = (self.daemon.token, self.training, "1")
            self.attack([name], seconds, people if name in attackers.OF_PEOPLE else rank)
        self.assertIn(PEOPLE, self.daemon.log.read_text())
        self.nobody_was_ended()

    def test_no_attack_with_a_token_is_noticed(self):
        self.all_attacks_with_a_token(2.5)

    def test_a_restart_in_a_crowd_ends_nothing(self):
        self.attack(["Talkers", "Silent"], 12, meanwhile=self.restart)
        self.nobody_was_ended()

    def test_each_attack_for_a_minute(self):
        self.all_attacks(60)
        self.attacks_at_the_dashboard(60)
        self.all_attacks_with_a_token(60)
        self.attack(["Talkers", "Silent", "Dashboards"], 60, meanwhile=self.restart)
        self.nobody_was_ended()

    def test_followers_of_one_user_leave_places_for_others_and_wait_their_turn(self):
        running = []
        for number in range(24):
            said = self.daemon.folder / f"wait-{number}.err"
            with open(said, "w") as out:
                running.append((self.daemon.start("wait", self.training, stderr=out), said))
            self.addCleanup(self.end_follower, running[-1][0])
        waits = "waiting for a turn"
        self.assertTrue(eventually(lambda: sum(waits in said.read_text() for _, said in running) == 8, 60), "sixteen follow")
        for command in ("events", "logs", "metrics"):
            done = self.daemon.muster(command, self.training)
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(all(one.poll() is None for one, _ in running), "the others wait for their turn")
        self.daemon.muster("cancel", self.training)
        ends = {one.wait(JOB_LIMIT_S) for one, _ in running}
        self.assertEqual(len(ends), 1, ends)
        self.assertEqual(sum(waits in said.read_text() for _, said in running), 8)

    @staticmethod
    def end_follower(process):
        if process.poll() is None:
            process.kill()
        process.wait()


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
