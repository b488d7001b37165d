"""No false alarm on a loaded machine: training beside busy processes, two for each core, and one that keeps the disk busy."""

import multiprocessing
import os
import tempfile
import time

from controller import TRAINING, Controller
from promise import Promise


def burn(until):
    """Keeps one core busy and touches memory, until the given time."""
    block = bytearray(64 << 20)
    number = 0
    while time.time() < until:
        for i in range(0, len(block), 4096):
            block[i] = number & 255
        number += 1


def write(until, folder):
    """Writes and syncs, where the training's own files lie."""
    while time.time() < until:
        with open(os.path.join(folder, "load"), "wb") as file:
            for _ in range(64):
                file.write(os.urandom(1 << 20))
            os.fsync(file.fileno())


def measure(binaries, quick):
    minutes = 0.5 if quick else 10
    jobs, burners = 2, 2 * os.cpu_count()
    with tempfile.TemporaryDirectory() as folder, Controller(binaries) as controller:
        ids = [controller.submit(TRAINING) for _ in range(jobs)]
        until = time.time() + 60 * minutes
        loads = [multiprocessing.Process(target=burn, args=(until,), daemon=True) for _ in range(burners)]
        loads.append(multiprocessing.Process(target=write, args=(until, folder), daemon=True))
        for load in loads:
            load.start()
        for load in loads:
            load.join()
        views = [controller.json("show", job) for job in ids]
        oldest = max(rank["last_heartbeat_ms"] for view in views for rank in view["ranks"])
    alarms = sum(len(view["attempts"]) - 1 for view in views)
    steps = sum(view["step"] for view in views)
    return "\n".join([
        "# No false alarm on a loaded machine", "",
        f"{jobs} jobs of two ranks each train for {minutes:g} minutes with default settings. {burners} other processes keep the",
        "cores busy, and one more writes to the disk.", "",
        "| attempts ended (false alarms) | steps done meanwhile | oldest heartbeat at the end |", "|---|---|---|",
        f"| {alarms} | {steps} | {oldest} ms |"]) + "\n", [Promise("false alarms", alarms, at_most=0)]
