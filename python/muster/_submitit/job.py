"""The submitter's side of a job: its state, its files, its end."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple, Union

from submitit.core import core, logger, utils

from .environment import simulated_timeout_file
from .paths import Array, MusterJobPaths

LOOK_EVERY_SECONDS = 0.25
MOST_NAMED_JOBS = 1000  # of one muster list
NOT_ALLOWED_EXIT_CODE = 2
NOT_FOUND_EXIT_CODE = 3

# submitit waits in the states that it knows as not done: PENDING, RUNNING, COMPLETING, REQUEUED.
_STATES = {
    "pending": "PENDING", "queued": "PENDING", "held": "PENDING", "running": "RUNNING", "stopping": "COMPLETING",
    "waiting": "REQUEUED", "succeeded": "COMPLETED", "cancelled": "CANCELLED",
}
# Slurm's words for the causes of a failure.
_FAILURES = {"timed_out": "TIMEOUT", "out_of_memory": "OUT_OF_MEMORY", "node_failed": "NODE_FAIL"}

_arrays: Dict[str, Array] = {}  # of the jobs that this process knows


def find_muster() -> Optional[str]:
    """The command muster: MUSTER_PROGRAM, or the first in PATH."""
    return os.environ.get("MUSTER_PROGRAM") or shutil.which("muster")


def muster_program() -> str:
    found = find_muster()
    if found is None:
        raise RuntimeError("there is no command muster in PATH; add its folder to PATH, or set MUSTER_PROGRAM to the command")
    return found


def state_of(job: Dict[str, Any]) -> str:
    """A job of `muster list --json` in submitit's words."""
    if job["state"] != "failed":
        return _STATES.get(job["state"], "UNKNOWN")
    causes = [attempt.get("cause") for attempt in job.get("attempts", [])]
    return _FAILURES.get(causes[-1], "FAILED") if causes else "FAILED"


def read_list(text: str) -> Dict[str, Dict[str, str]]:
    """What `muster list --json` printed, by the numbers of the jobs."""
    out = {}
    for job in json.loads(text):
        job_id = str(job["id"])
        attempts = job.get("attempts", [])
        newest = attempts[-1] if attempts else {}
        out[job_id] = {
            "JobID": job_id, "State": state_of(job), "Reason": job.get("reason", ""),
            "NodeList": ",".join(newest.get("nodes", [])), "Attempt": str(newest.get("number", 0)),
            "SlurmJobID": newest.get("scheduler_job", ""),
        }
        sweep = job.get("sweep")
        remember_array(job_id, (sweep["sweep"], sweep["index"]) if sweep else None)
    return out


def remember_array(job_id: str, array: Array) -> None:
    _arrays[job_id] = array


def array_of(job_id: str) -> Array:
    if job_id not in _arrays:
        MusterJob.watcher.register_job(job_id)
        MusterJob.watcher.update()
    return _arrays.get(job_id)


class MusterInfoWatcher(core.InfoWatcher):
    """Asks muster for all jobs at once."""

    def _make_command(self) -> Optional[List[str]]:
        waiting = sorted(self._registered - self._finished, key=int)
        return [muster_program(), "list", "--json", *waiting[:MOST_NAMED_JOBS]] if waiting else None

    def read_info(self, string: Union[bytes, str]) -> Dict[str, Dict[str, str]]:
        return read_list(string if isinstance(string, str) else string.decode())

    def get_state(self, job_id: str, mode: str = "standard") -> str:
        return self.get_info(job_id, mode=mode).get("State") or "UNKNOWN"

    def update(self) -> None:
        waiting = sorted(self._registered - self._finished, key=int)
        for begin in range(0, len(waiting), MOST_NAMED_JOBS):
            self._ask(waiting[begin:begin + MOST_NAMED_JOBS])
        self._last_status_check = core._time.time()
        self._finished |= {job_id for job_id in waiting if self.is_done(job_id, mode="cache")}

    def _ask(self, job_ids: Sequence[str]) -> None:
        self._num_calls += 1
        command = [muster_program(), "list", "--json", "--limit", str(MOST_NAMED_JOBS), *job_ids]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", check=False)
        if done.returncode not in (0, NOT_FOUND_EXIT_CODE):
            logger.get_logger().warning(f"Call #{self.num_calls} - muster list failed with {done.returncode}, the status may "
                                        f"be out of date: {done.stderr.strip()}")
            return
        found = self.read_info(done.stdout)
        for job_id in job_ids:
            # muster removes a job that has ended, when it is told to: muster rm, muster prune.
            self._info_dict[job_id] = found.get(job_id) or {"JobID": job_id, "State": "REMOVED"}


class MusterJob(core.Job[core.R]):
    """A job of muster. job_id is its number there: `muster show`, `muster why` and the dashboard know it."""

    watcher = MusterInfoWatcher(delay_s=1)

    def __init__(self, folder: Union[Path, str], job_id: str, tasks: Sequence[int] = (0,)) -> None:
        super().__init__(folder, job_id, tasks)
        self._paths = MusterJobPaths(folder, job_id=job_id, task_id=self.task_id, array_of=array_of)

    @property
    def _results_timeout_s(self) -> float:  # type: ignore[override]
        """How long a result may be on its way after the job's end. A local process has written it before it ended; another
        node's file can come late, and submitit's own patience holds."""
        info = self.watcher.get_info(self.job_id, mode="cache")
        has_none = info.get("SlurmJobID") == "" or info.get("State") == "CANCELLED"
        return 0 if has_none else core.Job._results_timeout_s

    def wait(self) -> None:
        while not self.done():
            time.sleep(LOOK_EVERY_SECONDS)

    def _get_outcome_and_result(self) -> Tuple[str, Any]:
        """Raises submitit's error for a job without a result, with muster's reason."""
        try:
            outcome, result = super()._get_outcome_and_result()
            if outcome == "error" and self.task_id != 0:
                # Task 0 may have left, which broke this one, and then all tasks start again.
                self._wait_for_end()
                outcome, result = super()._get_outcome_and_result()
            return outcome, result
        except utils.UncompletedJobError as error:
            reason = self.watcher.get_info(self.job_id, mode="cache").get("Reason")
            if not reason:
                raise
            raise utils.UncompletedJobError(f"{error}\nmuster: {reason} (see: muster why {self.job_id})") from None

    def _wait_for_end(self) -> None:
        while not self.watcher.is_done(self.job_id, mode="force"):
            time.sleep(LOOK_EVERY_SECONDS)

    def cancel(self, check: bool = True) -> None:
        """Cancels the job. A job that is over stays as it is."""
        done = subprocess.run([muster_program(), "cancel", self.job_id], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              encoding="utf-8", check=False)
        if done.returncode == NOT_ALLOWED_EXIT_CODE and self.watcher.is_done(self.job_id, mode="force"):
            return
        self.watcher._last_status_check = float("-inf")  # whoever waits for the job learns of its end at once
        if check and done.returncode != 0:
            raise subprocess.CalledProcessError(done.returncode, done.args, done.stdout, done.stderr)

    def _interrupt(self, timeout: bool = False) -> None:
        """Stops the job as a preemption does, or with timeout=True as its time limit does (for tests of checkpoint())."""
        if timeout:
            simulated_timeout_file(self.paths).touch()
        subprocess.check_call([muster_program(), "requeue", self.job_id], stdout=subprocess.DEVNULL)


def make_jobs(folder: Path, job_ids: Iterable[str], tasks: int, sweep: Optional[str]) -> List[MusterJob[Any]]:
    jobs = []
    for index, job_id in enumerate(job_ids):
        remember_array(job_id, (sweep, index) if sweep else None)
        jobs.append(MusterJob(folder=folder, job_id=job_id, tasks=list(range(tasks))))
    return jobs


__all__ = ["MusterJob", "find_muster", "make_jobs", "muster_program", "utils"]
