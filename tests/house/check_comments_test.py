"""The check of comments sees the first words of each comment, and no code or text."""

import pathlib
import unittest

from tree import check_tree

CHECK = pathlib.Path(__file__).resolve().parents[2] / "tools" / "check_comments.py"


class CheckComments(unittest.TestCase):
    def check(self, text):
        code, out = check_tree(CHECK, {"a/b.h": text, "build/c.h": "// What is built.\n"})
        return code, out.splitlines()

    def test_comments_that_begin_with_the_noun_pass(self):
        self.assertEqual(self.check("// The file.\nint a;  ///< Offsets of samples\n/// True if it is there.\nbool b();\n"), (0, []))

    def test_each_opener_without_a_noun_is_named_with_its_place(self):
        for opener in ("What", "Whether", "The same", "Of", "As"):
            for mark in ("// ", "/// "):
                self.assertEqual(self.check(f"int a;\n\n  {mark}{opener} a file is.\n"),
                                 (1, [f'a/b.h:3: a comment begins with "{opener}"; begin with the noun']))
        self.assertEqual(self.check("int a;  ///< Whether it is\n")[0], 1)

    def test_only_the_beginning_of_a_comment_counts(self):
        self.assertEqual(self.check("// A sentence ends.\n// What comes next is its second sentence.\n"), (0, []))
        self.assertEqual(self.check("// A paragraph.\n//\n// What comes next is another one.\n")[0], 1)

    def test_code_and_texts_are_no_comments(self):
        self.assertEqual(self.check('auto a = "http://x // What";\nint Whether = 0, Of = 1;\n'), (0, []))


if __name__ == "__main__":
    unittest.main()
