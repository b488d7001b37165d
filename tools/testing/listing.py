"""What there is to run: the tests of a build folder as ctest lists them, and what each is known to cost.

Nothing here starts a test. `read_tests` asks ctest once, with ctest's own filters, and ctest asks each GoogleTest program for its
cases. `read_costs` reads tests/costs.tsv, which `./dev test --record` writes.
"""

import dataclasses
import json
import os
import pathlib
import subprocess

LONG = "long"  # the label of tests that run with -L long alone
UNIT = "unit"  # cases of these programs may share a process
APART = "apart"  # but not of those with this label, too
PEERS = "peers"  # tests that compare with PyTorch
FILTER = "--gtest_filter="
DEFAULT_TIMEOUT_S = 1500  # ctest's own


class Unlisted(Exception):
    """The tests could not be listed. The text is one sentence for the user."""


@dataclasses.dataclass(frozen=True)
class Test:
    name: str
    command: tuple  # empty where its program is not built
    folder: str
    environment: tuple = ()  # of (name, value)
    labels: tuple = ()
    locks: frozenset = frozenset()  # one test at a time has each
    timeout_s: float = DEFAULT_TIMEOUT_S
    serial: bool = False  # nothing else runs beside it
    skip_code: int | None = None
    disabled: bool = False

    @property
    def case(self):
        """The one GoogleTest case that the command runs. None for a test of another kind."""
        words = [word for word in self.command if word.startswith(FILTER)]
        return words[0][len(FILTER):] if len(words) == 1 and not set(words[0][len(FILTER):]) & set("*?:") else None

    @property
    def shares_process(self):
        return (bool({UNIT, PEERS} & set(self.labels)) and APART not in self.labels and self.case is not None and not self.serial
                and not self.locks and not self.disabled)

    @property
    def is_long(self):
        return LONG in self.labels


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a test took when it was recorded."""
    seconds: float
    cores: float  # processors that the test and its processes kept busy, in the mean


def _property(entry, name, default):
    return next((p["value"] for p in entry.get("properties", ()) if p["name"] == name), default)


def test_of(entry):
    """The test that an entry of `ctest --show-only=json-v1` describes."""
    environment = tuple(tuple(pair.split("=", 1)) for pair in _property(entry, "ENVIRONMENT", ()))
    codes = _property(entry, "SKIP_RETURN_CODE", None)
    return Test(name=entry["name"], command=tuple(entry.get("command", ())),
                folder=_property(entry, "WORKING_DIRECTORY", os.getcwd()), environment=environment,
                labels=tuple(word for label in _property(entry, "LABELS", ()) for word in label.split()), locks=frozenset(_property(entry, "RESOURCE_LOCK", ())),
                timeout_s=float(_property(entry, "TIMEOUT", DEFAULT_TIMEOUT_S)),
                serial=bool(_property(entry, "RUN_SERIAL", False)), skip_code=None if codes is None else int(codes),
                disabled=bool(_property(entry, "DISABLED", False)))


def read_tests(folder, filters=()):
    """All tests below this build folder that pass ctest's filters (-R, -E, -L, -LE)."""
    done = subprocess.run(["ctest", "--test-dir", str(folder), "--show-only=json-v1", *filters], capture_output=True, text=True)
    start = done.stdout.find("{")
    if done.returncode != 0 or start < 0:
        words = (done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}").splitlines()
        raise Unlisted(f"ctest can't list the tests of {folder}: {' '.join(words[-3:])}")
    listed = json.loads(done.stdout[start:])
    return [test_of(entry) for entry in listed["tests"]]


def read_costs(file):
    """{name: Cost} of a file with a line `seconds<TAB>cores<TAB>name` a test; none where there is no file."""
    try:
        lines = pathlib.Path(file).read_text().splitlines()
    except FileNotFoundError:
        return {}
    costs = {}
    for number, line in enumerate(lines, 1):
        if not line or line.startswith("#"):
            continue
        try:
            seconds, cores, name = line.split("\t")
            costs[name] = Cost(float(seconds), float(cores))
        except ValueError:
            raise Unlisted(f"{file}:{number}: want seconds, cores and a name with tabs between them, got {line!r}") from None
    return costs


def write_costs(file, costs, least_s=1.0):
    """Writes those of at least `least_s` seconds, the longest first."""
    rows = sorted(((name, cost) for name, cost in costs.items() if cost.seconds >= least_s), key=lambda row: (-row[1].seconds, row[0]))
    head = ("# What each test took that takes a second or more: seconds, processors that it kept busy, name.\n"
            "# Written by `./dev test --record`; the tests that take longest start first.\n")
    pathlib.Path(file).write_text(head + "".join(f"{cost.seconds:.1f}\t{cost.cores:.2f}\t{name}\n" for name, cost in rows))
