"""One run: what a training tells muster, and what muster asks of it."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
import traceback
from typing import Any, Callable, Dict, Iterator, Mapping, NoReturn, Optional, Union

from . import _own, _stack
from ._report import ReportFile, open_report
from ._stop import Stop, StopWatch, stop_file

REQUEUE_EXIT_CODE = 99  # muster takes it for: saved and left as asked, start me again
MOST_TRACE_CHARACTERS = 6_000  # with the message, each as six bytes at worst, it fits into a line
# Keys of a line that are no series. docs/report.md lists them.
RESERVED = frozenset({
    "step", "at_ms", "step_ms", "memory_bytes", "memory_peak_bytes", "bytes_communicated", "bytes", "took_ms",
    "total_steps", "resumed",
})

Number = Union[int, float]


class Run:
    """A training's side of its conversation with muster.

    Outside muster every method works and tells nobody. No method blocks on the disk or the network, and a report that
    cannot be written never raises. A wrong argument raises TypeError or ValueError at once, inside and outside muster.
    """

    def __init__(self, report: Optional[ReportFile], watch: StopWatch) -> None:
        self._report = report
        self._watch = watch
        self._last: Optional[tuple] = None  # the step of the last log() and the time after it
        self._apart = 0.0  # seconds in sections since then
        self._at = ("step", 0.0)  # of callbacks: the section and when it began

    # Facts

    @property
    def is_active(self) -> bool:
        """Whether muster reads the reports of this process."""
        return self._report is not None and self._report.is_read

    @property
    def job_id(self) -> Optional[int]:
        return _number_of("MUSTER_JOB_ID")

    @property
    def attempt(self) -> Optional[int]:
        """Counts the starts of the job, from 1."""
        return _number_of("MUSTER_ATTEMPT")

    @property
    def rank(self) -> int:
        return _number_of("RANK") or _number_of("SUBMITIT_MUSTER_RANK") or 0

    @property
    def world_size(self) -> int:
        return _number_of("WORLD_SIZE") or _number_of("SUBMITIT_MUSTER_WORLD_SIZE") or 1

    @property
    def checkpoint_folder(self) -> Optional[str]:
        """The job's folder for checkpoints. All attempts of the job have the same."""
        return os.environ.get("MUSTER_CHECKPOINT_FOLDER") or None

    # Reports

    def log(self, step: int, values: Optional[Mapping[str, Number]] = None, /, **series: Number) -> None:
        """Reports that `step` is done, with a number for each series: log(120, loss=2.31), or with names that are no
        Python names: log(120, {"validation/loss": 2.4}). Tensors and arrays of one element count as numbers.

        The time since the last log() without the time in sections, divided by the steps between, is the step time.
        """
        step = _as_step(step)
        line: Dict[str, Any] = {"step": step}
        if values:
            for name, value in values.items():
                line[_as_name(name)] = _as_number(name, value)
        for name, value in series.items():
            line[_as_name(name)] = _as_number(name, value)
        if self._report is None:
            return
        now = time.time()
        if self._last is not None and step > self._last[0]:
            took = max(0.0, now - self._last[1] - self._apart)
            line["step_ms"] = int(took * 1e6 / (step - self._last[0])) / 1000
        self._last = (step, now)
        self._apart = 0.0
        line["at_ms"] = int(now * 1000)
        self._report.write(line, may_wait=True)

    def describe(self, series: Mapping[str, Mapping[str, str]]) -> None:
        """Says what is known of series: describe({"accuracy": {"unit": "%", "better": "higher", "over_ranks": "mean"}}).

        better: "lower", "higher" or "neither". over_ranks: "mean" (the default), "sum", "max", or "rank0" for a series
        that rank 0 alone reports.
        """
        choices = {"unit": None, "better": ("lower", "higher", "neither"), "over_ranks": ("mean", "sum", "max", "rank0")}
        for name, facts in series.items():
            _as_name(name)
            for key, value in facts.items():
                if key not in choices:
                    raise ValueError(f'describe(): "{key}" of series "{name}" is none of: {", ".join(choices)}')
                allowed = choices[key]
                if allowed and value not in allowed:
                    raise ValueError(f'describe(): {key} of series "{name}" is {value!r}; one of: {", ".join(allowed)}')
        self._write({"series": {name: dict(facts) for name, facts in series.items()}})

    def begin(self, total_steps: Optional[int] = None, config: Optional[Mapping[str, Any]] = None) -> None:
        """Says how many steps the training has in all, and with which settings it runs. init() calls it."""
        line: Dict[str, Any] = {}
        if total_steps is not None:
            line["total_steps"] = _as_step(total_steps, "total_steps")
        if config:
            line["config"] = {str(key): _plain(value) for key, value in config.items()}
        if line:
            self._write(line)

    def resume(self, load: Union[Callable[[], Optional[int]], int, None]) -> int:
        """Calls `load`, which loads the newest checkpoint and returns the checkpoint's step: None or 0, there is none.
        Reports that step and returns it: the next step is one more. A number instead of a function is that step."""
        step = _as_step((load() if callable(load) else load) or 0, "the step to resume from")
        self._write({"resumed": step})
        return step

    def checkpoint(self, path: Union[str, os.PathLike], step: int, took_ms: Optional[float] = None) -> None:
        """Reports that the checkpoint of `step` is complete at `path`, a file or a folder.

        The job gets its whole budget of retries again with every checkpoint of a later step."""
        line: Dict[str, Any] = {"checkpoint": os.path.abspath(os.fspath(path)), "step": _as_step(step)}
        if self._report is None:
            return
        size = _size_of(path)
        if size is not None:
            line["bytes"] = size
        if took_ms is not None:
            line["took_ms"] = round(float(took_ms), 3)
        self._write(line)

    def status(self, text: str) -> None:
        """Says in a few words what the program does now: "downloading data"."""
        self._write({"status": str(text)[:500]})

    @contextlib.contextmanager
    def section(self, name: str) -> Iterator[None]:
        """Work apart from steps: with run.section("evaluate"): ... muster learns how long each section takes, and its
        time is no step time."""
        began = time.time()
        self._write({"section": str(name)})
        try:
            yield
        finally:
            self._apart += time.time() - began
            self._write({"section": "step"})

    def _go_to(self, name: str) -> None:
        """For callbacks of trainers, whose sections begin and end in different calls, and do not nest."""
        if name == self._at[0]:
            return
        now = time.time()
        if self._at[0] != "step":
            self._apart += now - self._at[1]
        self._at = (name, now)
        self._write({"section": name})

    def error(self, error: BaseException) -> None:
        """Reports why the program ends. init() does so for exceptions that nobody catches."""
        trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        if len(trace) > MOST_TRACE_CHARACTERS:
            trace = trace[:MOST_TRACE_CHARACTERS // 3] + "\n...\n" + trace[-2 * MOST_TRACE_CHARACTERS // 3:]
        name = type(error).__qualname__
        module = type(error).__module__
        self._write({"error": {
            "type": name if module in ("builtins", "__main__") else f"{module}.{name}",
            "message": str(error)[:2000],
            "trace": trace,
        }})
        self.flush()

    def flush(self, patience: float = 3.0) -> bool:
        """Waits until all reports are in the file, at most `patience` seconds. False: some are not."""
        return self._report.flush(patience) if self._report else True

    # Stops

    def should_stop(self, step: int) -> bool:
        """Whether the program is to save and leave after `step`. All ranks get True at the same step, if each asks once
        a step and a step takes less than the margin that muster gives.

        Where nothing is to be saved, since another rank is lost, it does not return: it leaves, as leave() does. A
        checkpoint of the ranks that are left would not fit together.

        The first call takes SIGTERM, if the program has no handler for it: until then the signal ends the program."""
        if not self._is_due(step):
            return False
        if self.stop is not None and not self.stop.save:
            self.leave()
        return True

    def _is_due(self, step: int) -> bool:
        self._watch.take_sigterm()
        return self._watch.is_due(_as_step(step))

    @property
    def stop(self) -> Optional[Stop]:
        """The stop that muster asks for: why, whether to save, and until when. None: there is none."""
        return self._watch.look()

    def leave(self) -> NoReturn:
        """Ends the program so that muster starts it again: SystemExit with code 99."""
        self.flush()
        sys.exit(REQUEUE_EXIT_CODE)

    def _write(self, line: Dict[str, Any]) -> None:
        if self._report is not None:
            line.setdefault("at_ms", int(time.time() * 1000))
            self._report.write(line)


_current: Optional[Run] = None


def init(total_steps: Optional[int] = None, config: Optional[Mapping[str, Any]] = None) -> Run:
    """Starts the conversation with muster and returns the run, the same one at each call.

    total_steps: how many steps the training has in all; gives progress and time left.
    config: the settings of this run, shown with the job and compared between jobs.
    Under muster it reports an exception that nobody catches, and `muster stacks` can ask this process where it stands.

    The run belongs to the process that calls init() first. In a forked child the run tells muster nothing and takes no
    signal. A spawned child that imports the program gets a run that tells nothing, if it calls init() meanwhile.
    """
    global _current
    if _own.is_import_by_a_child():
        return Run(None, StopWatch(None))
    if _current is None:
        report = open_report(os.environ.get("MUSTER_REPORT"))
        watch = StopWatch(stop_file())
        _current = Run(report, watch)
        _stack.offer()
        if report is not None:
            _report_uncaught(_current)
    _current.begin(total_steps, config)
    return _current


def _report_uncaught(run: Run) -> None:
    earlier = sys.excepthook
    pid = os.getpid()

    def hook(kind: Any, error: BaseException, trace: Any) -> None:
        if _own.is_mine(pid) and not isinstance(error, KeyboardInterrupt):
            with contextlib.suppress(Exception):
                run.error(error)
        earlier(kind, error, trace)

    sys.excepthook = hook


def _number_of(variable: str) -> Optional[int]:
    text = os.environ.get(variable, "")
    return int(text) if text.isdigit() else None


def _as_step(step: Any, what: str = "step") -> int:
    if type(step) is int and step >= 0:
        return step
    try:
        number = step.__index__()
    except (AttributeError, TypeError):
        raise TypeError(f"{what} is {step!r}; it must be a whole number") from None
    if number < 0:
        raise ValueError(f"{what} is {number}; it must not be negative")
    return number


def _as_name(name: str) -> str:
    if not isinstance(name, str):
        raise TypeError(f"the name of a series is {name!r}; it must be a text")
    if name in RESERVED:
        raise ValueError(f'"{name}" cannot be the name of a series: muster uses it itself; choose another name')
    return name


def _as_number(name: str, value: Any) -> Optional[Number]:
    if type(value) is float or type(value) is int or value is None:
        return value
    try:
        value = value.item() if hasattr(value, "item") else value
        return int(value) if isinstance(value, (bool, int)) else float(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f'the value of series "{name}" is no number: {type(value).__name__} ({error})') from None


def _plain(value: Any, depth: int = 0) -> Any:
    """A setting as JSON: what is neither number, text, list nor mapping becomes its text."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    if depth < 4 and isinstance(value, Mapping):
        return {str(key): _plain(one, depth + 1) for key, one in value.items()}
    if depth < 4 and isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(one, depth + 1) for one in value]
    return str(value)


def _size_of(path: Union[str, os.PathLike]) -> Optional[int]:
    """Bytes of a file, or of all files in a folder. None: the path is not there."""
    try:
        if not os.path.isdir(path):
            return os.stat(path).st_size
        total = 0
        for folder, _, names in os.walk(path):
            for name in names:
                with contextlib.suppress(OSError):
                    total += os.lstat(os.path.join(folder, name)).st_size
        return total
    except OSError:
        return None
