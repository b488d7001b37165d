"""A training with the pauses of real ones: patient.py torch|lightning|transformers|accelerate|plain [NAME=VALUE]...

It may import for seconds, download before its first step, evaluate in its middle with or without a word, pause between two steps
of all ranks, and end long after its last step. The names are those of PAUSES, in seconds; `talks` is 0 or 1.
"""

import os
import sys
import time

PAUSES = {"imports": 0.0, "downloads": 0.0, "evaluates": 0.0, "gap": 0.0, "ends": 0.0, "talks": 0.0}
PAUSES.update((name, float(value)) for name, value in (word.split("=") for word in sys.argv[2:]))
STEPS = 160
STEP_S = 0.1  # so what is usual is known when the pause comes

time.sleep(PAUSES["imports"])  # as an import from a shared disk

RANK = int(os.environ.get("RANK", "0"))


def pause(name):
    """Once, without a word or with a line every few seconds. Trainers evaluate at their end, too."""
    until = time.monotonic() + PAUSES.pop(name, 0.0)
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, 5.0) if PAUSES["talks"] else left)
        if PAUSES["talks"]:
            print(f"{name}: {left:.0f} s are left", flush=True)


def trains(run, model, optimizer, batches, backward, barrier):
    """The loop of people: no section is named."""
    pause("downloads")
    for step, batch in enumerate(batches, 1):
        loss = model(batch).pow(2).mean()
        optimizer.zero_grad()
        backward(loss)
        optimizer.step()
        run.log(step, loss=loss.item())
        time.sleep(STEP_S)
        if step == STEPS // 2:
            pause("gap")
            if RANK == 0:
                pause("evaluates")
            barrier()


def with_torch():
    import muster
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo")
    run = muster.init(total_steps=STEPS)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    trains(run, model, optimizer, (torch.randn(8, 4) for _ in range(STEPS)), lambda loss: loss.backward(), dist.barrier)
    dist.destroy_process_group()
    pause("ends")


def with_accelerate():
    import muster
    import torch
    from accelerate import Accelerator
    accelerator = Accelerator(cpu=True)
    run = muster.init(total_steps=STEPS)
    model = torch.nn.Linear(4, 1)
    rows = torch.utils.data.DataLoader(torch.randn(8 * STEPS * accelerator.num_processes, 4), batch_size=8)
    model, optimizer, rows = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01), rows)
    trains(run, model, optimizer, rows, accelerator.backward, accelerator.wait_for_everyone)
    accelerator.end_training()
    pause("ends")


def with_lightning():
    import torch
    from lightning.pytorch import LightningModule, Trainer

    import muster.lightning

    class Model(LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def on_train_start(self):
            pause("downloads")

        def training_step(self, batch, index):
            time.sleep(STEP_S)
            if index == STEPS // 2:
                pause("gap")
            loss = self.layer(batch).pow(2).mean()
            self.log("loss", loss)
            return loss

        def validation_step(self, batch, index):
            pause("evaluates")

        def on_train_end(self):
            pause("ends")

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    world = int(os.environ.get("WORLD_SIZE", "1"))
    rows = torch.randn(8 * STEPS * world, 4)
    under_muster = muster.lightning.Environment.detect()
    trainer = Trainer(
        max_steps=STEPS, accelerator="cpu", devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")), strategy="ddp" if world > 1 else "auto",
        plugins=[muster.lightning.Environment()] if under_muster else [], callbacks=[muster.lightning.Callback()], logger=False,
        enable_progress_bar=False, enable_checkpointing=False, max_epochs=-1, num_sanity_val_steps=0, val_check_interval=STEPS // 2,
        limit_val_batches=1)
    loader = torch.utils.data.DataLoader(rows, batch_size=8)
    trainer.fit(Model(), loader, loader)


def with_transformers():
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

    import muster.hf

    class Characters(torch.utils.data.Dataset):
        def __len__(self):
            return 4096

        def __getitem__(self, index):
            piece = torch.arange(index % 200, index % 200 + 32)
            return {"input_ids": piece, "labels": piece}

    class Patient(Trainer):
        def training_step(self, *arguments, **more):
            time.sleep(STEP_S)
            return super().training_step(*arguments, **more)

        def evaluate(self, *arguments, **more):
            pause("evaluates")
            return super().evaluate(*arguments, **more)

    pause("downloads")
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=256, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=64))
    args = TrainingArguments(
        output_dir=os.environ["MUSTER_CHECKPOINT_FOLDER"], max_steps=STEPS, per_device_train_batch_size=2, logging_steps=5,
        save_strategy="no", eval_strategy="steps", eval_steps=STEPS // 2, report_to=[], use_cpu=True, disable_tqdm=True)
    Patient(model, args, train_dataset=Characters(), eval_dataset=torch.utils.data.Subset(Characters(), range(4)),
            callbacks=[muster.hf.Callback()]).train()
    pause("ends")


def without_muster():
    """What [report] finds in its log is all that muster knows."""
    pause("downloads")
    for step in range(1, STEPS + 1):
        print(f"step {step} loss {1 / step:.4f}", flush=True)
        time.sleep(STEP_S)
        if step == STEPS // 2:
            pause("gap")
            pause("evaluates")
    pause("ends")


if __name__ == "__main__":
    {"torch": with_torch, "accelerate": with_accelerate, "lightning": with_lightning, "transformers": with_transformers,
     "plain": without_muster}[sys.argv[1]]()
