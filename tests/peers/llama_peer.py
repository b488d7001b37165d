"""What Hugging Face computes, for comparison with muster's own Llama.

make FOLDER: builds tiny random models; each gets a folder with config.json, indexed safetensors and expected.safetensors
             (ids, targets, logits, loss, and "grad/<name>" for every parameter).
run FOLDER:  loads the model in FOLDER and writes the logits of FOLDER/ids.safetensors to FOLDER/logits.safetensors.
"""

import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

CASES = {
    "untied": dict(num_key_value_heads=4, tie_word_embeddings=False),
    "tied": dict(num_key_value_heads=4, tie_word_embeddings=True),
    "grouped": dict(num_key_value_heads=2, tie_word_embeddings=False, rope_theta=1e6),
    "one_kv_head": dict(num_key_value_heads=1, tie_word_embeddings=True, rms_norm_eps=1e-5),
}
SIZES = dict(
    vocab_size=259,
    hidden_size=32,
    intermediate_size=56,
    num_hidden_layers=3,
    num_attention_heads=4,
    max_position_embeddings=64,
    attention_bias=False,
    mlp_bias=False,
)


def make(folder: pathlib.Path) -> None:
    for seed, (name, case) in enumerate(CASES.items()):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(LlamaConfig(**{**SIZES, **case}))
        with torch.no_grad():  # norms start as ones: make their scale matter
            for key, parameter in model.named_parameters():
                parameter.mul_(3.0) if parameter.dim() > 1 else parameter.add_(0.1 * torch.randn_like(parameter))
        weights = model.state_dict()
        if name == "grouped":  # a bf16 file; both sides compute with the rounded numbers
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.copy_(parameter.bfloat16())
            weights = {key: value.bfloat16() for key, value in model.state_dict().items()}
        # Small files give an index.
        model.save_pretrained(folder / name, state_dict=weights, safe_serialization=True, max_shard_size="20KB")
        ids = torch.randint(0, SIZES["vocab_size"], (2, 33))
        inputs, targets = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
        logits = model(inputs, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
        loss.backward()
        out = {"ids": inputs, "targets": targets, "logits": logits.detach(), "loss": loss.detach()}
        for key, parameter in model.named_parameters():
            out["grad/" + key] = parameter.grad
        save_file({k: v.contiguous() for k, v in out.items()}, folder / name / "expected.safetensors")


def run(folder: pathlib.Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.float32)
    with torch.no_grad():
        logits = model(load_file(folder / "ids.safetensors")["ids"], use_cache=False).logits
    save_file({"logits": logits.contiguous()}, folder / "logits.safetensors")


if __name__ == "__main__":
    {"make": make, "run": run}[sys.argv[1]](pathlib.Path(sys.argv[2]))
