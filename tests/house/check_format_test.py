"""The check of formatting sees each C++ file of the project, and nothing else."""

import pathlib
import unittest

from tree import check_tree

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHECK = ROOT / "tools" / "check_format.py"
GOOD, BAD = "int a;\n", "int   a;\n"


class CheckFormat(unittest.TestCase):
    def check(self, files, **environment):
        code, out = check_tree(CHECK, {".clang-format": (ROOT / ".clang-format").read_text(), **files}, **environment)
        return code, out.splitlines()

    def test_a_tree_in_order_passes(self):
        self.assertEqual(self.check({"a/b.cpp": GOOD, "a/b.h": GOOD}), (0, []))

    def test_each_file_out_of_order_is_named_with_the_remedy(self):
        code, lines = self.check({"a/b.cpp": BAD, "a/c.h": BAD, "a/d.cpp": GOOD})
        self.assertEqual((code, lines), (1, ["a/b.cpp: clang-format -i a/b.cpp", "a/c.h: clang-format -i a/c.h"]))

    def test_none_is_missed_among_many(self):
        files = {f"a/file{number:03}.cpp": GOOD for number in range(120)}
        code, lines = self.check(files | {"a/file119.cpp": BAD, "a/file000.cpp": BAD})
        self.assertEqual((code, len(lines)), (1, 2))

    def test_what_is_built_or_downloaded_is_left_out(self):
        self.assertEqual(self.check({"a/b.cpp": GOOD, "build/dev/x.cpp": BAD, ".deps/y.h": BAD,
                                     "web/node_modules/z/z.cpp": BAD}), (0, []))

    def test_an_empty_tree_is_no_success(self):
        self.assertEqual(self.check({})[0], 1)

    def test_without_clang_format_it_fails_and_says_so(self):
        code, lines = self.check({"a/b.cpp": GOOD}, PATH="/nonexistent")
        self.assertEqual(code, 1)
        self.assertIn("clang-format", lines[0])


if __name__ == "__main__":
    unittest.main()
