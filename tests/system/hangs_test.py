"""Goal: a hang is suspected, told, looked at, and ends the attempt with the stacks of all ranks, which say who hangs.

Method: real musterd and programs of Python as local processes, whose limits are seconds; and trainings of muster-worker.
Usage: hangs_test.py BIN_FOLDER
"""

import json
import os
import pathlib
import re
import signal
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from daemon import JOB_LIMIT_S, TRAINING, Musterd, eventually  # noqa: E402
from hangs import (ENDS_WITHIN_S, SUSPECTED_WITHIN_S, check_hang, events_of, frames, is_alive, job_text,  # noqa: E402
                   seconds_of)

BIN = None


class Hangs(unittest.TestCase):
    def setUp(self):
        self.musterd = Musterd(self, BIN)

    def hang(self, hangs):
        self.job = self.musterd.submit(job_text(hangs))
        return check_hang(self, self.musterd, self.job)

    def test_of_rank_0(self):
        for view in self.hang("rank0"):
            self.assertEqual(frames(view, 0)[:2], ["evaluates", "trains"])
            self.assertEqual(frames(view, 1)[:2], ["all_reduce", "trains"])
            self.assertRegex(view["summary"], r"rank 0 stands at trains \(<string>:\d+\), in evaluates \(")

    def test_of_rank_1(self):
        for view in self.hang("rank1"):
            self.assertEqual(frames(view, 1)[:2], ["evaluates", "trains"])
            self.assertEqual(frames(view, 0)[:2], ["all_reduce", "trains"])

    def test_inside_a_collective(self):
        for view in self.hang("collective"):
            self.assertEqual(frames(view, 0)[:2], ["all_reduce", "trains"])
            self.assertEqual(frames(view, 1)[:2], ["broadcast", "trains"])

    def test_inside_a_data_loader(self):
        job = self.musterd.submit(job_text("loader"))
        self.assertTrue(eventually(lambda: "the loader is" in self.musterd.muster("logs", job).stdout, JOB_LIMIT_S))
        loader = int(re.search(r"the loader is (\d+)", self.musterd.muster("logs", job).stdout).group(1))
        self.musterd.until(job, lambda shown: "suspected" in shown["status"])
        asked = json.loads(self.musterd.muster("stacks", job, "--json").stdout)
        self.assertTrue(is_alive(loader), "the signal that asks the rank reaches no child of it")
        views = check_hang_with(self, self.musterd, job)
        self.assertFalse(is_alive(loader), "it ends with its attempt")
        for view in (asked, *views):
            self.assertIn("next_batch", frames(view, 1))
            self.assertRegex(view["ranks"][1]["text"], rf"== process {loader} \(.*\) == state of each thread, by the kernel")


class SilentRanks(unittest.TestCase):
    def test_one_that_is_stopped_leaves_the_stacks_of_all(self):
        musterd = Musterd(self, BIN)
        job = musterd.submit(TRAINING.replace("steps = 60", "steps = 400"))
        shown = musterd.until(job, lambda shown: (shown["step"] or 0) >= 10)
        pid = next(rank["pid"] for rank in shown["ranks"] if rank["rank"] == 1)
        self.assertGreater(pid, 1)
        os.kill(pid, signal.SIGSTOP)
        stopped_at = time.time()
        musterd.until(job, lambda shown: shown["attempts"][0]["cause"] == "rank_silent")
        known = next(seconds_of(event["at"]) for event in events_of(musterd, job) if event["type"] == "rank_silent")
        # Two and a half seconds of silence, three for stacks, and the rest for a busy machine.
        self.assertLess(known - stopped_at, 15, "the end waits for stacks for three seconds at most")
        musterd.until(job, lambda shown: len(shown["attempts"]) == 2)
        kept = json.loads(musterd.muster("stacks", job, "--attempt", "1", "--json").stdout)
        self.assertEqual([(one["why"], one["given"]) for one in kept["sets"]], [("before_end", 2)])
        self.assertIn("is stopped by a signal", kept["ranks"][1]["text"])
        self.assertIn("by muster-worker", kept["ranks"][0]["text"])


class LearnedLimits(unittest.TestCase):
    """No hung_after is set. A recipe is the kind of program whose limit is the shortest: a minute."""

    def test_end_a_training_that_hangs_for_a_minute(self):
        musterd = Musterd(self, BIN)
        # Rank 1 is stopped, and nobody calls it silent. So rank 0, which is heard, stands in its collective.
        patient = "".join(f"{name} = \"30m\"\n" for name in ("silent_after", "silent_after_vouched", "lost_after"))
        job = musterd.submit(TRAINING.replace("steps = 60", "steps = 100") +
                             f"[liveness]\n{patient}[requeue]\nbackoff_initial = \"100ms\"\n")
        shown = musterd.until(job, lambda shown: (shown["step"] or 0) >= 30)  # what is usual is known after 20
        pid = next(rank["pid"] for rank in shown["ranks"] if rank["rank"] == 1)
        self.assertGreater(pid, 1)
        os.kill(pid, signal.SIGSTOP)
        stopped_at = time.time()
        done = musterd.until(job, lambda shown: shown["state"] in ("succeeded", "failed"))
        self.assertEqual([one["cause"] for one in done["attempts"]], ["rank_hung", "completed"], done["attempts"])
        first = {event["type"]: seconds_of(event["at"]) - stopped_at for event in reversed(events_of(musterd, job))}
        self.assertLess(first["attempt_suspected"], SUSPECTED_WITHIN_S)
        told = f"{done['attempts'][0]['reason']}\n{musterd.muster('events', job).stdout}\n{musterd.log.read_text()}"
        self.assertGreater(first["rank_hung"], 58, told)
        # muster-worker says once, after ten seconds, for whom it waits: that is output.
        self.assertLess(first["rank_hung"], 10 + 60 + ENDS_WITHIN_S, told)
        self.assertRegex(done["attempts"][0]["reason"], r"rank 0 made no progress .*learned from \d+ steps")
        for view in stacks_of(self, musterd, job):
            self.assertIn("is stopped by a signal", view["ranks"][1]["text"])
            self.assertIn("by muster-worker", view["ranks"][0]["text"])


def stacks_of(test, musterd, job):
    kept = json.loads(musterd.muster("stacks", job, "--attempt", "1", "--json").stdout)
    test.assertLessEqual({"suspected", "before_end"}, {one["why"] for one in kept["sets"]})
    return [json.loads(musterd.muster("stacks", job, "--attempt", "1", "--set", str(one["number"]), "--json").stdout)
            for one in kept["sets"]]


def check_hang_with(test, musterd, job):
    """check_hang() of a job for whose stacks the test has asked too."""
    done = musterd.until(job, lambda shown: shown["state"] in ("succeeded", "failed"))
    test.assertEqual([one["cause"] for one in done["attempts"]], ["rank_hung", "completed"], done["attempts"])
    return stacks_of(test, musterd, job)


class Stacks(unittest.TestCase):
    """At any time, by hand."""

    def setUp(self):
        self.musterd = Musterd(self, BIN)

    def stacks(self, job, *more):
        return self.musterd.muster("stacks", job, *more)

    def test_of_a_training_have_the_frames_of_each_thread_and_it_goes_on(self):
        job = self.musterd.submit(TRAINING)
        self.musterd.until(job, lambda shown: (shown["step"] or 0) > 3)
        began = time.monotonic()
        view = json.loads(self.stacks(job, "--json").stdout)
        self.assertLess(time.monotonic() - began, 15)
        self.assertEqual((view["shown"]["why"], view["shown"]["given"], view["shown"]["over"]), ("asked", 2, True))
        for rank in view["ranks"]:
            self.assertRegex(rank["text"], r"== frames of each thread, by muster-worker\nthread \d+ muster-worker\n  \S")
            self.assertIn("  main\n", rank["text"])
            self.assertIn("worker::Trainer::run()", rank["text"])
        self.assertTrue(view["summary"])
        for _ in range(3):
            self.assertEqual(self.stacks(job).returncode, 0)
        done = self.musterd.until(job, lambda shown: shown["state"] in ("succeeded", "failed"))
        self.assertEqual((done["state"], len(done["attempts"])), ("succeeded", 1), done)
        kept = self.stacks(job)
        self.assertEqual(kept.returncode, 0, kept.stderr)
        self.assertIn("--- rank 1 ---", kept.stdout)
        self.assertIn("others are kept", kept.stderr)

    def test_of_a_rank_that_is_stopped_are_what_the_kernel_tells(self):
        text = TRAINING + "[liveness]\nsilent_after = \"60s\"\n"
        job = self.musterd.submit(text)
        shown = self.musterd.until(job, lambda shown: (shown["step"] or 0) > 3)
        pid = next(rank["pid"] for rank in shown["ranks"] if rank["rank"] == 1)
        self.assertGreater(pid, 1)
        os.kill(pid, signal.SIGSTOP)
        view = json.loads(self.stacks(job, "--json").stdout)
        os.kill(pid, signal.SIGCONT)
        self.assertIn("is stopped by a signal", view["ranks"][1]["text"])
        self.assertNotIn("by muster-worker", view["ranks"][1]["text"])
        self.assertIn("by muster-worker", view["ranks"][0]["text"])
        self.assertRegex(view["summary"], "rank 1 stands at is stopped by a signal")

    def test_of_any_program_are_its_system_calls_and_go_with_the_job(self):
        job = self.musterd.submit('name = "sleeps"\ncommand = ["sleep", "1000"]\n')
        self.musterd.until(job, lambda shown: shown["state"] == "running")
        done = self.stacks(job)
        self.assertRegex(done.stdout, r"sleep: sleeps, in (clock_nanosleep|nanosleep|restart_syscall)")
        folder = self.musterd.data / "jobs" / job / "attempt-1" / "stacks"
        self.assertEqual(len(list(folder.iterdir())), 1)
        self.musterd.muster("cancel", job)
        self.musterd.until(job, lambda shown: shown["state"] == "cancelled")
        self.assertEqual(self.stacks(job).returncode, 0, "what was kept is shown of an attempt that has ended")
        self.musterd.muster("rm", job)
        self.assertTrue(eventually(lambda: not folder.exists(), JOB_LIMIT_S))

    def test_of_an_agent_that_does_not_answer_say_so(self):
        job = self.musterd.submit('name = "sleeps"\ncommand = ["sleep", "1000"]\n')
        shown = self.musterd.until(job, lambda shown: shown["state"] == "running")
        agent = int(pathlib.Path(f"/proc/{shown['ranks'][0]['pid']}/stat").read_text().rsplit(")", 1)[1].split()[1])
        self.assertGreater(agent, 1)
        self.assertEqual(pathlib.Path(f"/proc/{agent}/comm").read_text().strip(), "muster-agent")
        os.kill(agent, signal.SIGSTOP)
        try:
            done = self.stacks(job)
        finally:
            os.kill(agent, signal.SIGCONT)
        self.assertEqual(done.returncode, 1)
        self.assertIn("rank 0 gave none: the agent beside it has given none within 6 s", done.stderr)

    def test_of_a_job_that_waits_are_none(self):
        job = self.musterd.submit('name = "waits"\ncommand = ["sleep", "1000"]\n', "--hold")
        done = self.stacks(job)
        self.assertEqual(done.returncode, 2)
        self.assertIn("it has no attempt yet", done.stderr)


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
