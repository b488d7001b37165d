"""The job's side: where a task stands, and what it does when muster asks it to leave."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import traceback
import types
from pathlib import Path
from typing import Any, Callable, Dict, Optional, Sequence

from submitit.core import job_environment, logger, utils

from .. import _own, _run, _stop
from .._run import REQUEUE_EXIT_CODE
from . import output
from .parameters import index_of
from .paths import Array, MusterJobPaths
from .submission import Submission

LOOK_EVERY_SECONDS = 0.1
EXIT_PATIENCE_SECONDS = 30.0  # where muster names no deadline
SIGNAL_PATIENCE_SECONDS = 1.0  # how much later a stop may reach this process than one of its children, or task 0
WORKER_PATIENCE_SECONDS = 5.0  # the same, where the function fails with words of a worker; muster may know of the stop by then
BEFORE_DEADLINE_SECONDS = 1.0


class MusterJobEnvironment(job_environment.JobEnvironment):
    """What submitit.JobEnvironment() is in a job of cluster="muster"."""

    # muster._submitit.rank keeps the places of the rank under these names, which torchrun's names may not be then.
    _env = {
        "job_id": "MUSTER_JOB_ID",
        "num_tasks": "SUBMITIT_MUSTER_WORLD_SIZE",
        "num_nodes": "MUSTER_NODES",
        "node": "SUBMITIT_MUSTER_NODE_RANK",
        "global_rank": "SUBMITIT_MUSTER_RANK",
        "local_rank": "SUBMITIT_MUSTER_LOCAL_RANK",
        "array_task_id": "SUBMITIT_MUSTER_INDEX",
    }

    @property
    def job_id(self) -> str:
        """muster's number of the job, in an array too: each element is a job of its own."""
        return self.raw_job_id

    @property
    def array_job_id(self) -> Optional[str]:
        """The name of muster's sweep, such as "s12"; None: the job is no element of one."""
        return _submission().array() if index_of(os.environ) is not None else None

    @property
    def hostnames(self) -> Sequence[str]:
        names = os.environ.get("MUSTER_NODELIST", "")
        return names.split(",") if names else [self.hostname]

    @property
    def paths(self) -> MusterJobPaths:
        return MusterJobPaths(os.environ["SUBMITIT_FOLDER"], job_id=self.job_id, task_id=self.global_rank,
                              array_of=lambda job_id: _own_array())

    def _handle_signals(self, paths: utils.JobPaths, submission: utils.DelayedSubmission) -> None:
        handler = StopHandler(self, paths, submission)
        _own.take(signal.SIGCONT, handler.bypass)
        _own.take(self._usr_sig(), handler.on_signal)
        _own.take(signal.SIGTERM, handler.on_signal)
        if hasattr(submission.function, "checkpoint"):
            handler.look_for_stops()
        if "SLURM_JOB_ID" in os.environ or self.global_rank != 0:
            submission.result = handler.patient(submission.result)  # type: ignore[method-assign]

    def _requeue(self, countdown: int) -> None:
        logger.get_logger().info(f"Job {self.job_id} leaves to be started again ({countdown} remaining timeouts)")


class Ending:
    """How the newest attempt ended that was asked to leave. Task 0 writes that it has left; any task writes the last word of a
    job that wants no further attempt. The other tasks and the next attempt read both."""

    def __init__(self, paths: utils.JobPaths) -> None:
        self._left = Path(paths.folder) / f"{paths.job_id}_left.json"
        self._last_word = Path(paths.folder) / f"{paths.job_id}_ending.json"

    def write_left(self) -> None:
        self._write(self._left, {})

    def write_last_word(self, exit_code: int) -> None:
        """The results are there, and the next attempt ends at once with this exit code."""
        self._write(self._last_word, {"last_word": exit_code})

    def is_over(self) -> bool:
        """Whether task 0 of this attempt has left, or a task has written the last word."""
        return any(self._read(path).get("attempt") == attempt_number() for path in (self._left, self._last_word))

    def last_word(self) -> Optional[int]:
        """The exit code, if the attempt before this one has left the job's results. A task that failed because task 0 had
        left may have written a last word, too: what task 0 says holds, whichever came first."""
        before = attempt_number() - 1
        if self._read(self._left).get("attempt") == before:
            return None
        said = self._read(self._last_word)
        return said.get("last_word") if said.get("attempt") == before else None

    @staticmethod
    def _write(path: Path, words: Dict[str, int]) -> None:
        draft = path.with_suffix(f".{os.getpid()}.new")
        draft.write_text(json.dumps({"attempt": attempt_number(), **words}))
        os.replace(draft, path)

    @staticmethod
    def _read(path: Path) -> Dict[str, int]:
        try:
            said = json.loads(path.read_text())
        except (OSError, ValueError):
            return {}
        return said if isinstance(said, dict) else {}


class StopHandler(job_environment.SignalHandler):
    """submitit's own steps at a stop: rank 0 calls checkpoint(), replaces the pickle, and the job starts again. What differs:
    muster says why the job is stopped, so no guess at the time tells timeouts from preemptions. And the handlers act in the
    process alone that runs the function, not in its forked workers."""

    # Of the process: there is one job in it.
    is_stopping = False
    exit_code: Optional[int] = None  # of a function that has returned or raised

    def __init__(self, env: MusterJobEnvironment, paths: utils.JobPaths, delayed: utils.DelayedSubmission) -> None:
        super().__init__(env, paths, delayed)
        self._ending = Ending(paths)
        self._stop: Optional[_stop.Stop] = None

    def look_for_stops(self) -> None:
        """A signal of muster reaches all processes of the rank, also data loaders, which end by it. Then the function may
        fail before it has saved. So a thread looks for muster's stop file, and sends the signal to this process alone."""
        path = _stop.stop_file()
        if path is None:
            return
        threading.Thread(target=self._look_for_stops, args=(path, os.getpid()), name="muster-stop", daemon=True).start()
        _stop.tell_that_it_asks(path)

    @staticmethod
    def _look_for_stops(path: str, pid: int) -> None:
        while not StopHandler.is_stopping:
            if _stop.read_stop(path) is not None:
                os.kill(pid, signal.SIGTERM)
                return
            time.sleep(LOOK_EVERY_SECONDS)

    def patient(self, call: Callable[[], Any]) -> Callable[[], Any]:
        """A stop reaches the processes of a job one after the other: Slurm's own signal, before a preemption, all of them, and
        muster's stop file each task. A function that fails because a data loader has ended, or because task 0 has left, is
        about to hear of the stop, too, or has failed in the middle of on_signal(). Then on_signal() has the word."""
        def result() -> Any:
            try:
                return call()
            except Exception as error:
                leave_children_alone()
                if was_in_a_handler(error):
                    self.on_signal(signal.SIGTERM)
                end = time.monotonic() + (WORKER_PATIENCE_SECONDS if may_come_of_a_worker(error) else SIGNAL_PATIENCE_SECONDS)
                while not StopHandler.is_stopping and time.monotonic() < end:
                    time.sleep(LOOK_EVERY_SECONDS / 2)
                raise
        return result

    def has_timed_out(self) -> bool:
        assert self._stop is not None
        return self._stop.why == "time_limit" or take_simulated_timeout(self._job_paths)

    def on_signal(self, signum: int, frame: Optional[types.FrameType] = None) -> None:
        if StopHandler.is_stopping:
            return
        if self._job_paths.result_pickle.exists():
            StopHandler.is_stopping = True
            self.note_end(self._job_paths, self.env.num_tasks)
            return
        of_children = leave_children_alone()
        self._stop = wait_for_stop()
        if _stop.StopWatch.is_asked and not hasattr(self._delayed.function, "checkpoint"):
            self._logger.info("The function asks muster.Run.should_stop() itself, so the function decides how it leaves.")
            if _run._current is not None:
                _run._current._watch._on_sigterm(signum, frame)
            if of_children is not None:
                signal.signal(signal.SIGCHLD, of_children)
            return
        StopHandler.is_stopping = True
        self._logger.info(f"muster asks this job to leave: {self._stop.why}")
        if not self._stop.save or self._stop.why == "cancelled":
            self._leave()
        if self.env.global_rank != 0:
            threading.Thread(target=self._follow_rank_0, name="muster-follow", daemon=True).start()
            return
        self.checkpoint_and_try_requeue(signum, frame)

    @classmethod
    def note_end(cls, paths: utils.JobPaths, tasks: int) -> None:
        """muster starts a job again that it has asked to leave, whatever the job had done by then. So a job that has its
        results, or an exception, tells the next attempt."""
        if not cls.is_stopping or cls.exit_code is None:
            return
        if cls.exit_code != 0 or all(result_of(paths, task).exists() for task in range(tasks)):
            Ending(paths).write_last_word(cls.exit_code)

    def _exit(self) -> None:
        self._ending.write_left()
        self._leave()

    def _leave(self) -> None:
        self._logger.info("Exiting gracefully after preemption/timeout.")
        self._leave_in_time()
        sys.exit(REQUEUE_EXIT_CODE)

    def _follow_rank_0(self) -> None:
        """The other ranks go on until rank 0 has its checkpoint, as in submitit, and then leave at once."""
        while not self._ending.is_over() and not result_of(self._job_paths, 0).exists():
            time.sleep(LOOK_EVERY_SECONDS)
        leave_now()

    def _leave_in_time(self) -> None:
        """A function that catches SystemExit would run on until it is killed."""
        assert self._stop is not None
        patience = EXIT_PATIENCE_SECONDS
        if self._stop.deadline is not None:
            patience = self._stop.deadline - time.time() - BEFORE_DEADLINE_SECONDS
        timer = threading.Timer(max(patience, BEFORE_DEADLINE_SECONDS), leave_now)
        timer.daemon = True
        timer.start()


def leave_children_alone() -> Any:
    """PyTorch's handler raises wherever the process is just then, in checkpoint() too, when a data loader has ended. Returns
    the handler; None: there was none in Python."""
    handler = signal.getsignal(signal.SIGCHLD)
    if not callable(handler):
        return None
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    return handler


def was_in_a_handler(error: BaseException) -> bool:
    """Whether the error was raised while a handler of muster had begun, whose signal does not come again."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return any(frame.f_code in (_own.Handler.__call__.__code__, StopHandler.on_signal.__code__) for frame in frames)


def may_come_of_a_worker(error: BaseException) -> bool:
    words = ("worker", "killed by signal", "BrokenProcessPool", "Broken pipe", "Connection reset", "EOFError")
    text = f"{type(error).__name__}: {error}"
    return any(word in text for word in words)


def result_of(paths: utils.JobPaths, task: int) -> Path:
    return MusterJobPaths(paths._folder, paths.job_id, task, lambda job_id: _own_array()).result_pickle


def wait_for_stop() -> _stop.Stop:
    """What muster's stop file says. A signal without one comes from somebody else, such as Slurm before a preemption."""
    end = time.monotonic() + _stop.WAIT_FOR_FILE_SECONDS
    while time.monotonic() < end:
        stop = _stop.read_stop(_stop.stop_file())
        if stop is not None:
            return stop
        time.sleep(LOOK_EVERY_SECONDS)
    return _stop.Stop(why="signal")


def leave_now() -> None:
    output.finish()
    os._exit(REQUEUE_EXIT_CODE)


def simulated_timeout_file(paths: utils.JobPaths) -> Path:
    """job._interrupt(timeout=True) leaves this file: the next stop is to count as a timeout."""
    return Path(paths.folder) / f"{paths.job_id}_timeout"


def take_simulated_timeout(paths: utils.JobPaths) -> bool:
    try:
        simulated_timeout_file(paths).unlink()
        return True
    except FileNotFoundError:
        return False


def attempt_number() -> int:
    return int(os.environ.get("MUSTER_ATTEMPT", "1"))


def _submission() -> Submission:
    return Submission(os.environ["SUBMITIT_MUSTER_SUBMISSION"])


def _own_array() -> Array:
    index = index_of(os.environ)
    return None if index is None else (_submission().array(), index)


__all__: Any = ["Ending", "MusterJobEnvironment", "StopHandler", "attempt_number"]
