"""MUSTER_EXPECT_GPUS=N says that this machine has N GPUs. Where fewer are seen, tests that need GPUs fail.

Without the variable such tests are skipped. A run that skips them looks like a run that passes, so the CI of a cluster sets it.
tests/expected_gpus.h has this rule for tests in C++.
"""

import os

VARIABLE = "MUSTER_EXPECT_GPUS"
LABEL = "gpu"  # of tests that need GPUs
RUNS, SKIPPED, FAILS = "runs", "skipped", "fails"


class NoNumber(Exception):
    """The variable's value is no number of GPUs. The text is one sentence for the user."""


def expected(environment=os.environ):
    """The number of GPUs that the variable promises, or None. Raises NoNumber."""
    text = environment.get(VARIABLE, "")
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise NoNumber(f"{VARIABLE}={text}: want a whole number of at least 1")
    return int(text)


def judge(needed, seen, environment=os.environ):
    """(verdict, why) on a test that needs this many GPUs and sees this many: RUNS, SKIPPED or FAILS."""
    gpus = f"{seen} GPU is seen" if seen == 1 else f"{seen} GPUs are seen"
    try:
        wanted = expected(environment)
    except NoNumber as error:
        return FAILS, str(error)
    if wanted is not None and seen < wanted:
        return FAILS, f"{gpus}, and {VARIABLE}={wanted} promises more"
    return (SKIPPED, f"{gpus}, and this test needs {needed}") if seen < needed else (RUNS, "")


def why_no_skip(test, environment=os.environ):
    """Why this test must not be skipped as a whole, in one sentence; empty where it may be. A case of a GoogleTest program judges for
    itself, and may need more GPUs than the machine has. A script is a suite of tests, of which at least one could have run."""
    wanted = expected(environment)
    if wanted is None or LABEL not in test.labels or test.skip_code is None:
        return ""
    return f"all of it was skipped, and {VARIABLE}={wanted} wants tests of GPUs to run"
