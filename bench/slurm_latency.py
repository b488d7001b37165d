"""On Slurm: from what ends an attempt to the first step of the next one, without Slurm's own scheduling."""

import collections
import datetime
import os
import statistics
import time

from controller import TRAINING
from promise import Promise
from slurm_cluster import Cluster, SlurmController

JOB = TRAINING.replace("ranks_per_node = 2", "nodes = 2\nranks_per_node = 2").replace("batch_size = 4\n", "batch_size = 8\n") \
    + 'backoff_initial = "100ms"\nmax_node_failed = 1000\nmax_timed_out = 1000\n[slurm]\npartition = "low"\n'


def seconds(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


Cause = collections.namedtuple("Cause", "name begin options end", defaults=((), None))


def requeue(controller, cluster, view):
    cluster.run("scontrol", "requeue", view["attempts"][-1]["scheduler_job"])


def preempt(controller, cluster, view):
    cluster.run("sbatch", "-p", "high", "-w", view["ranks"][0]["node"], "--exclusive", "-o", "/dev/null", "--wrap", "true")


def kill_stepd(controller, cluster, view):
    cluster.tool("kill-stepd", view["ranks"][3]["node"], view["attempts"][-1]["scheduler_job"])


def power_cut(controller, cluster, view):
    cluster.tool("power-cut", view["ranks"][3]["node"])


def cut_limit(controller, cluster, view):
    """To what the attempt has run already, so that its ranks are asked to save at once."""
    controller.muster("limit", str(view["id"]), "1s")


def restore_limit(controller, job):
    controller.muster("limit", job, "1h")


def one_round(controller, cluster, job, cause):
    """(decision, Slurm's part, all but Slurm's part) in seconds."""
    before = controller.json("show", job)["last_checkpoint_step"]

    def settled():
        view = controller.json("show", job)
        return view if view["state"] == "running" and view["last_checkpoint_step"] > before and len(view["ranks"]) == 4 else None

    view = controller.wait(settled, 120, "a running attempt with a new checkpoint")
    number = view["attempts"][-1]["number"]
    begun = time.time()
    cause.begin(controller, cluster, view)
    if cause.end:
        controller.wait(lambda: controller.json("show", job)["attempts"][number - 1]["ended_at"], 60, "the attempt's end")
        cause.end(controller, job)
    step = controller.wait(lambda: controller.first_step(job, number + 1), 120, "the next attempt's first step")
    ended, following = controller.json("show", job)["attempts"][number - 1:number + 1]
    decision = seconds(following["queued_at"]) - seconds(ended["ended_at"])
    slurms = seconds(following["started_at"]) - seconds(following["queued_at"])
    return decision, slurms, step["at_ms"] / 1000 - begun - slurms


def measure(binaries, quick):
    rounds = 2 if quick else 5
    promises = []
    lines = ["# On Slurm: from what ends an attempt to the first step of the next", "",
             f"Two nodes with two ranks each of a small Llama, on a private Slurm on this one machine. Each cause comes {rounds} times.", "",
             "- Decision: from the attempt's end until the next attempt is in Slurm's queue. It includes a backoff of 100 ms where",
             "  there is one.",
             "- Slurm: from the queue until the attempt runs, as musterd sees it.",
             "- The rest: the time from the cause to the first optimizer step, without Slurm's part. It includes saving, ends of",
             "  processes, decision, start of processes, rendezvous, loading, and one step.", "",
             "| cause | decision, median | Slurm, median | the rest, median | the rest, most |", "|---|---|---|---|---|"]
    causes = [Cause("scontrol requeue", requeue), Cause("preemption, no grace", preempt),
              Cause("preemption, 10 s of grace", preempt, ("--grace", "10")),
              Cause("time limit (the ranks save first)", cut_limit, end=restore_limit),
              Cause("SIGKILL of slurmstepd", kill_stepd)]
    # Each cut node is left out for ten minutes. Nodes that have a power to cut take root.
    if os.geteuid() == 0:
        causes.append(Cause("power cut of a node", power_cut, ("--nodes", str(2 + rounds))))
    for cause in causes:
        with Cluster(*cause.options) as cluster, SlurmController(binaries, cluster) as controller:
            job = controller.submit(JOB)
            decision, slurms, rest = zip(*[one_round(controller, cluster, job, cause) for _ in range(rounds)])
        lines.append(f"| {cause.name} | {statistics.median(decision):.2f} s | {statistics.median(slurms):.2f} s | "
                     f"{statistics.median(rest):.2f} s | {max(rest):.2f} s |")
        promises += [Promise(f"{cause.name}: most seconds to the next step without Slurm's part", max(rest), at_most=5),
                     Promise(f"{cause.name}: most seconds of the decision", max(decision), at_most=1)]
    return "\n".join(lines) + "\n", promises
