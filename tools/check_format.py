"""Checks that every C++ file is formatted as clang-format would do it, with the root's .clang-format.

Usage: check_format.py [ROOT]
Exit status: 0 if all files are, 1 otherwise, with one line per file.
"""

import concurrent.futures
import os
import pathlib
import subprocess
import sys

import cpp_files

FILES_A_CALL = 50


def badly_formatted(root, files):
    """The files that clang-format would change. Raises RuntimeError if clang-format fails."""
    done = subprocess.run(["clang-format", "--dry-run", "--Werror", *files], cwd=root, capture_output=True, text=True)
    found = {line.split(":")[0] for line in done.stderr.splitlines() if "[-Wclang-format-violations]" in line}
    if done.returncode != 0 and not found:
        raise RuntimeError(f"clang-format failed with {done.returncode}: {done.stderr.strip()}")
    return sorted(found)


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    files = list(cpp_files.in_tree(root))
    if not files:
        print(f"{root}: no source files found")
        return 1
    batches = [files[at:at + FILES_A_CALL] for at in range(0, len(files), FILES_A_CALL)]
    try:
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            found = [file for some in pool.map(lambda batch: badly_formatted(root, batch), batches) for file in some]
    except (OSError, RuntimeError) as error:
        print(f"format: {error}")
        return 1
    for file in found:
        print(f"{file}: clang-format -i {file}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
