"""submitit's files of a task: what the task writes goes into them, and to muster's log."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from typing import List

from .. import _own

COPIES = "SUBMITIT_MUSTER_COPIES"  # from the first process image to the second
PATIENCE_SECONDS = 2.0
_SIGNALS_OF_THE_JOB = (signal.SIGTERM, signal.SIGINT, signal.SIGCONT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)

_copies: List[int] = []  # the processes that copy
_pid = 0  # of the task


def _ignore_signals_of_the_job() -> None:
    for number in _SIGNALS_OF_THE_JOB:
        signal.signal(number, signal.SIG_IGN)


def copy(path: str, descriptor: int) -> int:
    """What this process writes to the descriptor goes on to where it went, and to the end of the file.

    tee stands outside the process group, so that it outlives the task by its last words. The process that copies."""
    tee = subprocess.Popen(["tee", "-a", path], stdin=subprocess.PIPE, stdout=descriptor, start_new_session=True,
                           preexec_fn=_ignore_signals_of_the_job)
    assert tee.stdin is not None
    os.dup2(tee.stdin.fileno(), descriptor)
    tee.stdin.close()
    return tee.pid


def take(copies: str) -> None:
    """The second process image has the copies of the first."""
    global _pid
    _copies[:] = [int(pid) for pid in copies.split()]
    _pid = os.getpid()


def finish() -> None:
    """Waits until all output is in the log, where muster looks for the error: with the last task of a node muster ends
    whatever it has left behind, and a copy too. A process that the function has left behind may hold the output open. A
    forked child of the task waits for nothing."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    if not _own.is_mine(_pid):
        return
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    end = time.monotonic() + PATIENCE_SECONDS
    for pid in _copies:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(pid, os.WNOHANG)[0] == 0 and time.monotonic() < end:
                time.sleep(0.005)
