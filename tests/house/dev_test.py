"""Which LibTorch ./dev builds with: the one that MUSTER_LIBTORCH names now, not the one of the first time.

Method: the real script and the real cmake/LibTorch.cmake in a project that has nothing to compile.
"""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROJECT = """cmake_minimum_required(VERSION 3.24)
project(nothing LANGUAGES NONE)
include(cmake/LibTorch.cmake)
"""


class WhichLibtorch(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name).resolve()
        self.project = self.folder / "project"
        for name in ("dev", "tools/setup.sh", "cmake/LibTorch.cmake", "CMakePresets.json"):
            (self.project / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.project / name)
        (self.project / "CMakeLists.txt").write_text(PROJECT)
        (self.project / "packages.txt").write_text("bash bash\n")
        (self.project / "libtorch.txt").write_text("torch\n")
        self.one, self.other = self.libtorch("one"), self.libtorch("other")
        self.own = self.libtorch("project/.deps/libtorch-2.11.0/torch")
        stamp = hashlib.sha256((self.project / "libtorch.txt").read_bytes()).hexdigest()
        (self.own.parent / ".complete").write_text(f"{stamp}  -\n")

    def libtorch(self, name):
        folder = self.folder / name
        (folder / "lib").mkdir(parents=True)
        (folder / "lib" / "libtorch_cpu.so").touch()
        return folder

    def build(self, libtorch=None, cwd=None):
        """Builds, and returns whether that configured anything."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("MUSTER_")}
        environment.update(MUSTER_PACKAGE_LIST="packages.txt", MUSTER_LIBTORCH_LIST="libtorch.txt")
        if libtorch is not None:
            environment["MUSTER_LIBTORCH"] = str(libtorch)
        done = subprocess.run([self.project / "dev", "build"], cwd=cwd or self.project, env=environment,
                              capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=100)
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

    def test_a_project_that_is_reached_in_two_ways_configures_once(self):
        self.assertTrue(self.build())
        (self.folder / "way").symlink_to(self.project)
        self.project = self.folder / "way"
        self.assertFalse(self.build())


if __name__ == "__main__":
    unittest.main()
