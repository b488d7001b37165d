"""The tests that the files which differ from main reach, and what must be built to run them.

Usage: near.py BUILD_FOLDER --targets
The configured build folder says what is made of what: build.ninja has each object, library and program with its inputs, `ninja -t
deps` the files that each object read when it was last compiled, and the sources of a unity build the files that they consist of,
which are known before anything is compiled. Three kinds of tests are near:
  linked: unit tests of the programs into whose link a changed file goes. Programs of the file's own folder come first, then those
          with the fewest libraries in between, as long as building and running them is expected to take less than BOUND_S.
  own:    tests of any label whose own source changed, and unit tests whose source names a changed file that nothing compiles.
  house:  the rules of the house, and the tests of a changed tool.
Lines say what is reached and does not run. The plan is kept in BUILD_FOLDER/near.json: after the build, ninja knows other costs,
and the tests that run must be those that were built. Programs need not exist for a plan, nor does it start any.
Exit status: 0 with a plan, 2 if nothing is near.
"""

import argparse
import collections
import dataclasses
import json
import os
import pathlib
import re
import sys

import build_graph
import listing
import near_world
import schedule
from near_world import cases_in, readers_of

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from changed_files import Unknown, changed_files  # noqa: E402

PLAN = "near.json"
BOUND_S = 40.0  # for programs beyond the first; the rest of a minute is for ninja, ctest and the rules of the house
BOUND_TORCH_S = 65.0  # of a minute and a half, where the first program uses LibTorch
PROGRAM_S = 1.0  # for ctest's list of its cases and the start of its processes
ALWAYS = {"House.comments", "House.format", "House.DependencyDirectionHolds"}


class NothingNear(Exception):
    """There is nothing to run. The text is one sentence for the user."""


@dataclasses.dataclass
class Plan:
    targets: list  # for ninja
    folders: list  # below the build folder: ctest lists their tests
    programs: dict  # {program: cases as Suite.Case, or None for all}, own ones and then the nearest first
    scripts: list  # names of tests
    lines: list  # what the user should know


def is_case(name, cases):
    """Whether a case that ctest may name Values/Suite.Case/0 is one of these."""
    suites, _, case = name.partition(".")
    return any(f"{suite}.{case.split('/')[0]}" in cases for suite in suites.split("/"))


def mirror_of(file, folders):
    """The folder of tests for a file's folder: tests/controller/store for controller/store/schema/001.sql."""
    parts = pathlib.PurePosixPath(file).parent.parts
    parts = parts[1:] if parts[:1] == ("tests",) else parts
    return next((f for n in range(len(parts), 0, -1) if (f := "/".join(("tests", *parts[:n]))) in folders), None)


class Planner:
    def __init__(self, world, costs, cores):
        self.world, self.costs, self.cores = world, costs, cores
        self.links = build_graph.Links(world.edges, world.sources)
        self.programs = {suite.program: suite for suite in world.suites if suite.program in self.links.edges}
        self.scripts = [suite for suite in world.suites if not suite.program]
        self.linked = {}  # {program: how far}
        self.own = collections.defaultdict(set)  # {program: cases}
        self.names = {suite.name for suite in self.scripts if suite.name in ALWAYS}
        self.aside = {}  # {suite: what it does with a changed file}, of those that are no unit tests
        self.made = set()

    def look_at(self, file):
        """Notes what a changed file reaches. Whether it reaches anything."""
        holders = [name for name in self.programs if file in self.links.sources[name]]
        cases = cases_in(self.world.texts.get(file, ""))
        if holders and cases:
            for name in holders:
                self.own[name].update(cases)
            return True
        homes, mirror = self.links.homes(file), mirror_of(file, {suite.folder for suite in self.programs.values()})
        begin = set()
        if os.path.basename(file) == "CMakeLists.txt":
            begin = self.links.objects_in(os.path.normpath(os.path.join(self.world.build, os.path.dirname(file))))
        made = build_graph.reached([file, *begin], self.world.reads, self.world.edges) | begin
        if not made and file.endswith(".h"):  # a new one, which its folder's files will include
            made = build_graph.reached(homes, self.world.reads, self.world.edges) | homes
        self.made |= made
        for name in made.intersection(self.programs):
            far = self.programs[name].folder != mirror, self.links.distance(name, homes)
            if self.programs[name].is_unit:
                self.linked[name] = min(far, self.linked.get(name, far))
        scripts = self._scripts_of(file)
        return bool(made | self._readers(file)) or scripts

    def _scripts_of(self, file):
        top, stem = file.split("/")[0], pathlib.PurePosixPath(file).stem
        found = {suite.name for suite in self.scripts if suite.script == file
                 or ((top in ("tools", "dev") or file == "tests/guard.py") and suite.name == f"House.{stem}")
                 or (top in ("python", "web") and suite.is_unit and suite.name.startswith(top.capitalize() + "."))}
        self.names |= found
        return bool(found)

    def _readers(self, file):
        """Notes the tests whose text names a file that no compiler reads, and returns the files with these texts."""
        readers = set() if file.endswith((".cpp", ".h", ".cu")) else readers_of(file, self.world.texts)
        for suite in self.world.suites:
            sources = readers.intersection(self.links.sources.get(suite.program, [suite.script]))
            if sources and not suite.is_unit:
                self.aside[suite] = "read it"
            elif sources and not suite.program:
                self.names.add(suite.name)
            elif cases := {case for source in sources for case in cases_in(self.world.texts[source])}:
                self.own[suite.program].update(cases)
        return readers

    def _needed(self, name):
        """The outputs to be made anew for a program."""
        inputs = {made: edge.inputs for edge in self.world.edges for made in edge.outputs}
        seen, todo = set(), [name]
        while todo:
            made = todo.pop()
            if made in self.made and made not in seen:
                seen.add(made)
                todo += [*inputs.get(made, ()), *self.world.reads.get(made, ())]
        return seen

    def _building_s(self, made):
        """About how long these outputs take: one command does not get faster by a second processor."""
        seconds = [self.world.seconds.get(name, 0.0) for name in made]
        return max(sum(seconds) / self.cores, max(seconds, default=0.0))

    def _running_s(self, name):
        known = [self.costs.get(case, schedule.UNKNOWN_CASE) for case in self.programs[name].cases]
        return (PROGRAM_S + sum(cost.seconds * cost.cores for cost in known)) / self.cores

    def _within_bound(self):
        """The programs that fit, the nearest first, and those that do not. The first one runs in any case."""
        chosen, left, made, running = [], [], set(), 0.0
        for name in sorted(self.linked, key=lambda name: (self.linked[name], len(self.programs[name].cases), name)):
            with_it = made | self._needed(name)
            bound = BOUND_TORCH_S if any("libtorch" in file for file in self.links.edges[(chosen or [name])[0]].inputs) else BOUND_S
            if chosen and self._building_s(with_it) + running + self._running_s(name) > bound:
                left.append(name)
            else:
                chosen.append(name)
                made, running = with_it, running + self._running_s(name)
        return chosen, left

    def _products(self, folders=()):
        """The programs that people run, and those that tests in these folders start."""
        other = {name for name in self.links.programs() if name not in self.programs}
        of_tests = {name: mine.pop() for name in other if (mine := {os.path.dirname(file) for file in self.links.sources[name]
                                                                    if file.startswith(("tests/", "bench/"))})}
        return sorted(name for name in other if name not in of_tests or of_tests[name] in folders)

    def _targets_of(self, suite):
        """What a script starts or reads in the build folder."""
        found = []
        for word in {part for word in suite.words for part in re.split("[=;]", word)}:
            if word == f"{self.world.build}/bin":
                found += self._products([suite.folder])
            elif word in self.links.edges:
                found.append(word)
            elif word.startswith(self.world.build + "/") and not word.startswith(f"{self.world.build}/tests"):
                found += [made for edge in self.world.edges for made in edge.outputs if os.path.dirname(made) == word]
        return found

    def _left_out(self, far):
        lines = []
        if far:
            cases = sum(len(self.programs[name].cases) for name in far)
            names = ", ".join(map(os.path.basename, far))
            lines.append(f"not run: {cases} cases of programs farther away that link it ({names}): ./dev test")
        started = sorted(map(os.path.basename, self.made.intersection(self._products())), key=lambda name: (name != "musterd", name))
        what = f"start {' or '.join(started[:2])}{' or others' if started[2:] else ''}" if started else "link it"
        for suite in self.world.suites:
            edge = self.links.edges.get(suite.program)
            uses_it = (self.made.intersection([suite.program, *edge.after]) if edge else
                       started and any(f"{self.world.build}/bin" in word for word in suite.words))
            if uses_it and not suite.is_unit:
                self.aside[suite] = what
        aside = {suite: how for suite, how in self.aside.items() if suite.name not in self.names and suite.program not in self.own}
        for how in sorted(set(aside.values())):
            suites = [suite for suite in aside if aside[suite] == how]
            labels = ", ".join(sorted({label for suite in suites for label in suite.labels} - {listing.APART}))
            count = sum(len(suite.cases) if suite.program else 1 for suite in suites)
            lines.append(f"not run: {count} tests ({labels}) that {how}: ./dev test")
        return lines

    def plan(self, changed):
        nowhere = [file for file in changed if not self.look_at(file)]
        chosen, far = self._within_bound()
        programs = {name: sorted(cases) for name, cases in self.own.items() if name not in chosen} | dict.fromkeys(chosen)
        scripts = [suite for suite in self.scripts if suite.name in self.names]
        targets = sorted({*programs, *(made for suite in scripts for made in self._targets_of(suite))})
        lines = self._left_out([name for name in far if name not in programs])
        if nowhere:
            lines.append(f"no test is known to be near {', '.join(nowhere)}: ./dev test")
        lines += [f"every program is built with {file}: ./dev test" for file in changed
                  if file.startswith("tools/cmake/") or file in ("CMakeLists.txt", "CMakePresets.json")]
        folders = {suite.folder: None for suite in [*map(self.programs.get, programs), *scripts]}
        return Plan([os.path.relpath(made, self.world.build) for made in targets], list(folders), programs,
                    [suite.name for suite in scripts], lines)


def choose(plan, tests):
    """The tests of a plan among those that ctest lists, the nearest first."""
    programs = {os.path.abspath(name): (place, cases) for place, (name, cases) in enumerate(plan.programs.items())}
    chosen = []
    for test in tests:
        place, cases = next((programs[word] for word in test.command if word in programs), (len(programs), ()))
        if test.name in plan.scripts or cases is None or is_case(test.case or "", cases):
            chosen.append((place, test))
    return [test for _, test in sorted(chosen, key=lambda pair: pair[0])]


def read_plan(build):
    return Plan(**json.loads((pathlib.Path(build) / PLAN).read_text()))


def read_tests(build):
    """The plan of a build folder and its tests, the nearest first, once its targets are built. ctest lists the plan's folders alone.
    It asks a program for its cases only if the program is newer than its list. Other programs there need not be built."""
    plan = read_plan(build)
    listed = {test.name: test for folder in plan.folders for test in listing.read_tests(pathlib.Path(build) / folder)}
    known = {word for test in listed.values() for word in test.command}
    for name in plan.programs:
        if os.path.abspath(name) not in known:
            raise listing.Unlisted(f"{name} is in {pathlib.Path(build) / PLAN} and not built")
    return plan, choose(plan, listed.values())


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--targets", action="store_true", required=True, help="plan, and print the targets for ninja, one a line")
    build = parser.parse_args(argv).build
    try:
        changed = changed_files(deleted=True)
        if not changed:
            raise NothingNear("nothing is near: no file differs from main")
        world = near_world.read(build, pathlib.Path.cwd())
        plan = Planner(world, listing.read_costs("tests/costs.tsv"), os.cpu_count() or 1).plan(changed)
        (build / PLAN).write_text(json.dumps(dataclasses.asdict(plan)))
    except (NothingNear, Unknown, near_world.Unreadable, listing.Unlisted, OSError) as error:
        print(f"tests: {error}", file=sys.stderr)
        return 2
    print("\n".join(plan.targets), end="\n" if plan.targets else "")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
