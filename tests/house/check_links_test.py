"""The check of links sees every page, and knows headings as those who show pages do."""

import pathlib
import unittest

from tree import check_tree

CHECK = pathlib.Path(__file__).resolve().parents[2] / "tools" / "check_links.py"


class CheckLinks(unittest.TestCase):
    def check(self, files):
        code, out = check_tree(CHECK, files)
        return code, out.splitlines()

    def test_links_that_lead_somewhere_pass(self):
        page = "# A page\n## On `x`, and y\n## Twice\n## Twice\n"
        self.assertEqual(self.check({"a.md": page + "[1](#a-page) [2](#on-x-and-y) [3](#twice-1) [4](docs/b.md#b) [5](docs) [6](https://a/b)",
                                     "docs/b.md": "# B\n[up](../a.md#twice)"}), (0, []))

    def test_a_missing_file_and_a_missing_heading_are_named(self):
        self.assertEqual(self.check({"a.md": "[1](docs/c.md) [2](docs/b.md#c) [3](#d)", "docs/b.md": "# B\n"}),
                         (1, ["a.md: the link docs/c.md leads to no file", "a.md: the link docs/b.md#c leads to no heading of docs/b.md",
                              "a.md: the link #d leads to no heading of a.md"]))

    def test_examples_in_fences_are_no_links_and_no_headings(self):
        self.assertEqual(self.check({"a.md": "```sh\n# no heading\n[1](nowhere)\n```\n[2](#no-heading)\n"}),
                         (1, ["a.md: the link #no-heading leads to no heading of a.md"]))

    def test_what_is_built_or_downloaded_is_left_out(self):
        self.assertEqual(self.check({"a.md": "", "build/b.md": "[1](c)", "web/node_modules/x/y.md": "[1](c)"}), (0, []))

    def test_files_that_the_architecture_and_readmes_of_folders_name_are_there(self):
        tree = {"base/fd.h": "", "base/fd.cpp": "", "base/README.md": "`fd.h`, `base/fd.{h,cpp}`\n", "ARCHITECTURE.md": "`base/fd.h`, `fd.h`\n"}
        self.assertEqual(self.check(tree), (0, []))
        wrong = {"base/README.md": "`gone.h`\n", "ARCHITECTURE.md": "`base/fd.{h,cpp,py}`\n", "docs/README.md": "`gone.h`\n"}
        self.assertEqual(self.check(tree | wrong), (1, ["ARCHITECTURE.md: names base/fd.py, which is not there",
                                                        "base/README.md: names gone.h, which is not there"]))

    def test_an_empty_tree_is_no_success(self):
        self.assertEqual(self.check({})[0], 1)


if __name__ == "__main__":
    unittest.main()
