"""From a fault to the controller knowing, and to the first step of the next attempt."""

import datetime
import os
import signal
import statistics
import time

from controller import TRAINING, Controller
from promise import Promise


def seconds(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def one_fault(controller, job, number):
    """Signals rank 1 of the running attempt; (known after, next step after) in seconds."""
    before = controller.json("show", job)["last_checkpoint_step"]

    def settled():
        """Only after a new checkpoint: otherwise the backoff between attempts doubles and is measured too."""
        view = controller.json("show", job)
        return view if view["state"] == "running" and view["last_checkpoint_step"] > before and view["attempts"][-1]["state"] == "running" \
            and len(view["ranks"]) == 2 and view["ranks"][1]["section"] == "step" else None

    view = controller.wait(settled, 60, "a running attempt")
    attempt = view["attempts"][-1]["number"]
    pid = view["ranks"][1]["pid"]
    assert pid > 1
    begun = time.time()
    os.kill(pid, number)
    wanted = "rank_silent" if number == signal.SIGSTOP else "rank_exited"

    def known():
        return next((e for e in controller.json("events", job) if e["attempt"] == attempt and e["type"] == wanted), None)

    event = controller.wait(known, 60, f"a {wanted} event")
    step = controller.wait(lambda: controller.first_step(job, attempt + 1), 60, "the next attempt's first step")
    return seconds(event["at"]) - begun, step["at_ms"] / 1000 - begun


def measure(binaries, quick):
    rounds = 3 if quick else 10
    promises = []
    lines = ["# From a fault to knowing, and to the next step", "",
             f"Two ranks of a small Llama on one machine, with default settings. Rank 1 gets each fault {rounds} times.", "",
             "- Known: the time from the fault to the controller's event.",
             "- Next step: the time from the fault to the end of the next attempt's first optimizer step. It includes backoff,",
             "  start of the processes, rendezvous, loading the checkpoint, and the step.", "",
             "| fault | known, median | known, most | next step, median | next step, most |", "|---|---|---|---|---|"]
    for name, number, known_within in (("SIGKILL (exit)", signal.SIGKILL, 0.5), ("SIGSTOP (silence)", signal.SIGSTOP, 3)):
        with Controller(binaries) as controller:
            job = controller.submit(TRAINING)
            faults = [one_fault(controller, job, number) for _ in range(rounds)]
        known, step = zip(*faults)
        lines.append(f"| {name} | {statistics.median(known):.3f} s | {max(known):.3f} s | {statistics.median(step):.2f} s | {max(step):.2f} s |")
        promises.append(Promise(f"{name}: most seconds until it is known", max(known), at_most=known_within))
    return "\n".join(lines) + "\n", promises
