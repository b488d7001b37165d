"""What a check of the tree says, and its exit status."""

import pathlib
import sys


def of(violations):
    """Prints each line of `violations(root)` for the root that the command names. Returns 1 if there is one, else 0."""
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    found = list(violations(root))
    for line in found:
        print(line)
    return 1 if found else 0
