"""What ./dev setup says when something is wrong: one clear line, and nothing half-done.

Method: the real script with its own lists and folders; nothing is installed or downloaded.
"""

import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Setup(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.packages = self.folder / "packages.txt"
        self.packages.write_text("# none\nbash bash\n")

    def setup(self, **environment):
        clean = {k: v for k, v in os.environ.items() if not k.startswith("MUSTER_")}
        clean.update(MUSTER_PACKAGE_LIST=str(self.packages), MUSTER_DEPS_FOLDER=str(self.folder / "deps"), **environment)
        return subprocess.run(["./dev", "setup"], cwd=ROOT, env=clean, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=50)

    def test_a_package_that_does_not_exist_is_named_in_one_line(self):
        self.packages.write_text("no-such-package-as-this\n")
        done = self.setup(MUSTER_LIBTORCH="/nonexistent")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("no-such-package-as-this", done.stderr.splitlines()[-1])

    def test_a_libtorch_folder_without_libtorch_is_named(self):
        done = self.setup(MUSTER_LIBTORCH=str(self.folder))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("no lib/libtorch_cpu.so", done.stderr.splitlines()[-1])

    def test_a_libtorch_that_is_there_is_used_and_nothing_is_done(self):
        (self.folder / "lib").mkdir()
        (self.folder / "lib" / "libtorch_cpu.so").touch()
        done = self.setup(MUSTER_LIBTORCH=str(self.folder))
        self.assertEqual((done.returncode, done.stderr), (0, "setup: everything is there\n"))
        self.assertFalse((self.folder / "deps").exists())

    def test_a_wrong_hash_is_refused_and_leaves_nothing_behind(self):
        wheels = self.folder / "wheels"
        wheels.mkdir()
        (wheels / "torch-2.11.0-cp311-cp311-manylinux_2_28_x86_64.whl").write_bytes(b"not a wheel")
        wrong = self.folder / "libtorch.txt"
        wrong.write_text("torch==2.11.0 --hash=sha256:" + "0" * 64 + "\n")
        done = self.setup(MUSTER_LIBTORCH_LIST=str(wrong), PIP_NO_INDEX="1", PIP_FIND_LINKS=str(wheels))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("hash", done.stderr.splitlines()[-1].lower())
        self.assertFalse((self.folder / "deps" / "libtorch-2.11.0").exists())

    def test_too_little_room_is_said_before_anything_is_downloaded(self):
        tool = self.folder / "bin" / "df"
        tool.parent.mkdir()
        tool.write_text("#!/bin/sh\nprintf 'head\\n/dev/x 10 9 1 90%% /\\n'\n")
        tool.chmod(0o755)
        done = self.setup(PATH=f"{tool.parent}:{os.environ['PATH']}")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("has 1 MiB free", done.stderr.splitlines()[-1])


if __name__ == "__main__":
    unittest.main()
