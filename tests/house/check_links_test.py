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

    def walk(self, rows, files):
        table = "".join(f"| `{file}` | {entered} | `{form}` |\n" for file, entered, form in rows)
        return self.check(files | {"ARCHITECTURE.md": f"## From a job file to sbatch\n\n| file | entered by | forms |\n|---|---|---|\n{table}\n## B\n"})

    def test_a_job_passes_few_files_and_each_is_entered_from_one_above(self):
        files = {"a.cpp": "read(x);", "b.cpp": "int read(int x) { send(x); }", "c.cpp": "void send(int) {}", "d.cpp": "send(1);"}
        rows = [("a.cpp", "the command line", "TOML"), ("b.cpp", "`read`, in `a.cpp`", "JobSpec"), ("c.cpp", "`send`, in `b.cpp`", "JSON")]
        self.assertEqual(self.walk(rows, files), (0, []))
        self.assertEqual(self.walk(rows[:2] + [("c.cpp", "`send`, by its number, in `d.cpp`", "JSON")], files), (0, []))
        self.assertEqual(self.walk(rows[:2] + [("c.cpp", "`send`, in `d.cpp`", "JSON")], files),
                         (1, ["ARCHITECTURE.md: c.cpp is entered from d.cpp, which is no file above it"]))
        self.assertEqual(self.walk(rows[:2] + [("c.cpp", "`send`, in `a.cpp`", "JSON")], files), (1, ["ARCHITECTURE.md: a.cpp does not name send()"]))
        self.assertEqual(self.walk(rows[:2] + [("c.cpp", "b.cpp", "JSON")], files),
                         (1, ['ARCHITECTURE.md: c.cpp: want "`function`, in `file`", not "b.cpp"']))

    def test_a_longer_walk_of_a_job_is_told(self):
        files = {f"f{i}.cpp": "go();" for i in range(16)}
        rows = [(f"f{i}.cpp", f"`go`, in `f{max(i - 1, 0)}.cpp`", f"form{i % 8}") for i in range(16)]
        rows[0] = ("f0.cpp", "the command line", "form0")
        self.assertEqual(self.walk(rows[:15], files), (0, []))
        self.assertEqual(self.walk(rows, files), (1, ["ARCHITECTURE.md: a job passes 16 files on its way to sbatch; at most 15"]))
        rows[1] = rows[1][:2] + ("form8",)
        rows[9] = rows[9][:2] + ("form9",)
        self.assertEqual(self.walk(rows[:15], files)[1], ["ARCHITECTURE.md: a job passes 9 forms on its way to sbatch; at most 8"])

    def test_an_empty_tree_is_no_success(self):
        self.assertEqual(self.check({})[0], 1)


if __name__ == "__main__":
    unittest.main()
