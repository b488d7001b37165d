"""Checks that no comment of the C++ code begins with a word that leaves out the noun: "What", "Whether", "The same", "Of", "As".
Such a comment is read twice: the reader must guess what it speaks of.

Usage: check_comments.py [ROOT]
Exit status: 0 if no comment does, 1 otherwise, with one line per comment.
"""

import re
import sys

import cpp_files
import verdict

OPENER = re.compile(r"(What|Whether|The same|Of|As)\b")
LINE = re.compile(r"^\s*//[/!]?<?\s?")  # a line that is a comment and nothing else
BEHIND_CODE = re.compile(r"\S.*?(?:\s\s|\s)//[/!]?<?\s?(.*)$")


def openings(text):
    """The first line of each comment, with its number."""
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        whole = LINE.match(line)
        if whole:
            words = line[whole.end():]
            if not inside and words.strip():
                yield number, words
            inside = bool(words.strip())
            continue
        inside = False
        behind = BEHIND_CODE.match(line)
        if behind and '"' not in line[behind.start(1) - 4:]:
            yield number, behind.group(1)


def violations(root):
    for file in cpp_files.in_tree(root, (".h", ".cpp", ".cu")):
        for number, words in openings((root / file).read_text(errors="replace")):
            found = OPENER.match(words)
            if found:
                yield f"{file}:{number}: a comment begins with \"{found.group(0)}\"; begin with the noun"


if __name__ == "__main__":
    sys.exit(verdict.of(violations))
