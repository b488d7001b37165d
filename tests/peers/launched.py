"""A training as people write it for torchrun, accelerate launch, or Lightning's own launcher: launched.py torch|fail|lightning"""

import os
import sys

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

    trainer = lightning.Trainer(max_steps=5, accelerator="cpu", devices=2, strategy="ddp", logger=False,
                                enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
                                default_root_dir=os.environ["MUSTER_CHECKPOINT_FOLDER"])
    trainer.fit(Model(), torch.utils.data.DataLoader(torch.randn(400, 4), batch_size=4))


if __name__ == "__main__":
    with_lightning() if sys.argv[1] == "lightning" else with_torch(sys.argv[1] == "fail")
