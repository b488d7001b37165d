"""On Slurm: how fast jobs are accepted and handed over, and what ten thousand known jobs cost."""

import concurrent.futures
import datetime
import os
import pathlib
import shutil
import tempfile
import time

from slurm_cluster import Cluster, SlurmController

COMMAND = 'name = "bench"\ncommand = ["/bin/true"]\n[env]\nSTEP = "0"\n'


def seconds(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def accept(controller, count):
    """Jobs a second that are on disk when the call returns, sent as one sweep."""
    file = controller.folder / "sweep.toml"
    file.write_text(COMMAND)
    begun = time.monotonic()
    controller.muster("submit", str(file), "--sweep", f"env.STEP=0..{count - 1}", "--hold")
    return count / (time.monotonic() - begun)


def hand_over(controller, count):
    """Jobs a second that reach Slurm's queue one by one."""
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        jobs = list(pool.map(lambda _: controller.submit(COMMAND), range(count)))

    def all_handed_over():
        views = controller.json("list", "--limit", str(count))
        return all(view["state"] not in ("pending",) for view in views)

    controller.wait(all_handed_over, 300, "every job to be in Slurm's queue")
    at = sorted(seconds(controller.json("show", job)["attempts"][0]["queued_at"]) for job in jobs)
    return (count - 1) / (at[-1] - at[0])


def count_queries(controller, cluster, calls, count, over_s):
    """(squeue calls a poll, seconds of one) with so many jobs in Slurm's queue."""
    cluster.run("sbatch", "-N4", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 3600")
    file = controller.folder / "many.toml"
    file.write_text(COMMAND)
    controller.muster("submit", str(file), "--sweep", f"env.STEP=0..{count - 1}")
    controller.wait(lambda: len(controller.json("list", "--state", "queued", "--limit", str(count))) == count, 600, "the queue")
    before = len(calls.read_text().splitlines())
    time.sleep(over_s)
    took = [float(line) for line in calls.read_text().splitlines()[before:]]
    return len(took) / over_s, sum(took) / max(1, len(took))


def wrap_squeue(folder):
    calls = folder / "calls"
    calls.touch()
    wrapper = folder / "squeue"
    wrapper.write_text(f'#!/bin/bash\nbegun=$EPOCHREALTIME\n{shutil.which("squeue")} "$@"\ncode=$?\n'
                       f'awk "BEGIN {{ print $EPOCHREALTIME - $begun }}" >> {calls}\nexit $code\n')
    os.chmod(wrapper, 0o755)
    return calls


def measure(binaries, quick):
    accepted, handed, known, over_s = (100, 20, 200, 5) if quick else (1000, 200, 10_000, 30)
    with tempfile.TemporaryDirectory() as folder:
        calls = wrap_squeue(pathlib.Path(folder))
        with Cluster("--conf", "MaxJobCount=30000") as cluster:
            with SlurmController(binaries, cluster) as controller:
                accept_rate = accept(controller, accepted)
            with SlurmController(binaries, cluster) as controller:
                hand_over_rate = hand_over(controller, handed)
        with Cluster("--conf", "MaxJobCount=30000") as cluster, SlurmController(binaries, cluster, folder) as controller:
            polls, took = count_queries(controller, cluster, calls, known, over_s)
            cluster.run("scancel", "-u", "root")
    return "\n".join([
        "# On Slurm: accepting and handing over jobs", "", "| what | measured |", "|---|---|",
        f"| {accepted} jobs of one sweep, on disk when `muster submit` returns | {accept_rate:.0f} a second |",
        f"| {handed} jobs, each its own sbatch | {hand_over_rate:.0f} a second |",
        f"| squeue calls with {known} jobs in the queue, over {over_s} s (a poll a second) | {polls:.2f} a second |",
        f"| one such squeue | {took:.2f} s |"]) + "\n"
