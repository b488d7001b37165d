"""A test's processes and files end with it, also when it is killed, and what it leaves behind fails it."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

GUARD = [sys.executable, "-B", str(pathlib.Path(__file__).resolve().parents[1] / "guard.py")]
# A process of another session, as agents are, and a test that goes on.
LEAVES_ONE = 'setsid sh -c \'echo $$ > "$WHERE/orphan"; exec sleep 1000\' & while [ ! -s "$WHERE/orphan" ]; do sleep 0.01; done; '
TELLS = 'echo "$TMPDIR" > "$WHERE/told.new"; mv "$WHERE/told.new" "$WHERE/told"; '
STAYS = "exec sleep 1000"


def runs(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class Guard(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.environment = {**os.environ, "WHERE": folder.name, "TMPDIR": folder.name}
        self.addCleanup(self.end_the_orphan)

    def end_the_orphan(self):
        if (self.folder / "orphan").exists() and (pid := self.orphan()) > 1 and runs(pid):
            os.kill(pid, signal.SIGKILL)

    def orphan(self):
        return int((self.folder / "orphan").read_text())

    def eventually(self, what):
        end = time.monotonic() + 20
        while not what():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)

    def run_test(self, script):
        return subprocess.run([*GUARD, "sh", "-c", script], env=self.environment, capture_output=True, text=True, timeout=60)

    def start_test(self, script):
        guard = subprocess.Popen([*GUARD, "sh", "-c", script], env=self.environment, start_new_session=True)
        self.addCleanup(guard.wait)
        self.addCleanup(guard.kill)
        self.eventually((self.folder / "told").exists)
        return guard

    def expect_nothing_left(self):
        self.eventually(lambda: not runs(self.orphan()))
        self.eventually(lambda: not list(self.folder.glob("muster-guard-*")))

    def test_the_end_is_the_programs(self):
        self.assertEqual(self.run_test("exit 0").returncode, 0)
        self.assertEqual(self.run_test("exit 3").returncode, 3)
        self.assertEqual(self.run_test("kill -ABRT $$").returncode, -signal.SIGABRT)
        self.assertEqual(self.run_test("echo said; echo told >&2").stdout, "said\n")
        missing = subprocess.run([*GUARD, "/no/program"], capture_output=True, text=True, timeout=60)
        self.assertEqual(missing.returncode, 127)
        self.assertIn("/no/program", missing.stderr)

    def test_a_killed_test_leaves_no_process_no_file_and_no_mount(self):
        mounts = ('mkdir "$TMPDIR/disk" && mount -t tmpfs none "$TMPDIR/disk" && touch "$TMPDIR/disk/file"; ' if os.getuid() == 0
                  else "")
        for number in (signal.SIGKILL, signal.SIGTERM):
            guard = self.start_test(LEAVES_ONE + mounts + TELLS + STAYS)
            guard.send_signal(number)
            self.assertEqual(guard.wait(timeout=20), -number)
            self.expect_nothing_left()
            (self.folder / "told").unlink()
            (self.folder / "orphan").unlink()

    def test_a_killed_tests_frozen_disk_is_thawed_before_its_writer_is_waited_for(self):
        if os.getuid() != 0 or subprocess.run(["losetup", "-f"], capture_output=True).returncode != 0:
            self.skipTest("mounting a loop device takes root, and a free one")
        script = ('cd "$TMPDIR" && mkdir disk && truncate -s 16M image && mkfs.ext4 -q -F image && mount -o loop image disk'
                  ' && (setsid sh -c \'echo $$ > "$WHERE/orphan"; until [ -e "$WHERE/told" ]; do sleep 0.01; done;'
                  ' echo x > disk/file; exec sleep 1000\' &) && fsfreeze -f disk && ' + TELLS + STAYS)
        guard = self.start_test(script)
        self.eventually(lambda: pathlib.Path(f"/proc/{self.orphan()}/stat").read_text().rsplit(")", 1)[1].split()[0] == "D")
        guard.send_signal(signal.SIGKILL)
        guard.wait(timeout=20)
        self.expect_nothing_left()

    def test_a_kill_of_everything_the_caller_sees_leaves_nothing(self):
        for number in (signal.SIGKILL, signal.SIGINT):
            guard = self.start_test(LEAVES_ONE + TELLS + STAYS)
            os.killpg(guard.pid, number)
            self.expect_nothing_left()
            (self.folder / "told").unlink()
            (self.folder / "orphan").unlink()

    def test_a_test_that_passes_and_leaves_a_process_fails(self):
        done = self.run_test(LEAVES_ONE + "exit 0")
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"{self.orphan()} sleep 1000", done.stderr)
        self.expect_nothing_left()

    def test_what_leaves_by_itself_is_no_fault(self):
        done = self.run_test("(setsid sleep 0.3 &); exit 0")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_what_a_failed_test_leaves_does_not_hide_how_it_failed(self):
        done = self.run_test(LEAVES_ONE + "exit 7")
        self.assertEqual((done.returncode, done.stderr), (7, ""))
        self.expect_nothing_left()


if __name__ == "__main__":
    unittest.main()
