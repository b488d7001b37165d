"""Runs the tests of a build folder, the longest first, and writes their outcomes as JUnit files.

Usage: run.py BUILD_FOLDER [--folder FOLDER | --near] [--repeat N] [--record] [-L LABEL] [-R REGEX] [-E REGEX] [-LE LABEL]

The tests are those that ctest lists, with ctest's filters. Those with the label `long` run with -L long, and with -R, which
names tests; nothing else starts them. The cases of a GoogleTest program with the label `unit` share processes, since a start costs
more than most cases; each is reported as a test. A case in which its process ends has failed, and the cases after it run in
another one. The time limit of a test counts for each case.

MUSTER_EXPECT_GPUS=N makes a failure of a suite of GPU tests that is skipped (gpus.py).

BUILD_FOLDER/results-N.xml has the outcomes of run N, for tools/test_summary.py. The exit status is 0 if nothing failed.
"""

import argparse
import os
import pathlib
import queue
import re
import signal
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree

import cases
import gpus
import listing
import near
import process
import schedule

ROOT = pathlib.Path(__file__).resolve().parents[2]
COSTS = ROOT / "tests" / "costs.tsv"
MOST_SHOWN = 200_000  # bytes of a failed test's output on the screen
MOST_KEPT = 16 << 20  # in the file of results
SIGNALS_EVERY_S = 0.5  # a look at signals
MOST_STARTS_IN_A_ROW = 3  # of a program that ends before its first case does
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Outcome:
    def __init__(self, test, outcome, seconds, output):
        self.test, self.outcome, self.seconds, self.output = test, outcome, seconds, output

    def element(self):
        status = {"passed": "run", "failed": "fail", "skipped": "notrun"}[self.outcome]
        element = ElementTree.Element("testcase", name=self.test.name, status=status, time=f"{self.seconds:.3f}")
        if self.outcome == "failed":
            ElementTree.SubElement(element, "failure", message="Failed")
        if self.outcome == "skipped":
            ElementTree.SubElement(element, "skipped", message="SKIP_RETURN_CODE" if self.test.skip_code else "SKIP_REGULAR_EXPRESSION_MATCHED")
        kept = self.output[-MOST_KEPT:].decode(errors="replace")
        ElementTree.SubElement(element, "system-out").text = NOT_XML.sub("?", kept)
        return element


def how_it_ended(ended, timeout_s):
    if ended.timed_out:
        return f"\nended at its time limit of {timeout_s:g} s\n".encode()
    if ended.status < 0:
        return f"\nended by {signal.Signals(-ended.status).name}\n".encode()
    # GoogleTest ends with 1 when a case has failed, and says so.
    return f"\nexit status {ended.status}\n".encode() if ended.status > 1 else b""


class Running:
    """The processes that run now, so that all of them can be ended."""

    def __init__(self):
        self._lock = threading.Lock()
        self._processes = set()
        self._over = False

    def run(self, command, test, changed=None):
        with self._lock:
            if self._over:
                raise InterruptedError
            started = process.Process(command, test.folder, test.environment)
            self._processes.add(started)
        try:
            return started.wait(test.timeout_s, changed)
        finally:
            with self._lock:
                self._processes.discard(started)

    def stop(self):
        with self._lock:
            self._over = True
            for started in self._processes:
                started.ask_to_end()
            for started in self._processes:
                started.stop()


def run_alone(running, test):
    if not test.command:
        raise FileNotFoundError(f"the program of {test.name} is not built")
    ended = running.run(test.command, test)
    if test.skip_code is not None and ended.status == test.skip_code:
        outcome = "skipped"
    elif ended.status or ended.timed_out:
        outcome = "failed"
    else:
        found = cases.cases_in(ended.output) if test.case else []
        outcome = "skipped" if found and all(case.outcome == "skipped" for case in found) else "passed"
    # Of a script the last line that it printed is its reason.
    end = how_it_ended(ended, test.timeout_s) if test.case or ended.timed_out or ended.status < 0 else b""
    if outcome == "skipped" and (why := gpus.why_no_skip(test)):
        outcome, end = "failed", f"\n{why}\n".encode()
    return Outcome(test, outcome, ended.seconds, ended.output + end), ended


def command_of(tests):
    names = ":".join(test.case for test in tests)
    return tuple(listing.FILTER + names if word.startswith(listing.FILTER) else word for word in tests[0].command)


def run_batch(running, tests):
    """The outcomes of cases that share a process, and the processes' ends."""
    todo, outcomes, ends, starts = list(tests), [], [], 0
    while todo:
        ended = running.run(command_of(todo), todo[0], cases.running_case)
        ends.append(ended)
        found = {case.name: case for case in cases.cases_in(ended.output)}
        if ended.status and not ended.timed_out and not any(case.outcome in ("failed", "open") for case in found.values()):
            # Something was wrong that no case says: each case by itself tells which it was.
            return blame(running, todo, ended, outcomes, ends)
        done = [test for test in todo if test.case in found]
        for test in done:
            case = found[test.case]
            wrong = how_it_ended(ended, test.timeout_s) or b"\nended in the middle of this case\n"
            outcomes.append(Outcome(test, "failed" if case.outcome == "open" else case.outcome, case.seconds,
                                    case.output + (wrong if case.outcome == "open" else b"")))
        todo = [test for test in todo if test.case not in found]
        starts = 0 if done else starts + 1
        if todo and starts == MOST_STARTS_IN_A_ROW:
            outcomes += [Outcome(test, "failed", 0.0, ended.output + b"\nthe program ended before this case\n") for test in todo]
            break
    return outcomes, ends


def blame(running, todo, ended, outcomes, ends):
    alone = []
    for test in todo:
        outcome, end = run_alone(running, test)
        alone.append(outcome)
        ends.append(end)
    if all(outcome.outcome != "failed" for outcome in alone):
        last = alone[-1]
        alone[-1] = Outcome(last.test, "failed", last.seconds, ended.output + how_it_ended(ended, last.test.timeout_s) +
                            b"this case passes alone; with the others of its process, whose output is above, it does not\n")
    return outcomes + alone, ends


class Run:
    """One run of all jobs."""

    def __init__(self, jobs, cores):
        self.jobs = jobs
        self.total = sum(len(job.tests) for job in jobs)
        self.outcomes, self.costs = [], {}
        self._schedule = schedule.Schedule(jobs, cores)
        self._running = Running()
        self._ended = queue.SimpleQueue()

    def _do(self, job):
        try:
            if len(job.tests) == 1:
                outcome, end = run_alone(self._running, job.tests[0])
                self._ended.put((job, [outcome], [end]))
            else:
                self._ended.put((job, *run_batch(self._running, job.tests)))
        except Exception as error:
            # A thread that ended without a word would be waited for.
            self._ended.put((job, [Outcome(test, "failed", 0.0, repr(error).encode()) for test in job.tests], []))

    def run(self):
        going = 0
        try:
            while self._schedule or going:
                while job := self._schedule.next():
                    going += 1
                    threading.Thread(target=self._do, args=(job,), daemon=True).start()
                job, outcomes, ends = self._next_end()
                going -= 1
                self._schedule.ended(job)
                self._tell(job, outcomes, ends)
        except KeyboardInterrupt:
            self._running.stop()
            raise
        return self.outcomes

    def _next_end(self):
        # A signal does not interrupt get() if another thread takes the signal, or if it comes just before get() blocks.
        # Python looks at signals between two get()s.
        while True:
            try:
                return self._ended.get(timeout=SIGNALS_EVERY_S)
            except queue.Empty:
                pass

    def _tell(self, job, outcomes, ends):
        self.outcomes += outcomes
        seconds, cpu = sum(end.seconds for end in ends), sum(end.cpu_seconds for end in ends)
        for outcome in outcomes:
            took = seconds if len(outcomes) == 1 else outcome.seconds
            self.costs[outcome.test.name] = listing.Cost(took, cpu / seconds if seconds else 0.0)
        what = job.tests[0].name
        if len(job.tests) > 1:
            what = f"{pathlib.PurePath(job.tests[0].command[0]).name}: {len(job.tests)} cases from {what} on"
        wrong = [outcome for outcome in outcomes if outcome.outcome == "failed"]
        word = f"{len(wrong)} FAILED" if wrong else "skipped" if all(o.outcome == "skipped" for o in outcomes) else "passed"
        print(f"[{len(self.outcomes):{len(str(self.total))}}/{self.total}] {word:8} {seconds:6.1f} s  {what}", flush=True)
        for outcome in wrong:
            print(f"---- {outcome.test.name}", outcome.output[-MOST_SHOWN:].decode(errors="replace"), sep="\n", flush=True)


def selected(tests, labels, named):
    """Of these tests those that run: a long one only with its label or by name."""
    return [test for test in tests if named or test.is_long == any(label == listing.LONG for label in labels)]


def words_of(seconds):
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def expected_s(jobs, cores):
    """About how long jobs take: what bounds them most of the processors, the longest lane, and those that run alone."""
    lanes = {}
    for job in jobs:
        for lock in job.locks:
            lanes[lock] = lanes.get(lock, 0.0) + job.cost.seconds
    alone = sum(job.cost.seconds for job in jobs if job.serial)
    busy = sum(job.cost.seconds * job.cost.cores for job in jobs if not job.serial) / cores
    return alone + max([busy, *lanes.values(), *(job.cost.seconds for job in jobs if not job.serial)], default=0.0)


def filters_of(asked):
    """The words that ctest takes."""
    options = (("-L", asked.label), ("-LE", asked.label_exclude), ("-R", asked.regex), ("-E", asked.exclude))
    return [word for option, values in options for value in values for word in (option, value)]


def announce(tests, chosen, jobs, cores):
    left = [test for test in tests if test.is_long and test not in chosen]
    print(f"{len(chosen)} tests in {len(jobs)} processes, about {words_of(expected_s(jobs, cores))} on {cores} processors"
          + (f"; {len(left)} more run with -L long" if left else ""), flush=True)
    if chosen and all(test.is_long for test in chosen):
        for job in sorted(jobs, key=lambda job: -job.cost.seconds):
            print(f"  {words_of(job.cost.seconds):>7}  {job.tests[0].name}", flush=True)


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--folder", default="", help="a folder below the build folder: its tests alone")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--near", action="store_true", help="the tests of near.py's last plan")
    parser.add_argument("--record", action="store_true", help="write what the tests took into tests/costs.tsv")
    parser.add_argument("-L", dest="label", action="append", default=[])
    parser.add_argument("-LE", dest="label_exclude", action="append", default=[])
    parser.add_argument("-R", dest="regex", action="append", default=[])
    parser.add_argument("-E", dest="exclude", action="append", default=[])
    return parser.parse_args(argv)


def main(argv):
    asked = parse(argv)
    cores = os.cpu_count() or 1
    try:
        gpus.expected()
    except gpus.NoNumber as error:
        print(f"tests: {error}", file=sys.stderr)
        return 2
    for old in asked.build.glob("results-*.xml"):
        old.unlink()
    try:
        plan, tests = near.read_tests(asked.build) if asked.near else (None, listing.read_tests(asked.build / asked.folder, filters_of(asked)))
        costs = listing.read_costs(COSTS)
    except listing.Unlisted as error:
        print(f"tests: {error}", file=sys.stderr)
        return 2
    chosen = selected(tests, asked.label, bool(asked.regex) or asked.near)
    if plan:
        print(*plan.lines, sep="\n", flush=True)
    recorded, failed = {}, False
    for number in range(1, asked.repeat + 1):
        jobs = schedule.jobs_of(chosen, costs)
        if asked.repeat > 1:
            print(f"run {number} of {asked.repeat}", flush=True)
        announce(tests, chosen, jobs, cores)
        run = Run(jobs, cores)
        begins = time.monotonic()
        outcomes = run.run()
        print(f"took {words_of(time.monotonic() - begins)}", flush=True)
        recorded |= run.costs
        failed |= any(outcome.outcome == "failed" for outcome in outcomes)
        write_results(asked.build / f"results-{number}.xml", outcomes)
    if asked.record:
        listing.write_costs(COSTS, costs | recorded)
    return 1 if failed else 0


def write_results(file, outcomes):
    suite = ElementTree.Element("testsuite", tests=str(len(outcomes)))
    suite.extend(outcome.element() for outcome in outcomes)
    ElementTree.ElementTree(suite).write(file, encoding="utf-8", xml_declaration=True)


def interrupt(number, frame):
    raise KeyboardInterrupt


if __name__ == "__main__":
    # A shell starts what is in its background with SIGINT ignored, and CI ends a run by SIGTERM.
    for ends in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ends, interrupt)
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit("tests: ended by a signal")
