"""A Lightning module as a muster job: a callback, and an environment for the ranks that muster has started."""

import os

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

import muster.lightning


class Regression(LightningModule):
    def __init__(self, lr: float = 0.05) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        loss = ((self.layer(batch[:, :4]) - batch[:, 4:]) ** 2).mean()
        self.log("loss", loss)
        if self.global_step % 10 == 9:
            print(f"step {self.global_step + 1} loss {loss.item():.6f}")
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=self.hparams["lr"])


def main() -> None:
    torch.manual_seed(0)
    rows = torch.randn(2048, 5)
    rows[:, 4] = rows[:, :4].sum(dim=1)
    callback = muster.lightning.Callback()
    saves = ModelCheckpoint(callback.folder, "step-{step}", every_n_train_steps=100, save_top_k=-1, auto_insert_metric_name=False)
    under_muster = muster.lightning.Environment.detect()
    trainer = Trainer(
        max_steps=int(os.environ.get("STEPS", "400")), accelerator="auto" if torch.cuda.is_available() else "cpu",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")), num_nodes=int(os.environ.get("MUSTER_NODES", "1")),
        strategy="ddp" if int(os.environ.get("WORLD_SIZE", "1")) > 1 else "auto",
        plugins=[muster.lightning.Environment()] if under_muster else [], callbacks=[callback, saves],
        logger=False, enable_progress_bar=False, max_epochs=-1)
    trainer.fit(Regression(), torch.utils.data.DataLoader(rows, batch_size=8), ckpt_path=callback.newest_checkpoint())


if __name__ == "__main__":
    main()
