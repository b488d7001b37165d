"""Orderly stops: the stop file, SIGTERM, and the step at which all ranks leave."""

import json
import os
import signal
import time
import unittest

from test_report import Program

LOOP = """
    import itertools, time
    run = muster.init()
    assert not run.should_stop(0)
    print("ready", flush=True)
    for step in itertools.count(1):
        run.log(step, loss=1.0)
        if run.should_stop(step):
            stop = run.stop
            print(step, stop.why, stop.save, stop.at_step, flush=True)
            run.leave()
        time.sleep(0.02)
"""


class Stops(unittest.TestCase):
    def setUp(self):
        self.program = Program(self)

    def ask(self, **notice):
        draft = self.program.folder / "draft"
        draft.write_text(json.dumps(notice) + "\n")
        os.replace(draft, self.program.stop)

    def start(self):
        process = self.program.start(LOOP)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process

    def end_of(self, process):
        out, err = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 99, err)
        return out.split()

    def test_the_file_alone_stops_the_program_at_once(self):
        process = self.start()
        self.ask(why="requeued", save=True)
        self.assertEqual(self.end_of(process)[1:], ["requeued", "True", "None"])

    def test_the_program_leaves_at_the_step_that_the_file_names(self):
        process = self.start()
        self.ask(why="preempted", save=True, at_step=60, deadline=time.time() + 60)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.end_of(process), ["60", "preempted", "True", "60"])

    def test_a_step_that_is_over_means_now(self):
        process = self.start()
        self.ask(why="preempted", save=True, at_step=0)
        self.assertEqual(self.end_of(process)[1:3], ["preempted", "True"])

    def test_after_a_failed_peer_the_program_leaves_and_saves_nothing(self):
        process = self.start()
        self.ask(why="peer_failed", save=False)
        self.assertEqual(self.end_of(process), [], "it saves where should_stop() returns")

    def test_sigterm_waits_for_the_file_that_follows(self):
        process = self.start()
        process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        self.ask(why="time_limit", save=True)
        self.assertEqual(self.end_of(process)[1], "time_limit")

    def test_sigterm_alone_stops_the_program(self):
        process = self.start()
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.end_of(process)[1:], ["signal", "True", "None"])

    def test_a_handler_of_the_program_stays(self):
        self.program.run("""
            import signal
            mine = lambda *_: None
            signal.signal(signal.SIGTERM, mine)
            muster.init().should_stop(1)
            assert signal.getsignal(signal.SIGTERM) is mine
        """)

    def test_a_program_that_asks_says_so_and_needs_no_signal(self):
        asked = self.program.folder / (self.program.stop.name + ".asked")
        self.program.run("run = muster.init(); run.log(1, loss=1.0)")
        self.assertFalse(asked.exists(), "it has not asked")
        self.program.run("""
            import signal
            signal.signal(signal.SIGTERM, lambda *_: None)
            muster.init().should_stop(1)
        """)
        self.assertFalse(asked.exists(), "a handler of its own waits for the signal")
        self.program.run("muster.init().should_stop(1)")
        self.assertTrue(asked.exists())

    def test_a_program_that_never_asks_is_ended_by_the_signal(self):
        process = self.program.start("""
            import time
            muster.init().log(1, loss=1.0)
            print("ready", flush=True)
            time.sleep(600)
        """)
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        self.assertEqual(process.returncode, -signal.SIGTERM)

    def test_a_damaged_file_asks_for_nothing(self):
        self.program.stop.write_text("{half")
        self.program.run("assert not muster.init().should_stop(1)")
        self.program.stop.write_text("[]")
        self.program.run("assert not muster.init().should_stop(1)")


if __name__ == "__main__":
    unittest.main()
