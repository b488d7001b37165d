"""PyTorch's own FSDP2 with distributed checkpoints, under muster: curves, a true FROM, and orderly stops.

Needs PyTorch 2.6 or newer. On CPUs it runs over Gloo.
"""

import os
import pathlib
import shutil

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import muster

STEPS, SAVE_EVERY, KEEP = int(os.environ.get("STEPS", "120")), 40, 2


def newest(folder: pathlib.Path) -> int:
    """The step of the newest whole checkpoint: DCP writes .metadata last. 0: there is none."""
    return max((int(one.parent.name[5:]) for one in folder.glob("step-*/.metadata")), default=0)


def load(folder: pathlib.Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    step = newest(folder)
    if step > 0:
        model_state, optimizer_state = get_state_dict(model, optimizer)
        dcp.load({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=folder / f"step-{step}")
        set_state_dict(model, optimizer, model_state_dict=model_state, optim_state_dict=optimizer_state)
    return step


def save(folder: pathlib.Path, step: int, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> pathlib.Path:
    path = folder / f"step-{step}"
    model_state, optimizer_state = get_state_dict(model, optimizer)
    dcp.save({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=path)
    if dist.get_rank() == 0:
        for old in sorted(folder.glob("step-*"), key=lambda one: int(one.name[5:]))[:-KEEP]:
            shutil.rmtree(old, ignore_errors=True)
    return path


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    run = muster.init(total_steps=STEPS, config={"lr": 1e-2, "width": 64})
    folder = pathlib.Path(run.checkpoint_folder or "checkpoints")

    torch.manual_seed(0)
    layers = [torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)]
    model = torch.nn.Sequential(*layers).to(device)
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    for layer in layers:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    for step in range(run.resume(lambda: load(folder, model, optimizer)) + 1, STEPS + 1):
        torch.manual_seed(step * dist.get_world_size() + dist.get_rank())  # another batch for each rank and step
        inputs = torch.randn(32, 64, device=device)
        loss = (model(inputs).squeeze(1) - inputs.sum(1).tanh()).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        run.log(step, loss=loss)
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.6f}")
        stops = run.should_stop(step)
        if stops or step % SAVE_EVERY == 0:
            with run.section("checkpoint"):
                path = save(folder, step, model, optimizer)
            run.checkpoint(path, step)
        if stops:
            run.leave()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
