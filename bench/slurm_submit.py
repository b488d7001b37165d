"""On Slurm: how fast jobs are accepted and handed over, and what ten thousand known jobs cost."""

import concurrent.futures
import datetime
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

from promise import Promise
from slurm_cluster import Cluster, SlurmController

COMMAND = 'name = "bench"\ncommand = ["/bin/true"]\n[env]\nSTEP = "0"\n'
SBATCHES = 4  # what musterd has under way at once


def seconds(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def accept_calls(controller, count, file=None):
    """What submit_load measures for `count` jobs, each in a call of its own. They are handed over meanwhile."""
    if file is None:
        file = controller.folder / "job.toml"
        file.write_text(COMMAND)
    done = subprocess.run(
        [controller.binaries / "submit_load", controller.environment["MUSTER_ADDRESS"], controller.environment["MUSTER_TOKEN_FILE"],
         file, str(count), "64"], capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def accept_sweep(controller, count):
    """Jobs a second that are on disk when the call returns, sent as one sweep."""
    file = controller.folder / "sweep.toml"
    file.write_text(COMMAND)
    begun = time.monotonic()
    controller.muster("submit", str(file), "--sweep", f"env.STEP=0..{count - 1}", "--hold")
    return count / (time.monotonic() - begun)


def hand_over(controller, count):
    """Of the first jobs: how many a second reach Slurm's queue, each with its own sbatch."""
    def queued_at(job):
        attempts = controller.json("show", str(job))["attempts"]
        return attempts and attempts[0].get("queued_at")

    # They go in their order; asking often would cost what is measured.
    while not queued_at(count):
        time.sleep(1)
    at = sorted(seconds(controller.wait(lambda job=job: queued_at(job), 60, "a job in Slurm's queue"))
                for job in range(1, count + 1))
    return (count - 1) / (at[-1] - at[0])


def sbatch_alone(cluster, count):
    """sbatch by itself, as many at once as musterd has."""
    def submit(_):
        cluster.run("sbatch", "-o", "/dev/null", "--wrap", "/bin/true")

    begun = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(SBATCHES) as pool:
        list(pool.map(submit, range(count)))
    return count / (time.monotonic() - begun)


SUBMITIT = """
import sys, time, submitit
executor = submitit.AutoExecutor(folder=sys.argv[1], cluster="slurm")
executor.update_parameters(timeout_min=5, slurm_partition="main")
begun = time.monotonic()
for _ in range(int(sys.argv[2])):
    executor.submit(abs, -1)
print(int(sys.argv[2]) / (time.monotonic() - begun))
"""


def submitit_loop(cluster, folder, count):
    """submitit 1.5.4's executor.submit in a loop, jobs a second; None where there is no submitit."""
    python = os.environ.get("MUSTER_PEER_PYTHON")
    if not python:
        return None
    done = subprocess.run([python, "-c", SUBMITIT, str(folder / "submitit"), str(count)], env=os.environ | cluster.environment,
                          capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return float(done.stdout)


def count_queries(controller, cluster, calls, count, over_s):
    """(squeue calls a poll, seconds of one call) with `count` jobs in Slurm's queue."""
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
    accepted, handed, known, over_s = (300, 100, 200, 5) if quick else (5000, 1000, 10_000, 30)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        calls = wrap_squeue(folder)
        with Cluster("--conf", "MaxJobCount=30000") as cluster:
            # Jobs stay in the queue, or their running would be measured too.
            cluster.run("scontrol", "update", "PartitionName=main", "State=DOWN")
            with SlurmController(binaries, cluster) as controller:
                told = accept_calls(controller, accepted)
                handed_over = hand_over(controller, handed)
            alone = sbatch_alone(cluster, handed)
            peer = submitit_loop(cluster, folder, handed)
            with SlurmController(binaries, cluster) as controller:
                swept = accept_sweep(controller, accepted)
        with Cluster("--conf", "MaxJobCount=30000") as cluster, SlurmController(binaries, cluster, folder) as controller:
            polls, took = count_queries(controller, cluster, calls, known, over_s)
            cluster.run("scancel", "-u", "root")
    return "\n".join([
        "# On Slurm: accepting and handing over jobs", "", "| what | measured |", "|---|---|",
        f"| {accepted} jobs, each its own call from 64 callers, on disk when answered; sbatch is run for the first meanwhile | "
        f"{told['jobs'] / told['seconds']:.0f} a second; median answer {told['median_ms']:.0f} ms, slowest {told['slowest_ms']:.0f} ms |",
        f"| {accepted} jobs of one sweep, on disk when `muster submit` returns | {swept:.0f} a second |",
        f"| the first {handed} of those jobs, each its own sbatch by musterd | {handed_over:.0f} a second |",
        f"| sbatch alone, {SBATCHES} at once, {handed} jobs | {alone:.0f} a second |",
        f"| submitit 1.5.4, `executor.submit` in a loop, {handed} jobs | {f'{peer:.0f} a second' if peer else 'not there'} |",
        f"| squeue calls with {known} jobs in the queue, over {over_s} s (a poll a second) | {polls:.2f} a second |",
        f"| one such squeue | {took:.2f} s |"]) + "\n", [
            Promise("jobs accepted a second", told["jobs"] / told["seconds"], at_least=1000),
            Promise("jobs handed over a second, each with its own sbatch", handed_over, at_least=80),
            # The ends of the time looked at may cut off one more.
            Promise("squeue calls a second", polls, at_most=1 + 1 / over_s)]
