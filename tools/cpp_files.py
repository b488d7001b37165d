"""The C++ files of the project that people write."""

import os
import pathlib

LEFT_OUT = {"build", "node_modules"}  # besides folders whose names begin with a dot


def in_tree(root, endings=(".h", ".cpp")):
    """Their paths below `root`, folder by folder in the order of names."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(f for f in folders if f not in LEFT_OUT and not f.startswith("."))
        yield from (pathlib.Path(folder, name).relative_to(root).as_posix() for name in sorted(names) if name.endswith(endings))
