"""What saving a checkpoint costs, beside PyTorch's distributed checkpoint and beside plain writes to the same disk."""

import json
import os
import pathlib
import statistics
import subprocess
import tempfile

from promise import Promise

HERE = pathlib.Path(__file__).resolve().parent
RANKS = 2


def measured(command):
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
        output = subprocess.check_output([*command[:1], *command[1:-1], folder, str(RANKS), command[-1]], text=True)
    return json.loads(output.strip().splitlines()[-1])


def median(rows, value):
    return statistics.median(value(row) for row in rows)


def measure(binaries, quick):
    mib, rounds = ("256", 3) if quick else ("1536", 9)
    peer = os.environ.get("MUSTER_PEER_PYTHON", "")
    rows = []
    for turn in range(rounds):
        ways = ["ours", "peer"] if peer else ["ours"]
        row = {}
        for way in ways if turn % 2 == 0 else reversed(ways):  # neither always finds the disk as the other left it
            row[way] = measured([binaries / "checkpoint_speed", mib] if way == "ours" else
                                [peer, "-B", HERE / "checkpoint_peer.py", mib])
        rows.append(row)

    def speed(way, kind):
        return median(rows, lambda row: row[way]["bytes"] / row[way][kind] / 1e9)

    of_plain = median(rows, lambda row: row["ours"]["plain_s"] / row["ours"]["save_s"])
    of_copy = median(rows, lambda row: row["ours"]["blocked_copies"])
    promises = [Promise("a save's speed as a part of plain direct writes", of_plain, at_least=0.85),
                Promise("how long a save beside training blocks, in copies of its tensors", of_copy, at_most=1.05)]
    table = [f"| `Checkpointer::save()` | {speed('ours', 'save_s'):.2f} GB/s |",
             f"| as many bytes written directly (`O_DIRECT`, 16 MiB a write, `fdatasync`) | {speed('ours', 'plain_s'):.2f} GB/s |"]
    removal = 1e3 * median(rows, lambda row: row["ours"]["removal_s"])
    text = [f"A save reaches {of_plain:.0%} of plain direct writes. A thread then removes the checkpoint before it, which takes",
            f"{removal:.0f} ms."]
    blocked, copy, beside = (1e3 * median(rows, lambda row: row["ours"][kind]) for kind in ("blocked_s", "copy_s", "beside_s"))
    beside_text = [f"`begin_save()` blocks the training for {blocked:.0f} ms. A bare copy of the same tensors takes {copy:.0f} ms, so the ratio is",
                   f"{of_copy:.2f}. The checkpoint is on disk, and the one before is removed, {beside:.0f} ms after the call."]
    if peer:
        def faster(kind, size):
            return median(rows, lambda row: row["peer"][kind] / row["peer"][size] / (row["ours"]["save_s"] / row["ours"]["bytes"]))

        def speed_of_peer(kind, size):
            return median(rows, lambda row: row["peer"][size] / row["peer"][kind] / 1e9)

        of_tensors, of_fsdp2 = faster("save_s", "bytes"), faster("fsdp2_s", "fsdp2_bytes")
        stall = median(rows, lambda row: row["peer"]["async_s"] / row["peer"]["fsdp2_bytes"] / (row["ours"]["blocked_s"] / row["ours"]["bytes"]))
        promises.append(Promise("a save's speed in saves of PyTorch's distributed checkpoint", of_fsdp2, at_least=3))
        table += [f"| `torch.distributed.checkpoint.save()` of torch {rows[0]['peer']['torch']}, its defaults, plain tensors | "
                  f"{speed_of_peer('save_s', 'bytes'):.2f} GB/s |",
                  f"| the same, of a model under FSDP2 and its AdamW, with `get_state_dict()` | {speed_of_peer('fsdp2_s', 'fsdp2_bytes'):.2f} GB/s |"]
        text.append(f"It is {of_tensors:.1f} times as fast as PyTorch's distributed checkpoint of plain tensors, and {of_fsdp2:.1f} times as fast "
                    "as that of a model under FSDP2.")
        plain = speed("ours", "plain_s")
        text.append(f"\nPyTorch's saves reach {speed_of_peer('save_s', 'bytes') / plain:.0%} and {speed_of_peer('fsdp2_s', 'fsdp2_bytes') / plain:.0%} "
                    "of plain direct writes. No save can be much faster than those, so that is the limit of these ratios on this disk.")
        beside_text.append(f"PyTorch's `async_save()` of as many bytes blocks the training {stall:.1f} times as long.")
    return "\n".join([
        "# Saving a checkpoint", "",
        f"A model with AdamW on {RANKS} ranks, {mib} MiB in the files of a checkpoint. Each way saves once to warm up and once",
        f"more to be measured, from a barrier until the last rank has its checkpoint on disk. The numbers are medians of {rounds}",
        "rounds. The rounds take turns in which way comes first. Ratios are medians over the rounds, too.", "",
        "| way | speed |", "|---|---|", *table, "", " ".join(text), "",
        *beside_text]) + "\n", promises
