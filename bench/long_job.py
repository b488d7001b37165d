"""The dashboard on a job of a million steps: what its curves cost, and how fast its page opens."""

import json
import os
import pathlib
import shutil
import statistics
import subprocess
import time
import urllib.request

from controller import Controller
from promise import Promise

HERE = pathlib.Path(__file__).resolve().parent
COMMAND = 'name = "long"\ncommand = ["/bin/true"]\n'
POINTS = 2000


def ask(controller, path):
    """(seconds, bytes) of one answer of the API."""
    token = (controller.folder / "data" / "token").read_text().strip()
    request = urllib.request.Request(f"http://{controller.http}/api/v1/{path}", headers={"Authorization": f"Bearer {token}"})
    begun = time.monotonic()
    with urllib.request.urlopen(request) as answer:
        size = len(answer.read())
    return time.monotonic() - begun, size


def open_page(controller, path, selector, times):
    """What open_page.mjs tells of each time."""
    web = controller.binaries.parent / "web"
    shutil.copy(HERE / "open_page.mjs", web)
    token = (controller.folder / "data" / "token").read_text().strip()
    done = subprocess.run(["node", "open_page.mjs", f"http://{controller.http}", token, path, selector, str(times)], cwd=web,
                          capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def measure(binaries, quick):
    steps, times = (50_000, 2) if quick else (1_000_000, 7)
    with Controller(binaries) as controller:
        job = controller.submit(COMMAND)
        controller.muster("wait", job)
        controller.stop()
        database = controller.folder / "data" / "muster.db"
        done = subprocess.run([binaries / "metrics_fill", database, job, str(steps)], capture_output=True, text=True, check=True)
        filled = json.loads(done.stdout)
        controller.start()
        first, size = ask(controller, f"jobs/{job}/metrics?points={POINTS}")
        path = f"jobs/{job}/metrics?points={POINTS}"
        whole = [ask(controller, path)[0] for _ in range(20)]
        zoomed = [ask(controller, f"{path}&from_step={at}&to_step={at + 1000}")[0] for at in range(0, steps // 2, steps // 40)]
        half = [ask(controller, f"{path}&from_step={at}&to_step={at + steps // 2}")[0] for at in range(0, steps // 2, steps // 40)]
        new = [ask(controller, f"{path}&after_attempt=2&after_step={steps - 10}")[0] for _ in range(20)]
        pages = open_page(controller, f"/jobs/{job}", ".plot .uplot canvas", times)
        begun = time.monotonic()
        with open(os.devnull, "w") as nowhere:
            subprocess.run([binaries / "muster", "metrics", job, "--csv"], stdout=nowhere, env=controller.environment, check=True)
        csv = time.monotonic() - begun
        stored = database.with_name("metrics.db").stat().st_size
    opened = statistics.median(page["drawn_ms"] for page in pages) / 1000
    heap = max(page["heap_bytes"] for page in pages)

    def ms(values):
        return f"{statistics.median(values) * 1000:.0f} ms (slowest {max(values) * 1000:.0f} ms)"

    return "\n".join([
        f"# A job of {steps:,} steps in the dashboard", "",
        "Rank 0 reports four series at each step, a fifth at each thousandth, and three measures of its own. The run is resumed once.",
        "", "| what | measured |", "|---|---|",
        f"| steps written to the database, 512 in a transaction | {filled['rows'] / filled['seconds']:,.0f} a second |",
        f"| the database of metrics | {stored / 2**20:.0f} MiB |",
        f"| all curves in {POINTS} points each, the first time after the start of musterd | {first * 1000:.0f} ms, {size / 1024:.0f} KiB |",
        f"| ... again | {ms(whole)} |",
        f"| half of the steps, in {POINTS} points a curve | {ms(half)} |",
        f"| 1,000 steps, each of them | {ms(zoomed)} |",
        f"| the ten newest steps | {ms(new)} |",
        f"| the job's page in Chromium, until the first plot is drawn, {times} times | {opened:.2f} s, "
        f"slowest {max(page['drawn_ms'] for page in pages) / 1000:.2f} s |",
        f"| heap of the page | {heap / 2**20:.0f} MiB |",
        f"| `muster metrics --csv`, every step | {csv:.1f} s |"]) + "\n", [
            Promise("seconds until the page of a long job is drawn", opened, at_most=1),
            Promise("seconds of the curves of a long job", statistics.median(whole), at_most=0.2),
            Promise("seconds of every step as CSV", csv * 1_000_000 / steps, at_most=25)]
