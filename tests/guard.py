"""Runs a test, whose processes and temporary files end with it, however it ends.

Usage: guard.py PROGRAM [ARGUMENT]...

Supervisors and ranks outlive musterd on purpose, and so they would outlive a test that is killed: at its time limit, or by
Ctrl-C. File systems of the test's own that stand still (fsfreeze) are thawed first: a process that writes there cannot end
before. Here the test runs below a process that inherits every orphan. When the test has ended, and when this process is
gone, that one kills what is left and removes the folder that was the test's TMPDIR. A test that passes and leaves processes
behind fails; its exit status is the program's otherwise.
"""

import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools" / "cluster"))
import processes  # noqa: E402

GRACE_S = 5  # for those who leave by themselves


def command_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def leftovers(limit_s):
    """The processes below this one that are still there after `limit_s` seconds, as "pid command"."""
    end = time.monotonic() + limit_s
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0] != 0:
                pass
        except ChildProcessError:
            return []
        if time.monotonic() > end:
            return [f"{pid} {command_of(pid)}" for pid in processes.descendants() if processes.start_ticks(pid) is not None]
        time.sleep(0.02)


def clean_up(folder):
    processes.thaw_below(folder)
    processes.kill_descendants()
    processes.unmount_below(folder)
    shutil.rmtree(folder, ignore_errors=True)


def run(argv, parent):
    """Runs the test; its wait status."""
    os.setsid()  # a kill -9 of the caller's process group does not reach this one
    processes.adopt_orphans()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-guard-"))
    folder.chmod(0o711)  # tests that act as another user

    def end(*_):
        clean_up(folder)
        os._exit(1)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end)
    processes.die_with_parent(signal.SIGTERM)
    if os.getppid() != parent:
        end()
    test = os.fork()
    if test == 0:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        try:
            os.execvpe(argv[0], argv, {**os.environ, "TMPDIR": str(folder)})
        except OSError as e:
            print(f"guard: cannot run {argv[0]}: {e.strerror}", file=sys.stderr, flush=True)
            os._exit(127)
    while True:  # orphans end meanwhile
        pid, status = os.waitpid(-1, 0)
        if pid == test:
            break
    left = leftovers(GRACE_S if status == 0 else 0)
    if left and status == 0:
        print("guard: the test passed and left running:", *left, sep="\n  ", file=sys.stderr, flush=True)
        status = 1 << 8
    clean_up(folder)
    return status


def main(argv):
    if not argv:
        sys.exit(__doc__)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    this = os.getpid()
    child = os.fork()
    if child == 0:
        end_alike(run(argv, this))
    end_alike(os.waitpid(child, 0)[1])


def end_alike(status):
    """Ends this process as the one with this wait status has ended."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main(sys.argv[1:])
