"""Kernel calls and readers of /proc that Python's library lacks."""

import ctypes
import os
import pathlib
import signal
import socket

CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWNET = 0x00020000, 0x20000000, 0x40000000
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
MNT_DETACH = 2
FITHAW = 0xC0045878

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result, what):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags):
    _checked(_libc.unshare(flags), "unshare")


def unmount_below(folder):
    """Detaches every file system that is mounted in the folder. Needs root."""
    mounts = [line.split()[4].encode().decode("unicode_escape") for line in open("/proc/self/mountinfo")]
    for point in sorted(mounts, reverse=True):
        if point.startswith(f"{folder}/"):
            _libc.umount2(point.encode(), MNT_DETACH)


def thaw_below(folder):
    """Thaws every ext4 that is mounted in the folder. While one is frozen, not even SIGKILL ends a process that writes there.
    Needs root."""
    for line in open("/proc/self/mountinfo"):
        fields = line.split()
        point = fields[4].encode().decode("unicode_escape")
        if not point.startswith(f"{folder}/") or fields[fields.index("-") + 1] != "ext4":
            continue
        try:
            place = os.open(point, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            continue
        _libc.ioctl(place, ctypes.c_ulong(FITHAW), 0)  # refused where the file system is not frozen
        os.close(place)


def set_namespace(fd):
    _checked(_libc.setns(fd, 0), "setns")


def die_with_parent(number):
    _checked(_libc.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0), "prctl(PR_SET_PDEATHSIG)")


def adopt_orphans():
    """Makes this process, instead of init, adopt descendants whose parent ends."""
    _checked(_libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl(PR_SET_CHILD_SUBREAPER)")


def can_make_namespaces():
    """Whether this process can make namespaces, which needs root's rights. A child tries it, because a process cannot undo it."""
    pid = os.fork()
    if pid == 0:
        try:
            unshare(CLONE_NEWPID | CLONE_NEWNS)
            os._exit(0)
        except OSError:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


def all_pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def stat_of(pid):
    """The fields of /proc/PID/stat from the state (number 3) on, or None if the process does not exist."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return None


def start_ticks(pid):
    """When the process started, in clock ticks since boot, or None if it is gone. Pid and start together identify a process."""
    fields = stat_of(pid)
    return None if fields is None or fields[0] in "ZX" else int(fields[19])


def host_pid():
    """This process's pid in the namespace that /proc shows, which may be an outer one."""
    return int(os.readlink("/proc/self"))


def descendants():
    """The pids of all descendants of this process, including zombies."""
    parents = {pid: int(fields[1]) for pid in all_pids() if (fields := stat_of(pid))}
    found, more = {os.getpid()}, True
    while more:
        below = {pid for pid, parent in parents.items() if parent in found} - found
        found |= below
        more = bool(below)
    return found - {os.getpid()}


def kill_descendants():
    """Kills all descendants of this process and waits for them. Call adopt_orphans() first, so that orphans are found."""
    while True:
        for pid in descendants():
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass  # already gone, or of another user
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


class Ports:
    """Free TCP ports, claimed for as long as this object lives.

    An abstract Unix socket named by the port's number claims the port, so two clusters never choose the same one. Binding
    then tests that the port is free. The ports lie below the range from which the kernel gives ports to clients.
    """

    FIRST, LAST = 20000, 32000

    def __init__(self):
        self.claims = []
        self.next = self.FIRST + (os.getpid() * 97) % (self.LAST - self.FIRST)

    def take(self):
        for _ in range(self.LAST - self.FIRST):
            port, self.next = self.next, self.FIRST + (self.next + 1 - self.FIRST) % (self.LAST - self.FIRST)
            claim = socket.socket(socket.AF_UNIX)
            try:
                claim.bind(f"\0muster-cluster-port-{port}")
                with socket.socket() as trial:
                    trial.bind(("", port))
            except OSError:
                claim.close()
                continue
            self.claims.append(claim)
            return port
        raise OSError(f"no free TCP port between {self.FIRST} and {self.LAST}")
