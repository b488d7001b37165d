"""Runs clang-tidy over each source file by itself, and prints each finding once.

Usage: tidy.py BUILD_FOLDER [--all | FILE...]
The build folder holds compile_commands.json. Without files, tidy.py checks the files that differ from the branch main. A
header is checked through one file that includes it, because its findings do not depend on the including file. Tests are
left out. Debian's clang is too old for parts of the standard library, so clang cannot compile some files that g++ compiles.
Such files are named and checked as far as clang got.
Exit status: 0 without findings, 1 with some, 2 if there was nothing to run.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys

from changed_files import Unknown, changed_files

FOLDERS = ("agent/", "base/", "cli/", "controller/", "data/", "fsdp/", "proto/json/", "slurm/", "spec/", "worker/")
FILE_LIMIT_S = 900
FINDING = re.compile(r"^(/\S+?):(\d+:\d+): (?:error|warning): (.+) \[([\w.,-]+)\]$")
# clang does not know all options of g++, and names some warnings differently.
EXTRA = ["--extra-arg=-Wno-unknown-warning-option", "--extra-arg=-Qunused-arguments"]


def includes(file, header):
    line = re.compile(rf'^#include "(?:[^"]*/)?{re.escape(pathlib.PurePosixPath(header).name)}"', re.MULTILINE)
    return line.search(pathlib.Path(file).read_text(errors="replace")) is not None


def one_that_includes(header, sources):
    """The source file next to the header with the same name. Otherwise the first file that includes the header, directly if
    possible. Otherwise None."""
    headers = [str(path) for folder in FOLDERS for path in sorted(pathlib.Path(folder).rglob("*.h"))]
    todo, seen = [header], set()
    while todo:
        wanted = todo.pop(0)
        seen.add(wanted)
        beside = [s for s in sources if pathlib.PurePosixPath(s).with_suffix(".h") == pathlib.PurePosixPath(wanted)]
        found = next((s for s in beside + sources if includes(s, wanted)), None)
        if found:
            return found
        todo += [h for h in headers if h not in seen and h not in todo and includes(h, wanted)]
    return None


def pick(wanted, sources):
    """The sources that cover the wanted files, and the files that no source covers."""
    picked, missing = {}, []
    for file in wanted:
        source = file if file in sources else one_that_includes(file, sources) if file.endswith(".h") else None
        if source:
            picked[source] = True
        else:
            missing.append(file)
    return list(picked), missing


def look_at(source, build):
    """(findings, first error of the compiler or None); a finding is (position, text)."""
    command = ["clang-tidy", "--quiet", "-p", build, *EXTRA, source]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FILE_LIMIT_S)
    except subprocess.TimeoutExpired:
        return [(source, f"clang-tidy was not done after {FILE_LIMIT_S} s")], None
    findings, complaint = [], None
    for line in done.stdout.splitlines():
        found = FINDING.match(line)
        if not found:
            continue
        file, place, text, check = found.groups()
        where = f"{os.path.relpath(os.path.realpath(file))}:{place}"
        if check == "clang-diagnostic-error":
            complaint = complaint or f"{where}: {text}"
        else:
            findings.append((where, f"{text} [{check.removesuffix(',-warnings-as-errors')}]"))
    if done.returncode != 0 and not findings and not complaint:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        findings.append((source, f"clang-tidy failed with {done.returncode}: {''.join(last)}"))
    return findings, complaint


def sources_of(build):
    """The product's own files in the build folder's list, relative to the current folder."""
    with open(pathlib.Path(build) / "compile_commands.json") as file:
        entries = json.load(file)
    names = {os.path.relpath(os.path.realpath(os.path.join(e["directory"], e["file"]))) for e in entries}
    return sorted(name for name in names if name.startswith(FOLDERS))


def run(options):
    sources = sources_of(options.build)
    if options.all:
        picked = sources
    else:
        named = [os.path.relpath(os.path.realpath(file)) for file in options.files]
        picked, missing = pick(named or [f for f in changed_files() if f.startswith(FOLDERS) and f.endswith((".h", ".cpp"))],
                               sources)
        for file in missing:
            print(f"tidy: {file} is not part of this build, nor included by a file that is", file=sys.stderr)
        if named and missing:
            return 2
    seen, unreadable = set(), 0
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("MUSTER_JOBS") or os.cpu_count())) as pool:
        for source, (findings, complaint) in zip(picked, pool.map(lambda s: look_at(s, options.build), picked)):
            for finding in findings:
                if finding not in seen:
                    print(": ".join(finding), flush=True)
                seen.add(finding)
            if complaint:
                unreadable += 1
                print(f"tidy: clang can't compile {source}, checked in part: {complaint}", file=sys.stderr, flush=True)
    print(f"tidy: {len(picked)} files, {len(seen)} findings" +
          (f"; {unreadable} that clang can't compile were checked in part" if unreadable else ""), file=sys.stderr)
    return 1 if seen else 0


def main():
    parser = argparse.ArgumentParser(description="clang-tidy over the product's source files.")
    parser.add_argument("build", help="folder with compile_commands.json")
    parser.add_argument("--all", action="store_true", help="every file of the build")
    parser.add_argument("files", nargs="*", metavar="FILE", help="default: what differs from main")
    try:
        return run(parser.parse_args())
    except Unknown as error:
        print(f"tidy: {error}; name files, or give --all", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"tidy: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
