"""Checks that each link of a page leads to a file that is there, and to a heading that is there. Links to other sites are left alone.
Source files that ARCHITECTURE.md and the README of a folder name by their path are there, too: `base/fd.h` or, in a README, a file
beside it.

Usage: check_links.py [ROOT]
"""

import os
import pathlib
import re
import sys

import verdict

CODE = {"agent", "base", "cli", "controller", "data", "fsdp", "proto", "slurm", "spec", "worker"}
LEFT_OUT = {"build", "node_modules"}  # besides folders whose names begin with a dot
FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED = re.compile(r"`([\w./{},-]+)`")
SOURCE = re.compile(r"[^/]\.(?:cpp|h|cu|py|ts|tsx|mjs|sql|sh|cmake|md|toml|proto)$")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)


def pages(root):
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in LEFT_OUT and not name.startswith("."))
        yield from (pathlib.Path(folder) / file for file in sorted(files) if file.endswith(".md"))


def prose(page):
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors(page):
    """The names by which GitHub and others link to headings."""
    found = {}
    for heading in HEADING.findall(prose(page)):
        plain = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        count = found[plain] = found.get(plain, 0) + 1
        if count > 1:
            found[f"{plain}-{count - 1}"] = 1
    return found.keys()


def spelled_out(name):
    """A name with alternatives in braces, as the names that it stands for."""
    start, brace, rest = name.partition("{")
    words, closed, end = rest.partition("}")
    if not brace or not closed:
        return [name]
    return [start + word + tail for word in words.split(",") for tail in spelled_out(end)]


def missing_files(root, page):
    """What a page names that is not there. Of a page at the top, only what has a folder is a path."""
    at_top = page.parent == root
    for name in NAMED.findall(prose(page)):
        for file in spelled_out(name):
            is_there = (root / file).is_file() or (not at_top and (page.parent / file).is_file())
            if SOURCE.search(file) and not is_there and ("/" in file or not at_top):
                yield file


def violations(root):
    found = list(pages(root))
    if not found:
        yield f"{root}: no pages found"
    for page in found:
        if page == root / "ARCHITECTURE.md" or (page.name == "README.md" and page.parent != root and page.parts[len(root.parts)] in CODE):
            yield from (f"{page.relative_to(root)}: names {file}, which is not there" for file in missing_files(root, page))
        for link in LINK.findall(prose(page)):
            if re.match(r"[a-z]+:", link):
                continue
            file, _, anchor = link.partition("#")
            target = page if not file else page.parent / file
            place = f"{page.relative_to(root)}: the link {link}"
            if not target.exists():
                yield f"{place} leads to no file"
            elif anchor and target.suffix == ".md" and anchor not in anchors(target):
                yield f"{place} leads to no heading of {os.path.relpath(target, root)}"


if __name__ == "__main__":
    sys.exit(verdict.of(violations))
