"""All-gather and reduce-scatter between two processes of one machine, beside one memcpy of as many bytes."""

import json
import statistics
import subprocess

from promise import Promise

LARGE, SMALL = 64 * 1024 ** 2, 64 * 1024
WAYS = {"sockets": "sockets", "copied": "shared memory, other tensors", "shared": "shared memory, the engine's pools"}
NUMBERS = ("memcpy_ms", "all_gather_ms", "reduce_scatter_ms")


def run(binaries, way, size, rounds):
    return json.loads(subprocess.check_output([binaries / "collectives_bench", way, str(size), str(rounds)]))


def medians(lines):
    return {name: statistics.median(line[name] for line in lines) for name in NUMBERS}


def measure(binaries, quick):
    repeats, rounds = (1, 8) if quick else (7, 20)
    sizes = {LARGE: rounds, SMALL: 20 * rounds}
    lines = {(size, way): [] for size in sizes for way in WAYS}
    for _ in range(repeats):
        for (size, way), found in lines.items():
            found.append(run(binaries, way, size, sizes[size]))
    found = {which: medians(its) for which, its in lines.items()}
    # A memcpy that another process disturbs would flatter the collectives.
    memcpy = {size: min(line["memcpy_ms"] for (of, _), its in lines.items() if of == size for line in its) for size in sizes}
    rows = [f"| {size // 1024:,} KiB | memcpy by one process | {memcpy[size]:.3f} ms | |" for size in sizes]
    rows += [f"| {size // 1024:,} KiB | {WAYS[way]} | {its['all_gather_ms']:.3f} ms | {its['reduce_scatter_ms']:.3f} ms |"
             for (size, way), its in found.items()]
    shared = found[LARGE, "shared"]
    return "\n".join([
        "# Collectives between ranks of one node", "",
        "Two ranks on the CPU, fp32, one thread a rank. The size is that of the gathered buffer and of the reduce-scatter's input,",
        "and of the memcpy. A number is the time of the slowest rank from a common barrier on: the median of",
        f"{rounds} calls ({20 * rounds} of the small size), and of {repeats} runs. The memcpy is the fastest of the runs. The engine's",
        "pools lie in shared memory, so peers read them in place. Other tensors are copied there first.", "",
        "| size | over | all-gather | reduce-scatter |", "|---|---|---|---|"] + rows) + "\n", [
            Promise("all-gather of 64 MiB over shared memory, in memcpys", shared["all_gather_ms"] / memcpy[LARGE], at_most=2.5),
            Promise("reduce-scatter of 64 MiB over shared memory, in memcpys", shared["reduce_scatter_ms"] / memcpy[LARGE],
                    at_most=2.5)]
