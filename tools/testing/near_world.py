"""What a configured build folder and the sources of its tests say, for tools/testing/near.py. Nothing is built or started, so that
ninja alone is asked: a list by ctest would want all programs built, and would start each of them.
"""

import dataclasses
import os
import pathlib
import re
import subprocess

import build_graph
import listing

CASE = re.compile(r"^(?:TYPED_)?TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)", re.MULTILINE)
ADDED = re.compile(r"^add_test\(\[=\[(.*?)\]=\] (.*)\)$", re.MULTILINE)
PROGRAM = re.compile(r"TEST_EXECUTABLE \[==\[(.*?)\]==\]\s.*?TEST_PROPERTIES \[==\[(.*?)\]==\]", re.DOTALL)
TEXTS = (".cpp", ".h", ".py", ".mjs", "CMakeLists.txt")


class Unreadable(Exception):
    """The build folder does not say what is needed. The text is one sentence for the user."""


@dataclasses.dataclass(frozen=True)
class Suite:
    """A GoogleTest program, or a test of ctest that runs a script."""
    name: str
    folder: str  # tests/controller/store
    labels: tuple
    program: str = ""
    cases: tuple = ()  # their names
    words: tuple = ()  # of its command and its environment

    @property
    def is_unit(self):
        return listing.UNIT in self.labels and listing.LONG not in self.labels

    @property
    def script(self):
        """The file that holds the tests. Wrappers such as tests/guard.py come before it in the command."""
        suite = next((word[8:] for word in self.words if word.startswith("-DSUITE=")), None)
        if suite:
            return f"web/test/{suite}.test.mjs"
        return next((word for word in reversed(self.words) if word.endswith(".py") and word != "tests/guard.py"), "")


@dataclasses.dataclass
class World:
    """What a build folder and the sources say. All files are relative to the root of the sources."""
    build: str
    edges: list
    reads: dict  # {object: files that it is compiled from}
    sources: dict  # {object: those that are no headers}
    suites: list
    texts: dict  # {file of the tests: its text}
    seconds: dict = dataclasses.field(default_factory=dict)  # {output: what its command took}


def cases_in(text):
    return [f"{suite}.{case}" for suite, case in CASE.findall(text)]



def names_it(text, file):
    """Whether a test's text has the path of a file or its name in quotes, or imports it."""
    name, stem = (re.escape(word) for word in (os.path.basename(file), pathlib.PurePosixPath(file).stem))
    return bool(file in text or (name != r"CMakeLists\.txt" and re.search(rf"[\"'/]{name}[\"'/\s]", text))
                or (file.endswith(".py") and re.search(rf"^\s*(?:import|from)\b.*\b{stem}\b", text, re.MULTILINE)))


def readers_of(file, texts):
    """The files of the tests that name a file, or that use a macro for a folder above it."""
    found = {reader for reader, text in texts.items() if names_it(text, file)}
    for cmake, text in texts.items():
        for macro, folder in re.findall(r'(MUSTER_\w+_FOLDER)="([^"]*)"', text) if cmake.endswith("CMakeLists.txt") else ():
            if any(folder.endswith(f"/{parent}") for parent in pathlib.PurePosixPath(file).parents):
                found.update(reader for reader in texts if os.path.dirname(reader) == os.path.dirname(cmake) and macro in texts[reader])
    return found


def programs_in(text):
    """(program, labels) of a file in which gtest_discover_tests leaves what ctest shall ask."""
    return [(program, tuple(re.search("LABELS;([^;]*)", properties)[1].split()))
            for program, properties in PROGRAM.findall(text)]


def scripts_in(text, folder, name_of=str):
    """The suites of a CTestTestfile.cmake that are no GoogleTest programs."""
    suites = []
    for name, command in ADDED.findall(text):
        properties = re.search(rf"^set_tests_properties\(\[=\[{re.escape(name)}\]=\] PROPERTIES (.*)\)$", text, re.MULTILINE)
        said = dict(re.findall(r' (\w+) "([^"]*)"', properties[1] if properties else ""))
        words = [*re.findall(r'"([^"]*)"', command), *said.get("ENVIRONMENT", "").split(";"), said.get("WORKING_DIRECTORY", "")]
        suites.append(Suite(name, folder, tuple(said.get("LABELS", "").split(";")), words=tuple(
            "".join(name_of(part) if "/" in part else part for part in re.split("(=)", word)) for word in words if word)))
    return suites


def read(build, root):
    """The world of a build folder."""
    build, root = pathlib.Path(os.path.abspath(build)), pathlib.Path(os.path.abspath(root))
    names = {}

    def name_of(file):
        if file not in names:
            full = os.path.normpath(build / file)
            names[file] = full[len(str(root)) + 1:] if full.startswith(f"{root}/") else full
        return names[file]

    done = subprocess.run(["ninja", "-C", str(build), "-t", "deps"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise Unreadable(f"ninja can't read {build}: {done.stdout.strip()}")
    # CMake's own edges and the other names of targets make nothing that is tested.
    edges = [edge for edge in build_graph.edges_of((build / "build.ninja").read_text(), name_of)
             if edge.rule not in ("RERUN_CMAKE", "phony")]
    reads, sources = build_graph.objects_of(done.stdout, name_of), {}
    for edge in edges:
        if edge.rule.startswith("CXX_COMPILER_"):
            source, made = root / edge.inputs[0], edge.outputs[0]
            is_unity = "/Unity/unity_" in edge.inputs[0] and source.exists()
            sources[made] = build_graph.included(source.read_text()) if is_unity else [edge.inputs[0]]
            reads.setdefault(made, set()).update(sources[made])
    texts = {name_of(str(file)): file.read_text(errors="replace") for folder in ("tests", "python/tests", "web/test")
             for file in sorted((root / folder).rglob("*")) if file.name.endswith(TEXTS)}
    links, suites = build_graph.Links(edges, sources), []
    for file in sorted((build / "tests").rglob("*.cmake")):
        text, folder = file.read_text(), str(file.parent.relative_to(build))
        if file.name == "CTestTestfile.cmake":
            suites += scripts_in(text, folder, name_of)
        elif file.name.endswith("_include.cmake"):
            for program, labels in programs_in(text):
                of_last_time = file.with_name(file.name.replace("_include.cmake", "_tests.cmake"))
                if of_last_time.exists():
                    cases = re.findall(r"^add_test\(\[=\[(.*?)\]=\]", of_last_time.read_text(), re.MULTILINE)
                else:  # a case with parameters counts once
                    cases = [case for source in sorted(links.sources.get(name_of(program), ())) for case in cases_in(texts.get(source, ""))]
                suites.append(Suite(pathlib.Path(program).name, folder, labels, name_of(program), tuple(cases)))
    log = build / ".ninja_log"
    seconds = {name_of(made): s for made, s in build_graph.seconds_of(log.read_text() if log.exists() else "").items()}
    return World(name_of(str(build)), edges, reads, sources, suites, texts, seconds)
