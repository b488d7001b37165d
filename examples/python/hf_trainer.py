"""A causal language model with the Trainer of transformers: one callback makes it a muster job."""

import os

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

import muster.hf

TEXT = (__doc__ or "") * 40


class Characters(torch.utils.data.Dataset):
    """Pieces of 32 bytes of a text."""

    def __init__(self, text: str) -> None:
        self.ids = torch.tensor(list(text.encode()))

    def __len__(self) -> int:
        return len(self.ids) - 32

    def __getitem__(self, index: int) -> dict:
        piece = self.ids[index:index + 32]
        return {"input_ids": piece, "labels": piece}


def main() -> None:
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=256, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=64))
    folder = os.environ.get("MUSTER_CHECKPOINT_FOLDER", "out")
    args = TrainingArguments(
        output_dir=folder, max_steps=int(os.environ.get("STEPS", "60")), per_device_train_batch_size=4, learning_rate=1e-3, logging_steps=5, save_steps=20,
        eval_strategy="steps", eval_steps=30, report_to=[], use_cpu=not torch.cuda.is_available(), disable_tqdm=True)
    data = Characters(TEXT)
    trainer = Trainer(model, args, train_dataset=data, eval_dataset=torch.utils.data.Subset(data, range(16)),
                      callbacks=[muster.hf.Callback()])
    trainer.train(resume_from_checkpoint=muster.hf.newest_checkpoint(folder))


if __name__ == "__main__":
    main()
