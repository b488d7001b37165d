"""./dev test --near builds and runs what the changed files reach, the nearest first, and says what it leaves out.

Method: what CMake 3.25 and ninja write, as short excerpts; and a small repository with the real git, ninja and ctest, in which a
build copies files as compilers would read them.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools" / "testing"
sys.path.insert(0, str(TOOLS))
import build_graph  # noqa: E402
import listing  # noqa: E402
import near  # noqa: E402
import near_world  # noqa: E402

NINJA = r"""# CMAKE generated file: DO NOT EDIT!
cmake_ninja_workdir = /muster/build/dev/
build cmake_object_order_depends_target_muster_store: phony || cmake_object_order_depends_target_muster_core controller/store/schema.cpp

build controller/store/CMakeFiles/muster_store.dir/Unity/unity_1.cpp.o: CXX_COMPILER__muster_store_Release /muster/build/dev/controller/store/CMakeFiles/muster_store.dir/Unity/unity_1.cpp || cmake_object_order_depends_target_muster_store
  DEP_FILE = controller/store/CMakeFiles/muster_store.dir/Unity/unity_1.cpp.o.d
  FLAGS = -O2 -fPIC   -Wall -Wextra -std=c++20

build controller/store/libmuster_store.a: CXX_STATIC_LIBRARY_LINKER__muster_store_Release controller/store/CMakeFiles/muster_store.dir/Unity/unity_1.cpp.o || contract/libmuster_contract.a controller/core/libmuster_core.a
build controller/store/schema.cpp | ${cmake_ninja_workdir}controller/store/schema.cpp: CUSTOM_COMMAND /muster/controller/store/schema/001.sql /muster/a$ folder/embed$:1.cmake || contract/libmuster_contract.a
build bin/store_test: CXX_EXECUTABLE_LINKER__store_test_Release tests/controller/store/CMakeFiles/store_test.dir/Unity/unity_0.cpp.o | controller/store/libmuster_store.a /usr/lib/x86_64-linux-gnu/libgtest.a || contract/libmuster_contract.a
"""
DEPS = """schema/CMakeFiles/muster_schema.dir/nearest.cpp.o: #deps 4, deps mtime 1795821339578708732 (VALID)
    ../../schema/nearest.cpp
    /usr/include/stdc-predef.h
    ../../schema/nearest.h
    schema/made.h

schema/CMakeFiles/muster_schema.dir/key.cpp.o: #deps 1, deps mtime 1795821339985897567 (STALE)
    /muster/schema/key.cpp

"""
INCLUDE = r"""if(EXISTS "%(bin)s/%(name)s")
  if(NOT EXISTS "%(here)s/%(name)s[1]_tests.cmake" OR
     NOT "%(here)s/%(name)s[1]_tests.cmake" IS_NEWER_THAN "%(bin)s/%(name)s")
    include("/usr/share/cmake-3.25/Modules/GoogleTestAddTests.cmake")
    gtest_discover_tests_impl(
      TEST_EXECUTABLE [==[%(bin)s/%(name)s]==]
      TEST_EXECUTOR [==[]==]
      TEST_WORKING_DIR [==[%(here)s]==]
      TEST_EXTRA_ARGS [==[]==]
      TEST_PROPERTIES [==[LABELS;%(labels)s;TIMEOUT;180]==]
      TEST_PREFIX [==[]==]
      TEST_SUFFIX [==[]==]
      TEST_FILTER [==[]==]
      NO_PRETTY_TYPES [==[FALSE]==]
      NO_PRETTY_VALUES [==[TRUE]==]
      TEST_LIST [==[%(name)s_TESTS]==]
      CTEST_FILE [==[%(here)s/%(name)s[1]_tests.cmake]==]
      TEST_DISCOVERY_TIMEOUT [==[120]==]
      TEST_XML_OUTPUT_DIR [==[]==]
    )
  endif()
  include("%(here)s/%(name)s[1]_tests.cmake")
else()
  add_test(%(name)s_NOT_BUILT %(name)s_NOT_BUILT)
endif()
"""
SCRIPT = """add_test([=[{name}]=] "python3" "-B" "{root}/cmake/../tests/guard.py" "python3" "-B" {words})
set_tests_properties([=[{name}]=] PROPERTIES  LABELS "{labels}" TIMEOUT "240" _BACKTRACE_TRIPLES "{root}/tests/CMakeLists.txt;31;add_test;")
"""
# Compiles: notes what the source includes, as a depfile. Links: makes a program that lists its cases as GoogleTest does.
RULES = r"""rule CXX_COMPILER__all
  command = cat $in $READS > $out && echo "$out: $in $READS" > $out.d
  depfile = $out.d
  deps = gcc
rule CXX_STATIC_LIBRARY_LINKER__all
  command = cat $in > $out
rule CXX_EXECUTABLE_LINKER__all
  command = printf '#!/bin/sh\nprintf "$CASES"\n' > $out && chmod +x $out
rule CUSTOM_COMMAND
  command = cp $in $out
"""


class Texts(unittest.TestCase):
    """What CMake and ninja write is understood."""

    def test_an_edge_has_outputs_inputs_and_what_is_built_before(self):
        edges = {edge.outputs[0]: edge for edge in build_graph.edges_of(NINJA)}
        self.assertEqual(edges["bin/store_test"], build_graph.Edge(
            "CXX_EXECUTABLE_LINKER__store_test_Release", ("bin/store_test",),
            ("tests/controller/store/CMakeFiles/store_test.dir/Unity/unity_0.cpp.o", "controller/store/libmuster_store.a",
             "/usr/lib/x86_64-linux-gnu/libgtest.a"), ("contract/libmuster_contract.a",)))
        self.assertEqual(edges["controller/store/schema.cpp"], build_graph.Edge(
            "CUSTOM_COMMAND", ("controller/store/schema.cpp", "/muster/build/dev/controller/store/schema.cpp"),
            ("/muster/controller/store/schema/001.sql", "/muster/a folder/embed:1.cmake"), ("contract/libmuster_contract.a",)))
        self.assertEqual(len(edges), 5)

    def test_an_object_has_the_files_of_the_sources_that_it_read(self):
        def name_of(file):
            full = os.path.normpath(os.path.join("/muster/build/dev", file))
            return full.removeprefix("/muster/")
        self.assertEqual(build_graph.objects_of(DEPS, name_of), {
            "build/dev/schema/CMakeFiles/muster_schema.dir/nearest.cpp.o": {"schema/nearest.cpp", "schema/nearest.h",
                                                                            "build/dev/schema/made.h"},
            "build/dev/schema/CMakeFiles/muster_schema.dir/key.cpp.o": {"schema/key.cpp"}})

    def test_order_only_inputs_make_nothing(self):
        edges = build_graph.edges_of(NINJA)
        reads = {"controller/store/CMakeFiles/muster_store.dir/Unity/unity_1.cpp.o": {"controller/store/schema.cpp"}}
        self.assertEqual(build_graph.reached(["/muster/controller/store/schema/001.sql"], reads, edges), {
            "controller/store/schema.cpp", "/muster/build/dev/controller/store/schema.cpp", "bin/store_test",
            "controller/store/CMakeFiles/muster_store.dir/Unity/unity_1.cpp.o", "controller/store/libmuster_store.a"})
        self.assertEqual(build_graph.reached(["contract/libmuster_contract.a"], reads, edges), set())

    def test_the_longest_time_of_an_output_is_what_it_takes(self):
        log = "# ninja log v5\n324\t2051\t1795\ta.o\td37c\n10\t60\t1796\ta.o\td37d\n0\t5\t1\tb.o\te\n"
        self.assertEqual(build_graph.seconds_of(log), {"a.o": 1.727, "b.o": 0.005})

    def test_a_program_has_its_labels(self):
        names = {"bin": "/b/bin", "here": "/b/tests", "name": "store_test"}
        self.assertEqual(near_world.programs_in(INCLUDE % (names | {"labels": "unit"})), [("/b/bin/store_test", ("unit",))])
        self.assertEqual(near_world.programs_in(INCLUDE % (names | {"labels": "unit apart"})), [("/b/bin/store_test", ("unit", "apart"))])

    def test_a_case_is_known_by_any_name_that_ctest_gives_it(self):
        for name in ("Store.Opens", "Values/Store.Opens/0", "Store/0.Opens", "Names/Store/Text.Opens"):
            self.assertTrue(near.is_case(name, ["Store.Opens"]), name)
        for name in ("Store.OpensAgain", "Stores.Opens", "Values/Store.Closes/Opens"):
            self.assertFalse(near.is_case(name, ["Store.Opens"]), name)

    def test_macros_of_googletest_are_cases(self):
        self.assertEqual(near_world.cases_in("TEST(A, B) {\nTEST_P(C,\n       D) {\n  TEST(no, case);\nTYPED_TEST(E, F)\nTEST_F(G, H)"),
                         ["A.B", "C.D", "E.F", "G.H"])


class Repository(unittest.TestCase):
    """A repository on a branch, with a build folder like the real one."""

    LIBRARIES = {  # name: folder, sources, libraries that it needs
        "core": ("controller/core", ["apply.cpp"], []),
        "store": ("controller/store", ["sqlite.cpp", "codec.cpp"], ["core"]),
        "service": ("controller/service", ["service.cpp"], ["core", "store"]),
        "schema": ("schema", ["key.cpp"], []),
        "schema_support": ("tests/schema", ["support.cpp"], ["schema"]),
    }
    PROGRAMS = {  # name: folder, source, libraries, labels, what it starts
        "musterd": ("controller", "main.cpp", ["core", "store", "service"], None, []),
        "core_test": ("tests/controller/core", "apply_test.cpp", ["core"], "unit", []),
        "store_test": ("tests/controller/store", "sqlite_test.cpp", ["core", "store"], "unit", []),
        "service_test": ("tests/controller/service", "service_test.cpp", ["core", "store", "service"], r"unit apart", []),
        "schema_test": ("tests/schema", "key_test.cpp", ["schema", "schema_support"], "unit", []),
        "agent_test": ("tests/agent", "task_test.cpp", ["schema"], "unit", []),
        "system_faults_test": ("tests/system", "faults_test.cpp", ["schema"], "system", ["musterd"]),
        "system_ports_test": ("tests/system", "ports_test.cpp", ["core"], "system", ["musterd"]),
        "peers_rank": ("tests/peers", "rank.cpp", [], None, []),
    }
    SCRIPTS = {  # name: folder, file, labels, more words
        "House.comments": ("tests/house", "tools/check_comments.py", "unit", []),
        "House.format": ("tests/house", "tools/check_format.py", "unit", []),
        "House.DependencyDirectionHolds": ("tests/house", "tools/check_house.py", "unit", []),
        "House.tidy": ("tests/house", "tests/house/tidy_test.py", "unit", []),
        "House.setup": ("tests/house", "tests/house/setup_test.py", "unit", []),
        "Python.report": ("tests/python", "python/tests/test_report.py", "unit", []),
        "Python.client": ("tests/python", "python/tests/test_client.py", "system", ["bin"]),
        "Listen": ("tests/system", "tests/system/listen_test.py", "system", ["bin"]),
        "Freeze": ("tests/system", "build/dev/bin/system_faults_test", "system", []),
        "Peers.engine": ("tests/peers", "tests/peers/engine_test.py", "peers", ["bin"]),
    }
    READS = {"apply.cpp": ["controller/core/job.h"], "service.cpp": ["controller/core/job.h"]}

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = pathlib.Path(temporary.name).resolve()
        self.build = self.root / "build" / "dev"
        self.write(".gitignore", "build/\n")
        for name in ("controller/core/job.h", "README.md", "docs/words.md", "controller/store/schema/001.sql"):
            self.write(name, "")
        for folder, sources, _ in self.LIBRARIES.values():
            for source in sources:
                self.write(f"{folder}/{source}", "")
        for folder, source, _, labels, _ in self.PROGRAMS.values():
            suite = source.split("_test")[0]
            self.write(f"{folder}/{source}", f"TEST({suite}, first) {{\nTEST({suite}, second) {{\n" if labels else "")
        for _, file, _, _ in self.SCRIPTS.values():
            if file.endswith(".py"):
                self.write(file, "")
        self.write_build()
        self.git("init", "-q", "-b", "main")
        self.commit()
        self.git("checkout", "-q", "-b", "work")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def change(self, name):
        self.write(name, "changed\n" if not name.endswith("_test.cpp") else (self.root / name).read_text() + "// changed\n")

    def git(self, *arguments):
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments], cwd=self.root, check=True,
                       env=dict(os.environ, GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_SYSTEM="/dev/null"))

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "a change")

    def write_build(self):
        lines = [f"cmake_ninja_workdir = {self.build}/", RULES]

        def objects(folder, name, sources):
            made = f"{folder}/CMakeFiles/{name}.dir"
            files = [f"{self.root}/{folder}/{source}" for source in sources]
            reads = [f"../../{file}" for source in sources for file in self.READS.get(source, [])]
            if len(files) > 1:
                self.write(f"build/dev/{made}/Unity/unity_0.cpp", "".join(f'#include "{folder}/{source}"\n' for source in sources))
                reads, files = files + ["controller/store/schema.cpp"], [f"{self.build}/{made}/Unity/unity_0.cpp"]
            out = f"{made}/{os.path.relpath(files[0], self.build / made) if len(sources) > 1 else sources[0]}.o"
            before = " || controller/store/schema.cpp" if len(sources) > 1 else ""
            lines.append(f"build {out}: CXX_COMPILER__all {files[0]}{before}\n  READS = {' '.join(reads)}\n")
            return out

        libraries = {name: f"{folder}/libmuster_{name}.a" for name, (folder, _, _) in self.LIBRARIES.items()}
        for name, (folder, sources, needs) in self.LIBRARIES.items():
            lines.append(f"build {libraries[name]}: CXX_STATIC_LIBRARY_LINKER__all {objects(folder, f'muster_{name}', sources)} || "
                         f"{' '.join(libraries[need] for need in needs)}\n")
        lines.append(f"build controller/store/schema.cpp: CUSTOM_COMMAND {self.root}/controller/store/schema/001.sql\n")
        tests = {}
        for name, (folder, source, needs, labels, starts) in self.PROGRAMS.items():
            links = " ".join(libraries[need] for need in needs)
            suite = source.split("_test")[0]
            lines.append(f"build bin/{name}: CXX_EXECUTABLE_LINKER__all {objects(folder, name, [source])} | {links} || {links} "
                         f"{' '.join(f'bin/{start}' for start in starts)}\n  CASES = {suite}.\\\\n  first\\\\n  second\\\\n\n")
            if labels:
                here = self.build / folder
                self.write(f"build/dev/{folder}/{name}[1]_include.cmake",
                           INCLUDE % {"bin": self.build / "bin", "name": name, "here": here, "labels": labels})
                tests.setdefault(folder, []).append(f'include("{here}/{name}[1]_include.cmake")\n')
        for name, (folder, file, labels, more) in self.SCRIPTS.items():
            words = " ".join(f'"{self.root}/{word}"' for word in [file, *(f"build/dev/{word}" for word in more)])
            tests.setdefault(folder, []).append(SCRIPT.format(name=name, root=self.root, words=words, labels=labels))
        for folder, texts in tests.items():
            self.write(f"build/dev/{folder}/CTestTestfile.cmake", "".join(texts))
        self.write("build/dev/build.ninja", "\n".join(lines))

    def ninja(self, *targets):
        subprocess.run(["ninja", "-C", str(self.build), *targets], check=True, stdout=subprocess.DEVNULL)

    def plan(self, *changed, costs=None, seconds=None):
        world = near_world.read(self.build, self.root)
        world.seconds = {f"build/dev/{name}": s for name, s in (seconds or {}).items()}
        return near.Planner(world, {name: listing.Cost(s, 1.0) for name, s in (costs or {}).items()}, 2).plan(changed)

    def programs(self, plan):
        return [os.path.basename(name) for name in plan.programs]

    def near(self, *arguments):
        done = subprocess.run([sys.executable, "-B", str(TOOLS / "near.py"), "build/dev", *arguments], cwd=self.root,
                              capture_output=True, text=True)
        return done.returncode, done.stdout.split(), done.stderr


class Linked(Repository):
    """Unit tests run that a changed file is linked into."""

    def test_the_programs_of_its_folder_come_first_and_then_those_with_the_fewest_libraries_between(self):
        plan = self.plan("controller/core/apply.cpp")
        self.assertEqual(self.programs(plan), ["core_test", "store_test", "service_test"])
        self.assertEqual(plan.targets, ["bin/core_test", "bin/service_test", "bin/store_test"])
        self.assertEqual(self.programs(self.plan("controller/store/codec.cpp")), ["store_test", "service_test"])
        self.assertEqual(self.programs(self.plan("schema/key.cpp")), ["schema_test", "agent_test"])

    def test_of_equally_near_programs_the_one_with_the_fewest_cases_comes_first(self):
        for name, cases in (("core_test", 5), ("store_test", 3), ("service_test", 2)):
            folder, source = self.PROGRAMS[name][:2]
            self.write(f"{folder}/{source}", "".join(f"TEST(A, b{n}) {{\n" for n in range(cases)))
        planner = near.Planner(near_world.read(self.build, self.root), {}, 2)
        planner.linked = {f"build/dev/bin/{name}": (True, 3) for name in ("core_test", "store_test", "service_test")}
        self.assertEqual([os.path.basename(name) for name in planner._within_bound()[0]], ["service_test", "store_test", "core_test"])

    def test_farther_programs_that_take_too_long_are_named(self):
        plan = self.plan("controller/core/apply.cpp", costs={"service.first": 100.0})
        self.assertEqual(self.programs(plan), ["core_test", "store_test"])
        self.assertIn("not run: 2 cases of programs farther away that link it (service_test): ./dev test", plan.lines)

    def test_the_nearest_program_runs_however_long_it_takes(self):
        plan = self.plan("controller/core/apply.cpp", costs={"apply.first": 100.0})
        self.assertEqual(self.programs(plan), ["core_test"])

    def test_what_must_be_compiled_counts_too(self):
        self.ninja()
        service = "controller/service/CMakeFiles/muster_service.dir/service.cpp.o"
        self.assertEqual(self.programs(self.plan("controller/core/job.h")), ["core_test", "store_test", "service_test"])
        self.assertEqual(self.programs(self.plan("controller/core/job.h", seconds={service: 100.0})), ["core_test", "store_test"])
        self.assertEqual(self.programs(self.plan("controller/core/apply.cpp", seconds={service: 100.0})),
                         ["core_test", "store_test", "service_test"])

    def test_one_long_command_is_not_halved_by_two_processors(self):
        planner = near.Planner(near_world.read(self.build, self.root), {}, 2)
        planner.world.seconds = {"a": 30.0, "b": 10.0, "c": 25.0}
        self.assertEqual([planner._building_s(made) for made in ("a", "ab", "abc")], [30.0, 30.0, 32.5])

    def test_the_first_program_that_uses_libtorch_has_more_time(self):
        file = self.build / "build.ninja"
        costs = {"service.first": 100.0}
        self.assertNotIn("service_test", self.programs(self.plan("controller/core/apply.cpp", costs=costs)))
        file.write_text(file.read_text().replace("apply_test.cpp.o |", "apply_test.cpp.o | /deps/libtorch/lib/libtorch_cpu.so"))
        self.assertIn("service_test", self.programs(self.plan("controller/core/apply.cpp", costs=costs)))

    def test_a_header_reaches_those_that_read_it_and_those_that_link_these(self):
        self.ninja()
        self.assertEqual(self.programs(self.plan("controller/core/job.h")), ["core_test", "store_test", "service_test"])

    def test_a_new_source_counts_before_it_is_compiled(self):
        self.assertEqual(self.programs(self.plan("controller/store/codec.cpp")), ["store_test", "service_test"])

    def test_a_new_header_counts_as_its_folder(self):
        self.ninja()
        self.write("controller/store/new.h", "")
        self.assertEqual(self.programs(self.plan("controller/store/new.h")), ["store_test", "service_test"])

    def test_a_file_from_which_a_source_is_generated_reaches_as_that_source(self):
        self.ninja()
        self.assertEqual(self.programs(self.plan("controller/store/schema/001.sql")), ["store_test", "service_test"])

    def test_a_cmake_list_reaches_what_its_folder_makes(self):
        self.assertEqual(self.programs(self.plan("controller/service/CMakeLists.txt")), ["service_test"])

    def test_what_starts_a_changed_program_is_counted_and_not_run(self):
        plan = self.plan("controller/service/service.cpp")
        self.assertEqual(self.programs(plan), ["service_test"])
        self.assertEqual(plan.lines, ["not run: 8 tests (peers, system) that start musterd: ./dev test"])
        self.assertEqual(self.plan("schema/key.cpp").lines, ["not run: 2 tests (system) that link it: ./dev test"])
        self.assertEqual(self.plan("tests/schema/support.cpp").lines, [])


class Own(Repository):
    """Tests run whose own text changed, or names what changed."""

    def test_of_a_changed_test_its_cases_run_whatever_its_label(self):
        plan = self.plan("tests/system/faults_test.cpp")
        self.assertEqual(plan.programs, {"build/dev/bin/system_faults_test": ["faults.first", "faults.second"]})
        self.assertEqual((plan.targets, plan.lines), (["bin/system_faults_test"], []))

    def test_a_changed_script_runs_with_the_programs_that_it_starts(self):
        plan = self.plan("tests/system/listen_test.py")
        self.assertEqual((plan.programs, plan.targets), ({}, ["bin/musterd"]))
        self.assertEqual(set(plan.scripts), near.ALWAYS | {"Listen"})
        self.assertEqual(self.plan("tests/peers/engine_test.py").targets, ["bin/musterd", "bin/peers_rank"])

    def test_a_wrapper_is_not_the_script_of_the_tests_that_it_wraps(self):
        self.assertEqual(set(self.plan("tests/guard.py").scripts), near.ALWAYS)

    def test_a_suite_of_the_browser_is_a_script(self):
        suite = near_world.Suite("Web.plots", "tests/controller/http", ("system",), words=("-DTESTS=web/test", "-DSUITE=plots"))
        self.assertEqual(suite.script, "web/test/plots.test.mjs")

    def test_the_package_is_tested_by_its_unit_tests(self):
        self.assertEqual(set(self.plan("python/muster/report.py").scripts), near.ALWAYS | {"Python.report"})

    def test_a_unit_test_that_names_a_changed_file_runs(self):
        self.write("tests/schema/key_test.cpp", 'TEST(key, words) { fail("docs/words.md: no such row"); }\n')
        self.write("tests/house/setup_test.py", 'shutil.copy("README.md")\n')
        self.assertEqual(self.plan("docs/words.md").programs, {"build/dev/bin/schema_test": ["key.words"]})
        self.assertEqual(set(self.plan("README.md").scripts), near.ALWAYS | {"House.setup"})
        self.write("tests/house/setup_test.py", 'ROOT / "docs" / "words.md"\n')
        self.assertEqual(set(self.plan("docs/words.md").scripts), near.ALWAYS | {"House.setup"})

    def test_a_unit_test_that_imports_a_changed_module_runs(self):
        self.write("tests/house/setup_test.py", "import os\nfrom packages import Fake\n")
        self.assertEqual(set(self.plan("tests/house/packages.py").scripts), near.ALWAYS | {"House.setup"})
        self.assertEqual(set(self.plan("tests/house/package.py").scripts), near.ALWAYS)

    def test_a_unit_test_with_a_macro_for_a_folder_of_the_changed_file_runs(self):
        self.write("tests/schema/CMakeLists.txt", 'PRIVATE MUSTER_GOLDEN_FOLDER="${CMAKE_SOURCE_DIR}/tests/golden")\n')
        self.write("tests/schema/key_test.cpp", "TEST(key, golden) { each(MUSTER_GOLDEN_FOLDER); }\n")
        self.assertEqual(self.plan("tests/golden/events.jsonl").programs, {"build/dev/bin/schema_test": ["key.golden"]})
        self.assertEqual(self.plan("tests/gold/events.jsonl").programs, {})

    def test_other_tests_that_name_it_are_counted_and_not_run(self):
        self.write("tests/system/listen_test.py", 'open(ROOT / "README.md")\n')
        plan = self.plan("README.md")
        self.assertEqual((set(plan.scripts), plan.lines), (near.ALWAYS, ["not run: 1 tests (system) that read it: ./dev test"]))

    def test_a_file_that_nothing_is_known_to_read_is_named(self):
        self.assertEqual(self.plan("docs/words.md", "LICENSE").lines,
                         ["no test is known to be near docs/words.md, LICENSE: ./dev test"])

    def test_what_every_program_is_built_with_is_named(self):
        self.assertIn("every program is built with tools/cmake/LibTorch.cmake: ./dev test", self.plan("tools/cmake/LibTorch.cmake").lines)


class House(Repository):
    """The rules of the house are checked with every change, the tools with their own."""

    def test_the_rules_run_always(self):
        self.assertEqual(set(self.plan("docs/words.md").scripts), near.ALWAYS)

    def test_a_changed_tool_has_the_test_of_its_name(self):
        self.assertEqual(set(self.plan("tools/tidy.py").scripts), near.ALWAYS | {"House.tidy"})
        self.assertEqual(set(self.plan("controller/core/tidy.cpp").scripts), near.ALWAYS)


class Command(Repository):
    """The command plans from what git says, and ctest lists what was planned."""

    def test_without_a_difference_to_main_nothing_is_near(self):
        self.assertEqual(self.near("--targets"), (2, [], "tests: nothing is near: no file differs from main\n"))

    def test_it_prints_targets_and_keeps_the_plan(self):
        self.change("controller/store/codec.cpp")
        self.commit()
        self.change("tests/system/faults_test.cpp")
        code, targets, said = self.near("--targets")
        self.assertEqual((code, targets), (0, ["bin/service_test", "bin/store_test", "bin/system_faults_test"]), said)
        self.assertEqual(self.programs(near.read_plan(self.build)), ["system_faults_test", "store_test", "service_test"])

    def test_a_deleted_file_reaches_what_read_it(self):
        self.ninja()
        (self.root / "controller/core/job.h").unlink()
        self.assertEqual(self.near("--targets")[1], ["bin/core_test", "bin/service_test", "bin/store_test"])

    def test_changes_on_main_itself_count_until_they_are_committed(self):
        self.git("checkout", "-q", "main")
        self.change("schema/key.cpp")
        self.assertEqual(self.near("--targets")[1], ["bin/agent_test", "bin/schema_test"])
        self.commit()
        self.assertEqual(self.near("--targets")[0], 2)

    def test_without_a_build_folder_it_says_so(self):
        (self.build / "build.ninja").unlink()
        self.change("schema/key.cpp")
        code, _, said = self.near("--targets")
        self.assertEqual(code, 2)
        self.assertIn("tests: ninja can't read", said)

    def test_the_tests_of_the_plan_are_listed_where_other_programs_are_not_built(self):
        self.change("controller/store/codec.cpp")
        self.change("tests/system/faults_test.cpp")
        _, targets, _ = self.near("--targets")
        os.chdir(self.root)
        self.addCleanup(os.chdir, "/")
        self.ninja(*targets[1:])
        with self.assertRaisesRegex(listing.Unlisted, f"^build/dev/{targets[0]} is in build/dev/near.json and not built$"):
            near.read_tests("build/dev")
        self.ninja(*targets)
        self.assertFalse((self.build / "bin/system_ports_test").exists())
        plan, tests = near.read_tests("build/dev")
        self.assertEqual([test.name for test in tests][:6], ["faults.first", "faults.second", "sqlite.first", "sqlite.second",
                                                            "service.first", "service.second"])
        self.assertEqual({test.name for test in tests[6:]}, near.ALWAYS)
        self.assertEqual(plan.lines, ["not run: 6 tests (peers, system) that start musterd: ./dev test"])

    def test_of_a_program_in_part_only_these_cases_are_chosen(self):
        def test(program, case):
            return listing.Test(case, (str(self.root / "build/dev/bin" / program), f"--gtest_filter={case}"), ".")
        plan = near.Plan([], [], {"build/dev/bin/a_test": ["A.one"], "build/dev/bin/b_test": None}, ["Listen"], [])
        os.chdir(self.root)
        self.addCleanup(os.chdir, "/")
        tests = [listing.Test("Listen", ("python3",), "."), listing.Test("Other", ("python3",), "."), test("b_test", "B.x"),
                 test("a_test", "V/A.one/0"), test("a_test", "A.two"), test("c_test", "A.one")]
        self.assertEqual([test.name for test in near.choose(plan, tests)], ["V/A.one/0", "B.x", "Listen"])


if __name__ == "__main__":
    unittest.main()
