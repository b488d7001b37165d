"""What a step costs the host, whatever the parameters' size: in the engine, and in the optimizer."""

import json
import subprocess

from promise import Promise

WORLDS = [(1, 0)] + [(8, rank) for rank in range(8)]


def best_of(lines):
    """Of equal runs the fastest, number by number. The engine's number is what it adds to the plain model."""
    return {"slices": lines[0]["slices"], "optimizer": min(line["optimizer_us"] for line in lines),
            "plain": min(line["plain_us"] for line in lines), "added": min(line["added_us"] for line in lines)}


def measure(binaries, quick):
    rounds = 1 if quick else 5
    lines = {place: [] for place in WORLDS}
    for _ in range(rounds):
        for place, of in lines.items():
            of.append(json.loads(subprocess.check_output([binaries / "host_cost", *map(str, place)])))
    ranks = {place: best_of(of) for place, of in lines.items()}
    worlds = {world: [best for (of, _), best in ranks.items() if of == world] for world in (1, 8)}
    added = {world: max(rank["added"] for rank in of) for world, of in worlds.items()}
    most = {world: max(rank["slices"] for rank in of) for world, of in worlds.items()}
    update = {world: max(rank["optimizer"] for rank in of if rank["slices"] == most[world]) for world, of in worlds.items()}
    rows = [f"| {world} | {added[world]:.1f} us | {most[world]} | {update[world]:.1f} us |" for world in worlds]
    return "\n".join([
        "# What a step costs the host", "",
        "A model of 32 units. Each unit has the nine parameters of a small Llama layer, so arithmetic hardly counts. A number is",
        "processor time of the calling thread per unit: the median of 100 steps, the best of",
        f"{rounds} runs, of the rank with the highest cost. At world size 8 one process stands for one rank, and its transport",
        "moves nothing. The engine's number is that of forward and backward beyond those of the same model without the engine,",
        f"whose gradients are added to as well, and which took {worlds[8][0]['plain']:.1f} us a unit in the same runs. The optimizer is",
        "`AdamW::step()`.", "",
        "| ranks | engine, a unit | slices of a unit on the rank | optimizer, a unit |", "|---|---|---|---|"] + rows) + "\n", [
            Promise("host cost of the engine a unit at world size 8, in us", added[8], at_most=20),
            Promise("host cost of the optimizer a unit at world size 8, in us", update[8], at_most=5)]
