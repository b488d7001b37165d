"""What Hugging Face computes, for comparison with muster's own models.

make FOLDER FAMILY: builds tiny random models of a family. Each case gets a folder with config.json, indexed safetensors and
                    expected.safetensors: inputs, outputs, loss, and "grad/<name>" for every parameter.
run FOLDER FAMILY:  loads the model in each folder below FOLDER and writes what it makes of its inputs.safetensors to
                    outputs.safetensors beside it.

A new family is one entry of FAMILIES.
"""

import json
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    BertForSequenceClassification,
    BertModel,
    Dinov2Config,
    Dinov2ForImageClassification,
    Dinov2Model,
    Dinov2WithRegistersConfig,
    Dinov2WithRegistersForImageClassification,
    Dinov2WithRegistersModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

VOCABULARY = 259


def as_transformers_5(folder):
    """Spells config.json as transformers 5 does: RoPE in one object, and "dtype"."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_scaling", None) or {"rope_type": "default"}
    config["rope_parameters"] = {**rope, "rope_theta": config.pop("rope_theta", None) or config["rotary_emb_base"]}
    if config.pop("rotary_emb_base", None):
        config["rope_parameters"]["partial_rotary_factor"] = config.pop("rotary_pct")
    config["dtype"] = config.pop("torch_dtype", "float32")
    path.write_text(json.dumps(config))


class Causal:
    """A decoder: ids and targets give logits and the mean cross entropy."""

    def __init__(self, config, model, sizes, cases, bf16=(), spelt_as_5=()):
        self.config, self.model, self.sizes, self.cases = config, model, sizes, cases
        self.bf16, self.spelt_as_5 = bf16, spelt_as_5

    def build(self, case):
        return self.model(self.config(**{**self.sizes, **self.cases[case]}))

    def rewrite(self, case, folder):
        """Changes a folder that save_pretrained() has written."""
        if case in self.spelt_as_5:
            as_transformers_5(folder)

    def load(self, folder):
        return AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.float32)

    def inputs(self, case):
        ids = torch.randint(0, VOCABULARY, (2, 33))
        return {"ids": ids[:, :-1].contiguous(), "targets": ids[:, 1:].contiguous()}

    def outputs(self, model, inputs):
        return {"logits": model(inputs["ids"], use_cache=False).logits}

    def loss(self, outputs, inputs):
        return torch.nn.functional.cross_entropy(outputs["logits"].flatten(0, 1).float(), inputs["targets"].flatten())


class Vision:
    """A vision transformer: pixels, and masks in some cases, give tokens and the mean of their cubes."""

    bf16 = ("swiglu",)

    def __init__(self, sizes, cases):
        """A case is a model, its configuration, what differs there, the images' height and width, and whether patches are masked."""
        self.sizes, self.cases = sizes, cases

    def build(self, case):
        model, config, changes, *_ = self.cases[case]
        return model(config(**{**self.sizes, **changes}))

    def rewrite(self, case, folder):
        """Files are as save_pretrained() writes them."""

    def load(self, folder):
        return AutoModel.from_pretrained(folder, torch_dtype=torch.float32)

    def inputs(self, case):
        *_, (height, width), masked = self.cases[case]
        inputs = {"pixels": torch.randn(2, 3, height, width)}
        patch = self.sizes["patch_size"]
        return inputs | ({"masks": torch.rand(2, (height // patch) * (width // patch)) < 0.4} if masked else {})

    def outputs(self, model, inputs):
        base = getattr(model, model.base_model_prefix, model)
        return {"tokens": base(inputs["pixels"], bool_masked_pos=inputs.get("masks")).last_hidden_state}

    def loss(self, outputs, inputs):
        return outputs["tokens"].pow(3).mean()


class T5:
    """Texts with padding on either side, and targets of which some do not count."""

    def __init__(self, sizes, cases, bf16=(), old_files=()):
        self.sizes, self.cases, self.bf16, self.old_files = sizes, cases, bf16, old_files

    def build(self, case):
        return T5ForConditionalGeneration(T5Config(**{**self.sizes, **self.cases[case]}))

    def rewrite(self, case, folder):
        """Gives a file every tensor that old files hold, and the table under all of its names but its own."""
        if case not in self.old_files:
            return
        tensors = {}
        for file in sorted(folder.glob("*.safetensors")):
            tensors.update(load_file(file))
            file.unlink()
        (folder / "model.safetensors.index.json").unlink()
        table = tensors.pop("shared.weight")
        for name in ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"):
            tensors[name] = table.clone()
        tensors["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"] = torch.ones(32, 4)
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    def load(self, folder):
        model, info = AutoModelForSeq2SeqLM.from_pretrained(folder, torch_dtype=torch.float32, output_loading_info=True)
        assert not any(info.values()), (folder.name, info)
        return model

    def inputs(self, case=None, rows=3, source=24, target=12):
        """Row 1 of three is filled up at its end, row 2 at its beginning."""
        kind = torch.arange(rows).unsqueeze(1) % 3
        mask = torch.where(kind == 1, torch.arange(source) < source // 2, (kind == 0) | (torch.arange(source) >= source // 3))
        ids, targets = torch.randint(4, VOCABULARY, (rows, source)), torch.randint(4, VOCABULARY, (rows, target))
        counts = (kind != 1) | (torch.arange(target) < target // 2)
        return {"ids": torch.where(mask, ids, 0), "mask": mask.long(), "targets": torch.where(counts, targets, -100)}

    def outputs(self, model, inputs):
        made = model(input_ids=inputs["ids"], attention_mask=inputs["mask"], labels=inputs["targets"])
        return {"logits": made.logits, "encoded": made.encoder_last_hidden_state}

    def loss(self, outputs, inputs):
        return torch.nn.functional.cross_entropy(outputs["logits"].flatten(0, 1), inputs["targets"].flatten())


class Bert:
    """An encoder with one of its heads. A case names the class of its model. Rows are padded and of two token types."""

    LABELS = ["admin", "games", "science"]
    PADDING = 0

    def __init__(self, sizes, cases, bf16=(), old_names=()):
        self.sizes, self.cases, self.bf16, self.old_names = sizes, cases, bf16, old_names

    def build(self, case):
        kind, switches = self.cases[case]
        if kind is BertForSequenceClassification:
            switches = dict(
                switches,
                id2label=dict(enumerate(self.LABELS)),
                label2id={label: i for i, label in enumerate(self.LABELS)},
                problem_type="single_label_classification",
            )
        return kind(BertConfig(**{**self.sizes, **switches}))

    def rewrite(self, case, folder):
        """Gives a file the names that files of TensorFlow's days have, and every tensor that such files hold."""
        if case not in self.old_names:
            return
        tensors = {}
        for file in sorted(folder.glob("*.safetensors")):
            tensors.update(load_file(file))
            file.unlink()
        (folder / "model.safetensors.index.json").unlink()
        tensors["bert.embeddings.position_ids"] = torch.arange(64).unsqueeze(0)
        tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].clone()
        tensors["cls.predictions.decoder.bias"] = tensors.pop("cls.predictions.bias")
        old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
        for name in list(tensors):
            for new, before in old.items():
                if name.endswith(new):
                    tensors[name.removesuffix(new) + before] = tensors.pop(name)
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    def load(self, folder):
        config = json.loads((folder / "config.json").read_text())
        kinds = {"BertForMaskedLM": AutoModelForMaskedLM, "BertForSequenceClassification": AutoModelForSequenceClassification}
        kind = kinds.get(config["architectures"][0], AutoModel)
        more = {"add_pooling_layer": False} if kind is AutoModel else {}
        model, info = kind.from_pretrained(folder, torch_dtype=torch.float32, output_loading_info=True, **more)
        assert not any(info.values()), (folder.name, info)
        if kind is AutoModelForSequenceClassification:
            assert model.config.id2label == dict(enumerate(self.LABELS)), model.config.id2label
            assert model.config.label2id == {label: i for i, label in enumerate(self.LABELS)}, model.config.label2id
            assert model.config.problem_type == "single_label_classification"
        return model

    def inputs(self, case=None, rows=3):
        """Every third row has no padding, and every third has one token type."""
        kind = torch.arange(rows) % 3
        ids = torch.randint(1, VOCABULARY, (rows, 24))
        mask = torch.arange(24) < torch.tensor([24, 17, 3])[kind].unsqueeze(1)
        targets = torch.where(torch.rand(ids.shape) < 0.2, torch.randint(0, VOCABULARY, ids.shape), -100)
        return {
            "ids": torch.where(mask, ids, self.PADDING),
            "mask": mask.long(),
            "types": (torch.arange(24) >= torch.tensor([10, 12, 30])[kind].unsqueeze(1)).long(),
            "targets": torch.where(mask, targets, -100),
            "labels": torch.tensor([2, 0, 2, 1, 0])[torch.arange(rows) % 5],
            "class_weights": torch.tensor([0.5, 1.0, 3.0]),
        }

    def outputs(self, model, inputs):
        texts = dict(input_ids=inputs["ids"], attention_mask=inputs["mask"], token_type_ids=inputs["types"])
        made = model(**texts, output_hidden_states=True)
        logits = getattr(made, "logits", getattr(made, "prediction_logits", None))
        return {"hidden": made.hidden_states[-1]} | ({} if logits is None else {"logits": logits})

    def loss(self, outputs, inputs):
        logits = outputs.get("logits")
        if logits is None:
            return (outputs["hidden"].square() * inputs["mask"].unsqueeze(-1)).sum() / inputs["mask"].sum()
        if logits.dim() == 3:
            return torch.nn.functional.cross_entropy(logits.flatten(0, 1), inputs["targets"].flatten())
        return torch.nn.functional.cross_entropy(logits, inputs["labels"], inputs["class_weights"])


LLAMA_3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)
FAMILIES = {
    "llama": Causal(
        LlamaConfig,
        LlamaForCausalLM,
        dict(
            vocab_size=VOCABULARY,
            hidden_size=32,
            intermediate_size=56,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=64,
            tie_word_embeddings=False,
        ),
        {
            "untied": dict(),
            "tied": dict(tie_word_embeddings=True),
            "grouped": dict(num_key_value_heads=2, rope_theta=1e6),
            "one_kv_head": dict(num_key_value_heads=1, tie_word_embeddings=True, rms_norm_eps=1e-5),
            # Heads of 8 elements have wavelengths of 6, 63, 628 and 6283 positions: short, between, and two long ones.
            "llama3_rope": dict(rope_scaling=LLAMA_3, max_position_embeddings=512),
            "linear_rope": dict(rope_scaling=dict(type="linear", factor=4.0)),
            "head_dim": dict(head_dim=12, num_key_value_heads=2),
            "attention_bias": dict(attention_bias=True, num_key_value_heads=2),
            "mlp_bias": dict(mlp_bias=True),
            "of_transformers_5": dict(rope_scaling=LLAMA_3, rope_theta=5e5, max_position_embeddings=512),
        },
        bf16=("grouped",),
        spelt_as_5=("of_transformers_5",),
    ),
    "gpt_neox": Causal(
        GPTNeoXConfig,
        GPTNeoXForCausalLM,
        dict(
            vocab_size=VOCABULARY,
            hidden_size=32,
            intermediate_size=72,
            num_hidden_layers=3,
            num_attention_heads=4,
            max_position_embeddings=64,
            rotary_pct=0.25,
        ),
        {
            "parallel": dict(),
            "sequential": dict(use_parallel_residual=False, layer_norm_eps=1e-6, attention_bias=False),
            "half_turned": dict(rotary_pct=0.5, rotary_emb_base=1e6),
            "all_turned": dict(rotary_pct=1.0),
            "no_attention_bias": dict(attention_bias=False),
            "tied": dict(tie_word_embeddings=True, attention_bias=False),
            "gelu_new": dict(hidden_act="gelu_new"),
            "gelu_pytorch_tanh": dict(hidden_act="gelu_pytorch_tanh"),
            "relu": dict(hidden_act="relu"),
            "silu": dict(hidden_act="silu"),
            "of_transformers_5": dict(rotary_pct=0.5, rotary_emb_base=5e5),
        },
        bf16=("half_turned",),
        spelt_as_5=("of_transformers_5",),
    ),
    # Images of 16 x 16 pixels have the trained 4 x 4 patches.
    "dinov2": Vision(
        dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, image_size=16, patch_size=4),
        {
            "plain": (Dinov2Model, Dinov2Config, dict(), (16, 16), False),
            "small_scales": (Dinov2Model, Dinov2Config, dict(layerscale_value=1e-5), (16, 16), False),
            "swiglu": (Dinov2Model, Dinov2Config, dict(use_swiglu_ffn=True, mlp_ratio=3), (16, 16), False),
            "no_qkv_bias": (Dinov2Model, Dinov2Config, dict(qkv_bias=False, layer_norm_eps=1e-5), (16, 16), False),
            "larger": (Dinov2Model, Dinov2Config, dict(), (48, 32), False),
            "smaller": (Dinov2Model, Dinov2Config, dict(), (8, 12), False),
            "as_many_patches": (Dinov2Model, Dinov2Config, dict(), (8, 32), False),
            "border_left_out": (Dinov2Model, Dinov2Config, dict(), (19, 18), True),
            "masked": (Dinov2Model, Dinov2Config, dict(hidden_act="gelu_new"), (16, 16), True),
            "gelu_pytorch_tanh": (Dinov2Model, Dinov2Config, dict(hidden_act="gelu_pytorch_tanh"), (16, 16), False),
            "relu": (Dinov2Model, Dinov2Config, dict(hidden_act="relu"), (16, 16), False),
            "silu": (Dinov2Model, Dinov2Config, dict(hidden_act="silu"), (16, 16), False),
            "no_mask_token": (Dinov2Model, Dinov2Config, dict(use_mask_token=False), (16, 16), False),
            "classifier": (Dinov2ForImageClassification, Dinov2Config, dict(num_labels=3), (16, 16), False),
            "registers": (Dinov2WithRegistersModel, Dinov2WithRegistersConfig, dict(num_register_tokens=3), (16, 16), True),
            "registers_larger": (Dinov2WithRegistersModel, Dinov2WithRegistersConfig, dict(), (48, 32), True),
            "registers_smaller": (Dinov2WithRegistersModel, Dinov2WithRegistersConfig, dict(), (8, 12), False),
            "registers_classifier": (Dinov2WithRegistersForImageClassification, Dinov2WithRegistersConfig, dict(use_swiglu_ffn=True),
                                     (8, 32), False),
        },
    ),
    "bert": Bert(
        dict(
            vocab_size=VOCABULARY,
            hidden_size=32,
            intermediate_size=56,
            num_hidden_layers=3,
            num_attention_heads=4,
            max_position_embeddings=64,
        ),
        {
            "masked_tied": (BertForMaskedLM, dict()),
            "masked_untied": (BertForMaskedLM, dict(tie_word_embeddings=False)),
            "masked_gelu_new": (BertForMaskedLM, dict(hidden_act="gelu_new", layer_norm_eps=1e-5)),
            "masked_old_names": (BertForMaskedLM, dict()),
            "pre_training": (BertForPreTraining, dict(hidden_act="relu")),
            "classes": (BertForSequenceClassification, dict(classifier_dropout=0.3)),
            "classes_silu": (BertForSequenceClassification, dict(hidden_act="silu", type_vocab_size=3)),
            "classes_gelu_pytorch_tanh": (BertForSequenceClassification, dict(hidden_act="gelu_pytorch_tanh")),
            "classes_bf16": (BertForSequenceClassification, dict()),
            "base": (BertModel, dict()),
        },
        bf16=("classes_bf16",),
        old_names=("masked_old_names",),
    ),
    "t5": T5(
        dict(
            vocab_size=VOCABULARY,
            d_model=32,
            d_kv=12,
            d_ff=56,
            num_layers=2,
            num_heads=4,
            dropout_rate=0.0,
            initializer_factor=0.5,
            decoder_start_token_id=0,
        ),
        {
            "relu_tied": dict(),
            "gated_gelu_untied": dict(feed_forward_proj="gated-gelu", tie_word_embeddings=False),
            "gated_silu": dict(feed_forward_proj="gated-silu", num_layers=3),
            "gelu": dict(feed_forward_proj="gelu", layer_norm_epsilon=1e-5),
            "silu": dict(feed_forward_proj="silu"),
            "deep_decoder": dict(num_layers=1, num_decoder_layers=3, dropout_rate=0.1),
            "deep_encoder": dict(num_layers=3, num_decoder_layers=1, feed_forward_proj="gated-relu"),
            "few_buckets": dict(relative_attention_num_buckets=8, relative_attention_max_distance=20),
            "odd_tokens": dict(pad_token_id=3, decoder_start_token_id=7, relative_attention_max_distance=17),
            "old_file": dict(),
        },
        bf16=("gated_silu",),
        old_files=("old_file",),
    ),
}


def make(folder: pathlib.Path, family: str) -> None:
    of = FAMILIES[family]
    for seed, name in enumerate(of.cases):
        torch.manual_seed(seed)
        model = of.build(name).eval()
        with torch.no_grad():  # norms start as ones and biases as zeros: make them matter
            for parameter in model.parameters():
                parameter.mul_(3.0) if parameter.dim() > 1 else parameter.add_(0.1 * torch.randn_like(parameter))
        weights = model.state_dict()
        if name in of.bf16:  # a bf16 file; both sides compute with the rounded numbers
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.copy_(parameter.bfloat16())
            weights = {key: value.bfloat16() for key, value in model.state_dict().items()}
        # Small files give an index.
        model.save_pretrained(folder / name, state_dict=weights, safe_serialization=True, max_shard_size="20KB")
        of.rewrite(name, folder / name)
        inputs = of.inputs(name)
        outputs = of.outputs(model, inputs)
        loss = of.loss(outputs, inputs)
        loss.backward()
        out = {**inputs, **outputs, "loss": loss}
        for key, parameter in model.named_parameters():
            if parameter.grad is not None:
                out["grad/" + key] = parameter.grad
        save_file({key: value.detach().contiguous() for key, value in out.items()}, folder / name / "expected.safetensors")


def run(folder: pathlib.Path, family: str) -> None:
    of = FAMILIES[family]
    for inputs in sorted(folder.glob("*/inputs.safetensors")):
        model = of.load(inputs.parent).eval()
        with torch.no_grad():
            outputs = of.outputs(model, load_file(inputs))
        save_file({key: value.contiguous() for key, value in outputs.items()}, inputs.parent / "outputs.safetensors")


if __name__ == "__main__":
    {"make": make, "run": run}[sys.argv[1]](pathlib.Path(sys.argv[2]), sys.argv[3])
