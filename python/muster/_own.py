"""What the package installs in a process acts in that process alone.

fork() copies signal handlers. A copied handler would take the signal that is meant to end a child: multiprocessing ends its
workers by SIGTERM. So take() installs every handler of the package, and a forked child has the earlier handlers from its
first line on. Threads of the package do not exist in a child. What has locks, files or ends (atexit) asks is_mine().
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any, Callable, Dict

AGAIN_SECONDS = 0.01  # until a signal that came in the middle of a fork is sent again

_installed: Dict[int, "Handler"] = {}  # by the signal's number, of this process


class _Fork(threading.local):
    """The fork that this thread makes just now."""

    is_under_way = False
    mask: Any = None  # the thread's signal mask before


_fork = _Fork()


class Handler:
    """A handler that acts in the process that has installed it."""

    def __init__(self, act: Callable[[int, Any], None], earlier: Any) -> None:
        self._act = act
        self.earlier = earlier
        self._pid = os.getpid()

    def __call__(self, number: int, frame: Any) -> None:
        if not is_mine(self._pid):
            # A library in C has forked this child, and Python does not know of it.
            self.give_back(number)
            os.kill(os.getpid(), number)
        elif _fork.is_under_way:
            # Python ignores exceptions in the functions around a fork, and the handler may end the program by one. So the
            # signal comes again a moment later.
            again = threading.Timer(AGAIN_SECONDS, os.kill, (self._pid, number))
            again.daemon = True
            again.start()
        else:
            self._act(number, frame)

    def give_back(self, number: int) -> None:
        """Installs the earlier handler, unless the program has replaced this one since. Python cannot install a handler in
        C again (None): then the default has to do."""
        if signal.getsignal(number) is self:
            signal.signal(number, signal.SIG_DFL if self.earlier is None else self.earlier)


def take(number: int, act: Callable[[int, Any], None]) -> None:
    """Installs `act` as the handler of a signal in this process. Only the main thread may call it."""
    earlier = signal.getsignal(number)
    if isinstance(earlier, Handler):
        earlier = earlier.earlier
    _installed[number] = Handler(act, earlier)
    signal.signal(number, _installed[number])


def is_mine(pid: int) -> bool:
    """Whether this process is the one whose number was noted as `pid`, and no forked child of it."""
    return os.getpid() == pid


def is_import_by_a_child() -> bool:
    """Whether this is a spawned child of multiprocessing that imports the program of its parent just now. The lines at the
    program's top level then run once more, and nobody wants what they do."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and getattr(process.current_process(), "_inheriting", False)


# Python forgets a signal that comes between fork() and the child's first line. So the signals wait until the child has the
# earlier handlers.
def _before_fork() -> None:
    if _installed:
        _fork.is_under_way = True
        _fork.mask = signal.pthread_sigmask(signal.SIG_BLOCK, set(_installed))


def _after_fork() -> None:
    mask, _fork.mask = _fork.mask, None
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    _fork.is_under_way = False


def _after_fork_in_child() -> None:
    for number, handler in _installed.items():
        handler.give_back(number)
    _installed.clear()
    _after_fork()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)
