"""Lets muster see where this process stands: `muster stacks`.

The agent beside a rank asks a process for its stack by SIGURG, which nobody else sends and which does no harm where there is
no handler. The answer is written into a file in memory, whose name holds the process's number. agent/protocol/files.h of muster's
sources describes this.

A thread of its own waits for the signal, under a name by which the agent finds it and sends the signal to it alone: no system
call of the program is interrupted. With the interpreter's lock the thread writes the frames of all threads. Where another
thread keeps the lock, as a library that waits for a collective may, the agent asks again, and the handler of faulthandler
writes the frames without the lock, in the thread that waits for it.

Only the process that calls offer() answers. A forked child has neither the handler nor the thread nor the file. The signal is
blocked in no thread: a program that this process starts would inherit that.
"""

from __future__ import annotations

import faulthandler
import fcntl
import os
import signal
import threading
from typing import Optional

SIGNAL = signal.SIGURG
MEMORY = "muster-stack-"
THREAD = "muster-stacks"
READY_SECONDS = 1.0

_memory: Optional[int] = None  # the descriptor of the file in memory


def offer() -> bool:
    """Takes the signal in this process, once. False: the program has a handler of its own for it, this is no job of muster,
    or the system refuses."""
    global _memory
    if _memory is not None:
        return True
    if not os.environ.get("MUSTER_ATTEMPT_FOLDER") or _is_taken():
        return False
    try:
        memory = os.memfd_create(f"{MEMORY}{os.getpid()}", os.MFD_CLOEXEC)
    except (AttributeError, OSError):
        return False
    try:
        # The agent empties the file, and what comes then is to begin at its start.
        fcntl.fcntl(memory, fcntl.F_SETFL, os.O_APPEND)
        faulthandler.register(SIGNAL, file=memory, all_threads=True, chain=False)
    except (AttributeError, OSError, RuntimeError, ValueError):
        os.close(memory)
        return False
    try:
        is_ready = threading.Event()
        threading.Thread(target=_answer, args=(memory, is_ready), name=THREAD, daemon=True).start()
        is_ready.wait(READY_SECONDS)  # the program may keep the interpreter's lock from now on
    except RuntimeError:  # no thread can be started: then the agent asks the process, and whoever gets the signal writes
        pass
    _memory = memory
    return True


def _answer(memory: int, is_ready: threading.Event) -> None:
    # Not blocked here, whatever the program has blocked: while this thread waits for the interpreter's lock, the handler runs
    # in it.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {SIGNAL})
    try:
        with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w", encoding="ascii") as file:
            file.write(THREAD)
    except OSError:  # then the agent asks the process
        pass
    is_ready.set()
    while True:
        signal.sigwait({SIGNAL})
        faulthandler.dump_traceback(file=memory, all_threads=True)


def _is_taken() -> bool:
    """Whether a handler for the signal is there, also one that Python does not know of."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            caught = next((line.split()[1] for line in file if line.startswith("SigCgt:")), "0")
    except OSError:
        return True
    return bool(int(caught, 16) >> (SIGNAL - 1) & 1)


def _after_fork_in_child() -> None:
    global _memory
    if _memory is None:
        return
    memory, _memory = _memory, None
    faulthandler.unregister(SIGNAL)
    os.close(memory)


os.register_at_fork(after_in_child=_after_fork_in_child)
