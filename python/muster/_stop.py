"""Orderly stops: the file that MUSTER_STOP names says why a rank is to leave, and at which step.

muster writes the file before SIGTERM. docs/report.md is the contract.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from dataclasses import dataclass
from typing import Any, Optional

from . import _own

LOOK_EVERY_SECONDS = 0.1
WAIT_FOR_FILE_SECONDS = 3.0
ASKED = ".asked"  # behind the stop file's name: the file by which a program says that it looks for the stop file itself


@dataclass(frozen=True)
class Stop:
    """Why this rank is asked to leave."""

    why: str  # "preempted", "time_limit", "requeued", "cancelled", "peer_failed", "superseded"; "signal": SIGTERM alone
    save: bool = True  # False: nobody waits for a checkpoint
    at_step: Optional[int] = None  # all ranks leave after this step; None: at once
    deadline: Optional[float] = None  # when SIGKILL follows, seconds since 1970


def read_stop(path: Optional[str]) -> Optional[Stop]:
    """What the stop file says; None: there is none, or it makes no sense."""
    if not path:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            said = json.load(file)
    except (OSError, ValueError):
        return None
    if not isinstance(said, dict):
        return None
    at_step, deadline = said.get("at_step"), said.get("deadline")
    return Stop(
        why=str(said.get("why", "signal")),
        save=said.get("save") is not False,
        at_step=at_step if isinstance(at_step, int) and not isinstance(at_step, bool) else None,
        deadline=float(deadline) if isinstance(deadline, (int, float)) else None,
    )


class StopWatch:
    """Looks for the stop file ten times a second at most, and takes SIGTERM where the program has no handler of its own.

    A SIGTERM without a stop file comes from somebody else, for example Slurm. A file may follow the signal within
    moments, so the watch waits three seconds for one. A forked child has no handler of the watch: SIGTERM ends it.
    """

    is_asked = False  # whether the program asks for stops: then it leaves by itself

    def __init__(self, path: Optional[str]) -> None:
        self._path = path
        self._pid = os.getpid()
        self._stop: Optional[Stop] = None
        self._looked_at = float("-inf")
        self._signalled_at: Optional[float] = None
        self._takes_sigterm = False

    def take_sigterm(self, from_others: bool = False) -> None:
        """Installs the handler if this is the main thread, muster names a stop file, and nobody else wants the signal.
        from_others: even if somebody does."""
        if not self._path or self._takes_sigterm or not _own.is_mine(self._pid):
            return
        self._takes_sigterm = True
        is_free = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        if threading.current_thread() is threading.main_thread() and (is_free or from_others):
            _own.take(signal.SIGTERM, self._on_sigterm)
            tell_that_it_asks(self._path)
        elif "SUBMITIT_MUSTER_SUBMISSION" in os.environ:
            tell_that_it_asks(self._path)  # the handler there is muster's too, and hands the signal on to this watch

    def _on_sigterm(self, number: int, frame: Any) -> None:
        if self._signalled_at is None:
            self._signalled_at = time.monotonic()

    def look(self) -> Optional[Stop]:
        """The stop that is asked for, or None."""
        if self._stop is not None:
            return self._stop
        now = time.monotonic()
        if self._signalled_at is None and now - self._looked_at < LOOK_EVERY_SECONDS:
            return None
        self._looked_at = now
        self._stop = read_stop(self._path)
        if self._stop is None and self._signalled_at is not None and now - self._signalled_at >= WAIT_FOR_FILE_SECONDS:
            self._stop = Stop(why="signal")
        return self._stop

    def is_due(self, step: int) -> bool:
        """Whether the rank leaves after `step`."""
        StopWatch.is_asked = True
        stop = self.look()
        return stop is not None and (stop.at_step is None or step >= stop.at_step)


def tell_that_it_asks(path: str) -> None:
    """muster sends no SIGTERM then: it would reach data loaders too, and end them before the program has saved."""
    with contextlib.suppress(OSError):
        os.close(os.open(f"{path}{ASKED}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))


def stop_file() -> Optional[str]:
    return os.environ.get("MUSTER_STOP") or None
