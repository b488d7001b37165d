"""A training of PyTorch on a GPU, in one of several ways: gpu_trainer.py sees|runs_out|hangs"""

import os
import sys

import muster
import torch
import torch.distributed as dist

STEPS = 12
HANGS_AT = 9
NEVER = 1 << 62  # cycles of the GPU's clock


def waits_for_the_gpu():
    torch.cuda.synchronize()


def main():
    how = sys.argv[1]
    print("GPUs:", torch.cuda.device_count(), flush=True)
    if how == "sees":
        return
    dist.init_process_group("nccl", device_id=torch.device("cuda", 0))
    run = muster.init(total_steps=STEPS)
    weight = torch.ones(1 << 20, device="cuda")
    for step in range(1, STEPS + 1):
        dist.all_reduce(weight)
        if how == "runs_out" and step == 3:
            torch.empty(1 << 46, dtype=torch.uint8, device="cuda")
        if how == "hangs" and run.attempt == 1 and step == HANGS_AT:
            torch.cuda._sleep(NEVER)
            waits_for_the_gpu()
        run.log(step, loss=weight[0].item() / step)
    print("reached the end", os.getpid(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
