"""Runs the benchmarks and writes their results as Markdown beside this file.

Usage: run.py --bin FOLDER [--only NAME] [--quick]
Each result names the command, the machine and the counts. A benchmark is a function of the programs' folder and of
whether it is to be quick, to its text and what is promised of it.
Exit status: 0 if every promise holds, 1 otherwise, with one line for each that does not.
"""

import argparse
import datetime
import os
import pathlib
import platform
import sys

import activations
import agreement
import checkpoint
import collectives
import demo
import engine
import engine_gpu
import fault_latency
import heartbeats
import host_cost
import idle
import long_job
import many_ranks
import recipes
import reports
import slurm_crowd
import slurm_latency
import slurm_submit
import soak
import sweeps

BENCHMARKS = {"activations": activations.measure, "agreement": agreement.measure, "checkpoint": checkpoint.measure, "collectives": collectives.measure, "demo": demo.measure,
              "engine": engine.measure, "engine_gpu": engine_gpu.measure, "fault_latency": fault_latency.measure,
              "heartbeats": heartbeats.measure, "host_cost": host_cost.measure, "idle": idle.measure, "long_job": long_job.measure,
              "many_ranks": many_ranks.measure,
              "recipes": recipes.measure, "reports": reports.measure, "slurm_latency": slurm_latency.measure,
              "slurm_crowd": slurm_crowd.measure, "slurm_submit": slurm_submit.measure, "soak": soak.measure, "sweeps": sweeps.measure}
HERE = pathlib.Path(__file__).resolve().parent


def machine():
    model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown")
    memory = int(next(line.split()[1] for line in open("/proc/meminfo") if line.startswith("MemTotal"))) // 1024 ** 2
    return f"{os.cpu_count()} cores of {model}, {memory} GiB, Linux {platform.release().split('-')[0]}"


def main():
    parser = argparse.ArgumentParser(prog="./dev bench", description="Runs the benchmarks.")
    parser.add_argument("--bin", required=True)
    parser.add_argument("--only", choices=sorted(BENCHMARKS))
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds; writes no file")
    options = parser.parse_args()
    broken = []
    for name, measure in BENCHMARKS.items():
        if options.only not in (None, name):
            continue
        if name == "engine_gpu" and options.only is None and not engine_gpu.gpu():
            print("bench: engine_gpu is left out: no GPU here\n")
            continue
        text, promises = measure(pathlib.Path(options.bin).resolve(), options.quick)
        text += f"\nMeasured {datetime.date.today()} by `./dev bench --only {name}` on {machine()}.\n"
        print(text)
        if not options.quick:
            (HERE / f"{name}.md").write_text(text)
        broken += [promise for promise in promises if not promise.holds()]
    for promise in broken:
        print(f"bench: {promise}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
