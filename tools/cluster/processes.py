"""The few kernel calls and looks into /proc that Python's library has no name for."""

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
    """Detaches every file system that is mounted in the folder. Takes root."""
    mounts = [line.split()[4].encode().decode("unicode_escape") for line in open("/proc/self/mountinfo")]
    for point in sorted(mounts, reverse=True):
        if point.startswith(f"{folder}/"):
            _libc.umount2(point.encode(), MNT_DETACH)


def thaw_below(folder):
    """Thaws every ext4 that is mounted in the folder: until then not even SIGKILL ends a process that writes there. Takes root."""
    for line in open("/proc/self/mountinfo"):
        fields = line.split()
        point = fields[4].encode().decode("unicode_escape")
        if not point.startswith(f"{folder}/") or fields[fields.index("-") + 1] != "ext4":
            continue
        try:
            place = os.open(point, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            continue
        _libc.ioctl(place, ctypes.c_ulong(FITHAW), 0)  # refused where it is not frozen
        os.close(place)


def set_namespace(fd):
    _checked(_libc.setns(fd, 0), "setns")


def die_with_parent(number):
    _checked(_libc.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0), "prctl(PR_SET_PDEATHSIG)")


def adopt_orphans():
    """Descendants whose parent ends become this process's children, not init's."""
    _checked(_libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl(PR_SET_CHILD_SUBREAPER)")


def can_make_namespaces():
    """True with root's rights. Tried in a child, because there is no way back."""
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
    """Fields of /proc/PID/stat from the state (number 3) on, or None if there is no such process."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return None


def start_ticks(pid):
    """When the process started, in clock ticks since boot; with the pid it names one process. None: it is gone."""
    fields = stat_of(pid)
    return None if fields is None or fields[0] in "ZX" else int(fields[19])


def host_pid():
    """Our pid in the namespace that /proc shows, which may be outside ours."""
    return int(os.readlink("/proc/self"))


def descendants():
    """The pids of everything below this process, zombies too."""
    parents = {pid: int(fields[1]) for pid in all_pids() if (fields := stat_of(pid))}
    found, more = {os.getpid()}, True
    while more:
        below = {pid for pid, parent in parents.items() if parent in found} - found
        found |= below
        more = bool(below)
    return found - {os.getpid()}


def kill_descendants():
    """Kills everything below this process, and waits for it. Orphans must come to us: adopt_orphans()."""
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
    """Free TCP ports, ours for as long as this object lives.

    A port is claimed by an abstract Unix socket of its number, so that two clusters never choose the same one, and tried by
    binding. They lie below the range from which the kernel gives ports to clients.
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
