"""The metrics of jobs of many ranks: what a plot costs, and what a month of them takes on disk."""

import json
import statistics
import subprocess
import tempfile
import threading

from controller import Controller
from long_job import ask
from promise import Promise

COMMAND = 'name = "many"\ncommand = ["/bin/true"]\n'
POINTS = 2000
SECONDS_A_DAY = 86_400
# The defaults of musterd: --rank-metrics-days and --step-metrics-days. Rows age by the hour, so an hour more is kept.
RANK_DAYS, STEP_DAYS = 1 + 1 / 24, 30


def run(*command):
    return json.loads(subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True).stdout)


def while_plots_are_made(controller, path, times):
    """Seconds of each list of jobs while four clients ask for plots all the time."""
    over = threading.Event()

    def plot():
        while not over.is_set():
            ask(controller, path)

    clients = [threading.Thread(target=plot) for _ in range(4)]
    for client in clients:
        client.start()
    lists = [ask(controller, "jobs")[0] for _ in range(times)]
    over.set()
    for client in clients:
        client.join()
    return lists


def month_gb(ranks, sizes):
    """What a job of this many ranks that reports each second takes after 30 days."""
    rank_rows = ranks * SECONDS_A_DAY * RANK_DAYS * sizes["rank_row_bytes"]
    steps = SECONDS_A_DAY * STEP_DAYS * (sizes["step_row_bytes"] + sizes["bucket_bytes_a_step"])
    return (rank_rows + steps) / 1e9


def measure(binaries, quick):
    jobs = [(64, 500, 500), (512, 4000, 20)] if quick else [(256, 8000, 8000), (4096, 60_000, 200)]
    times = 5 if quick else 20
    rows, plots = [], []
    with Controller(binaries) as controller:
        ids = [controller.submit(COMMAND) for _ in jobs]
        for job in ids:
            controller.muster("wait", job)
        controller.stop()
        database = controller.folder / "data" / "muster.db"
        filled = [run(binaries / "many_ranks_fill", "fill", database, job, *sizes) for job, sizes in zip(ids, jobs)]
        controller.start()
        for job, (ranks, steps, _) in zip(ids, jobs):
            path = f"jobs/{job}/metrics?points={POINTS}"
            first, size = ask(controller, path)
            whole = [ask(controller, path)[0] for _ in range(times)]
            new = [ask(controller, f"{path}&after_attempt=1&after_step={steps - 10}")[0] for _ in range(times)]
            plots.append(statistics.median(whole))
            rows.append(f"| {ranks:,} ranks x {steps:,} steps | {first * 1000:.0f} ms | {plots[-1] * 1000:.0f} ms "
                        f"(slowest {max(whole) * 1000:.0f} ms) | {size / 1024:.0f} KiB | {statistics.median(new) * 1000:.0f} ms |")
        lists = while_plots_are_made(controller, f"jobs/{ids[0]}/metrics?points={POINTS}", times)
    with tempfile.TemporaryDirectory() as folder:
        sizes = run(binaries / "many_ranks_fill", "sizes", folder, 512, 400 if quick else 1200)
    month = month_gb(512, sizes)
    return "\n".join([
        "# Metrics of jobs of many ranks", "",
        "Each rank reports its loss and three measures of its own at each step, rank 0 three series more. Of the larger job the "
        "rows of ranks are there for the last 200 steps, as after a day.", "",
        f"| job | all curves in {POINTS} points, the first time | again | answer | the ten newest steps |", "|---|---|---|---|---|",
        *rows, "",
        "| what | measured |", "|---|---|",
        f"| rows of ranks written to the database, one step in a transaction | {filled[0]['rows'] / filled[0]['seconds']:,.0f} a second |",
        f"| the list of jobs while four clients ask for plots of the first job | {statistics.median(lists) * 1000:.0f} ms, "
        f"slowest {max(lists) * 1000:.0f} ms |",
        f"| a row of a rank, with its loss | {sizes['rank_row_bytes']:.0f} bytes |",
        f"| a step over all ranks | {sizes['step_row_bytes']:.0f} bytes |",
        f"| its share of buckets | {sizes['bucket_bytes_a_step']:.0f} bytes |",
        f"| rows of ranks that age in a second | {sizes['rows_aged_a_second']:,.0f} |",
        f"| 512 ranks, a step a second, after 30 days: rows of ranks of a day, steps of 30 days, their buckets (extrapolated) | "
        f"{month:.1f} GB |"]) + "\n", [
            *(Promise(f"seconds of the curves of {ranks} ranks x {steps} steps", plot, at_most=0.05)
              for (ranks, steps, _), plot in zip(jobs, plots)),
            Promise("seconds of a list beside plots", statistics.median(lists), at_most=0.1),
            Promise("GB of metrics of 512 ranks after 30 days", month, at_most=5)]
