"""Tests run the longest first, cases of a program share processes, and each case is reported as if it had run alone.

Method: the real runner and the real ctest in a folder of their own, with programs that print what GoogleTest prints.
"""

import ctypes
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tools" / "testing"
sys.path.insert(0, str(TOOLS))
import cases  # noqa: E402
import figures  # noqa: E402
import gpus  # noqa: E402
import listing  # noqa: E402
import schedule  # noqa: E402

# Prints as GoogleTest does. A case does what its name begins with. Each start is noted in the file `starts`.
PROGRAM = r"""import os, pathlib, signal, sys, time
names = next(word for word in sys.argv if word.startswith("--gtest_filter=")).partition("=")[2].split(":")
with open("starts", "a") as file:
    file.write(f"{len(names)} {' '.join(names)}\n")
status = 0
if any(name.startswith("Startless") for name in names):
    sys.exit("no such library")
for name in names:
    print(f"[ RUN      ] {name}", flush=True)
    how = name.partition(".")[2]
    if how.startswith("Crashes"):
        os.kill(os.getpid(), signal.SIGABRT)
    if how.startswith("Hangs"):
        time.sleep(1000)
    if how.startswith("Fails"):
        print("some_test.cpp:12: Failure\nit is wrong\n")
        print(f"[  FAILED  ] {name}, where GetParam() = 4-byte object <01-00 00-00> (7 ms)", flush=True)
        status = 1
    elif how.startswith("Skips"):
        print(f"some_test.cpp:12: Skipped\nneeds root\n\n[  SKIPPED ] {name} (0 ms)", flush=True)
    else:
        print("fine", f"[       OK ] {name} (5 ms)", sep="\n", flush=True)
    if how.startswith("LeaksWithOthers") and len(names) > 1 or how.startswith("LeaksAlways"):
        status = 23
sys.exit(status)
"""


def test_of(name, **members):
    return listing.Test(**{"name": name, "command": ("program", f"--gtest_filter={name}"), "folder": "/", "labels": ("unit",), **members})


class Runner(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name).resolve()
        (self.folder / "program.py").write_text(PROGRAM)
        self.text = ""

    def add_case(self, name, program="program", labels="unit", **properties):
        """A case of a GoogleTest program, as gtest_discover_tests adds it."""
        (self.folder / program).write_text(f"#!/bin/sh\nexec {sys.executable} -B {self.folder}/program.py \"$@\"\n")
        (self.folder / program).chmod(0o755)
        self.add(name, self.folder / program, f"--gtest_filter={name}", "--gtest_also_run_disabled_tests", LABELS=labels, **properties)

    def add(self, name, *command, **properties):
        words = " ".join(f'"{word}"' for word in command)
        self.text += f'add_test("{name}" {words})\n'
        for key, value in {"WORKING_DIRECTORY": self.folder, "TIMEOUT": 60, **properties}.items():
            self.text += f'set_tests_properties("{name}" PROPERTIES {key} "{value}")\n'

    def run_tests(self, *arguments, repeat=1, **variables):
        (self.folder / "CTestTestfile.cmake").write_text(self.text)
        environment = {name: value for name, value in os.environ.items() if name != gpus.VARIABLE} | variables
        done = subprocess.run([sys.executable, "-B", TOOLS / "run.py", self.folder, *arguments], capture_output=True, text=True, timeout=100,
                              env=environment)
        self.results = [ElementTree.parse(self.folder / f"results-{number}.xml").getroot() for number in range(1, repeat + 1)
                        if (self.folder / f"results-{number}.xml").exists()]
        return done

    def outcomes(self, run=0):
        return {case.get("name"): case.get("status") for case in self.results[run]}

    def output_of(self, name):
        return next(case for case in self.results[0] if case.get("name") == name).findtext("system-out")

    def starts(self):
        return [line.split()[1:] for line in (self.folder / "starts").read_text().splitlines()]

    def summary(self):
        done = subprocess.run([sys.executable, "-B", ROOT / "tools" / "test_summary.py", *sorted(self.folder.glob("results-*.xml"))],
                              capture_output=True, text=True)
        return done.stdout.splitlines()


class SharedProcesses(Runner):
    def test_cases_of_a_program_share_one_and_each_is_a_test(self):
        for name in ("Sum.Works", "Sum.Fails", "Sum.Skips", "P/Sum.Works/0"):
            self.add_case(name)
        done = self.run_tests()
        self.assertEqual(done.returncode, 1)
        self.assertEqual(self.starts(), [["Sum.Works", "Sum.Fails", "Sum.Skips", "P/Sum.Works/0"]])
        self.assertEqual(self.outcomes(), {"Sum.Works": "run", "Sum.Fails": "fail", "Sum.Skips": "notrun", "P/Sum.Works/0": "run"})
        self.assertIn("it is wrong", self.output_of("Sum.Fails"))
        self.assertNotIn("it is wrong", self.output_of("Sum.Works"))
        self.assertIn("it is wrong", done.stdout)
        self.assertEqual(self.summary(), ["skipped: Sum.Skips: needs root", "FAILED: Sum.Fails: some_test.cpp:12: it is wrong",
                                          "2 passed, 1 failed, 1 skipped"])

    def test_after_a_crash_the_others_run_in_another_process(self):
        for name in ("A.Works", "A.Crashes", "A.WorksToo"):
            self.add_case(name)
        self.run_tests()
        self.assertEqual(self.outcomes(), {"A.Works": "run", "A.Crashes": "fail", "A.WorksToo": "run"})
        self.assertEqual(self.starts(), [["A.Works", "A.Crashes", "A.WorksToo"], ["A.WorksToo"]])
        self.assertIn("ended by SIGABRT", self.output_of("A.Crashes"))

    def test_the_time_limit_is_of_each_case(self):
        for name in ("A.Works", "A.Hangs", "A.WorksToo"):
            self.add_case(name, TIMEOUT=1)
        self.run_tests()
        self.assertEqual(self.outcomes(), {"A.Works": "run", "A.Hangs": "fail", "A.WorksToo": "run"})
        self.assertIn("ended at its time limit of 1 s", self.output_of("A.Hangs"))

    def test_a_bad_end_that_no_case_tells_is_found_by_running_each_alone(self):
        for name in ("A.Works", "A.LeaksAlways", "A.WorksToo"):
            self.add_case(name)
        self.run_tests()
        self.assertEqual(self.outcomes(), {"A.Works": "run", "A.LeaksAlways": "fail", "A.WorksToo": "run"})
        self.assertIn("exit status 23", self.output_of("A.LeaksAlways"))

    def test_a_bad_end_that_comes_only_of_sharing_fails_too(self):
        for name in ("A.LeaksWithOthers", "A.Works"):
            self.add_case(name)
        self.assertEqual(self.run_tests().returncode, 1)
        self.assertEqual(self.outcomes(), {"A.LeaksWithOthers": "run", "A.Works": "fail"})
        self.assertIn("this case passes alone", self.output_of("A.Works"))

    def test_a_program_that_does_not_start_fails_with_all_its_cases(self):
        for name in ("Startless.One", "Startless.Two"):
            self.add_case(name)
        self.run_tests()
        self.assertEqual(self.outcomes(), {"Startless.One": "fail", "Startless.Two": "fail"})
        self.assertIn("no such library", self.output_of("Startless.Two"))

    def test_what_is_no_unit_case_or_wants_to_be_apart_or_has_a_lock_runs_alone(self):
        self.add_case("A.Unit")
        self.add_case("A.System", labels="system")
        self.add_case("A.Apart", labels="unit apart")
        self.add_case("A.Locked", RESOURCE_LOCK="disk")
        self.add_case("A.Other", program="other")
        self.assertEqual(self.run_tests().returncode, 0)
        self.assertEqual(sorted(self.starts()), [["A.Apart"], ["A.Locked"], ["A.Other"], ["A.System"], ["A.Unit"]])


class AnyTest(Runner):
    def test_exit_codes_skips_environment_and_limits_count(self):
        self.add("Good", "sh", "-c", "test \\$PLACE = here", ENVIRONMENT="PLACE=here")
        self.add("Bad", "sh", "-c", "echo why; exit 3")
        self.add("Skipped", "sh", "-c", "echo skipped: no peer; exit 77", SKIP_RETURN_CODE=77)
        self.add("Slow", "sleep", 1000, TIMEOUT=1)
        done = self.run_tests()
        self.assertEqual(done.returncode, 1)
        self.assertEqual(self.outcomes(), {"Good": "run", "Bad": "fail", "Skipped": "notrun", "Slow": "fail"}, done.stdout)
        self.assertEqual(self.summary()[-1], "1 passed, 2 failed, 1 skipped")

    def test_a_process_that_a_test_leaves_in_its_group_ends_with_it(self):
        self.add("Leaves", "sh", "-c", f"sleep 1000 & echo \\$! > {self.folder}/left")
        self.assertEqual(self.run_tests().returncode, 0)
        self.assertFalse(alive(int((self.folder / "left").read_text())))

    def test_a_file_that_is_no_program_fails_its_test_alone(self):
        self.add("None", "/no/such/program")
        self.add("Good", "true")
        self.run_tests()
        self.assertEqual(self.outcomes(), {"None": "fail", "Good": "run"})

    def test_a_signal_ends_what_runs(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number):
                self.end_by(number)

    def test_a_signal_that_another_thread_takes_ends_what_runs(self):
        self.end_by(signal.SIGTERM, thread=lambda pid: next(int(task.name) for task in pathlib.Path(f"/proc/{pid}/task").iterdir()
                                                            if int(task.name) != pid))

    def end_by(self, number, thread=lambda pid: pid):
        """`thread`: which thread of this process takes the signal, a kernel's id."""
        self.text = ""
        (self.folder / "pid").unlink(missing_ok=True)
        self.add("Long", "sh", "-c", f"echo \\$\\$ > {self.folder}/pid; exec sleep 1000")
        (self.folder / "CTestTestfile.cmake").write_text(self.text)
        run = subprocess.Popen([sys.executable, "-B", TOOLS / "run.py", self.folder], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.addCleanup(run.kill)
        pid = until(lambda: (self.folder / "pid").read_text())
        self.assertEqual(ctypes.CDLL(None).tgkill(run.pid, thread(run.pid), number), 0)
        self.assertNotEqual(run.wait(60), 0)
        self.assertIn(b"ended by a signal", run.stderr.read())
        run.stderr.close()
        self.assertFalse(alive(int(pid)))

    def test_each_run_of_a_repetition_has_its_results(self):
        self.add("Second", "sh", "-c", f"echo x >> {self.folder}/runs; test \\$(wc -l < {self.folder}/runs) != 2")
        self.assertEqual(self.run_tests("--repeat", "3", repeat=3).returncode, 1)
        self.assertEqual([self.outcomes(run)["Second"] for run in range(3)], ["run", "fail", "run"])

    def test_without_a_build_it_says_so(self):
        self.add_case("A.Works")
        self.text = self.text.replace(str(self.folder / "program"), str(self.folder / "gone"))
        done = self.run_tests()
        self.assertNotEqual(done.returncode, 0)


class ExpectedGpus(Runner):
    """With MUSTER_EXPECT_GPUS a machine never passes by skipping the tests that need its GPUs."""

    def setUp(self):
        super().setUp()
        self.add("Stories", "sh", "-c", "echo skipped: no GPU; exit 77", SKIP_RETURN_CODE=77, LABELS="peers;gpu")
        self.add("Peers", "sh", "-c", "echo skipped: no peer; exit 77", SKIP_RETURN_CODE=77, LABELS="peers")
        self.add_case("TwoGpus.Skips", labels="gpu")

    def test_a_suite_that_is_skipped_is_a_failure_then(self):
        self.assertEqual(self.run_tests().returncode, 0)
        self.assertEqual(self.outcomes(), {"Stories": "notrun", "Peers": "notrun", "TwoGpus.Skips": "notrun"})
        done = self.run_tests(MUSTER_EXPECT_GPUS="1")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(self.outcomes(), {"Stories": "fail", "Peers": "notrun", "TwoGpus.Skips": "notrun"})
        self.assertIn("all of it was skipped, and MUSTER_EXPECT_GPUS=1 wants tests of GPUs to run", done.stdout)
        self.assertIn("FAILED: Stories: all of it was skipped, and MUSTER_EXPECT_GPUS=1 wants tests of GPUs to run", self.summary())

    def test_a_value_that_is_no_number_of_gpus_is_refused_before_anything_runs(self):
        for value in ("0", "-1", "all"):
            done = self.run_tests(MUSTER_EXPECT_GPUS=value)
            self.assertEqual((done.returncode, done.stderr), (2, f"tests: MUSTER_EXPECT_GPUS={value}: want a whole number of at least 1\n"))
            self.assertEqual(self.results, [])

    def test_a_test_in_python_judges_by_what_it_needs_and_sees(self):
        none, eight = {}, {gpus.VARIABLE: "8"}
        self.assertEqual(gpus.judge(1, 0, none), (gpus.SKIPPED, "0 GPUs are seen, and this test needs 1"))
        self.assertEqual(gpus.judge(1, 1, none), (gpus.RUNS, ""))
        self.assertEqual(gpus.judge(1, 1, eight), (gpus.FAILS, "1 GPU is seen, and MUSTER_EXPECT_GPUS=8 promises more"))
        self.assertEqual(gpus.judge(2, 8, eight), (gpus.RUNS, ""))
        self.assertEqual(gpus.judge(2, 1, {gpus.VARIABLE: "1"})[0], gpus.SKIPPED)
        self.assertEqual(gpus.judge(1, 8, {gpus.VARIABLE: "some"})[0], gpus.FAILS)


class LongTests(Runner):
    def setUp(self):
        super().setUp()
        self.add("Short", "true", LABELS="system")
        self.add("Whole", "true", LABELS="system;long")
        self.add_case("Story.ForMinutes", labels="system long")

    def test_a_long_one_runs_with_its_label_or_by_name_alone(self):
        done = self.run_tests()
        self.assertEqual(set(self.outcomes()), {"Short"})
        self.assertIn("2 more run with -L long", done.stdout)
        self.run_tests("-L", "system")
        self.assertEqual(set(self.outcomes()), {"Short"})
        done = self.run_tests("-L", "long")
        self.assertEqual(set(self.outcomes()), {"Whole", "Story.ForMinutes"})
        self.assertIn("Whole", done.stdout.splitlines()[1], "what the long ones are is told before they run")
        self.run_tests("-R", "Whole")
        self.assertEqual(set(self.outcomes()), {"Whole"})


class Costs(unittest.TestCase):
    def test_what_was_recorded_is_read_again_and_short_tests_are_left_out(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "costs.tsv")
            listing.write_costs(file, {"Long": listing.Cost(90, 0.5), "Short": listing.Cost(0.2, 1), "Longest": listing.Cost(100, 2)})
            self.assertEqual(listing.read_costs(file), {"Longest": listing.Cost(100, 2), "Long": listing.Cost(90, 0.5)})
            file.write_text("many\t1\tName\n")
            with self.assertRaisesRegex(listing.Unlisted, "costs.tsv:1: want seconds"):
                listing.read_costs(file)
        self.assertEqual(listing.read_costs("/no/such/file"), {})


class Figures(unittest.TestCase):
    def test_compile_time_is_summed_by_target(self):
        seconds = {"a/CMakeFiles/one.dir/x.cpp.o": 3.0, "a/CMakeFiles/one.dir/cmake_pch.hxx.gch": 4.0, "bin/one": 1.0, "liba.a": 1.0,
                   "gen/a.pb.cc": 0.5, "/absolute/gen/a.pb.cc": 0.5}
        self.assertEqual(figures.by_target(seconds), [("one", 2, 7.0), ("links", 2, 2.0), ("generated files", 1, 0.5)])

    def test_test_time_is_summed_by_lane_or_else_by_label(self):
        tests = [test_of("A", locks=frozenset(["slurm"])), test_of("B"), test_of("C"), test_of("D", labels=("system", "long")),
                 test_of("E", serial=True)]
        costs = {"A": listing.Cost(30, 0.5), "B": listing.Cost(2, 1), "D": listing.Cost(90, 2), "E": listing.Cost(5, 1)}
        self.assertEqual(figures.by_group(tests, costs), [("long", 1, 90, 180), ("lane slurm", 1, 30, 15.0), ("alone", 1, 5, 5),
                                                          ("unit", 2, 2, 2)])


class Schedules(unittest.TestCase):
    """The decisions alone: no process, no clock."""

    @staticmethod
    def job(name, seconds, cores=1.0, lock=None, serial=False):
        test = test_of(name, labels=("system",), locks=frozenset([lock] if lock else []), serial=serial)
        return schedule.Job([test], listing.Cost(seconds, cores))

    @staticmethod
    def names(jobs):
        return [job.tests[0].name for job in jobs]

    def started(self, plan):
        found = []
        while job := plan.next():
            found.append(job)
        return found

    def test_the_longest_chain_goes_first(self):
        jobs = [self.job("short", 5), self.job("long", 60), self.job("lane-1", 40, lock="lane"), self.job("lane-2", 41, lock="lane")]
        first = schedule.Schedule(jobs, cores=1)
        self.assertEqual(self.names(self.started(first)), ["lane-2"])

    def test_one_of_a_lock_at_a_time(self):
        plan = schedule.Schedule([self.job("one", 40, 0.1, lock="lane"), self.job("two", 41, 0.1, lock="lane")], cores=4)
        first = self.started(plan)
        self.assertEqual(self.names(first), ["two"])
        plan.ended(first[0])
        self.assertEqual(self.names(self.started(plan)), ["one"])
        self.assertFalse(plan)

    def test_the_processors_bound_what_runs_and_only_what_waits_passes(self):
        room = 2 * schedule.ROOM
        jobs = [self.job("a", 50, 0.6 * room), self.job("b", 40, 0.6 * room), self.job("c", 30, 0.39 * room), self.job("waits", 20, 0.1)]
        plan = schedule.Schedule(jobs, cores=2)
        first = self.started(plan)
        self.assertEqual(self.names(first), ["a", "waits"], "c would fit, and b would wait for ever")
        plan.ended(first[0])
        self.assertEqual(self.names(self.started(plan)), ["b"])

    def test_what_compares_with_pytorch_keeps_a_processor_busy_whatever_was_recorded(self):
        costs = {name: listing.Cost(60, 0.2) for name in "abc"}
        tests = [test_of("a", labels=("peers",)), test_of("b", labels=("peers",), locks=frozenset(["slurm"])), test_of("c", labels=("slurm",))]
        cores = {job.tests[0].name: job.cost.cores for job in schedule.jobs_of(tests, costs)}
        self.assertEqual(cores, {"a": 1.0, "b": 0.2, "c": 0.2})

    def test_cases_that_compare_with_pytorch_share_a_process_however_long_they_take(self):
        costs = {name: listing.Cost(60, 1) for name in "abc"}
        tests = [test_of(name, labels=(label,)) for name, label in (("a", "peers"), ("b", "peers"), ("c", "unit"))]
        self.assertEqual(sorted([test.name for test in job.tests] for job in schedule.jobs_of(tests, costs)), [["a", "b"], ["c"]])

    def test_a_long_one_that_was_never_recorded_is_not_taken_for_a_short_one(self):
        first, second = schedule.jobs_of([test_of("a", labels=("system", "long")), test_of("b", labels=("system",))], {})
        self.assertGreater(first.cost.seconds * first.cost.cores, 60)
        self.assertLess(second.cost.seconds, 10)

    def test_what_wants_more_than_there_is_runs_all_the_same(self):
        plan = schedule.Schedule([self.job("wide", 50, 9)], cores=2)
        self.assertEqual(self.names(self.started(plan)), ["wide"])

    def test_serial_ones_come_last_and_alone(self):
        jobs = [self.job("serial", 900, serial=True), self.job("other", 1), self.job("too", 1, serial=True)]
        plan = schedule.Schedule(jobs, cores=4)
        order = []
        while plan:
            now = self.started(plan)
            order.append(self.names(now))
            for job in now:
                plan.ended(job)
        self.assertEqual(order, [["other"], ["serial"], ["too"]])

    def test_a_long_case_has_its_own_process_and_others_fill_one(self):
        tests = [test_of(f"A.{i}") for i in range(10)]
        jobs = schedule.jobs_of(tests, {"A.3": listing.Cost(30, 1), **{f"A.{i}": listing.Cost(3.5, 1) for i in range(4, 10)}})
        self.assertEqual([self.names(job.tests and [schedule.Job([t], job.cost) for t in job.tests]) for job in jobs],
                         [["A.3"], ["A.0", "A.1", "A.2", "A.4", "A.5", "A.6"], ["A.7", "A.8", "A.9"]])


class CasesOfAnOutput(unittest.TestCase):
    def test_the_case_that_runs_is_the_last_without_an_end(self):
        text = b"[ RUN      ] A.One\n[       OK ] A.One (5 ms)\n[ RUN      ] A.Two\n"
        self.assertEqual(cases.running_case(text), "A.Two")
        self.assertIsNone(cases.running_case(text + b"[  FAILED  ] A.Two (5 ms)\n"))
        self.assertIsNone(cases.running_case(b"Running main()\n"))

    def test_what_is_printed_after_words_without_an_end_of_line_is_an_end(self):
        found = cases.cases_in(b"[ RUN      ] A.One\nhalf a line[       OK ] A.One (5 ms)\n")
        self.assertEqual([case.outcome for case in found], ["passed"])

    def test_a_case_that_prints_the_lines_of_another_is_itself(self):
        found = cases.cases_in(b"[ RUN      ] A.One\n[       OK ] B.Inner (1 ms)\n[  FAILED  ] A.One (5 ms)\n")
        self.assertEqual([(case.name, case.outcome) for case in found], [("A.One", "failed")])


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until(value, limit_s=30):
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        try:
            if found := value():
                return found
        except OSError:
            pass
        time.sleep(0.02)
    raise AssertionError("it did not come")


if __name__ == "__main__":
    unittest.main()
