"""Checks that each link of a page leads to a file that is there, and to a heading that is there. Links to other sites are left alone.

Usage: check_links.py [ROOT]
"""

import os
import pathlib
import re
import sys

import verdict

LEFT_OUT = {"build", "node_modules"}  # besides folders whose names begin with a dot
FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
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


def violations(root):
    found = list(pages(root))
    if not found:
        yield f"{root}: no pages found"
    for page in found:
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
