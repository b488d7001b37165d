"""Control groups in which Slurm limits the memory of its jobs. Each cluster has its own; otherwise the nodes named node1 of
two clusters would share a group."""

import os
import pathlib
import re

import processes

MOUNTED_AT = pathlib.Path("/sys/fs/cgroup/memory")
PREFIX = "muster-cluster-"


class NoMemoryGroups(Exception):
    """No memory group can be made. The text says why, with the remedy."""


class MemoryGroups:
    """The memory groups of one cluster. The kernel keeps groups whose processes are gone, so the cluster removes them at its
    end. After a SIGKILL the next cluster with memory limits removes them."""

    def __init__(self, folder):
        """Makes the group, and in `folder` the structure that Slurm takes for the mount point of the kernel's groups."""
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
            pass  # a process of the group still lives; the next cluster tries again
