"""Two ranks of PyTorch that hang after step 8 of attempt 1: torch_hangs.py collective|loader|barrier"""

import os
import sys
import threading
import time

import muster
import torch
import torch.distributed as dist

STEPS = 12
HANGS_AT = 9
HANGS = sys.argv[1]


class Samples(torch.utils.data.Dataset):
    def __init__(self, rank, attempt):
        self.hangs = HANGS == "loader" and (rank, attempt) == (1, 1)

    def __len__(self):
        return STEPS

    def __getitem__(self, index):
        if self.hangs and index == HANGS_AT - 1:
            print("the loader is", os.getpid(), flush=True)
            time.sleep(3600)
        return torch.ones(4) * index


def prepares_forever():
    time.sleep(3600)


def reduces(gradient):
    dist.all_reduce(gradient)


def saves_together(rank):
    if rank == 1:
        threading.Event().wait()  # for a writer that nobody has started
    dist.barrier()


def main():
    dist.init_process_group("gloo")
    run = muster.init(total_steps=STEPS)
    rows = torch.utils.data.DataLoader(Samples(run.rank, run.attempt), num_workers=1, prefetch_factor=2)
    for step, row in enumerate(rows, 1):
        if run.attempt == 1 and step == HANGS_AT:
            if HANGS == "collective" and run.rank == 1:
                prepares_forever()
            if HANGS == "barrier":
                saves_together(run.rank)
        reduces(row)
        run.log(step, loss=1.0 / step)
        time.sleep(0.1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
