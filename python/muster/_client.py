"""Submitting jobs and following them, over the controller's HTTP API.

    import muster

    job = muster.submit({"name": "tune", "command": ["python3", "train.py"]}, set={"env.LR": "1e-4"})
    if job.wait() == "succeeded":
        print(job.metrics("loss")[-1])

The docstring of muster._controller says how the controller is found. A refusal is a muster.MusterError.
"""

from __future__ import annotations

import os
import pwd
import sys
import time
import urllib.parse
import uuid
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Union

from ._controller import Controller, MusterError, Unreachable

END_STATES = frozenset({"succeeded", "failed", "cancelled"})
# What a command takes from its submitter's environment (spec/variables.cpp).
TAKEN_VARIABLES = frozenset({"PATH", "VIRTUAL_ENV", "PYTHONPATH", "LD_LIBRARY_PATH"})
TAKEN_PREFIX = "CONDA_"
SUBMIT_SECONDS = 30.0
SWEEP_SECONDS = 120.0  # a transaction may store ten thousand jobs
MOST_JOBS_A_QUERY = 500
MOST_LOG_BYTES = 256 * 1024 * 1024

JobLike = Union[str, "os.PathLike[str]", Mapping[str, Any]]


class JobFailed(MusterError):
    """Job.wait(check=True): the job failed or was cancelled. `status` of the job is in `job_status`."""

    def __init__(self, status: "JobStatus") -> None:
        self.job_status = status
        super().__init__(f"{status.state}: {status.reason}", f"job {status.id}", status.action)


@dataclass(frozen=True)
class JobStatus:
    """A job at one moment. Texts are empty, and the others None, where nothing is known.

    `state` is pending, queued, running, stopping, waiting, succeeded, failed or cancelled. `status` is the word for people,
    such as "running, held". `raw` is the whole answer: the message Job of docs/openapi.json.
    """

    id: int
    name: str
    state: str
    status: str
    reason: str
    action: str
    user: str
    sweep: str
    attempt: int  # the newest one's number; 0: none was started
    cause: str  # why the newest attempt ended
    error: str  # the program's own words
    exit_code: Optional[int]
    step: Optional[int]
    steps_total: int
    submitted_at: str
    started_at: str
    ended_at: str
    raw: Dict[str, Any] = field(repr=False, compare=False, default_factory=dict)

    @property
    def has_ended(self) -> bool:
        return self.state in END_STATES


def _status_of(job: Dict[str, Any]) -> JobStatus:
    newest = job["attempts"][-1] if job["attempts"] else {}
    return JobStatus(
        **{name: job[name] for name in ("id", "name", "state", "status", "reason", "action", "user", "step", "steps_total",
                                        "submitted_at", "started_at", "ended_at")},
        sweep=(job["sweep"] or {}).get("sweep", ""), attempt=newest.get("number", 0), cause=newest.get("cause", ""),
        error=newest.get("error", ""), exit_code=newest.get("exit_code"), raw=job)


class Job:
    """A job of the controller, by its number. Making one asks nobody."""

    def __init__(self, id: int, address: Optional[str] = None) -> None:
        if isinstance(id, bool) or not isinstance(id, int) or id < 1:
            raise MusterError("want a job's number, such as 7", f"Job({id!r})")
        self.id = id
        self._controller = Controller(address)

    def __repr__(self) -> str:
        return f"muster.Job({self.id})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def status(self) -> JobStatus:
        return _status_of(self._controller.get(f"jobs/{self.id}?ranks=0"))

    def wait(self, timeout: Optional[float] = None, poll: float = 1.0, check: bool = False) -> str:
        """Returns the state in which the job has ended: succeeded, failed or cancelled.

        Raises TimeoutError after `timeout` seconds, and JobFailed if `check` is true and the job did not succeed. A
        controller that is away is waited for.
        """
        end = None if timeout is None else time.monotonic() + timeout
        told = False
        while True:
            try:
                now: Optional[JobStatus] = self.status()
                told = False
            except Unreachable as error:
                now = None
                if not told:
                    print(f"muster: job {self.id}: {error}; waiting for the controller", file=sys.stderr)
                told = True
            if now is not None and now.has_ended:
                if check and now.state != "succeeded":
                    raise JobFailed(now)
                return now.state
            left = poll if end is None else min(poll, end - time.monotonic())
            if left <= 0 and end is not None:
                raise TimeoutError(f"job {self.id} is {now.status if now else 'unknown'} after {timeout} s")
            time.sleep(max(left, 0.01))

    def metrics(self, series: Union[str, Sequence[str], None] = None) -> List[Dict[str, Any]]:
        """The reported steps in order, a row each: attempt, step, at_ms, and the values by the names of their series.

        A value that is no number is None. With `series`, only these and only rows that have one of them. A job that was
        resumed has the steps after its checkpoint twice, the newer ones with a higher `attempt`.
        """
        wanted = None if series is None else {series} if isinstance(series, str) else set(series)
        rows: List[Dict[str, Any]] = []
        after = ""
        while True:
            page = self._controller.get(f"jobs/{self.id}/metrics{after}")
            for metric in page["metrics"]:
                values = {name: value for name, value in metric["series"].items() if wanted is None or name in wanted}
                if values or wanted is None:
                    rows.append({"attempt": metric["attempt"], "step": metric["step"], "at_ms": metric["at_ms"], **values})
            if not page["more"]:
                return rows
            last = page["metrics"][-1]
            after = f"?after_attempt={last['attempt']}&after_step={last['step']}"

    def logs(self, rank: Optional[int] = None, tail: Optional[int] = None) -> str:
        """The output of the newest attempt: of one rank, or of all, whose lines then begin with "rank 3: " if there are several.

        `tail`: only so many last lines of each rank, at most 10,000.
        """
        if rank is not None:
            return self._log(rank, tail)
        ranks = max(self.status().raw["ranks_total"], 1)
        if ranks == 1:
            return self._log(0, tail)
        return "".join(f"rank {one}: {line}\n" for one in range(ranks) for line in self._log(one, tail).splitlines())

    def _log(self, rank: int, tail: Optional[int]) -> str:
        if tail is not None:
            return self._controller.get(f"jobs/{self.id}/logs?rank={rank}&tail={tail}")["text"]
        parts: List[str] = []
        offset = 0
        attempt = ""
        while offset <= MOST_LOG_BYTES:
            piece = self._controller.get(f"jobs/{self.id}/logs?rank={rank}&offset={offset}{attempt}")
            parts.append(piece["text"])
            if piece["next_offset"] <= offset:
                return "".join(parts)
            offset, attempt = piece["next_offset"], f"&attempt={piece['attempt']}"
        raise MusterError(f"the log of rank {rank} is larger than {MOST_LOG_BYTES >> 20} MiB", f"job {self.id}",
                          "ask for its end with tail, or read the file in the job's log_folder")

    def why(self) -> Dict[str, Any]:
        """Why the job is in its state: the message WhyResponse of docs/openapi.json."""
        return self._controller.get(f"jobs/{self.id}/why")

    def cancel(self) -> JobStatus:
        return self._change("cancel", may_repeat=True)

    def requeue(self) -> JobStatus:
        return self._change("requeue")

    def hold(self) -> JobStatus:
        return self._change("hold", may_repeat=True)

    def release(self) -> JobStatus:
        return self._change("release", may_repeat=True)

    def set_time_limit(self, seconds: float) -> JobStatus:
        """0: no limit."""
        return self._change("limit", {"time_limit_ms": round(seconds * 1000)}, may_repeat=True)

    def remove(self) -> None:
        """Removes the ended job, with its logs and its checkpoints in the data folder."""
        self._controller.post(f"jobs/{self.id}/remove", {"user": _user()})

    def _change(self, what: str, more: Optional[Dict[str, Any]] = None, may_repeat: bool = False) -> JobStatus:
        return _status_of(self._controller.post(f"jobs/{self.id}/{what}", {"user": _user(), **(more or {})},
                                                may_repeat=may_repeat))


@dataclass(frozen=True)
class Sweep:
    """Jobs that were submitted together."""

    name: str
    jobs: List[Job]
    address: Optional[str] = None

    def cancel(self) -> None:
        """Cancels every job that has not ended."""
        path = f"sweeps/{urllib.parse.quote(self.name, safe='')}/cancel"
        Controller(self.address).post(path, {"user": _user()}, SWEEP_SECONDS, may_repeat=True)


def submit(job: JobLike, set: Optional[Mapping[str, Any]] = None, user: Optional[str] = None, address: Optional[str] = None,
           folder: Optional[str] = None, request_id: Optional[str] = None) -> Job:
    """Submits one job: a job file's path, or a dictionary of the same tables. It is stored when this returns.

    `set` replaces keys, as --set of `muster submit`. Relative paths start at the file's folder; those of a dictionary at
    `folder`, or the current one. `user` is this process's if it is not given. `request_id` names the submission: a second
    one with the same id is answered with the first one's job.
    """
    body = _body_of(job, set, user, folder, request_id)
    answer = Controller(address).post("jobs", body, SUBMIT_SECONDS, may_repeat=True)
    return Job(answer["job_id"], address)


def submit_sweep(job: JobLike, sweep: Optional[Mapping[str, Any]] = None, settings: Optional[Iterable[Mapping[str, Any]]] = None,
                 parallel: Optional[int] = None, set: Optional[Mapping[str, Any]] = None, user: Optional[str] = None,
                 address: Optional[str] = None, folder: Optional[str] = None, request_id: Optional[str] = None) -> Sweep:
    """Submits a job for each combination of `sweep` ({"train.seed": "0..3", "env.LR": [1e-4, 3e-4]}), or one for each
    mapping of `settings`, or what the job file's [sweep] says. `parallel`: so many at a time. The rest is as in submit().
    """
    body = _body_of(job, set, user, folder, request_id)
    for name, value in (("sweep", sweep), ("settings", None if settings is None else [_plain(one) for one in settings]),
                        ("parallel", parallel)):
        if value is not None:
            body[name] = _plain(value) if name == "sweep" else value
    answer = Controller(address).post("sweeps", body, SWEEP_SECONDS, may_repeat=True)
    return Sweep(answer["sweep"], [Job(number, address) for number in answer["job_ids"]], address)


def jobs(ids: Iterable[Union[int, Job]], address: Optional[str] = None) -> List[JobStatus]:
    """The status of many jobs, in the order of their numbers. A number without a job is left out."""
    numbers = [one.id if isinstance(one, Job) else int(one) for one in ids]
    controller = Controller(address)
    found: List[JobStatus] = []
    for at in range(0, len(numbers), MOST_JOBS_A_QUERY):
        some = ",".join(str(number) for number in numbers[at:at + MOST_JOBS_A_QUERY])
        found += [_status_of(job) for job in controller.get(f"jobs?id={some}")["jobs"]]
    return sorted(found, key=lambda status: status.id)


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def taken_variables(environment: Mapping[str, str]) -> Dict[str, str]:
    """What a command with environment = "submit" takes from its submitter."""
    return {name: value for name, value in environment.items()
            if (name in TAKEN_VARIABLES or name.startswith(TAKEN_PREFIX)) and _is_utf8(value)}


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _body_of(job: JobLike, set: Optional[Mapping[str, Any]], user: Optional[str], folder: Optional[str],
             request_id: Optional[str]) -> Dict[str, Any]:
    body: Dict[str, Any] = {"user": user or _user(), "request_id": request_id or uuid.uuid4().hex,
                            "submitted_env": taken_variables(os.environ)}
    if set:
        body["set"] = _plain(set)
    if isinstance(job, Mapping):
        return {**body, "job": _plain(job), "folder": os.path.abspath(folder or ".")}
    path = os.path.abspath(os.fspath(job))
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise MusterError(error.strerror or str(error), path, "want a job file's path, or a dictionary") from None
    except UnicodeDecodeError:
        raise MusterError("the file is not UTF-8", path, "save the file as UTF-8") from None
    return {**body, "job_file": text, "file_name": path, "folder": os.path.abspath(folder) if folder else os.path.dirname(path)}


def _plain(value: Any, place: str = "") -> Any:
    """The value as JSON has it. Paths become texts; numbers of other libraries become numbers."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise MusterError("want a number; NaN and infinity are none", place, "write it as a text")
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(one, f"{place}.{key}" if place else str(key)) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one, f"{place}[{index}]") for index, one in enumerate(value)]
    item: Optional[Callable[[], Any]] = getattr(value, "item", None)
    if callable(item):
        return _plain(item(), place)
    raise MusterError(f"want a text, a number, true or false, a list or a dictionary, not {type(value).__name__}", place)
