"""Control groups below which Slurm holds its jobs to their memory. A cluster's own, or two would share those of a node1."""

import os
import pathlib
import re

import processes

MOUNTED_AT = pathlib.Path("/sys/fs/cgroup/memory")
PREFIX = "muster-cluster-"


class NoMemoryGroups(Exception):
    """Why there can be none, with the remedy."""


class MemoryGroups:
    """The kernel keeps such groups when all their processes are gone, so they are removed: at the end, or, where that end was
    a SIGKILL, by the next cluster that has some."""

    def __init__(self, folder):
        """Makes the group, and in `folder` what Slurm takes for the place where the kernel's groups are mounted."""
        for name in os.listdir(MOUNTED_AT) if MOUNTED_AT.is_dir() else []:
            owner = re.fullmatch(PREFIX + r"(\d+)-(\d+)", name)
            if owner and processes.start_ticks(int(owner[1])) != int(owner[2]):
                _remove(MOUNTED_AT / name)
        self.path = MOUNTED_AT / f"{PREFIX}{os.getpid()}-{processes.start_ticks(os.getpid())}"
        try:
            self.path.mkdir()
        except OSError as e:
            raise NoMemoryGroups(f"--memory-limits: no control group can be made in {MOUNTED_AT} ({e.strerror}): that takes root "
                                 "and a kernel with the memory controller of the first version; leave it out") from None
        folder.mkdir()
        (folder / "memory").symlink_to(self.path)

    def remove(self):
        _remove(self.path)


def _remove(path):
    for folder, _, _ in os.walk(path, topdown=False):
        try:
            os.rmdir(folder)
        except OSError:
            pass  # something lives on in it; the next cluster tries again
