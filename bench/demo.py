"""How long ./dev demo takes with everything built: a loss of a rank, a requeue and a resume included."""

import pathlib
import re
import subprocess
import sys
import time

from promise import Promise

TOOL = pathlib.Path(__file__).resolve().parent.parent / "tools" / "demo.py"


def measure(binaries, quick):
    begun = time.monotonic()
    done = subprocess.run([sys.executable, "-B", TOOL, "--bin", binaries], capture_output=True, text=True, timeout=900)
    took = time.monotonic() - begun
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    back = float(re.search(r"kill to next step +([0-9.]+) s", done.stdout)[1])
    text = "\n".join(["# The demo, with everything built", "", "| what | measured |", "|---|---|",
                      f"| `./dev demo`, from the start of musterd to its end | {took:.1f} s |",
                      f"| in it: from the kill of a rank to the next step | {back:.1f} s |"]) + "\n"
    return text, [Promise("seconds of ./dev demo", took, at_most=90)]
