"""Writes docs/job-file.md and docs/commands.md from the help of muster, which comes from the tables of keys and commands.

Usage: reference.py BIN_FOLDER [--check]

With --check nothing is written, and a page that is not what would be written is an error with the remedy.
"""

import argparse
import difflib
import os
import pathlib
import re
import subprocess
import sys

DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs"
KEYS_BEGIN = "Keys of a job file, with their defaults."
COLUMNS = "100"  # of the terminal for which help is printed
REMEDY = "run ./dev bless, and review the diff"


def help_of(binaries, *words):
    """The help of a command as people see it on a terminal of COLUMNS columns."""
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "COLUMNS": COLUMNS}
    done = subprocess.run([binaries / "muster", *words, "--help"], capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        raise SystemExit(f"reference: muster {' '.join(words)} --help: {done.stderr}")
    return done.stdout.rstrip() + "\n"


def commands_in(text):
    """The names below "Commands:", as the help of muster and of muster admin has them; of muster data, those before "Exit codes"."""
    below = re.search(r"^Commands:\n((?:  .*\n)+)", text, re.MULTILINE)
    return re.findall(r"^  ([a-z][a-z-]*)  ", below.group(1), re.MULTILINE) if below else []


def all_commands(binaries, words=()):
    """Every command with its help, in the order of the help. `help` and `version` say nothing of their own."""
    text = help_of(binaries, *words)
    yield words, text
    names = commands_in(text) or (["prepare", "show", "check", "decode"] if words == ("data",) else [])
    for name in names:
        if name not in ("help", "version"):
            yield from all_commands(binaries, (*words, name))


def commands_page(binaries):
    lines = ["# Commands", "", "The help of every command, as `muster COMMAND --help` prints it. `./dev bless` writes this page.",
             "[cheat-sheet.md](cheat-sheet.md) has the commands that people need first.", ""]
    for words, text in all_commands(binaries):
        text = text.split(KEYS_BEGIN)[0].rstrip()
        lines += [f"## {' '.join(('muster', *words))}", "", "```text", *(line.rstrip() for line in text.splitlines()), "```", ""]
        if words == ("submit",):
            lines += ["[job-file.md](job-file.md) has the keys of a job file.", ""]
    return "\n".join(lines).rstrip() + "\n"


def escaped(text):
    return text.replace("|", "\\|").replace("<", "&lt;")


def rows_of(text):
    """The keys below KEYS_BEGIN: (table, key, default, meaning)."""
    table, key, default, meaning = "", None, "", []
    for line in text.split(KEYS_BEGIN)[1].splitlines()[1:]:
        heading = re.fullmatch(r"\[([\w.]+)\]", line)
        row = re.fullmatch(r"(?:  )?(\S+)(?: = (.+))?", line)
        if heading or (row and not line.startswith("      ")):
            if key:
                yield table, key, default, " ".join(meaning)
            key, default, meaning = None, "", []
        if heading:
            table = heading.group(1)
        elif line.startswith("      "):
            meaning.append(line.strip())
        elif row:
            key, default = row.group(1), row.group(2) or ""
        elif line.strip():
            raise SystemExit(f"reference: a line of muster submit --help that is no key: {line!r}")
    if key:
        yield table, key, default, " ".join(meaning)


def job_file_page(binaries):
    lines = ["# Keys of a job file", "",
             "A job file is strict TOML: a key that muster does not know is an error with place and remedy. Relative paths start at",
             "the file's folder. A default in brackets is not a value but says where the value comes from. `./dev bless` writes this",
             "page from the tables of keys. `muster submit --help` prints the same."]
    table = None
    for name, key, default, meaning in rows_of(help_of(binaries, "submit")):
        if name != table:
            table = name
            lines += ["", f"## [{table}]" if table else "## At the top", "", "| key | default | meaning |", "|---|---|---|"]
        shown = default if default.startswith("(") else f"`{default}`" if default else ""
        lines.append(f"| `{key}` | {escaped(shown)} | {escaped(meaning)} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binaries", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    binaries = options.binaries.resolve()
    stale = []
    for name, text in (("job-file.md", job_file_page(binaries)), ("commands.md", commands_page(binaries))):
        file = DOCS / name
        before = file.read_text() if file.exists() else ""
        if before == text:
            continue
        if options.check:
            stale.append(name)
            sys.stdout.writelines(difflib.unified_diff(before.splitlines(True), text.splitlines(True), f"docs/{name}", "muster --help", n=1))
        else:
            file.write_text(text)
            print(f"docs/{name}")
    if stale:
        raise SystemExit(f"{', '.join(stale)}: not what muster's help says now; {REMEDY}")


if __name__ == "__main__":
    main()
