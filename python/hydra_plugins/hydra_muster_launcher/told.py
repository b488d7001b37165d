"""What muster is told of a multirun: the overrides as settings of its jobs, and what the function returns as a series."""

from __future__ import annotations

import os
import re
from typing import Any, Dict, List, Mapping, Sequence

SERIES = "objective"
MOST_CHARACTERS = 200  # of a shown value
BETTER = {"minimize": "lower", "maximize": "higher"}


def settings(overrides: Sequence[str]) -> Dict[str, str]:
    """["+lr=0.1", "~model.bias"] -> {"lr": "0.1", "model.bias": "(left out)"}."""
    out = {}
    for override in overrides:
        name, equals, value = override.partition("=")
        out[name.lstrip("+~")] = value[:MOST_CHARACTERS] if equals and not name.startswith("~") else "(left out)"
    return out


def settings_of(jobs: Sequence[Sequence[str]]) -> List[Dict[str, str]]:
    """The settings of each job of a multirun: those in which the jobs differ."""
    all_jobs = [settings(overrides) for overrides in jobs]
    differ = [name for name in dict.fromkeys(name for job in all_jobs for name in job)
              if len({job.get(name) for job in all_jobs}) > 1]
    return [{name: job[name] for name in differ if name in job} for job in all_jobs]


def numbers_of(value: Any) -> Dict[str, float]:
    """What a function has returned, as series: a number, a list of numbers, or numbers by names. Empty: none of these."""
    if _is_number(value):
        return {SERIES: float(value)}
    if isinstance(value, Mapping):
        return {f"{SERIES}_{re.sub('[^A-Za-z0-9._-]', '_', str(name))}": float(one) for name, one in value.items()
                if _is_number(one)}
    if isinstance(value, (list, tuple)) and value and all(_is_number(one) for one in value):
        return {f"{SERIES}_{index}": float(one) for index, one in enumerate(value)}
    return {}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class OwnReport:
    """The report of rank 0: at the beginning the overrides as the settings of the run, at the end the result."""

    def __init__(self, overrides: Sequence[str]) -> None:
        from muster._report import open_report
        is_first = os.environ.get("SUBMITIT_MUSTER_RANK", "0") == "0"
        self._report = open_report(os.environ.get("MUSTER_REPORT")) if is_first else None
        if self._report is not None and overrides:
            self._report.write({"config": settings(overrides)})

    def tell_result(self, value: Any, direction: str) -> None:
        """The result belongs to the newest step that the function has reported by muster's package, or to step 1."""
        from muster import _run
        numbers = numbers_of(value)
        if self._report is None or not numbers:
            return
        reported = _run._current
        if reported is not None:
            reported.flush()
        step = reported._last[0] if reported is not None and reported._last is not None else 1
        facts = {"over_ranks": "rank0", "better": BETTER.get(direction.lower(), "neither")}
        self._report.write({"series": {name: facts for name in numbers}})
        self._report.write({"step": step, **numbers})
        self._report.flush()
