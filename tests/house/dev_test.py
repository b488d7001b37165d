"""./dev builds with the LibTorch that MUSTER_LIBTORCH names now, not with that of the first time, and counts what its tests say.

Method: the real script and the real tools/cmake/LibTorch.cmake in a project that has nothing to compile.
"""

import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROJECT = """cmake_minimum_required(VERSION 3.24)
project(nothing LANGUAGES NONE)
enable_testing()
include(tools/cmake/LibTorch.cmake)
"""


class Project(unittest.TestCase):
    """A clone of its own: set up, with nothing in it but what ./dev needs."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name).resolve()
        self.project = self.folder / "project"
        for name in ("dev", "tools/setup.sh", "tools/changed_files.py", "tools/test_summary.py", "tools/cmake/Deps.cmake", "tools/cmake/LibTorch.cmake", "tools/cmake/LibTorchTargets.cmake",
                     "CMakePresets.json"):
            (self.project / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.project / name)
        for file in (ROOT / "tools" / "testing").glob("*.py"):
            (self.project / "tools" / "testing").mkdir(exist_ok=True)
            shutil.copy(file, self.project / "tools" / "testing")
        (self.project / "CMakeLists.txt").write_text(PROJECT)
        (self.project / "packages.txt").write_text("bash bash\n")
        self.own, self.of_cuda = self.listed("2.97.0"), self.listed("2.91.0")
        self.choose(default="2.97", cuda="2.91")

    def choose(self, **versions):
        """Writes which LibTorch a kind of build takes."""
        text = "".join(f"# why\n{kind} {version}\n" for kind, version in versions.items())
        (self.project / "tools" / "deps" / "libtorch-versions.txt").write_text(text)

    def listed(self, version):
        """A LibTorch that has a list in tools/deps, as ./dev setup leaves it."""
        file = self.project / "tools" / "deps" / f"libtorch-{version.rpartition('.')[0]}.txt"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"# why\ntorch=={version} --hash=sha256:0\n")
        folder = self.libtorch(f"project/.deps/libtorch-{version}/torch")
        (folder.parent / ".complete").write_text(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  -\n")
        return folder

    def libtorch(self, name):
        folder = self.folder / name
        (folder / "lib").mkdir(parents=True)
        (folder / "lib" / "libtorch_cpu.so").touch()
        header = folder / "include" / "torch" / "headeronly" / "version.h"
        header.parent.mkdir(parents=True)
        header.write_text("#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 11\n#define TORCH_VERSION_PATCH 0\n")
        return folder

    def dev(self, *arguments, cwd=None, **variables):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("MUSTER_")}
        environment.update(MUSTER_PACKAGE_LIST="packages.txt", MUSTER_PEERS="0",
                           MUSTER_CUDA="0", MUSTER_TOKENIZERS="0", TMPDIR=str(self.folder))
        environment.update(variables)
        return subprocess.run([self.project / "dev", *arguments], cwd=cwd or self.project, env=environment,
                              capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=100)


class Help(Project):
    def test_every_command_tells_its_use_and_does_nothing(self):
        for command in ("setup", "build", "test", "check", "bless", "demo", "bench", "package", "clean"):
            with self.subTest(command=command):
                done = self.dev(command, "--help")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("usage: ./dev COMMAND", done.stdout)
        self.assertFalse((self.project / "build").exists())

    def test_what_a_command_does_not_know_is_refused_before_it_begins(self):
        (self.project / "build").mkdir()
        for command in ("bless", "clean"):
            done = self.dev(command, "everything")
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn(f"{command}: unknown option everything; see ./dev help", done.stderr)
        self.assertTrue((self.project / "build").exists())


class WhichLibtorch(Project):
    def setUp(self):
        super().setUp()
        self.one, self.other = self.libtorch("one"), self.libtorch("other")

    def build(self, libtorch=None, cwd=None):
        """Builds, and returns whether that configured anything."""
        variables = {} if libtorch is None else {"MUSTER_LIBTORCH": str(libtorch)}
        done = self.dev("build", "all", cwd=cwd, **variables)
        self.assertEqual(done.returncode, 0, done.stderr)
        return "configuring" in done.stderr

    def used(self):
        cache = (self.project / "build" / "dev" / "CMakeCache.txt").read_text()
        return pathlib.Path(re.search(r"^MUSTER_LIBTORCH_DIR:INTERNAL=(.*)$", cache, re.MULTILINE).group(1))

    def test_another_folder_is_used_though_a_build_folder_is_there(self):
        self.assertTrue(self.build(self.one))
        self.assertEqual(self.used(), self.one)
        self.assertTrue(self.build(self.other))
        self.assertEqual(self.used(), self.other)

    def test_without_the_variable_it_is_our_own_again_and_back(self):
        self.assertTrue(self.build(self.one))
        self.assertTrue(self.build())
        self.assertEqual(self.used(), self.own)
        self.assertTrue(self.build(self.one))
        self.assertEqual(self.used(), self.one)

    def test_an_empty_variable_is_none(self):
        self.assertTrue(self.build(""))
        self.assertEqual(self.used(), self.own)
        self.assertFalse(self.build())

    def test_the_same_folder_configures_nothing(self):
        self.assertTrue(self.build(self.one))
        self.assertFalse(self.build(self.one))
        (self.folder / "link").symlink_to(self.one)
        self.assertFalse(self.build(self.folder / "link"))

    def test_a_link_that_leads_elsewhere_now_is_followed(self):
        link = self.folder / "link"
        link.symlink_to(self.one)
        self.assertTrue(self.build(link))
        link.unlink()
        link.symlink_to(self.other)
        self.assertTrue(self.build(link))
        self.assertEqual(self.used(), self.other)

    def test_a_relative_folder_is_seen_from_where_it_was_typed(self):
        self.build("one", cwd=self.folder)
        self.assertEqual(self.used(), self.one)
        self.assertTrue(self.build("../other"))
        self.assertEqual(self.used(), self.other)

    def test_another_version_in_the_list_is_used_though_a_build_folder_is_there(self):
        self.assertTrue(self.build())
        newer = self.listed("2.98.1")
        self.choose(default="2.98", cuda="2.91")
        self.assertTrue(self.build())
        self.assertEqual(self.used(), newer)
        newest = self.listed("2.98.2")
        self.assertTrue(self.build())
        self.assertEqual(self.used(), newest)

    def test_the_preset_cuda_has_one_of_its_own(self):
        cuda = self.project / ".deps" / "cuda"
        for name in ("cu13/include/cuda_runtime_api.h", "cu13/lib/libcudart.so.13", "nccl/include/nccl.h"):
            (cuda / "nvidia" / name).parent.mkdir(parents=True, exist_ok=True)
            (cuda / "nvidia" / name).touch()
        (self.project / "none.txt").write_text("# none\n")
        stamp = hashlib.sha256(b"# none\n").hexdigest()
        (self.project / ".deps" / "nvcc").mkdir()
        for folder in (cuda, self.project / ".deps" / "nvcc"):
            (folder / ".complete").write_text(f"{stamp}  -\n")
        variables = dict(MUSTER_CUDA_LIST="none.txt", MUSTER_NVCC_LIST="none.txt")
        done = self.dev("build", "--preset", "cuda", "all", **variables)
        self.assertEqual(done.returncode, 0, done.stderr)
        cache = (self.project / "build" / "cuda" / "CMakeCache.txt").read_text()
        self.assertIn(f"MUSTER_LIBTORCH_DIR:INTERNAL={self.of_cuda}\n", cache)
        self.assertNotIn("configuring", self.dev("build", "--preset", "cuda", "all", **variables).stderr)

    def test_a_project_that_is_reached_in_two_ways_configures_once(self):
        self.assertTrue(self.build())
        (self.folder / "way").symlink_to(self.project)
        self.project = self.folder / "way"
        self.assertFalse(self.build())


class WhichTokenizers(Project):
    def setUp(self):
        super().setUp()
        (self.project / "data/tokenizers/crate").mkdir(parents=True)
        lock = self.project / "data/tokenizers/crate/Cargo.lock"
        lock.write_text("version = 4\n")
        (self.project / ".deps" / "crates").mkdir()
        (self.project / ".deps" / "crates" / ".complete").write_text(hashlib.sha256(lock.read_bytes()).hexdigest() + "  -\n")

    def build(self, wanted, preset="dev"):
        """Builds. Returns whether that configured anything, and the value of the option."""
        done = self.dev("build", "--preset", preset, "all", MUSTER_TOKENIZERS=wanted)
        self.assertEqual(done.returncode, 0, done.stderr)
        cache = (self.project / "build" / preset / "CMakeCache.txt").read_text()
        return "configuring" in done.stderr, re.search(r"^MUSTER_WITH_TOKENIZERS:[A-Z]*=(.*)$", cache, re.MULTILINE).group(1)

    def test_the_variable_decides_though_a_build_folder_is_there(self):
        self.assertEqual(self.build("1"), (True, "ON"))
        self.assertEqual(self.build("1"), (False, "ON"))
        self.assertEqual(self.build("0"), (True, "OFF"))
        self.assertEqual(self.build(""), (True, "ON"))

    def test_a_thread_sanitizer_gets_no_tokenizers_that_it_cannot_see_into(self):
        self.assertEqual(self.build("1", "tsan"), (True, "OFF"))
        self.assertEqual(self.build("1", "tsan"), (False, "OFF"))


class WhatItInstalls(Project):
    """The programs need few packages; tests need the rest. Nothing is installed here: what is missing is named."""

    PROGRAMS = ("musterd", "muster", "muster-data", "muster-worker", "muster-infer", "muster-agent")

    def setUp(self):
        super().setUp()
        (self.project / "CMakeLists.txt").write_text(
            PROJECT + "".join(f'add_custom_target({name} COMMAND ${{CMAKE_COMMAND}} -E make_directory bin COMMAND '
                              f'${{CMAKE_COMMAND}} -E touch bin/{name})\n' for name in self.PROGRAMS))
        (self.project / "packages.txt").write_text("[build]\nbash bash\n\n[test]\nno-such-package-as-this\n")
        (self.folder / "bin").mkdir()
        (self.folder / "bin" / "apt-get").write_text("#!/bin/sh\ncase $* in *install*) echo \"E: $*\" >&2; exit 1 ;; esac\n")
        (self.folder / "bin" / "apt-get").chmod(0o755)
        (self.folder / "bin" / "sudo").write_text("#!/bin/sh\nexec \"$@\"\n")
        (self.folder / "bin" / "sudo").chmod(0o755)

    def command(self, *arguments):
        return self.dev(*arguments, PATH=f"{self.folder / 'bin'}:{os.environ['PATH']}")

    def test_programs_are_built_without_what_only_tests_need_into_one_folder(self):
        done = self.command("build")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("no-such-package", done.stderr)
        self.assertEqual({path.name for path in (self.project / "build" / "bin").iterdir()}, set(self.PROGRAMS))

    def test_a_demo_needs_no_more_and_leaves_the_programs_where_a_build_does(self):
        (self.project / "tools" / "demo.py").write_text("import sys\nprint(sys.argv)\n")
        done = self.command("demo")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("build/release/bin", done.stdout)
        self.assertEqual({path.name for path in (self.project / "build" / "bin").iterdir()}, set(self.PROGRAMS))

    def test_tests_need_all_of_them(self):
        for arguments in (["test"], ["build", "all"], ["setup"]):
            done = self.command(*arguments)
            self.assertNotEqual(done.returncode, 0, done.stderr)
            self.assertIn("no-such-package-as-this", done.stderr.splitlines()[-1])

    def apt_get(self, install):
        (self.folder / "bin" / "apt-get").write_text(f"#!/bin/bash\ncase $* in *install*) {install} ;; esac\n")

    def building(self, script):
        (self.project / "packages.txt").write_text("[build]\nbash bash\n\n[start]\nno-such-package-as-this\n")
        (self.project / "build.sh").write_text(script)
        with open(self.project / "CMakeLists.txt", "a") as file:
            file.write("add_custom_target(Built ALL COMMAND bash ${CMAKE_SOURCE_DIR}/build.sh)\nadd_test(NAME One COMMAND test -e ../../installed)\n")

    def test_what_tests_start_comes_beside_the_build_and_is_there_when_they_begin(self):
        building, installing = self.folder / "building", self.folder / "installing"
        self.building(f"touch {building}; {until_there(installing)}")
        self.apt_get(f"touch {installing}; {until_there(building)} || exit 1; sleep 0.5; touch {self.project}/installed")
        done = self.command("test")
        self.assertEqual((done.returncode, done.stdout.splitlines()[-1]), (0, "1 passed, 0 failed, 0 skipped"), done.stdout + done.stderr)
        self.assertIn("setup: will install 1 Debian packages: no-such-package-as-this", done.stderr)

    def test_no_test_runs_without_what_tests_start(self):
        self.building("true")
        done = self.command("test")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout, "")
        self.assertIn("apt-get could not install no-such-package-as-this", done.stderr)
        self.assertIn("no test was run", done.stderr.splitlines()[-1])

    def test_a_build_that_fails_does_not_end_an_installation_in_its_middle(self):
        installing = self.folder / "installing"
        self.building(f"{until_there(installing)}; exit 1")
        self.apt_get(f"touch {installing}; sleep 2; touch {self.project}/installed")
        done = self.command("test")
        self.assertEqual(done.returncode, 1)
        self.assertIn("the build failed", done.stderr)
        self.assertTrue((self.project / "installed").exists())

    def test_a_build_alone_does_without_what_tests_start(self):
        self.building("true")
        self.assertEqual(self.command("build", "all").returncode, 0)

    def test_a_build_folder_for_tests_is_used_where_there_is_one(self):
        (self.project / "packages.txt").write_text("bash bash\n")
        self.assertEqual(self.command("build", "musterd").returncode, 0)
        self.assertEqual(self.command("build").returncode, 0)
        self.assertEqual((self.project / "build" / "bin").resolve(), self.project / "build" / "dev" / "bin")


class RunsTests(Project):
    # A test that notes each of its runs, and says what its argument says in the run of that number.
    SCRIPT = """import pathlib, sys
runs = pathlib.Path(sys.argv[1])
runs.write_text((runs.read_text() if runs.exists() else "") + "x")
sys.exit(len(runs.read_text()) == int(sys.argv[2]))
"""

    def setUp(self):
        super().setUp()
        (self.project / "test.py").write_text(self.SCRIPT)
        self.runs = self.folder / "runs"

    def add_test(self, name, *command):
        with open(self.project / "CMakeLists.txt", "a") as file:
            file.write(f"add_test(NAME {name} COMMAND {' '.join(map(str, command))})\n")

    def add_counting_test(self, name, fails_in_run=0):
        self.add_test(name, "python3", self.project / "test.py", self.runs, fails_in_run)

    def test_repeated_tests_run_that_often_and_the_last_line_counts_each_once(self):
        self.add_counting_test("Steady")
        done = self.dev("test", "--repeat", "3")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(self.runs.read_text(), "xxx")
        self.assertEqual(done.stdout.splitlines()[-1], "1 passed, 0 failed, 0 skipped")

    def test_one_failure_among_many_runs_is_told_and_the_other_runs_follow(self):
        self.add_counting_test("Flaky", fails_in_run=2)
        self.add_test("Steady", "true")
        done = self.dev("test", "--repeat", "4")
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(self.runs.read_text(), "xxxx")
        self.assertEqual(done.stdout.splitlines()[-3:],
                         ["FAILED: Flaky (1 of 4 runs): it said nothing", "4 runs", "1 passed, 1 failed, 0 skipped"])

    def test_once_is_the_rule_and_results_of_longer_runs_do_not_count_later(self):
        self.add_counting_test("Late", fails_in_run=2)
        self.assertNotEqual(self.dev("test", "--repeat", "2").returncode, 0)
        done = self.dev("test")
        self.assertEqual((done.returncode, done.stdout.splitlines()[-1]), (0, "1 passed, 0 failed, 0 skipped"))
        self.assertEqual(self.runs.read_text(), "xxx")

    def test_no_test_at_all_is_a_failure(self):
        self.add_test("Steady", "true")
        done = self.dev("test", "-R", "NoSuchTest")
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stdout.splitlines()[-1], "0 passed, 0 failed, 0 skipped")

    def test_a_skip_at_the_begin_of_a_long_output_is_counted(self):
        (self.project / "long.py").write_text(
            "print('[ RUN      ] Long.OfRoot')\nprint('long.cpp:1: Skipped\\nneeds root\\n')\n"
            "print('[  SKIPPED ] Long.OfRoot (0 ms)')\n"
            "print('[ RUN      ] Long.OfAll')\nprint('a line\\n' * 100_000)\nprint('[       OK ] Long.OfAll (0 ms)')\n")
        self.add_test("Long", "python3", self.project / "long.py")
        done = self.dev("test")
        self.assertEqual((done.returncode, done.stdout.splitlines()[-2:]),
                         (0, ["skipped: Long: Long.OfRoot: needs root", "1 passed, 0 failed, 1 skipped"]))

    def test_a_folder_of_tests_runs_alone(self):
        inner = self.project / "tests" / "inner"
        inner.mkdir(parents=True)
        (inner / "CMakeLists.txt").write_text("add_test(NAME Inner COMMAND true)\n")
        self.add_counting_test("Outer")
        with open(self.project / "CMakeLists.txt", "a") as file:
            file.write("add_subdirectory(tests/inner)\n")
        done = self.dev("test", "--in", "inner")
        self.assertEqual((done.returncode, done.stdout.splitlines()[-1]), (0, "1 passed, 0 failed, 0 skipped"), done.stderr)
        self.assertFalse(self.runs.exists())
        self.assertIn("building (dev: tests/inner/all)", done.stderr)

    def test_a_folder_without_tests_is_refused(self):
        done = self.dev("test", "--in", "outer")
        self.assertEqual(done.returncode, 1)
        self.assertIn("--in outer: there are no tests in tests/outer", done.stderr)
        self.assertFalse((self.project / "build").exists())

    def test_what_is_no_number_is_refused(self):
        for number in ("0", "-1", "many", ""):
            done = self.dev("test", "--repeat", number)
            self.assertEqual(done.returncode, 1)
            self.assertIn("--repeat", done.stderr.splitlines()[-1])


class BuildsTheCudaSide(Project):
    """Where CUDA's packages are, a run of the long tests builds the worker with CUDA, and the tests get to know it."""

    def setUp(self):
        super().setUp()
        for name in ("cuda", "nvcc"):
            (self.project / f"{name}.txt").write_text("# none\n")
            stamp = hashlib.sha256((self.project / f"{name}.txt").read_bytes()).hexdigest()
            (self.project / ".deps" / name).mkdir(parents=True)
            (self.project / ".deps" / name / ".complete").write_text(f"{stamp}  -\n")
        (self.project / "CMakePresets.json").write_text(json.dumps({
            "version": 4, "configurePresets": [{"name": name, "generator": "Ninja", "binaryDir": "${sourceDir}/build/${presetName}"}
                                               for name in ("dev", "cuda")]}))
        (self.project / "which.py").write_text(
            f"import os; open('{self.folder}/which', 'w').write(os.environ.get('MUSTER_CUDA_WORKER', 'unset'))\n")
        with open(self.project / "CMakeLists.txt", "a") as file:
            file.write("add_test(NAME Which COMMAND python3 ${CMAKE_SOURCE_DIR}/which.py)\n"
                       "set_tests_properties(Which PROPERTIES LABELS long)\n"
                       f"add_custom_target(muster-worker COMMAND cmake -E echo worker >> {self.folder}/built VERBATIM)\n"
                       "add_custom_target(fsdp_gpu_test)\nadd_custom_target(worker_gpu_test)\n")

    def run_tests(self, *arguments, **variables):
        done = self.dev("test", *arguments, **{"MUSTER_CUDA": "1", "MUSTER_CUDA_LIST": "cuda.txt", "MUSTER_NVCC_LIST": "nvcc.txt", **variables})
        self.assertEqual(done.returncode, 0, done.stderr)
        built = (self.project / "build" / "cuda" / "build.ninja").exists()
        return built, (self.folder / "which").read_text()

    def test_in_a_run_of_the_long_tests(self):
        self.assertEqual(self.run_tests("-L", "long"), (True, f"{self.project}/build/cuda/bin/muster-worker"))

    def test_not_in_a_run_of_others_nor_when_told_so_nor_without_its_packages(self):
        self.assertEqual(self.run_tests("-R", "Which"), (False, "unset"))
        self.assertEqual(self.run_tests("-L", "long", MUSTER_CUDA="0"), (False, ""))
        self.assertEqual(self.run_tests("-L", "long", MUSTER_CUDA_LIST="packages.txt"), (False, ""))


class ComparesWithPyTorch(Project):
    """The judges' packages come while the build goes on. What installs them here is a script of the test's own."""

    def setUp(self):
        super().setUp()
        (self.project / "peers.txt").write_text("# none\n")
        (self.project / "cuda.txt").write_text("# none\n")
        nvidia = self.project / ".deps" / "cuda" / "nvidia"
        nvidia.mkdir(parents=True)
        stamp = hashlib.sha256((self.project / "cuda.txt").read_bytes()).hexdigest()
        (nvidia.parent / ".complete").write_text(f"{stamp}  -\n")
        self.site = self.project / ".deps" / "peers" / "lib" / "python3.11" / "site-packages"
        self.downloads, self.builds = self.folder / "downloads", self.folder / "builds"
        (self.project / "which.py").write_text(
            f"import os; open('{self.folder}/which', 'w').write(os.environ['MUSTER_PEER_PYTHON'])\n")
        with open(self.project / "CMakeLists.txt", "a") as file:
            file.write("add_test(NAME Which COMMAND python3 ${CMAKE_SOURCE_DIR}/which.py)\n")

    def pip(self, script):
        """What `python -m pip install` does in the environment of the judges."""
        tools = self.folder / "bin"
        tools.mkdir()
        inner = f"#!/bin/bash\ncase \"$*\" in *'-m pip'*) {script} ;; esac\n"
        (self.folder / "python").write_text(inner)
        (tools / "python3").write_text(
            f"#!/bin/bash\ncase \"$*\" in *version_info*) ;; *'-m venv'*) mkdir -p $3/bin {self.site};"
            f" install {self.folder}/python $3/bin/python ;; *) exec {shutil.which('python3')} \"$@\" ;; esac\n")
        (tools / "python3").chmod(0o755)
        self.path = f"{tools}:{os.environ['PATH']}"

    def building(self, script):
        (self.project / "build.sh").write_text(script)
        with open(self.project / "CMakeLists.txt", "a") as file:
            file.write("add_custom_target(Built ALL COMMAND bash ${CMAKE_SOURCE_DIR}/build.sh)\n")

    def run_tests(self):
        done = self.dev("test", MUSTER_PEERS="1", MUSTER_PEERS_LIST="peers.txt", MUSTER_CUDA_LIST="cuda.txt", PATH=self.path)
        which = self.folder / "which"
        return done, which.read_text() if which.exists() else None

    def test_they_come_beside_the_build_and_the_tests_find_them(self):
        self.building(f"touch {self.builds}; {until_there(self.downloads)}")
        self.pip(f"touch {self.downloads}; {until_there(self.builds)} || exit 1")
        done, which = self.run_tests()
        self.assertEqual((done.returncode, done.stdout.splitlines()[-1]), (0, "1 passed, 0 failed, 0 skipped"), done.stderr)
        self.assertEqual(which, f"{self.project}/.deps/peers/bin/python")
        done, which = self.run_tests()
        self.assertNotIn("setup:", done.stderr)
        self.assertEqual(which, f"{self.project}/.deps/peers/bin/python")

    def test_without_them_the_tests_run_all_the_same(self):
        self.pip("echo ERROR: no route to anywhere >&2; exit 1")
        done, which = self.run_tests()
        self.assertEqual((done.returncode, which), (0, ""), done.stderr)
        self.assertIn("no route to anywhere", done.stderr)
        self.assertIn("the tests against PyTorch will be skipped", done.stderr)

    def test_a_build_that_fails_ends_the_download(self):
        self.building(f"{until_there(self.downloads)}; exit 1")
        self.pip(f"echo $$ > {self.downloads}.new; mv {self.downloads}.new {self.downloads}; sleep 1000")
        done, which = self.run_tests()
        self.assertEqual((done.returncode, which), (1, None))
        self.assertIn("the build failed", done.stderr.splitlines()[-1])
        pid = int(self.downloads.read_text())
        deadline = time.monotonic() + 30
        while alive(pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertFalse(alive(pid))


def until_there(file):
    return f"for i in $(seq 600); do [ ! -e {file} ] || break; sleep 0.1; done; [ -e {file} ]"


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class SharesTheCompilerCache(Project):
    """What one clone compiled, another clone at another path takes from the cache, precompiled headers too."""

    def setUp(self):
        super().setUp()
        shutil.copy(ROOT / "tools/cmake/MusterBuild.cmake", self.project / "tools/cmake")
        (self.project / "CMakeLists.txt").write_text(
            PROJECT.replace("LANGUAGES NONE", "LANGUAGES CXX").replace("tools/cmake/LibTorch", "tools/cmake/MusterBuild") +
            "muster_library(part SOURCES part/one.cpp part/two.cpp UNITY 2)\ntarget_precompile_headers(part PRIVATE <vector>)\n")
        (self.project / "part").mkdir()
        for name in ("one", "two"):
            (self.project / "part" / f"{name}.cpp").write_text(f"const char* {name}() {{ return __FILE__; }}\n")

    def misses(self):
        done = self.dev("build", "part", CCACHE_DIR=str(self.folder / "cache"))
        self.assertEqual(done.returncode, 0, done.stderr)
        told = subprocess.run(["ccache", "--print-stats"], env={**os.environ, "CCACHE_DIR": str(self.folder / "cache")},
                              capture_output=True, text=True, check=True).stdout
        return int(re.search(r"^cache_miss\s+(\d+)", told, re.MULTILINE).group(1))

    def test_two_clones(self):
        other = self.folder / "elsewhere" / "clone"
        shutil.copytree(self.project, other)
        first = self.misses()
        self.assertGreater(first, 1)
        self.project = other
        self.assertEqual(self.misses(), first)


class WithoutLibtorch(Project):
    def test_the_preset_tsan_downloads_neither_libtorch_nor_pytorch(self):
        shutil.rmtree(self.project / ".deps")
        (self.project / "CMakeLists.txt").write_text(PROJECT.replace("include(tools/cmake/LibTorch.cmake)", "add_test(NAME One COMMAND true)"))
        done = self.dev("test", "--preset", "tsan", MUSTER_PEERS="1")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout.splitlines()[-1], "1 passed, 0 failed, 0 skipped")
        self.assertFalse((self.project / ".deps").exists())


class Presets(unittest.TestCase):
    def test_release_is_dev_without_tests_so_that_they_share_what_ccache_has(self):
        presets = json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]
        dev, release = (next(p for p in presets if p["name"] == name)["cacheVariables"] for name in ("dev", "release"))
        self.assertEqual(release, dev | {"MUSTER_WITH_TESTS": "OFF"})


if __name__ == "__main__":
    unittest.main()
