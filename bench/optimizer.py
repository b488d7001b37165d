"""What a step of the optimizer costs the host, whatever the parameters' size."""

import json
import subprocess

from promise import Promise

WORLDS = [(1, 0)] + [(8, rank) for rank in range(8)]


def measure(binaries, quick):
    rounds = 1 if quick else 5
    best = {}
    for _ in range(rounds):
        for world, rank in WORLDS:
            line = json.loads(subprocess.check_output([binaries / "optimizer_host", str(world), str(rank)]))
            if world not in best or (line["slices"], -line["us_a_unit"]) > (best[world]["slices"], -best[world]["us_a_unit"]):
                best[world] = line
    rows = [f"| {world} | {line['slices']} | {line['us_a_unit']:.1f} us |" for world, line in sorted(best.items())]
    return "\n".join([
        "# Host cost of the optimizer", "",
        "`AdamW::step()` of a model of 32 units. Each unit has the nine parameters of a small Llama layer, so arithmetic hardly",
        "counts. The number is the processor time of the calling thread per unit: the median of 100 steps, the best of",
        f"{rounds} runs. At world size 8 one process stands for one rank, and its transport moves nothing. The row is that of the",
        "rank that holds slices of the most parameters.", "",
        "| ranks | slices of a unit on the rank | host cost a unit |", "|---|---|---|"] + rows) + "\n", [
            Promise("host cost of the optimizer a unit at world size 8, in us", best[8]["us_a_unit"], at_most=5)]
