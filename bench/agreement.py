"""Agreement of ranks on a step, over the tree of control(): 2 to 512 processes of one machine that hold no model."""

import json
import statistics
import subprocess

from promise import Promise

WORLDS = (2, 4, 8, 16, 32, 64)
MOST = 512


def run(binaries, how, ranks, times):
    done = subprocess.run([binaries / "agreement_bench", how, str(ranks), str(times)], capture_output=True, text=True)
    if done.returncode != 0:  # otherwise c10d's warnings, one a rank
        raise SystemExit(f"agreement_bench: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def median(values):
    return statistics.median(values)


def median_ratio(line, ours, theirs):
    return median([mine / other for mine, other in zip(line[ours], line[theirs])])


def measure(binaries, quick):
    worlds, rounds, steps = (WORLDS[:3], 5, 50) if quick else (WORLDS, 21, 1000)
    pairs = {ranks: run(binaries, "pairs", ranks, rounds) for ranks in worlds}
    world = run(binaries, "tree", MOST, steps)
    ratios = {ranks: median_ratio(line, "tree_ms", "mesh_ms") for ranks, line in pairs.items()}
    rows = [f"| {ranks} | {median(line['tree_ms']):.3f} ms | {median(line['mesh_ms']):.3f} ms | {ratios[ranks]:.2f} "
            f"| {median(line['tree_waits_ms']):.3f} ms | {median(line['mesh_waits_ms']):.3f} ms "
            f"| {2 * (ranks - 1)} and {ranks * (ranks - 1)} | {line['tree_connections']} and {line['mesh_connections']} |"
            for ranks, line in pairs.items()]
    text = "\n".join([
        "# Agreement of ranks on a step", "",
        "In each step the ranks of a training agree on losses, weights and stops (worker/train/agreement.cpp). Here processes of",
        "one machine do that over loopback. They hold no model, but a mesh's watcher, its connections and those to the store.",
        "\"Tree\" is the transport of control(): sums go up, and come down again. \"Full mesh\" is how hosts agreed before: a",
        "connection between every two ranks, and an all-gather of every rank's row.", "",
        f"The first columns are steps one after the other: medians of {rounds} rounds of 50 steps, tree and full mesh in turn. The",
        "ratio is the median of the rounds' ratios. The waits are those of the slowest rank after 5 ms of something else, as a",
        "backward: what of an agreement that does not hide. A mesh of two ranks takes the one connection of the full mesh.", "",
        "| ranks | tree | full mesh | ratio | tree, wait | full mesh, wait | messages a step | connections of rank 0 |",
        "|---|---|---|---|---|---|---|---|"] + rows + ["",
        f"## {MOST} ranks", "",
        "| what | |", "|---|---|",
        f"| steps | {world['steps']:,} |",
        f"| a step, median | {world['step_ms']:.1f} ms |",
        f"| a step, 99 of 100 | {world['step_99_ms']:.1f} ms |",
        f"| messages a step, all ranks | {world['messages_a_step']:.0f} |",
        f"| connections of rank 0 in the tree; most of any rank | {world['connections']}; {world['most_connections']:.0f} |",
        f"| sockets of rank 0, with those of store and watcher | {world['sockets_of_rank_0']} |",
        f"| from the first fork until all had met | {world['meeting_s']:.1f} s |",
        "",
        "All processes share this machine's cores, so a step here is the work of all ranks one after the other. On machines of",
        f"their own the ranks work at one time, and a step is the way of 17 messages that follow one another.", ""])
    return text, [
        Promise(f"messages a step of {MOST} ranks", world["messages_a_step"], at_most=2 * (MOST - 1), at_least=2 * (MOST - 1)),
        Promise(f"connections of a rank of {MOST} in the tree", world["most_connections"], at_most=9),
        Promise(f"sockets of rank 0 of {MOST}", world["sockets_of_rank_0"], at_most=2 * MOST + 32),
        Promise(f"milliseconds a step of {MOST} ranks on this machine", world["step_ms"], at_most=100)] + [
        Promise(f"a step of {ranks} ranks over the tree, in steps over the full mesh", ratios[ranks], at_most=1.1)
        for ranks in (4, 8)]
