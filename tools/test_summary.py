"""Prints the skipped tests with their reasons, the failed tests with their first failure, and a closing line with the counts.

Usage: test_summary.py RESULTS.xml...    (the JUnit files of ctest, one per run)
ctest may see a whole program as one test. A skip inside such a program counts as a skip, besides the program's own pass.
Over several runs a test has passed if it passed in each.
Exit status: 0 if something passed in every run, nothing failed and every skip has a reason, 1 otherwise.
"""

import re
import sys
import xml.etree.ElementTree as ElementTree

NO_REASON = "gave no reason"
# GoogleTest: "[ RUN      ] Suite.name", then "file:line: Skipped" with the reason below it, then "[  SKIPPED ] Suite.name (0 ms)".
CASE_BEGINS = re.compile(r"^\[ RUN      \] (\S+)", re.MULTILINE)
CASE_SKIPPED = re.compile(r"^\[  SKIPPED \] \S+.* \(\d+ ms\)$", re.MULTILINE)
CASE_FAILED = re.compile(r"^\[  FAILED  \] ", re.MULTILINE)
CASE_PASSED = re.compile(r"^\[       OK \] ", re.MULTILINE)
CASE_WRONG = re.compile(r"^(?:.*/)?([^/\n:]+:\d+): Failure\n((?:[^\[\n].*\n?)*)", re.MULTILINE)
PYTHON_WRONG = re.compile(r"^Traceback .*\n(?: .*\n)+(\S.*)", re.MULTILINE)
MOST_WORDS_OF_A_FAILURE = 240  # characters
# The output of Python's unittest -v. A test with a docstring takes two lines.
PYTHON_SKIPPED = re.compile(r"^(\w+) \(.*\)(?:\n.*)? \.\.\. skipped (['\"])(.*)\2$", re.MULTILINE)


def reason_in(text):
    found = re.search(r"Skipped\n(.+)", text) or re.search(r"[Ss][Kk][Ii][Pp][^:\n]*: *(.+)", text)
    return found.group(1).strip() if found else NO_REASON


def skips_inside(output):
    """(case, reason) of each test that the program itself skipped."""
    begins = list(CASE_BEGINS.finditer(output))
    for begin, after in zip(begins, [m.start() for m in begins[1:]] + [len(output)]):
        text = output[begin.end():after]
        skipped = CASE_SKIPPED.search(text)
        if skipped:
            yield begin.group(1), reason_in(text[:skipped.start()])
    for match in PYTHON_SKIPPED.finditer(output):
        yield match.group(1), match.group(3).strip() or NO_REASON


def what_was_wrong(name, output):
    """The test's first failure in one line: case, position and message. Without one, the last lines of the program."""
    wrong, python = CASE_WRONG.search(output), PYTHON_WRONG.search(output)
    if wrong:
        cases = [case.group(1) for case in CASE_BEGINS.finditer(output, 0, wrong.start()) if case.group(1) != name]
        words = ": ".join([*cases[-1:], wrong.group(1), wrong.group(2)])
    elif python:
        words = python.group(1)
    else:
        words = (output.strip().splitlines() or ["it said nothing"])[-1]
    words = " ".join(words.split())
    return words if len(words) <= MOST_WORDS_OF_A_FAILURE else words[:MOST_WORDS_OF_A_FAILURE] + " ..."


def outcome_of(test):
    """'passed', 'failed' or 'skipped', and [(name, reason)] of the skipped or failed cases."""
    name, output = test.get("name"), test.findtext("system-out") or ""
    skip = test.find("skipped")
    if test.find("failure") is not None or test.get("status") == "fail" or CASE_FAILED.search(output):
        return "failed", [(name, what_was_wrong(name, output))]
    if test.get("status") == "disabled":
        return "skipped", [(name, "disabled")]
    if skip is not None or test.get("status") == "notrun":
        asked_for = skip is not None and skip.get("message", "").startswith("SKIP_")
        return ("skipped", [(name, reason_in(output))]) if asked_for else ("failed", [(name, what_was_wrong(name, output))])
    skips = [(f"{name}: {case}", reason) for case, reason in skips_inside(output)]
    everything = skips and CASE_BEGINS.search(output) and not CASE_PASSED.search(output)
    return ("skipped" if everything else "passed"), skips


def read(path):
    """The outcome and reasons of each test of one run, by name."""
    try:
        tests = ElementTree.parse(path).getroot().findall("testcase")
    except (OSError, ElementTree.ParseError) as error:
        print(f"no test results: {error}", file=sys.stderr)
        return {}
    return {test.get("name"): outcome_of(test) for test in tests}


def main(paths):
    runs = [read(path) for path in paths]
    names = list(dict.fromkeys(name for run in runs for name in run))
    outcomes = {name: [run[name][0] for run in runs if name in run] for name in names}
    skips = dict(skip for run in runs for outcome, found in run.values() if outcome != "failed" for skip in found)
    wrong = dict(reason for run in reversed(runs) for outcome, found in run.values() if outcome == "failed" for reason in found)
    failed = [name for name in names if "failed" in outcomes[name]]
    passed = [name for name in names if set(outcomes[name]) == {"passed"}]
    for case, reason in skips.items():
        print(f"skipped: {case}: {reason}")
    for name in failed:
        often = f" ({outcomes[name].count('failed')} of {len(runs)} runs)" if len(runs) > 1 else ""
        print(f"FAILED: {name}{often}: {wrong[name]}")
    empty = sum(all(outcome != "passed" for outcome, _ in run.values()) for run in runs)
    if len(runs) > 1:
        print(f"{len(runs)} runs" + (f", in {empty} of which nothing passed" if empty else ""))
    print(f"{len(passed)} passed, {len(failed)} failed, {len(skips)} skipped")
    return 1 if failed or empty or not passed or NO_REASON in skips.values() else 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: test_summary.py RESULTS.xml...")
    sys.exit(main(sys.argv[1:]))
