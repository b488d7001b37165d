"""Prints where the time of a build and of its tests goes, as the tables of CONTRIBUTING.md.

Usage: figures.py BUILD_FOLDER
Seconds of compiling and linking by target come from the folder's .ninja_log: of an empty compiler cache, if the build had one.
Seconds of tests by label and lane come from tests/costs.tsv. "Busy" is the time of one processor.
"""

import collections
import pathlib
import re
import sys

import build_graph
import listing

ROOT = pathlib.Path(__file__).resolve().parents[2]
MOST_ROWS = 16
OBJECT = re.compile(r"^(?:.*/)?CMakeFiles/([^/]+)[.]dir/.*[.]o$|^(?:.*/)?CMakeFiles/([^/]+)[.]dir/.*[.]gch$")


def target_of(output):
    found = OBJECT.match(output)
    if found:
        return found[1] or found[2]
    return "links" if output.startswith(("bin/", "lib")) or output.endswith((".a", ".so")) else "generated files"


def by_target(seconds):
    """[(target, files, seconds)], the longest first."""
    total, files = collections.Counter(), collections.Counter()
    for output, took in seconds.items():
        if output.startswith("/"):  # CMake names some outputs twice
            continue
        target = target_of(output)
        total[target] += took
        files[target] += 1
    return [(target, files[target], took) for target, took in total.most_common()]


def group_of(test):
    """The lane of a test, or else its label."""
    if test.is_long:
        return "long"
    return f"lane {', '.join(sorted(test.locks))}" if test.locks else "alone" if test.serial else test.labels[0] if test.labels else "none"


def by_group(tests, costs):
    """[(group, tests, seconds, busy seconds)], the longest first. Tests of under a second have no cost of their own."""
    rows = collections.defaultdict(lambda: [0, 0.0, 0.0])
    for test in tests:
        row, cost = rows[group_of(test)], costs.get(test.name, listing.Cost(0.0, 0.0))
        row[0] += 1
        row[1] += cost.seconds
        row[2] += cost.seconds * cost.cores
    return sorted(((group, *row) for group, row in rows.items()), key=lambda row: -row[2])


def main(build):
    rows = by_target(build_graph.seconds_of((build / ".ninja_log").read_text()))
    print("| target | files | seconds |\n|---|---:|---:|")
    for target, files, took in rows[:MOST_ROWS]:
        print(f"| {target} | {files} | {took:.0f} |")
    others = rows[MOST_ROWS:]
    print(f"| {len(others)} others | {sum(row[1] for row in others)} | {sum(row[2] for row in others):.0f} |\n")
    print("| tests | number | seconds | busy |\n|---|---:|---:|---:|")
    for group, number, took, busy in by_group(listing.read_tests(build), listing.read_costs(ROOT / "tests" / "costs.tsv")):
        print(f"| {group} | {number} | {took:.0f} | {busy:.0f} |")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]))
