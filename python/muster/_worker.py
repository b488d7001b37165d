"""Workers of a program that outlive the signal which asks the program to save.

muster sends no signal to a program that looks for the stop file. But what Slurm sends by itself before a preemption reaches all
processes of a job. A data loader ends by it, and PyTorch then raises in the program, maybe before it has saved.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any, Set


def worker_init(*_: Any) -> None:
    """Call it in a worker: DataLoader(..., worker_init_fn=muster.worker_init), Pool(initializer=muster.worker_init).

    SIGTERM then ends the worker only if the worker's parent has sent it, as terminate() does, or if the parent is gone. Any
    other SIGTERM is passed over: the parent gets it too, saves and ends its workers. SIGKILL ends the worker as always.
    Programs that the worker starts have SIGTERM blocked, as programs inherit that."""
    if threading.current_thread() is not threading.main_thread():
        return
    # Threads that begin later have the same mask, so the signal comes to the one thread that waits for it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Thread(target=_wait, args=(os.getppid(),), name="muster-worker", daemon=True).start()


def _wait(parent: int) -> None:
    while True:
        sender = signal.sigwaitinfo({signal.SIGTERM}).si_pid
        if sender in _parents(parent) or os.getppid() != parent:
            break
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    os.kill(os.getpid(), signal.SIGTERM)


def _parents(parent: int) -> Set[int]:
    """With the start methods spawn and forkserver another process than the parent may have started this one."""
    process = sys.modules.get("multiprocessing.process")
    started_by = process.parent_process() if process is not None else None
    return {parent} | ({started_by.pid} if started_by is not None and started_by.pid is not None else set())
