"""Checks that each link of a page leads to a file that is there, and to a heading that is there. Links to other sites are left alone.
Source files that ARCHITECTURE.md and the README of a folder name by their path are there, too: `base/fd.h` or, in a README, a file
beside it. The files that a job passes (ARCHITECTURE.md, "From a job file to sbatch") are few, and each is entered from one above.

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
WALK = re.compile(r"^## From a job file to sbatch$(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
STATION = re.compile(r"^\| `([\w./]+)` \| (.+?) \| (.+?) \|$", re.MULTILINE)
ENTRY = re.compile(r"`(\w+)`,( by its number,)? in `([\w./]+)`")
MOST_STATIONS, MOST_FORMS = 15, 8
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


def walk_of_a_job(root):
    """What is wrong with the table of the files that a job passes."""
    page = root / "ARCHITECTURE.md"
    section = WALK.search(prose(page)) if page.is_file() else None
    stations = STATION.findall(section[1]) if section else []
    above, forms = [], set()
    for file, entered, form in stations:
        entry = ENTRY.fullmatch(entered)
        if not entry and above:
            yield f'{page.name}: {file}: want "`function`, in `file`", not "{entered}"'
        elif entry and not entry[2] and entry[3] not in above:
            yield f"{page.name}: {file} is entered from {entry[3]}, which is no file above it"
        elif entry:
            yield from (f"{page.name}: {place} does not name {entry[1]}()" for place in (file, entry[3])
                        if (root / place).is_file() and f"{entry[1]}(" not in (root / place).read_text(encoding="utf-8"))
        above.append(file)
        forms.update(re.findall(r"`(\w+)`", form))
    for what, count, most in (("files", len(set(above)), MOST_STATIONS), ("forms", len(forms), MOST_FORMS)):
        if count > most:
            yield f"{page.name}: a job passes {count} {what} on its way to sbatch; at most {most}"


def violations(root):
    found = list(pages(root))
    yield from walk_of_a_job(root)
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
