"""./dev check --tidy looks at the files that it should, and no finding is lost or told twice.

Method: the real tools/tidy.py in a small repository of its own, with a clang-tidy that says what the file before it tells it to.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TIDY = pathlib.Path(__file__).resolve().parents[2] / "tools" / "tidy.py"
# Prints the lines of the source that begin with "// says: ", as clang-tidy would; FOLDER stands for the repository.
CLANG_TIDY = """import pathlib, sys
source = pathlib.Path(sys.argv[-1])
with open("looked-at", "a") as file:
    file.write(f"{source}\\n")
says = [line[9:] for line in source.read_text().splitlines() if line.startswith("// says: ")]
print("\\n".join(says).replace("FOLDER", str(pathlib.Path.cwd())))
sys.exit(len(says) > 0)
"""
FAULT = "// says: FOLDER/{}:3:7: error: 'a' is used after it was moved [bugprone-use-after-move,-warnings-as-errors]\n"


class Tidy(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name).resolve()
        self.bin = self.folder / "bin"
        self.tree = self.folder / "tree"
        self.write("../bin/clang-tidy", f"#!{sys.executable}\n{CLANG_TIDY}")
        (self.bin / "clang-tidy").chmod(0o755)
        self.write(".gitignore", "looked-at\nbuild/\n")
        for name in ("controller/core/job.cpp", "controller/core/apply.cpp", "slurm/client.cpp", "tests/core/job_test.cpp"):
            self.write(name, "")
        self.write("controller/core/job.h", "")
        self.write("controller/core/apply.cpp", '#include "core/job.h"\n')
        self.write("controller/core/text.h", "")
        self.write("slurm/client.cpp", '#include <string>\n#include "core/text.h"\n')
        self.write_commands()
        self.git("init", "-q", "-b", "main")
        self.commit()
        self.git("checkout", "-q", "-b", "work")

    def write(self, name, text):
        path = self.tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def write_commands(self):
        self.write("build/compile_commands.json", json.dumps(
            [{"directory": str(self.tree / "build"), "file": str(path), "command": ""} for path in self.tree.rglob("*.cpp")]))

    def git(self, *arguments):
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments], cwd=self.tree, check=True,
                       env=dict(os.environ, GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_SYSTEM="/dev/null"))

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "a change")

    def tidy(self, *arguments):
        """Exit status, lines of findings, lines about the run, and the files looked at."""
        (self.tree / "looked-at").unlink(missing_ok=True)
        done = subprocess.run([sys.executable, "-B", TIDY, "build", *arguments], cwd=self.tree, capture_output=True, text=True,
                              env=dict(os.environ, PATH=f"{self.bin}:{os.environ['PATH']}"))
        looked = self.tree / "looked-at"
        return (done.returncode, done.stdout.splitlines(), done.stderr.splitlines(),
                sorted(looked.read_text().split()) if looked.exists() else [])

    def test_files_that_differ_from_main_are_looked_at_committed_or_not(self):
        self.write("controller/core/job.cpp", "int a;\n")
        self.commit()
        self.write("slurm/client.cpp", "int a;\n")
        self.write("README.md", "a\n")
        self.write("worker/new.cpp", "")
        self.write_commands()
        code, found, said, looked = self.tidy()
        self.assertEqual((code, found, looked), (0, [], ["controller/core/job.cpp", "slurm/client.cpp",
                                                   "worker/new.cpp"]), said)
        self.assertEqual(said, ["tidy: 3 files, 0 findings"])

    def test_what_main_did_meanwhile_is_not_ours(self):
        self.git("checkout", "-q", "main")
        self.write("slurm/client.cpp", "int a;\n")
        self.commit()
        self.git("checkout", "-q", "work")
        self.assertEqual(self.tidy()[3], [])

    def test_a_finding_is_told_and_fails(self):
        self.write("controller/core/job.cpp", FAULT.format("controller/core/job.cpp"))
        code, found, said, _ = self.tidy()
        self.assertEqual((code, found), (1, [
            "controller/core/job.cpp:3:7: 'a' is used after it was moved [bugprone-use-after-move]"]))
        self.assertEqual(said, ["tidy: 1 files, 1 findings"])

    def test_a_finding_in_a_header_is_told_once(self):
        for name in ("controller/core/job.cpp", "controller/core/apply.cpp"):
            self.write(name, FAULT.format("controller/core/../core/job.h"))
        code, found, said, looked = self.tidy()
        self.assertEqual((code, len(found), len(looked)), (1, 1, 2), said)
        self.assertTrue(found[0].startswith("controller/core/job.h:3:7: "), found)

    def test_a_header_is_looked_at_through_one_file_that_includes_it(self):
        self.write("controller/core/job.h", "int a;\n")
        self.assertEqual(self.tidy()[3], ["controller/core/apply.cpp"])
        self.assertEqual(self.tidy("controller/core/text.h")[3], ["slurm/client.cpp"])
        self.write("controller/core/job.cpp", '#include "core/job.h"\n')
        self.assertEqual(self.tidy("controller/core/job.h")[3], ["controller/core/job.cpp"])

    def test_a_header_that_only_headers_include_is_looked_at_too(self):
        self.write("controller/core/types.h", "")
        self.write("controller/core/event.h", '#include "core/types.h"\n')
        self.write("controller/core/job.h", '#include "core/event.h"\n')
        self.assertEqual(self.tidy("controller/core/types.h")[3], ["controller/core/apply.cpp"])

    def test_all_is_all_of_the_product(self):
        self.assertEqual(self.tidy("--all")[3], ["controller/core/apply.cpp", "controller/core/job.cpp", "slurm/client.cpp"])

    def test_a_file_that_clang_can_not_compile_is_named_and_what_was_found_stands(self):
        self.write("slurm/client.cpp", "// says: /usr/include/c++/12/ranges:9:3: error: no matching function [clang-diagnostic-error]\n"
                   + FAULT.format("slurm/client.cpp"))
        code, found, said, _ = self.tidy()
        self.assertEqual((code, len(found)), (1, 1))
        self.assertIn("clang can't compile slurm/client.cpp, checked in part", said[0])
        self.assertEqual(said[-1], "tidy: 1 files, 1 findings; 1 that clang can't compile were checked in part")

    def test_a_file_that_nobody_builds_is_an_error(self):
        code, _, said, looked = self.tidy("controller/core/jobs.cpp")
        self.assertEqual((code, looked), (2, []))
        self.assertIn("controller/core/jobs.cpp is not part of this build", said[0])

    def test_a_clang_tidy_that_fails_is_no_success(self):
        self.write("../bin/clang-tidy", "#!/bin/sh\necho 'Segmentation fault' >&2\nexit 139\n")
        code, found, _, _ = self.tidy("slurm/client.cpp")
        self.assertEqual((code, found), (1, ["slurm/client.cpp: clang-tidy failed with 139: Segmentation fault"]))

    def test_without_a_main_it_asks_for_files(self):
        self.git("branch", "-q", "-D", "main")
        code, _, said, _ = self.tidy()
        self.assertEqual(code, 2)
        self.assertIn("name files, or give --all", said[-1])


if __name__ == "__main__":
    unittest.main()
