"""The table of first_contact.py: what was measured, beside torchtitan's published numbers."""

import datetime
import os

import model_flops
from first_contact_plan import OF_GPUS, PARTS

# pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, table 1; their sequences have 8,192 tokens.
PUBLISHED = (("torchtitan, FSDP2 compiled (published)", 6667, 77.0), ("torchtitan, FSDP2 (published)", 5762, 82.4))
PUBLISHED_SHAPE, PUBLISHED_GPU, PUBLISHED_POSITIONS, PUBLISHED_BATCH = model_flops.SHAPES[0], "H100", 8192, 2
PUBLISHED_NOTE = """Published: Llama 3.1 8B on 8 H100 (SXM, 96 GB HBM2e, 500 W) with NVLink, 2 sequences of 8,192 tokens a GPU, selective
recomputation, torch of 2024-12-23; memory is what the allocator reserved. Source: benchmarks/llama3_h100_202412_torchtitan.md of
pytorch/torchtitan, table 1. Step and MFU follow from its tokens/s."""


def row(what, ranks, step_ms, tokens_per_s, memory_gib, mfu):
    cells = [what, str(ranks), f"{step_ms:,.0f} ms" if step_ms >= 100 else f"{step_ms:.1f} ms", f"{tokens_per_s:,.0f}",
             "-" if memory_gib is None else f"{memory_gib:.1f} GiB" if memory_gib >= 1 else f"{memory_gib * 1024:.1f} MiB",
             "-" if mfu is None else f"{100 * mfu:.1f} %"]
    return f"| {' | '.join(cells)} |"


def measured_row(plan, what, of):
    peak = None if plan.cpu else model_flops.peak_flops(plan.machine.name)
    speed = plan.tokens() / of["step_ms"] * 1e3
    memory = of["memory_bytes"] and of["memory_bytes"] / 2**30
    return row(what, plan.ranks, of["step_ms"], speed, memory, peak and model_flops.utilisation(plan.shape, plan.sequence, speed, peak))


def published_rows():
    peak = model_flops.peak_flops(PUBLISHED_GPU)
    for what, speed, memory in PUBLISHED:
        step_ms = PUBLISHED_BATCH * PUBLISHED_POSITIONS / speed * 1e3
        yield row(what, 8, step_ms, speed, memory, model_flops.utilisation(PUBLISHED_SHAPE, PUBLISHED_POSITIONS, speed, peak))


def told(part, of):
    """One line for what is no number of the table."""
    if "failed" in of:
        return f"FAILED: {of['failed']}"
    if part == "kill":
        return (f"rank {of['rank']} was killed ({of['reason']}); attempt 2 resumed from step {of['resumed_from']} of {of['last']}, its first "
                f"step is {of['first']}, {of['seconds']:.1f} s after the kill")
    if part == "stop":
        return (f"a requeue lost no step: attempt 2 resumed from step {of['resumed_from']}, its first step is {of['first']}, {of['seconds']:.1f} s "
                f"after the request; a cancel left the checkpoint of the last step, {of['cancelled_at']}")
    if part in OF_GPUS:
        return of["said"]
    return f"{of['steps']} steps, loss {of['losses'][0]:.3f} to {of['losses'][-1]:.3f}" if "steps" in of else f"torch {of['torch']}"


def apart(results):
    """The largest relative difference of the losses of both modes in their first 20 steps; None: one of them is missing."""
    two, one = (results.get(part, {}).get("losses") for part in ("two_communicators", "one_communicator"))
    return max(abs(a - b) / abs(b) for a, b in zip(two[:20], one[:20])) if two and one else None


def table(plan, results):
    whats = {"two_communicators": "muster, reductions on a communicator of their own", "one_communicator": "muster, one communicator",
             "fsdp2": f"FSDP2, compiled, torch {results.get('fsdp2', {}).get('torch', '')}"}
    measured = [measured_row(plan, what, results[part]) for part, what in whats.items() if "step_ms" in results.get(part, {})]
    shape = plan.shape
    lines = [f"# First contact: {plan.of_ranks()}", "",
             f"Llama of {shape.parameters():,} parameters ({shape.name}: {shape.layers} layers of width {shape.width}), random weights, "
             f"{plan.batch} sequences of {plan.sequence:,} tokens a rank in a step, {'fp32' if plan.cpu else 'bf16 with fp32 masters'}, each block "
             "computed again in backward.", f"MFU counts 6 N + 12 l h q t FLOPs a token: {shape.flops_per_token(plan.sequence) / 1e9:.4g} GFLOPs here "
             "(bench/model_flops.py). Memory is the most that tensors took on a rank.", "",
             "| what | ranks | step | tokens/s a rank | memory a rank | MFU |", "|---|---|---|---|---|---|", *measured, *published_rows(), "",
             PUBLISHED_NOTE, "", *(f"- {part}: {told(part, results[part])}" for part in PARTS if part in results)]
    if (difference := apart(results)) is not None:
        lines.append(f"- losses of both modes differ by {difference:.1e} at most in their first 20 steps")
    return "\n".join([*lines, "", f"Measured {datetime.date.today()} by `bench/first_contact.sh`"
                      f"{'' if plan.cpu else f', driver {plan.machine.driver}'}, {os.cpu_count()} cores.", ""])
