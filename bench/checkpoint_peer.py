"""Saves tensors with PyTorch's distributed checkpoint. One process for each rank, over Gloo.

Usage: checkpoint_peer.py FOLDER RANKS MIB. Prints one JSON line: the seconds of the second save, from a barrier until the
last rank has returned, and the bytes. The tensors are those of checkpoint_speed.cpp: parameters, exp_avg and exp_avg_sq
of 16 layers, divided among the ranks.
"""

import json
import os
import pathlib
import shutil
import sys
import time

import torch
import torch.distributed
import torch.distributed.checkpoint
import torch.multiprocessing

LAYERS = 16


def save(rank, folder, ranks, mib):
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=ranks)
    elements = (mib << 20) // 12 // LAYERS // ranks
    state = {f"rank{rank}/{kind}/layer{i}": torch.full((elements,), 0.5)
             for i in range(LAYERS) for kind in ("parameter", "exp_avg", "exp_avg_sq")}
    for step in (1, 2):
        target = pathlib.Path(folder) / f"step-{step}"
        if rank == 0:
            os.sync()
        torch.distributed.barrier()
        start = time.perf_counter()
        torch.distributed.checkpoint.save(state, checkpoint_id=target)
        torch.distributed.barrier()
        seconds = time.perf_counter() - start
        if rank == 0:
            written = sum(file.stat().st_size for file in target.iterdir())
            shutil.rmtree(target)
    if rank == 0:
        print(json.dumps({"save_s": seconds, "bytes": written, "torch": torch.__version__}), flush=True)
    torch.distributed.barrier()
    os._exit(0)  # Gloo's end of a process sometimes aborts it: "terminate called without an active exception"


if __name__ == "__main__":
    torch.multiprocessing.spawn(save, args=(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])), nprocs=int(sys.argv[2]))
