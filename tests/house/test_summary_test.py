"""The closing line counts what happened: a skip is no pass, and no test at all is a failure."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SUMMARY = pathlib.Path(__file__).resolve().parents[2] / "tools" / "test_summary.py"


class TestSummary(unittest.TestCase):
    def summarize(self, cases):
        with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
            file.write(f"<testsuite>{cases}</testsuite>")
            file.flush()
            done = subprocess.run([sys.executable, "-B", SUMMARY, file.name], capture_output=True, text=True)
        return done.returncode, done.stdout.splitlines()

    def test_counts_and_names(self):
        code, lines = self.summarize(
            '<testcase name="a" status="run"/>'
            '<testcase name="b" status="fail"><failure message=""/></testcase>'
            '<testcase name="c" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>'
            '<system-out>c.cpp:3: Skipped\nno GPU here\n</system-out></testcase>')
        self.assertEqual(code, 1)
        self.assertEqual(lines, ["skipped: c: no GPU here", "FAILED: b", "1 passed, 1 failed, 1 skipped"])

    def test_all_passed(self):
        self.assertEqual(self.summarize('<testcase name="a" status="run"/>'), (0, ["1 passed, 0 failed, 0 skipped"]))

    def test_nothing_ran(self):
        self.assertEqual(self.summarize(""), (1, ["0 passed, 0 failed, 0 skipped"]))

    def test_no_file(self):
        done = subprocess.run([sys.executable, "-B", SUMMARY, "/nonexistent.xml"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)


if __name__ == "__main__":
    unittest.main()
