"""Saves a model and its optimizer with PyTorch's distributed checkpoint. One process for each rank, over Gloo.

Usage: checkpoint_peer.py FOLDER RANKS MIB. Prints one JSON line:
  save_s       torch.distributed.checkpoint.save() of plain tensors: from a barrier until the last rank has returned
  fsdp2_s      the same of a model under FSDP2 with AdamW, as PyTorch's tutorial does it: get_state_dict(), then save()
  async_s      async_save() of that model: how long the slowest rank could not train; get_state_dict() is a part of it
  bytes, fsdp2_bytes   of the checkpoints
  torch        the version
Each way saves once to warm up, and the second time is measured. The sizes are those of checkpoint_speed.cpp: parameters,
exp_avg and exp_avg_sq of 16 layers, divided among the ranks.
"""

import json
import math
import os
import pathlib
import shutil
import sys
import time

import torch
import torch.distributed
import torch.distributed.checkpoint as checkpoint
import torch.multiprocessing
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.fsdp import fully_shard

LAYERS = 16


def plain_state(rank, ranks, mib):
    elements = (mib << 20) // 12 // LAYERS // ranks
    return {f"rank{rank}/{kind}/layer{i}": torch.full((elements,), 0.5)
            for i in range(LAYERS) for kind in ("parameter", "exp_avg", "exp_avg_sq")}


def sharded_model(ranks, mib):
    side = math.isqrt((mib << 20) // 12 // LAYERS) // ranks * ranks
    model = torch.nn.Sequential(*(torch.nn.Linear(side, side, bias=False) for _ in range(LAYERS)))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    model(torch.ones(2, side)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    return model, optimizer


class Saves:
    def __init__(self, rank, folder):
        self.rank = rank
        self.folder = pathlib.Path(folder)

    def measure(self, save):
        """`save` is called with the folder and returns what to wait for, or None. Returns the seconds of the second call,
        from a barrier until the last rank has returned, and the bytes."""
        for step in (1, 2):
            target = self.folder / f"step-{step}"
            if self.rank == 0:
                os.sync()
            torch.distributed.barrier()
            start = time.perf_counter()
            pending = save(target)
            torch.distributed.barrier()
            seconds = time.perf_counter() - start
            if pending is not None:
                pending.result()
                torch.distributed.barrier()
            if self.rank == 0:
                written = sum(file.stat().st_size for file in target.iterdir())
                shutil.rmtree(target)
        return seconds, written if self.rank == 0 else None


def run(rank, folder, ranks, mib):
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=ranks)
    saves = Saves(rank, folder)
    out = {"torch": torch.__version__}
    state = plain_state(rank, ranks, mib)
    out["save_s"], out["bytes"] = saves.measure(lambda target: checkpoint.save(state, checkpoint_id=target) and None)
    del state
    model, optimizer = sharded_model(ranks, mib)

    def whole():
        of_model, of_optimizer = get_state_dict(model, optimizer)
        return {"model": of_model, "optimizer": of_optimizer}

    out["fsdp2_s"], out["fsdp2_bytes"] = saves.measure(lambda target: checkpoint.save(whole(), checkpoint_id=target) and None)
    # The thread that saves communicates beside this one, so it needs a group of its own.
    of_thread = torch.distributed.new_group(backend="gloo")
    out["async_s"], _ = saves.measure(lambda target: checkpoint.async_save(whole(), checkpoint_id=target, process_group=of_thread))
    if rank == 0:
        print(json.dumps(out), flush=True)
    torch.distributed.barrier()
    os._exit(0)  # Gloo's end of a process sometimes aborts it: "terminate called without an active exception"


if __name__ == "__main__":
    torch.multiprocessing.spawn(run, args=(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])), nprocs=int(sys.argv[2]))
