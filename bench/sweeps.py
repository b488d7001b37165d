"""What a sweep of ten thousand jobs costs: its submission, its results, and the same jobs one by one. Without Slurm."""

import contextlib
import os
import resource
import sqlite3
import subprocess
import time

from controller import Controller
from promise import Promise
from slurm_submit import COMMAND, accept_calls

TICK = os.sysconf("SC_CLK_TCK")
# Each has reported some steps, as in a sweep that has begun.
REPORTS = 'name = "bench"\ncommand = ["/bin/sh", "-c", "for i in 1 2 3; do echo step $i loss 0.$i; done"]\n[env]\nSTEP = "0"\n' \
          "[report]\nlog = {step = 'step (\\d+)', loss = 'loss ([\\d.]+)'}\n"


def cpu_of(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


class Both:
    """Seconds of CPU that musterd and `muster` take for one command."""

    def __init__(self, controller):
        self.controller = controller

    def run(self, *arguments):
        server = cpu_of(self.controller.daemon.pid)
        client = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.said = self.controller.muster(*arguments)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.server = cpu_of(self.controller.daemon.pid) - server
        self.client = after.ru_utime + after.ru_stime - client.ru_utime - client.ru_stime
        return self


def plain_sqlite_cpu(controller):
    """Seconds of CPU for which SQLite alone writes the rows that musterd has written, into the same tables, in one transaction."""
    with contextlib.closing(sqlite3.connect(f"file:{controller.folder / 'data' / 'muster.db'}?mode=ro", uri=True)) as written, \
            contextlib.closing(sqlite3.connect(controller.folder / "plain.db", isolation_level=None)) as plain:
        plain.execute("PRAGMA journal_mode = WAL")
        for (statement,) in written.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"):
            plain.execute(statement)
        rows = {table: written.execute(f"SELECT * FROM {table}").fetchall() for table in ("jobs", "events")}
        before = time.process_time()
        plain.execute("BEGIN")
        for table, values in rows.items():
            plain.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values[0]))})", values)
        plain.execute("COMMIT")
        return time.process_time() - before


def ended(controller, sweep):
    return all(job["state"] == "succeeded" for job in controller.json("list", "--sweep", sweep, "--limit", "10000"))


def measure(binaries, quick):
    jobs, ran = (500, 20) if quick else (10_000, 300)
    scale = jobs / 10_000
    with Controller(binaries) as controller:
        file = controller.folder / "sweep.toml"
        file.write_text(COMMAND)
        sweep = f"env.STEP=0..{jobs - 1}"
        submitted = Both(controller).run("submit", str(file), "--sweep", sweep, "--hold")
        plain = plain_sqlite_cpu(controller)
        results = Both(controller).run("results", "--sweep", submitted.said.strip(), "--json")
        Both(controller).run("cancel", "--sweep", submitted.said.strip())
        file.write_text(REPORTS)
        of_those_that_ran = controller.muster("submit", str(file), "--sweep", f"env.STEP=0..{ran - 1}", "--parallel", "8").strip()
        controller.wait(lambda: ended(controller, of_those_that_ran), 600, "the jobs' ends")
        told = Both(controller).run("results", "--sweep", of_those_that_ran, "--json")
        before = cpu_of(controller.daemon.pid)
        held = controller.folder / "job.toml"
        held.write_text("hold = true\n" + COMMAND)
        calls = accept_calls(controller, jobs, held)
        one_us = (cpu_of(controller.daemon.pid) - before) / jobs * 1e6
    return "\n".join([
        "# Sweeps", "", "| what | musterd, s of CPU | muster, s of CPU |", "|---|---|---|",
        f"| a sweep of {jobs} held jobs is submitted | {submitted.server:.2f} | {submitted.client:.2f} |",
        f"| SQLite alone writes the same rows | {plain:.2f} | - |",
        f"| `muster results` of these jobs, of which none has run | {results.server:.2f} | {results.client:.2f} |",
        f"| `muster results` of {ran} jobs that reported three steps each | {told.server:.2f} | {told.client:.2f} |", "",
        f"A submission by itself costs musterd {one_us:.0f} us of CPU: {jobs} calls from 64 callers, {jobs / calls['seconds']:.0f} a second."
    ]) + "\n", [
        Promise("CPU of musterd for a sweep of 10,000, s", submitted.server / scale, at_most=0.5),
        # The machine's speed is no part of this one.
        Promise("CPU of musterd for a sweep, times that of SQLite alone", submitted.server / plain, at_most=4),
        # A process of its own has a beginning.
        Promise("CPU of muster for a sweep of 10,000, s", submitted.client / scale, at_most=0.5 if not quick else 2),
        Promise("CPU of musterd for the results of 10,000 jobs, s", results.server / scale, at_most=0.5),
        Promise("CPU of musterd for one submission, us", one_us, at_most=340)]
