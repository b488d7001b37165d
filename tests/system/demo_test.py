"""Goal: who runs the demo sees the whole story, on a terminal and in a log file, and can look around afterwards.

Method: the real demo with the programs of the build, once on a terminal with --keep and once in a pipe; what it prints is
tried out: the dashboard's address, the token, the commands to look around and to stop.
Usage: demo_test.py BIN_FOLDER TEST...
"""

import json
import os
import pathlib
import pty
import re
import signal
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEMO_LIMIT_S = 660  # longer than the demo gives itself
CLEAN_UP_LIMIT_S = 60
CHECKPOINT_EVERY = 20  # examples/manpages-llama.toml
ENOUGH_MAN_BYTES = 512 << 10  # data/prepare/text/man_pages.cpp
BIN = None


def processes_with(text):
    """{process id: command line} of those that have this text in theirs."""
    found = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it ended meanwhile
            continue
        if text in words:
            found[int(folder.name)] = words
    return found


def status_of(url, token=None):
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def text_of_this_machine():
    """What source = "auto" stands for here: the manual pages, if the files of their sections are enough."""
    pages = [page for section in range(1, 9) for page in pathlib.Path("/usr/share/man", f"man{section}").glob("[!.]*")]
    enough = sum(page.stat().st_size for page in pages if page.is_file() and not page.is_symlink()) >= ENOUGH_MAN_BYTES
    return "the manual pages of this machine" if enough else "the built-in text"


class Demo(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.demo = None

    def start(self, *options, **streams):
        environment = dict(os.environ, TMPDIR=str(self.folder), COLUMNS="100", LINES="30")
        self.demo = subprocess.Popen([sys.executable, "-B", ROOT / "tools" / "demo.py", "--bin", BIN, *options],
                                     stdin=subprocess.DEVNULL, env=environment, start_new_session=True, **streams)
        self.addCleanup(self.end_demo)

    def end_demo(self):
        if self.demo.poll() is None:  # it cleans up after itself
            self.demo.send_signal(signal.SIGTERM)
        self.demo.wait(CLEAN_UP_LIMIT_S)
        for pid in processes_with(f"musterd --data-folder {self.folder}/"):  # what --keep left of a test that failed
            os.kill(pid, signal.SIGTERM)

    def nothing_is_left(self):
        self.assertEqual(processes_with(str(self.folder)), {})
        self.assertEqual(list(self.folder.iterdir()), [])

    def the_dashboard_answers(self, text):
        url, token = re.search(r"^dashboard: (http://127\.0\.0\.1:\d+/)#token=(\S+)$", text, re.MULTILINE).groups()
        self.assertEqual(status_of(url), 200)
        self.assertEqual(status_of(url + "api/v1/jobs", token), 200)
        self.assertEqual(status_of(url + "api/v1/jobs"), 401)

    def resumed_from(self, text):
        """The step of the checkpoint that the story goes on from, after a look at all that it says of it."""
        number = r"(\d+)"
        killed = int(re.search(rf"^killed rank 1 \(pid \d+\) on purpose at step {number}$", text, re.MULTILINE).group(1))
        saved = int(re.search(rf"^attempt 1 ended: failed, rank 1 killed by SIGKILL; its last checkpoint is of step {number}$",
                              text, re.MULTILINE).group(1))
        resumed, first = map(int, re.search(rf"^attempt 2 resumed from step {number}; its first step is {number}$", text,
                                            re.MULTILINE).groups())
        # Between the look at the step and the kill the run may have saved once more, on a fast machine.
        self.assertIn(saved, (killed // CHECKPOINT_EVERY * CHECKPOINT_EVERY,
                              killed // CHECKPOINT_EVERY * CHECKPOINT_EVERY + CHECKPOINT_EVERY))
        self.assertEqual((resumed, first), (saved, saved + 1))
        return resumed

    def the_summary_is_whole(self, text):
        rows = dict(re.findall(r"^  (job 1|attempt \d|text|loss|throughput|kill to next step) {2,}(.+)$",
                               text[text.index("\n\n  job 1 "):], re.MULTILINE))
        wanted = ["job 1", "attempt 1", "attempt 2", "text", "loss", "throughput", "kill to next step"]
        self.assertEqual(list(rows), wanted, text)
        self.assertEqual(rows["job 1"], "succeeded")
        self.assertEqual(rows["attempt 1"], "failed: rank 1 killed by SIGKILL")
        self.assertEqual(rows["attempt 2"], "completed: every rank exited with 0: all 150 steps done")
        first, last = map(float, re.fullmatch(r"([\d.]+) first, ([\d.]+) last", rows["loss"]).groups())
        self.assertLess(last, first)
        self.assertRegex(rows["throughput"], r"^[1-9]\d* tokens/s \(median step\)$")
        self.assertRegex(rows["kill to next step"], r"^\d+\.\d s$")
        self.assertEqual(rows["text"], text_of_this_machine())
        self.assertIn(f"two ranks learn from {rows['text']}\n", text)

    def test_in_a_pipe(self):
        """It tells the story in plain lines, and leaves nothing behind."""
        self.start(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        text = ""
        for line in self.demo.stdout:  # the demo bounds its own time
            text += line.decode()
            if line.startswith(b"dashboard: "):
                self.the_dashboard_answers(text)
        errors = self.demo.stderr.read().decode()
        self.demo.stdout.close()
        self.demo.stderr.close()
        self.assertEqual((self.demo.wait(DEMO_LIMIT_S), errors), (0, ""), text)
        self.assertEqual([sign for sign in ("\r", "\x1b") if sign in text], [], text[:1000])
        self.assertRegex(text, r"^musterd runs \(pid \d+\); submitted examples/manpages-llama\.toml as job 1\n")
        steps = [tuple(map(int, found)) for found in re.findall(r"^  attempt (\d)  step (\d+)/150", text, re.MULTILINE)]
        self.assertEqual(steps, sorted(steps))
        self.assertEqual(steps[-1], (2, 150))
        self.assertLessEqual(len(steps), 12)  # one every 25 steps, and anew after the resume
        self.assertGreater(self.resumed_from(text), 0)
        self.the_summary_is_whole(text)
        self.nothing_is_left()

    def read_terminal(self, terminal):
        screen = b""
        while True:
            try:
                screen += os.read(terminal, 65536)
            except OSError:  # nobody has the other side open any more
                return screen.decode()

    def shell(self, command):
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=CLEAN_UP_LIMIT_S)
        self.assertEqual(done.returncode, 0, command + "\n" + done.stdout + done.stderr)
        return done.stdout

    def test_on_a_terminal(self):
        """It draws a bar, and with --keep musterd stays until the command that it prints stops it."""
        ours, its = pty.openpty()
        self.start("--keep", stdout=its, stderr=its)
        os.close(its)
        screen = self.read_terminal(ours)
        os.close(ours)
        self.assertEqual(self.demo.wait(DEMO_LIMIT_S), 0, screen)
        self.assertRegex(screen, r"\r  \[#+\.+\] attempt 1  step \d+/150  loss \d")
        self.assertRegex(screen, r"\r  \[#+\] attempt 2  step 150/150  loss \d")
        # What a person sees of lines that were drawn over.
        text = "".join(re.sub(r".*\r", "", line).replace("\x1b[K", "") + "\n" for line in screen.replace("\r\n", "\n").split("\n"))
        self.assertFalse("\x1b" in text, text[:1000])
        resumed = self.resumed_from(text)
        self.the_summary_is_whole(text)
        self.the_dashboard_answers(text)

        looking = re.search(r"^Look around with:\n((?:  .+\n){3})Stop it and remove what it wrote with:\n  (.+)$",
                            text.replace("musterd keeps running. Look", "Look"), re.MULTILINE)
        self.assertIsNotNone(looking, text)
        look, stop = looking.groups()
        job = json.loads(self.shell("set -e\n" + look.rstrip() + " --json"))
        self.assertEqual((job["state"], len(job["attempts"])), ("succeeded", 2))
        self.assertEqual(job["attempts"][1]["resumed_from_step"], resumed)
        exports = "\n".join(look.splitlines()[:2])
        events = self.shell(f"set -e\n{exports}\n{BIN}/muster events 1")
        saved = [int(step) for step in re.findall(r" attempt 1 +checkpoint saved at step (\d+)", events)]
        self.assertEqual(saved[-1], resumed, events)
        self.assertNotEqual(processes_with(str(self.folder)), {})
        self.shell(stop)
        self.nothing_is_left()


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
