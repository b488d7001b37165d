"""A training with the pauses of real ones: patient.py torch|lightning|transformers EVALUATION_S END_S

It imports for twenty seconds, trains, evaluates without a word in its middle, trains on, and ends long after its last step.
"""

import os
import sys
import time

IMPORT_S = 20
STEPS = 60

time.sleep(IMPORT_S)  # as an import from a shared disk

import muster  # noqa: E402
import torch  # noqa: E402


def with_torch(evaluation_s, end_s):
    """DDP as people write it: no section is named."""
    import torch.distributed as dist
    dist.init_process_group("gloo")
    run = muster.init(total_steps=STEPS)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, STEPS + 1):
        loss = model(torch.randn(8, 4)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log(step, loss=loss.item())
        time.sleep(0.05)
        if step == STEPS // 2:
            if dist.get_rank() == 0:
                time.sleep(evaluation_s)
            dist.barrier()
    dist.destroy_process_group()
    time.sleep(end_s)


def with_lightning(evaluation_s, end_s):
    from lightning.pytorch import LightningModule, Trainer

    import muster.lightning

    class Model(LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch, index):
            time.sleep(0.05)
            loss = self.layer(batch).pow(2).mean()
            self.log("loss", loss)
            return loss

        def validation_step(self, batch, index):
            time.sleep(evaluation_s)

        def on_train_end(self):
            time.sleep(end_s)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    rows = torch.randn(8 * STEPS, 4)
    under_muster = muster.lightning.Environment.detect()
    trainer = Trainer(
        max_steps=STEPS, accelerator="cpu", devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        strategy="ddp" if int(os.environ.get("WORLD_SIZE", "1")) > 1 else "auto",
        plugins=[muster.lightning.Environment()] if under_muster else [], callbacks=[muster.lightning.Callback()], logger=False,
        enable_progress_bar=False, enable_checkpointing=False, max_epochs=-1, num_sanity_val_steps=0, val_check_interval=STEPS // 2,
        limit_val_batches=1)
    loader = torch.utils.data.DataLoader(rows, batch_size=8)
    trainer.fit(Model(), loader, loader)


def with_transformers(evaluation_s, end_s):
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

    import muster.hf

    class Characters(torch.utils.data.Dataset):
        def __len__(self):
            return 4096

        def __getitem__(self, index):
            piece = torch.arange(index % 200, index % 200 + 32)
            return {"input_ids": piece, "labels": piece}

    class Patient(Trainer):
        def evaluate(self, *arguments, **more):
            time.sleep(evaluation_s)
            return super().evaluate(*arguments, **more)

    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=256, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=64))
    args = TrainingArguments(
        output_dir=os.environ["MUSTER_CHECKPOINT_FOLDER"], max_steps=STEPS, per_device_train_batch_size=2, logging_steps=5,
        save_strategy="no", eval_strategy="steps", eval_steps=STEPS // 2, report_to=[], use_cpu=True, disable_tqdm=True)
    Patient(model, args, train_dataset=Characters(), eval_dataset=torch.utils.data.Subset(Characters(), range(4)),
            callbacks=[muster.hf.Callback()]).train()
    time.sleep(end_s)


if __name__ == "__main__":
    {"torch": with_torch, "lightning": with_lightning, "transformers": with_transformers}[sys.argv[1]](
        float(sys.argv[2]), float(sys.argv[3]))
