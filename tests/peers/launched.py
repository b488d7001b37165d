"""A training as people write it for torchrun, accelerate launch, or Lightning's own launcher: launched.py torch|fail|lightning|loaders"""

import os
import sys
import time

import muster


def with_torch(fails):
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo")
    run = muster.init()
    total = torch.ones(1)
    dist.all_reduce(total)
    for step in range(1, 6):
        run.log(step, loss=1.0 / step, ranks=total.item())
    if fails and dist.get_rank() == 1:
        raise RuntimeError("loss is not finite at step 17")
    dist.barrier()
    dist.destroy_process_group()


class Slow:
    """A data set for forked loaders."""

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        time.sleep(0.002)
        return float(index)


def with_loaders():
    """A training with two forked data loaders that saves when it is asked to leave."""
    import torch
    run = muster.init(total_steps=2_000)
    saved = os.path.join(os.environ["MUSTER_CHECKPOINT_FOLDER"], "step")
    step = run.resume(int(open(saved).read()) if os.path.exists(saved) else 0)
    for _ in torch.utils.data.DataLoader(Slow(), batch_size=4, num_workers=2):
        step += 1
        run.log(step, loss=1.0 / step)
        if run.should_stop(step):
            with open(saved, "w") as file:
                file.write(str(step))
            run.checkpoint(saved, step)
            run.leave()
        if run.attempt == 2:
            return
        time.sleep(0.02)


def with_lightning():
    import lightning
    import torch

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch, index):
            return self.layer(batch).pow(2).mean()

        def on_train_batch_end(self, *more):
            muster.init().log(self.trainer.global_step, loss=1.0, ranks=self.trainer.world_size)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    trainer = lightning.Trainer(max_steps=5, accelerator="cpu", devices=2, num_nodes=int(os.environ["MUSTER_NODES"]),
                                strategy="ddp", logger=False, enable_checkpointing=False, enable_progress_bar=False,
                                enable_model_summary=False, default_root_dir=os.environ["MUSTER_CHECKPOINT_FOLDER"])
    trainer.fit(Model(), torch.utils.data.DataLoader(torch.randn(400, 4), batch_size=4))


if __name__ == "__main__":
    if sys.argv[1] == "lightning":
        with_lightning()
    elif sys.argv[1] == "loaders":
        with_loaders()
    else:
        with_torch(sys.argv[1] == "fail")
