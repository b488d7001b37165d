"""Goal: a program outside of the tree trains with the installed engine, and find_package refuses another LibTorch in words.
Method: a build is installed into a temporary folder. A copy of examples/fsdp-package is built there with it, and trains on
one process and on two. Foreign LibTorch folders are headers of another version beside the real libraries.

Usage: package_test.py SOURCES BUILD_FOLDER LIBTORCH [WORDS_FOR_CMAKE_INSTALL...]
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "cluster"))
import processes  # noqa: E402

SOURCES, BUILD, LIBTORCH = (pathlib.Path(word).resolve() for word in sys.argv[1:4])
WORDS = sys.argv[4:]
HEADERS_PROJECT = """cmake_minimum_required(VERSION 3.24)
project(headers LANGUAGES CXX)
find_package(fsdp REQUIRED)
add_library(headers OBJECT headers.cpp)
target_link_libraries(headers PRIVATE fsdp::fsdp)
"""


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name).resolve()
        cls.prefix = cls.folder / "prefix"
        cls.ports = processes.Ports()  # claimed for as long as it lives
        subprocess.run(["cmake", "--install", BUILD, *WORDS, "--prefix", cls.prefix], check=True, stdout=subprocess.DEVNULL)
        cls.include = cls.prefix / "include" / "muster-fsdp"
        cls.headers = sorted(str(path.relative_to(cls.include)) for path in cls.include.rglob("*.h"))
        # Paths below the temporary folder are relative for the compiler's cache, so a second run compiles nothing.
        cls.environment = {name: value for name, value in os.environ.items() if name != "MUSTER_LIBTORCH"}
        cls.environment |= {"CCACHE_BASEDIR": str(cls.folder), "CCACHE_NOHASHDIR": "1"}
        shutil.copytree(SOURCES / "examples" / "fsdp-package", cls.folder / "app")

    def configure(self, project, libtorch=None, **variables):
        """CMake's exit status, what it says as one line, and the build folder."""
        build = pathlib.Path(tempfile.mkdtemp(prefix="build", dir=self.folder / project))
        libtorch = [f"-DMUSTER_LIBTORCH={libtorch}"] if libtorch else []
        done = subprocess.run(["cmake", "-G", "Ninja", "-S", self.folder / project, "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}",
                               "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache", *libtorch], env={**self.environment, **variables},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100)
        return done.returncode, " ".join(done.stdout.split()), build

    def build(self, project):
        code, said, build = self.configure(project, LIBTORCH)
        self.assertEqual(code, 0, said)
        done = subprocess.run(["ninja", "-C", build], env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=500)
        self.assertEqual(done.returncode, 0, done.stdout)
        return build

    def losses(self, program, ranks):
        port = self.ports.take()
        running = [subprocess.Popen([program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                    env={**self.environment, "RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_PORT": str(port)})
                   for rank in range(ranks)]
        try:
            said = [rank.communicate(timeout=120)[0] for rank in running]
        finally:
            for rank in running:
                rank.kill()
        self.assertEqual([rank.returncode for rank in running], [0] * ranks, said)
        found = re.fullmatch(r"step 1: loss (\S+)\nstep 2: loss (\S+)\nstep 3: loss (\S+)\n", "".join(said))
        self.assertTrue(found, said)
        return [float(loss) for loss in found.groups()]

    def test_a_program_outside_of_the_tree_trains_alike_on_one_process_and_on_two(self):
        program = self.build("app") / "sharded_steps"
        alone, both = self.losses(program, 1), self.losses(program, 2)
        self.assertGreater(alone[0], alone[1])
        self.assertGreater(alone[1], alone[2])
        for one, two in zip(alone, both, strict=True):
            self.assertAlmostEqual(one, two, delta=1e-5 * one)

    def test_installed_headers_include_one_another_and_no_others(self):
        for header in self.headers:
            for included in re.findall(r'^#include "(.+)"$', (self.include / header).read_text(), re.MULTILINE):
                self.assertIn(included, self.headers, header)
        self.assertEqual({header.split("/")[0] for header in self.headers}, {"base", "fsdp"})

    def test_installed_headers_compile(self):
        (self.folder / "headers").mkdir()
        (self.folder / "headers" / "CMakeLists.txt").write_text(HEADERS_PROJECT)
        (self.folder / "headers" / "headers.cpp").write_text("".join(f'#include "{header}"\n' for header in self.headers))
        self.build("headers")

    def test_no_path_of_the_sources_is_installed(self):
        for file in (self.prefix / "lib" / "cmake").rglob("*.cmake"):
            self.assertNotIn(str(SOURCES), file.read_text(), file)
            self.assertNotIn(str(LIBTORCH), file.read_text(), file)

    def test_torch_of_a_python_environment_is_found(self):
        (self.folder / "site").mkdir()
        (self.folder / "site" / "torch").symlink_to(LIBTORCH)
        code, said, _ = self.configure("app", PYTHONPATH=str(self.folder / "site"))
        self.assertEqual(code, 0, said)
        self.assertRegex(said, rf"LibTorch \S+: {self.folder}/site/torch")

    def test_another_libtorch_is_refused(self):
        for header in ("torch/headeronly/version.h", "torch/csrc/api/include/torch/version.h"):  # since 2.10, and before
            with self.subTest(header):
                other = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
                (other / "lib").symlink_to(LIBTORCH / "lib")
                (other / "include" / header).parent.mkdir(parents=True)
                (other / "include" / header).write_text("".join(
                    f"#define TORCH_VERSION_{part} {number}\n" for part, number in (("MAJOR", 2), ("MINOR", 1), ("PATCH", 3))))
                code, said, _ = self.configure("app", other)
                self.assertNotEqual(code, 0)
                self.assertRegex(said, rf"this fsdp was built with LibTorch (\S+), and LibTorch 2\.1\.3 is in {other}: point "
                                       rf"MUSTER_LIBTORCH at LibTorch \1, or build fsdp with -DMUSTER_LIBTORCH={other}")

    def test_a_folder_without_libtorch_or_no_folder_at_all_is_refused(self):
        code, said, _ = self.configure("app", self.prefix)
        self.assertNotEqual(code, 0)
        self.assertIn(f"no LibTorch in {self.prefix}: point MUSTER_LIBTORCH at a folder with include/ and lib/", said)
        (self.folder / "bin").mkdir()
        (self.folder / "bin" / "python3").write_text("#!/bin/sh\nexit 1\n")
        (self.folder / "bin" / "python3").chmod(0o755)
        code, said, _ = self.configure("app", PATH=f"{self.folder / 'bin'}:{self.environment['PATH']}")
        self.assertNotEqual(code, 0)
        self.assertIn("no LibTorch: MUSTER_LIBTORCH is not set, and the python3 in PATH has no package torch: point "
                      "MUSTER_LIBTORCH at a folder with include/ and lib/", said)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
