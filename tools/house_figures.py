"""Prints how large the house is: files and lines of the product, names that stand in many files, headers of one user.

Usage: house_figures.py [ROOT]
"""

import pathlib
import re
import statistics
import subprocess
import sys

import check_house

TRACED = ["slurm.qos", "gpus_per_rank"]  # keys of a job file, of which each should be declared once
WRITTEN_BY_HAND = (".cpp", ".h", ".cu", ".py", ".proto", ".ts", ".tsx")
NOT_PRODUCT = ("tests/", "bench/", "tools/", "examples/", "python/tests/", "web/tests/")  # examples: no program has them


def files_of(root):
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z"], check=True, capture_output=True, text=True).stdout
    return [file for file in listed.split("\0") if file and (root / file).is_file()]


def single_users(root, product, tests):
    """Headers that one file alone includes, besides their own source, and no test."""
    users = {}
    for file in product + tests:
        for _, name in check_house.INCLUDE.findall((root / file).read_text(errors="replace")):
            users.setdefault(name, set()).add(file)
    for header in (file for file in product if file.endswith(".h")):
        others = users.get(header, set()) - {header.removesuffix(".h") + ".cpp"}
        if len(others) == 1 and not others & set(tests):
            yield header


def main(root):
    files = files_of(root)
    product = [file for file in files if file.endswith((".cpp", ".h", ".cu")) and not file.startswith(NOT_PRODUCT)]
    tests = [file for file in files if file.endswith((".cpp", ".h")) and file.startswith(NOT_PRODUCT)]
    lines = [(root / file).read_text(errors="replace").count("\n") for file in product]
    print(f"product: {len(product)} C++ files, {sum(lines)} lines, {statistics.median(lines):.0f} in the median file")
    print(f"headers that one file alone uses, and no test: {len(list(single_users(root, product, tests)))}")
    for word in TRACED:
        pattern = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)")
        named = [file for file in files if file.endswith(WRITTEN_BY_HAND) and not file.startswith(NOT_PRODUCT)
                 and pattern.search((root / file).read_text(errors="replace"))]
        print(f"{word}: in {len(named)} product files: {' '.join(named)}")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve())
