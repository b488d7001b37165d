"""The closing line counts what happened: a skip is no pass, wherever it hides, and no test at all is a failure."""

import pathlib
import subprocess
import sys
import tempfile
import unittest
from xml.sax.saxutils import escape

SUMMARY = pathlib.Path(__file__).resolve().parents[2] / "tools" / "test_summary.py"
PROGRAM = """Running main() from ./googletest/src/gtest_main.cc
[==========] Running 3 tests from 1 test suite.
[----------] 3 tests from Loss
[ RUN      ] Loss.IsSeen
[       OK ] Loss.IsSeen (12 ms)
[ RUN      ] Loss.OfANodeIsSeen
/home/somebody/loss_test.cpp:119: Skipped
nodes are no machines of their own without root

[  SKIPPED ] Loss.OfANodeIsSeen (0 ms)
[ RUN      ] Loss.OfTheNetworkIsSeen
/home/somebody/loss_test.cpp:140: Skipped
a network of its own needs root

[  SKIPPED ] Loss.OfTheNetworkIsSeen (3 ms)
[----------] 3 tests from Loss (15 ms total)

[==========] 3 tests from 1 test suite ran. (15 ms total)
[  PASSED  ] 1 test.
[  SKIPPED ] 2 tests, listed below:
[  SKIPPED ] Loss.OfANodeIsSeen
[  SKIPPED ] Loss.OfTheNetworkIsSeen
"""
PYTHON = """test_of_root (__main__.Rights.test_of_root) ... skipped 'root alone can do this'
test_of_words (__main__.Rights.test_of_words)
With a sentence of its own. ... skipped "there's no fish here"
test_of_users (__main__.Rights.test_of_users) ... ok

----------------------------------------------------------------------
Ran 3 tests in 0.001s

OK (skipped=2)
"""
WRONG = """[ RUN      ] Loss.IsSeen
[       OK ] Loss.IsSeen (12 ms)
[ RUN      ] Loss.OfARankIsSeen
/home/somebody/loss_test.cpp:31: Failure
Expected equality of these values:
  state
    Which is: "lost"
  "failed"
no such rank

/home/somebody/loss_test.cpp:40: Failure
Failed

[  FAILED  ] Loss.OfARankIsSeen (7 ms)
"""
PYTHON_WRONG = """test_of_users (__main__.Rights.test_of_users) ... FAIL

======================================================================
FAIL: test_of_users (__main__.Rights.test_of_users)
----------------------------------------------------------------------
Traceback (most recent call last):
  File "/home/somebody/rights_test.py", line 12, in test_of_users
    self.assertEqual(3, 4, "one fish is missing")
AssertionError: 3 != 4 : one fish is missing

----------------------------------------------------------------------
Ran 1 test in 0.001s

FAILED (failures=1)
"""


def ran(name, output=""):
    return f'<testcase name="{name}" status="run"><system-out>{escape(output)}</system-out></testcase>'


def failed(name, output=""):
    return (f'<testcase name="{name}" status="fail"><failure message=""/>'
            f"<system-out>{escape(output)}</system-out></testcase>")


def not_run(name, message, output):
    return (f'<testcase name="{name}" status="notrun"><skipped message="{message}"/>'
            f"<system-out>{escape(output)}</system-out></testcase>")


class TestSummary(unittest.TestCase):
    def summarize(self, *runs):
        with tempfile.TemporaryDirectory() as folder:
            paths = [pathlib.Path(folder) / f"results-{number}.xml" for number in range(len(runs))]
            for path, cases in zip(paths, runs):
                path.write_text(f"<testsuite>{cases}</testsuite>")
            done = subprocess.run([sys.executable, "-B", SUMMARY, *paths], capture_output=True, text=True)
        self.assertEqual(done.stderr, "")
        return done.returncode, done.stdout.splitlines()

    def test_counts_and_names(self):
        code, lines = self.summarize(
            ran("a") + failed("b") + not_run("c", "SKIP_REGULAR_EXPRESSION_MATCHED", "c.cpp:3: Skipped\nno GPU here\n"))
        self.assertEqual(code, 1)
        self.assertEqual(lines, ["skipped: c: no GPU here", "FAILED: b: it said nothing", "1 passed, 1 failed, 1 skipped"])

    def test_all_passed(self):
        self.assertEqual(self.summarize(ran("a")), (0, ["1 passed, 0 failed, 0 skipped"]))

    def test_skips_inside_a_program_that_is_one_test_are_counted_and_give_their_reasons(self):
        self.assertEqual(self.summarize(ran("SlurmSystem.loss", PROGRAM)), (0, [
            "skipped: SlurmSystem.loss: Loss.OfANodeIsSeen: nodes are no machines of their own without root",
            "skipped: SlurmSystem.loss: Loss.OfTheNetworkIsSeen: a network of its own needs root",
            "1 passed, 0 failed, 2 skipped"]))

    def test_skips_inside_a_python_suite_are_counted_and_give_their_reasons(self):
        self.assertEqual(self.summarize(ran("House.rights", PYTHON)), (0, [
            "skipped: House.rights: test_of_root: root alone can do this",
            "skipped: House.rights: test_of_words: there's no fish here",
            "1 passed, 0 failed, 2 skipped"]))

    def test_a_program_that_skips_everything_has_not_passed(self):
        begin, end = PROGRAM.index("[ RUN      ] Loss.IsSeen"), PROGRAM.index("[ RUN      ] Loss.OfANode")
        code, lines = self.summarize(ran("SlurmSystem.loss", PROGRAM[:begin] + PROGRAM[end:]))
        self.assertEqual((code, lines[-1]), (1, "0 passed, 0 failed, 2 skipped"))

    def test_a_skip_without_a_reason_is_a_failure(self):
        code, lines = self.summarize(
            ran("a") + ran("b", "[ RUN      ] B.c\nb.cpp:3: Skipped\n\n[  SKIPPED ] B.c (0 ms)\n[       OK ] B.d (1 ms)\n"))
        self.assertEqual((code, lines), (1, ["skipped: b: B.c: gave no reason", "2 passed, 0 failed, 1 skipped"]))

    def test_a_case_that_failed_and_was_skipped_has_failed(self):
        output = "[ RUN      ] B.c\nb.cpp:3: Skipped\nno GPU\n\nb.cpp:9: Failure\n[  FAILED  ] B.c (0 ms)\n[  SKIPPED ] x\n"
        code, lines = self.summarize(ran("a") + not_run("B.c", "SKIP_REGULAR_EXPRESSION_MATCHED", output))
        self.assertEqual((code, lines), (1, ["FAILED: B.c: b.cpp:9:", "1 passed, 1 failed, 0 skipped"]))

    def test_a_program_that_is_not_there_is_a_failure(self):
        code, lines = self.summarize(ran("a") + not_run("b", "Unable to find executable", "Unable to find executable: /b"))
        self.assertEqual((code, lines), (1, ["FAILED: b: Unable to find executable: /b", "1 passed, 1 failed, 0 skipped"]))

    def test_over_several_runs_one_failure_is_enough(self):
        code, lines = self.summarize(ran("a") + ran("b"), ran("a") + failed("b"), ran("a") + ran("b"))
        self.assertEqual((code, lines), (1, ["FAILED: b (1 of 3 runs): it said nothing", "3 runs", "1 passed, 1 failed, 0 skipped"]))

    def test_a_failure_names_the_case_its_place_and_its_words(self):
        code, lines = self.summarize(failed("SlurmSystem.loss", WRONG))
        self.assertEqual((code, lines), (1, [
            "FAILED: SlurmSystem.loss: Loss.OfARankIsSeen: loss_test.cpp:31: Expected equality of these values: state Which is: "
            '"lost" "failed" no such rank', "0 passed, 1 failed, 0 skipped"]))

    def test_a_failure_in_python_names_its_exception(self):
        code, lines = self.summarize(failed("House.rights", PYTHON_WRONG))
        self.assertEqual(lines[0], "FAILED: House.rights: AssertionError: 3 != 4 : one fish is missing")

    def test_a_failure_without_end_is_cut(self):
        code, lines = self.summarize(failed("a", "first\n" + "word " * 1000))
        self.assertLess(len(lines[0]), 300)
        self.assertTrue(lines[0].endswith(" ..."), lines[0])

    def test_over_several_runs_each_skip_counts_once(self):
        program = ran("SlurmSystem.loss", PROGRAM)
        code, lines = self.summarize(program, program)
        self.assertEqual((code, lines[-2:]), (0, ["2 runs", "1 passed, 0 failed, 2 skipped"]))

    def test_a_run_without_tests_among_others_is_a_failure(self):
        code, lines = self.summarize(ran("a"), "")
        self.assertEqual((code, lines), (1, ["2 runs, in 1 of which nothing passed", "1 passed, 0 failed, 0 skipped"]))

    def test_nothing_ran(self):
        self.assertEqual(self.summarize(""), (1, ["0 passed, 0 failed, 0 skipped"]))

    def test_no_file(self):
        done = subprocess.run([sys.executable, "-B", SUMMARY, "/nonexistent.xml"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)


if __name__ == "__main__":
    unittest.main()
