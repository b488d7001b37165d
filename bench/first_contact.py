"""First contact with the GPUs of a machine, in one command: tests, both communicator modes, a kill, a stop, and one table.

Its parts run in this order, and each can be run alone (--only):
  build              the programs of the preset cuda
  tests              ./dev test --preset cuda -L gpu, where a skip for want of GPUs is a failure
  two_communicators  a training of --steps steps whose reductions have a communicator of their own
  one_communicator   the same training with one communicator for gathers and reductions
  kill               SIGKILL of a rank between two checkpoints; the job resumes by itself
  stop               muster requeue, which saves and goes on, then muster cancel, which saves and ends
  fsdp2              the same model under PyTorch's FSDP2, compiled

The model is the largest of bench/model_flops.py that fits, with random weights: Llama 3.1 8B on 8 GPUs of 80 GB. One GPU
communicates nothing, so two_communicators is left out there. Results are kept in --folder, and the table shows all that were
measured with the same model, batch and machine. --cpu tells the same story with two ranks and a tiny model on CPUs, without build
and tests. Exit status: 0 if every part that ran did what it should, 1 otherwise, and where there is no GPU.
"""

import argparse
import json
import pathlib
import shlex
import signal
import subprocess
import sys

import model_flops
from first_contact_parts import DO
from first_contact_plan import CPU_RANKS, OF_GPUS, PARTS, ROOT, Failed, Machine, Plan, dev_command, job_text, look_at_gpus, peer_command
from first_contact_table import table, told

NEEDED_DRIVER = 580  # docs/gpus.md


def kept(plan):
    """Results of earlier runs with the same setup."""
    file = plan.folder / "results.json"
    try:
        found = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return found["parts"] if found.get("setup") == plan.setup() else {}


def keep(plan, results):
    file = plan.folder / "results.json"
    file.with_suffix(".new").write_text(json.dumps({"setup": plan.setup(), "parts": results}, indent=1))
    file.with_suffix(".new").replace(file)
    (plan.folder / "table.md").write_text(table(plan, results))


def show_plan(plan, parts):
    say(f"{plan.of_ranks()}: {plan.shape.name}, {plan.batch} sequences of {plan.sequence} tokens a rank, {plan.steps} steps; about "
        f"{plan.shape.rank_bytes(plan.ranks, plan.tokens()) / 2**30:.1f} GiB a rank, two checkpoints of "
        f"{model_flops.CHECKPOINT_BYTES * plan.shape.parameters() / 1e9:.1f} GB in {plan.folder}")
    for part in parts:
        if part in OF_GPUS:
            say(f"\n{part}: MUSTER_EXPECT_GPUS={plan.machine.seen} {shlex.join(dev_command(part))}")
        elif part == "fsdp2":
            say(f"\n{part}: {shlex.join(peer_command(plan))}")
        else:
            say(f"\n{part}: {shlex.join([str(plan.binaries / 'muster'), 'submit', '-'])} of\n{job_text(plan, part)}")


def say(text):
    print(text, flush=True)


def parse(argv):
    parser = argparse.ArgumentParser(prog="bench/first_contact.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="these parts alone, with commas between")
    parser.add_argument("--steps", type=int, help="steps of a training that is measured (1000; with --cpu 40)")
    parser.add_argument("--gpus", type=int, help="train on this many GPUs (all that are seen)")
    parser.add_argument("--shape", choices=[shape.name for shape in model_flops.SHAPES], help="the model (the largest that fits)")
    parser.add_argument("--sequence", type=int, default=8192, help="tokens of a sequence")
    parser.add_argument("--batch", type=int, default=2, help="sequences of a rank in a step")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build" / "first-contact", help="logs, checkpoints, results and table")
    parser.add_argument("--bin", type=pathlib.Path, help="the programs (build/cuda/bin; with --cpu build/dev/bin)")
    parser.add_argument("--cpu", action="store_true", help="the story on CPUs: two ranks, a tiny model, no build and no tests")
    parser.add_argument("--dry", action="store_true", help="print plan, commands and job files, and do nothing")
    options = parser.parse_args(argv)
    for name in ("steps", "gpus", "sequence", "batch"):
        if getattr(options, name) is not None and getattr(options, name) < (4 if name == "steps" else 1):
            parser.error(f"--{name} {getattr(options, name)}: want a whole number of at least {4 if name == 'steps' else 1}")
    return options


def plan_of(options, machine):
    """Raises Failed where this machine cannot do it."""
    folder = options.folder.resolve()
    if options.cpu:
        return Plan(machine, CPU_RANKS, model_flops.TINY, 64, 2, options.steps or 40, True,
                    (options.bin or ROOT / "build" / "dev" / "bin").resolve(), folder)
    if machine.seen == 0:
        raise Failed("nvidia-smi shows no GPU on this machine; --cpu tells the story on CPUs")
    if int(machine.driver.split(".")[0]) < NEEDED_DRIVER:
        raise Failed(f"the driver is {machine.driver}, and LibTorch for CUDA 13 needs {NEEDED_DRIVER} or newer")
    ranks = options.gpus or machine.seen
    if ranks > machine.seen:
        raise Failed(f"--gpus {ranks}: nvidia-smi shows {machine.seen}")
    named = next((shape for shape in model_flops.SHAPES if shape.name == options.shape), None)
    shape = named or model_flops.largest_that_fits(ranks, options.batch * options.sequence, machine.memory_bytes)
    if shape is None:
        raise Failed(f"no model fits into {machine.memory_bytes / 2**30:.0f} GiB with {options.batch} sequences of {options.sequence} tokens: "
                     "lower --batch or --sequence, or name a --shape")
    return Plan(machine, ranks, shape, options.sequence, options.batch, options.steps or 1000, False,
                (options.bin or ROOT / "build" / "cuda" / "bin").resolve(), folder)


def parts_of(options, plan):
    chosen = options.only.split(",") if options.only else [part for part in PARTS if not (plan.cpu and part in OF_GPUS)]
    for part in chosen:
        if part not in PARTS:
            raise Failed(f"--only {part}: want some of {', '.join(PARTS)}")
        if plan.cpu and part in OF_GPUS:
            raise Failed(f"--only {part}: it is for GPUs; leave out --cpu")
    if plan.ranks == 1 and "two_communicators" in chosen:
        say("two_communicators is left out: one rank communicates nothing")
        chosen = [part for part in chosen if part != "two_communicators"]
    return [part for part in PARTS if part in chosen]


def run(plan, parts):
    """Runs the parts and keeps what each told. Returns those that failed."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    results, failed = kept(plan), []
    for part in parts:
        say(f"{part} begins")
        try:
            results[part] = DO[part](plan, part)
        except (Failed, TimeoutError, OSError, subprocess.SubprocessError) as error:
            results[part] = {"failed": str(error)}
            failed.append(part)
        say(f"{part}: {told(part, results[part])}")
        keep(plan, results)
    print("", table(plan, results), f"kept in {plan.folder}", sep="\n")
    return failed


def main(argv):
    options = parse(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # through the ends of blocks, which stop the ranks
    try:
        plan = plan_of(options, Machine(0) if options.cpu else look_at_gpus())
        parts = parts_of(options, plan)
    except Failed as error:
        print(f"first_contact: {error}", file=sys.stderr)
        return 1
    if options.dry:
        show_plan(plan, parts)
        return 0
    return 1 if run(plan, parts) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
