"""What a GoogleTest program printed, cut into its cases."""

import dataclasses
import re

BEGINS = re.compile(rb"^\[ RUN      \] (\S+)\r?$", re.MULTILINE)
ENDS = re.compile(rb"\[(       OK|  FAILED|  SKIPPED) *\] (\S+?)(?:, where .*)? \((\d+) ms\)\r?$", re.MULTILINE)
OUTCOMES = {b"       OK": "passed", b"  FAILED": "failed", b"  SKIPPED": "skipped"}


@dataclasses.dataclass
class Case:
    name: str
    outcome: str  # "passed", "failed", "skipped", or "open" where the program ended in the middle of it
    seconds: float
    output: bytes


def running_case(output):
    """The name of the case that has begun and not ended, or None."""
    begins = None
    for begins in BEGINS.finditer(output):
        pass
    if begins is None or _end_of(begins.group(1), output, begins.end()):
        return None
    return begins.group(1).decode(errors="replace")


def _end_of(name, output, at):
    return next((end for end in ENDS.finditer(output, at) if end.group(2) == name), None)


def cases_in(output):
    """All cases that have begun, in their order."""
    begins = list(BEGINS.finditer(output))
    cases = []
    for place, begin in enumerate(begins):
        after = begins[place + 1].start() if place + 1 < len(begins) else len(output)
        text = output[begin.start():after]
        end = _end_of(begin.group(1), text, 0)
        cases.append(Case(begin.group(1).decode(errors="replace"), OUTCOMES[end.group(1)] if end else "open",
                          int(end.group(3)) / 1000 if end else 0.0, text[:end.end()] if end else text))
    return cases
