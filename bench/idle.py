"""What a musterd costs that has nothing to do: how often its threads are woken, its memory, and what it asks of Slurm."""

import pathlib
import shutil
import tempfile
import time

from controller import Controller
from promise import Promise
from slurm_cluster import Cluster, SlurmController

JOB = 'name = "bench"\ncommand = ["/bin/true"]\n'
COMMANDS = ("sacct", "sbatch", "scancel", "scontrol", "sinfo", "squeue")
SETTLED_S = 15  # after its start, and after the last attempt


def count_calls(folder):
    """Programs before Slurm's own ones; the file that they make has one line a call."""
    calls = folder / "calls"
    calls.touch()
    for name in COMMANDS:
        program = folder / name
        program.write_text(f'#!/bin/sh\necho {name} >> {calls}\nexec {shutil.which(name)} "$@"\n')
        program.chmod(0o755)
    return calls


def woken(pid):
    """How often each thread of a process has slept and was woken."""
    found = {}
    for status in pathlib.Path(f"/proc/{pid}/task").glob("*/status"):
        lines = status.read_text().splitlines()
        found[status.parent.name] = int(next(line.split()[1] for line in lines if line.startswith("voluntary_ctxt_switches")))
    return found


def kib(pid, file, name):
    lines = pathlib.Path(f"/proc/{pid}/{file}").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(f"{name}:")))


def at_rest(controller, over_s):
    """(wake-ups a second, MiB of its own, MiB by shares, MiB resident, threads)"""
    time.sleep(SETTLED_S)
    pid = controller.daemon.pid
    before = woken(pid)
    time.sleep(over_s)
    after = woken(pid)
    count = sum(after[id] - before.get(id, 0) for id in after)
    memory = [kib(pid, *of) / 1024 for of in (("status", "RssAnon"), ("smaps_rollup", "Pss"), ("status", "VmRSS"))]
    return count / over_s, *memory, len(after)


def run_a_job(controller):
    controller.muster("wait", controller.submit(JOB))


def row(what, rest):
    wakeups, own, shares, resident, threads = rest
    return f"| {what} | {wakeups:.2f} | {own:.1f} | {shares:.1f} | {resident:.1f} | {threads} |"


def measure(binaries, quick):
    # The look at its own ports comes once a minute.
    over_s = 20 if quick else 120
    with Controller(binaries) as controller:
        fresh = at_rest(controller, over_s)
        run_a_job(controller)
        after = at_rest(controller, over_s)
    with tempfile.TemporaryDirectory() as folder:
        calls = count_calls(pathlib.Path(folder))
        with Cluster() as cluster, SlurmController(binaries, cluster, folder) as controller:
            run_a_job(controller)
            time.sleep(SETTLED_S)
            before = len(calls.read_text().splitlines())
            on_slurm = at_rest(controller, over_s)
            asked = len(calls.read_text().splitlines()) - before
    rests = {"fresh, without Slurm": fresh, "after a job, without Slurm": after, "after a job, with Slurm": on_slurm}
    return "\n".join([
        "# A controller that has nothing to do", "",
        f"Counted over {over_s} s, which hold musterd's look at its own ports once a minute. Its own memory is what no other process",
        "can share (RssAnon). The rest of what is resident are pages of program and libraries that it needed since it last gave all",
        "of them back, 3 s after the last connection.", "",
        "| musterd | wake-ups a second | own, MiB | PSS, MiB | resident, MiB | threads |", "|---|---:|---:|---:|---:|---:|",
        *(row(what, rest) for what, rest in rests.items()), "",
        f"Slurm was asked {asked} times meanwhile."]) + "\n", [
            *(Promise(f"wake-ups a second, {what}", rest[0], at_most=2) for what, rest in rests.items()),
            *(Promise(f"memory of its own, {what}, MiB", rest[1], at_most=10) for what, rest in rests.items()),
            *(Promise(f"resident memory, {what}, MB", rest[3] * 1.048576, at_most=20) for what, rest in rests.items()),
            Promise("questions to Slurm without an attempt there", asked, at_most=0)]
