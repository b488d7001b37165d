"""The trainings of bench/recipes.py, written with transformers and FSDP2.

recipes_peer.py make RUN_FILE FOLDER SIZES   draws first weights and writes them with their config.json to FOLDER, as from_pretrained()
                                             reads it. SIZES: JSON, what the family's configuration has beside the data's vocabulary
recipes_peer.py train RUN_FILE STORE         one rank; RANK and WORLD_SIZE say which. STORE: a file through which the ranks meet

RUN_FILE is muster-worker's. The rank prints one JSON line: of each step its time, its tokens and its loss.
The order of samples, the cut into rows and the padding are muster's, written down again, so that both sides train on the same
batches. Only the crops of images are other ones, as each side draws its own.
"""

import json
import math
import os
import pathlib
import sys
import time

import numpy
import torch
import torch.distributed as dist
import torch.nn.functional as F
import transformers
from torch.distributed.fsdp import fully_shard

IGNORED = -100
PADDED_TO = 8
OPEN_ROWS = 64  # of packed documents
MASK = (1 << 64) - 1


# Data.

class Split:
    """The records of prepared data: see data/format/format.h."""

    def __init__(self, folder, name="train"):
        self.description = json.loads((pathlib.Path(folder) / "data.json").read_text())
        self.parts = []
        for file in self.description["splits"][name]["files"]:
            data = numpy.memmap(pathlib.Path(folder) / file["name"], mode="r")
            kind, element, fields = (int(data[at:at + 4].view("<u4")[0]) for at in (12, 16, 20))
            records, elements, _, begin, index, labels = (int(value) for value in data[24:72].view("<u8"))
            tokens = data[begin:begin + elements * element].view({1: "u1", 2: "<u2", 4: "<u4"}[element])
            starts = data[index:index + 8 * (records * fields + 1)].view("<u8").astype(numpy.int64)
            label = data[labels:labels + 4 * records].view("<i4") if kind == 3 else None
            sides = data[labels:labels + 8 * records].view("<u2").reshape(records, 4) if kind == 4 else None
            self.parts.append((tokens, starts, fields, label, sides))
        self.places = [(part, record) for part, (_, starts, fields, *_) in enumerate(self.parts)
                       for record in range((len(starts) - 1) // fields)]

    def __len__(self):
        return len(self.places)

    def ids(self, record, field=0):
        part, record = self.places[record]
        tokens, starts, fields, *_ = self.parts[part]
        at = record * fields + field
        return tokens[starts[at]:starts[at + 1]]

    def label(self, record):
        part, record = self.places[record]
        return int(self.parts[part][3][record])

    def image(self, record):
        """uint8 [height, width, 3]"""
        part, at = self.places[record]
        height, width = self.parts[part][4][at][:2]
        return self.ids(record).reshape(int(height), int(width), 3)

    def suffix(self, ends=True):
        """The special tokens after a text: `ends`, one that says so is among them."""
        tokenizer = self.description["tokenizer"]
        assert not tokenizer["prefix"], "the benchmark prepares without a tokenizer"
        after = list(tokenizer["suffix"])
        return after + [tokenizer["eos"]] if ends and tokenizer["eos"] not in after[-1:] else after


def mixed(z):
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9 & MASK
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb & MASK
    return z ^ (z >> 31)


def shuffled(count, seed, epoch=0):
    """The order of an epoch: see data/order/random.h."""
    values, state = list(range(count)), mixed((mixed(seed) + epoch) & MASK)
    for i in range(count, 1, -1):
        state = state + 0x9e3779b97f4a7c15 & MASK
        other = mixed(state) * i >> 64
        values[i - 1], values[other] = values[other], values[i - 1]
    return values


def padded(rows, fill, most):
    length = min(-(-max(map(len, rows)) // PADDED_TO) * PADDED_TO, most)
    out = torch.full((len(rows), length), fill)
    for at, row in enumerate(rows):
        out[at, :len(row)] = torch.from_numpy(row)
    return out


def mask_of(rows, length):
    return torch.arange(length)[None] < torch.tensor([len(row) for row in rows])[:, None]


def framed(ids, suffix, most):
    return numpy.concatenate([ids[:most - len(suffix)].astype(numpy.int64), numpy.array(suffix, numpy.int64)])


# A recipe has samples(), batch(samples), which gives (tensors, tokens, weight), and loss(model, tensors), which gives the sum of the
# losses. The weight is what that sum is divided by, over all ranks.

class Causal:
    model = "AutoModelForCausalLM"

    def __init__(self, run):
        self.split, self.length = Split(run["data"]["prepared"]), run["data"]["sequence_length"]
        self.stream = None
        if run["data"].get("packing") == "documents":
            self.rows = self.pack(run["train"]["seed"])
        else:
            suffix = numpy.array(self.split.suffix(), numpy.int64)
            self.stream = torch.from_numpy(numpy.concatenate(
                [part for record in range(len(self.split)) for part in (self.split.ids(record).astype(numpy.int64), suffix)]))

    def pack(self, seed):
        """Documents in rows: see data/order/order.h."""
        self.documents = [framed(self.split.ids(record), self.split.suffix(), 1 << 40) for record in range(len(self.split))]
        rows, free = [], []  # free: [row, room], the oldest first
        for record in shuffled(len(self.split), seed):
            for begin in range(0, len(self.documents[record]), self.length):
                size = min(self.length, len(self.documents[record]) - begin)
                if size == self.length:
                    rows.append([(record, begin, size)])
                    continue
                at = next((i for i, (_, room) in enumerate(free) if room >= size), None)
                if at is None:
                    if len(free) == OPEN_ROWS:
                        free.pop(0)
                    free.append([len(rows), self.length])
                    rows.append([])
                    at = len(free) - 1
                rows[free[at][0]].append((record, begin, size))
                free[at][1] -= size
                if free[at][1] == 0:
                    free.pop(at)
        return rows

    def samples(self):
        return len(self.rows) if self.stream is None else (len(self.stream) - 1) // self.length

    def batch(self, samples):
        if self.stream is not None:
            rows = torch.stack([self.stream[sample * self.length:(sample + 1) * self.length + 1] for sample in samples])
            return {"ids": rows[:, :-1].contiguous(), "targets": rows[:, 1:].contiguous()}, rows[:, 1:].numel(), rows[:, 1:].numel()
        ids, targets, segments, positions = ([] for _ in range(4))
        for sample in samples:
            pieces = [(self.documents[record], begin, size) for record, begin, size in self.rows[sample]]
            ids.append(numpy.concatenate([document[begin:begin + size] for document, begin, size in pieces]))
            targets.append(numpy.concatenate([numpy.append(document, IGNORED)[begin + 1:begin + 1 + size]
                                              for document, begin, size in pieces]))
            segments.append(numpy.repeat(numpy.arange(1, len(pieces) + 1), [size for *_, size in pieces]))
            positions.append(numpy.concatenate([numpy.arange(size) for *_, size in pieces]))
        segment, target = padded(segments, 0, self.length), padded(targets, IGNORED, self.length)
        causal = torch.ones(segment.shape[1], segment.shape[1], dtype=torch.bool).tril()
        tensors = {"ids": padded(ids, 0, self.length), "targets": target, "positions": padded(positions, 0, self.length),
                   "mask": (segment[:, None, :, None] == segment[:, None, None, :]) & causal}
        return tensors, sum(map(len, ids)), int((target != IGNORED).sum())

    def loss(self, model, tensors):
        logits = model(tensors["ids"], attention_mask=tensors.get("mask"), position_ids=tensors.get("positions"), use_cache=False).logits
        return F.cross_entropy(logits.flatten(0, 1), tensors["targets"].flatten(), reduction="sum", ignore_index=IGNORED)


class Seq2Seq:
    model = "AutoModelForSeq2SeqLM"

    def __init__(self, run):
        self.split, self.sizes = Split(run["data"]["prepared"]), (run["data"]["sequence_length"], run["data"]["target_length"])

    def samples(self):
        return len(self.split)

    def batch(self, samples):
        inputs = [framed(self.split.ids(sample, 0), self.split.suffix(ends=False), self.sizes[0]) for sample in samples]
        targets = [framed(self.split.ids(sample, 1), self.split.suffix(), self.sizes[1]) for sample in samples]
        ids, counted = padded(inputs, 0, self.sizes[0]), sum(map(len, targets))
        tensors = {"ids": ids, "mask": mask_of(inputs, ids.shape[1]), "targets": padded(targets, IGNORED, self.sizes[1])}
        return tensors, sum(map(len, inputs)) + counted, counted

    def loss(self, model, tensors):
        shifted = model._shift_right(tensors["targets"])
        logits = model(input_ids=tensors["ids"], attention_mask=tensors["mask"], decoder_input_ids=shifted, use_cache=False).logits
        return F.cross_entropy(logits.flatten(0, 1), tensors["targets"].flatten(), reduction="sum", ignore_index=IGNORED)


class Classify:
    model = "AutoModelForSequenceClassification"

    def __init__(self, run):
        self.split, self.length = Split(run["data"]["prepared"]), run["data"]["sequence_length"]

    def samples(self):
        return len(self.split)

    def batch(self, samples):
        rows = [framed(self.split.ids(sample), self.split.suffix(ends=False), self.length) for sample in samples]
        ids = padded(rows, 0, self.length)
        tensors = {"ids": ids, "mask": mask_of(rows, ids.shape[1]), "types": torch.zeros_like(ids),
                   "labels": torch.tensor([self.split.label(sample) for sample in samples])}
        return tensors, sum(map(len, rows)), len(rows)

    def loss(self, model, tensors):
        logits = model(tensors["ids"], attention_mask=tensors["mask"], token_type_ids=tensors["types"]).logits
        return F.cross_entropy(logits, tensors["labels"], reduction="sum")


class Head(torch.nn.Module):
    def __init__(self, width, train):
        super().__init__()
        hidden, bottleneck = train["head_hidden_size"], train["head_bottleneck_size"]
        layers = [torch.nn.Linear(width, hidden), torch.nn.GELU(), torch.nn.Linear(hidden, hidden), torch.nn.GELU(),
                  torch.nn.Linear(hidden, bottleneck)]
        self.mlp = torch.nn.Sequential(*layers)
        self.weight_g = torch.nn.Parameter(torch.ones(train["prototypes"], 1))
        self.weight_v = torch.nn.Parameter(torch.empty(train["prototypes"], bottleneck).uniform_(-1, 1) / math.sqrt(bottleneck))
        for layer in layers[::2]:
            torch.nn.init.normal_(layer.weight, 0, 0.02)
            torch.nn.init.zeros_(layer.bias)

    def forward(self, x):
        return F.linear(F.normalize(self.mlp(x), dim=-1), torch._weight_norm(self.weight_v, self.weight_g, 0))


class SelfDistilled(torch.nn.Module):
    def __init__(self, backbone, train):
        super().__init__()
        self.backbone, self.head = backbone, Head(backbone.config.hidden_size, train)

    def forward(self, pixels, masks=None, masked=None):
        tokens = self.backbone(pixels, bool_masked_pos=masks).last_hidden_state
        if masked is None:
            return tokens[:, 0], self.head(tokens[:, 0]), None
        both = self.head(torch.cat([tokens[:, 0], tokens[:, 1:].flatten(0, 1)[masked]]))
        return tokens[:, 0], both[:len(tokens)], both[len(tokens):]


class Dino:
    """The formulas are those of tests/peers/dino_judge.py."""

    model = "AutoModel"

    def __init__(self, run):
        self.split, self.data, self.train = Split(run["data"]["prepared"]), run["data"], run["train"]
        self.random = numpy.random.default_rng(run["train"]["seed"] + int(os.environ["RANK"]))
        self.centres = {name: torch.zeros(1, self.train["prototypes"]) for name in ("dino", "ibot")}
        self.teacher, self.steps, self.patch = None, 0, transformers.AutoConfig.from_pretrained(run["model"]["pretrained"]).patch_size

    def samples(self):
        return len(self.split)

    def batch(self, samples):
        import recipes_peer_crops as crops
        images = [torch.from_numpy(self.split.image(sample).copy()).permute(2, 0, 1).float() / 255 for sample in samples]
        size = images[0].shape[-1]
        large = [crops.view(image, size, 0.32, 1, kind, self.random) for kind in (crops.FIRST, crops.SECOND) for image in images]
        local = [crops.view(image, self.data["local_crops_size"], 0.05, 0.32, crops.SMALL, self.random)
                 for _ in range(self.data["local_crops"]) for image in images]
        masks = crops.masks(len(large), (size // self.patch) ** 2, self.random)
        weights = (1 / masks.sum(1).clamp(min=1))[:, None].expand_as(masks)[masks]
        return {"global": torch.stack(large), "local": torch.stack(local), "masks": masks, "masked": masks.flatten().nonzero().flatten(),
                "weights": weights}, 0, len(images)

    def targets(self, name, answers):
        out = F.softmax((answers - self.centres[name]) / self.train["first_teacher_temperature"], dim=-1)
        sums = torch.cat([answers.sum(0), torch.tensor([float(len(answers))])])
        dist.all_reduce(sums)
        self.centres[name] = 0.9 * self.centres[name] + 0.1 * (sums[:-1] / sums[-1].clamp(min=1))[None]
        return out

    def loss(self, model, tensors):
        images = len(tensors["global"]) // 2
        with torch.no_grad():
            _, answers, of_patches = self.teacher(tensors["global"], None, tensors["masked"])
            first, second = self.targets("dino", answers).chunk(2)
            of_patches = self.targets("ibot", of_patches)
        features, seen, patches = model(tensors["global"], tensors["masks"], tensors["masked"])
        of_local = model(tensors["local"])[1]

        def entropy(student, targets):
            return -(targets * F.log_softmax(student / 0.1, dim=-1)).sum(-1)

        crops = self.data["local_crops"]
        dino = entropy(seen[:images], second).mean() + entropy(seen[images:], first).mean()
        dino = dino + entropy(of_local.view(crops, images, -1), (first + second)[None]).mean(1).sum()
        ibot = (entropy(patches, of_patches) * tensors["weights"]).sum() / (2 * images)
        return images * (dino / (2 * crops + 2) + ibot + 0.1 * sum(self.koleo(rows) for rows in features.chunk(2)))

    @staticmethod
    def koleo(rows):
        x = F.normalize(rows, dim=-1, eps=1e-8)
        with torch.no_grad():
            nearest = (x @ x.t()).fill_diagonal_(-1).argmax(1)
        return -torch.log(torch.linalg.vector_norm(x - x[nearest] + 1e-8, dim=-1) + 1e-8).mean()

    def after_step(self, model):
        self.steps += 1
        rise = (1 - math.cos(math.pi * self.steps / self.train["steps"])) / 2
        momentum = 0.992 + (1 - 0.992) * rise
        with torch.no_grad():
            slow, fast = ([p.to_local() for p in one.parameters()] for one in (self.teacher, model))
            torch._foreach_lerp_(slow, fast, 1 - momentum)


RECIPES = {"causal_lm": Causal, "seq2seq": Seq2Seq, "classify": Classify, "dino": Dino}
# Names, because an import of all families takes memory that a training of one does not need.
BLOCKS = {"LlamaDecoderLayer", "GPTNeoXLayer", "T5Block", "BertLayer", "Dinov2Layer", "Head"}


def sharded(model, has_backward=True):
    """A block is a unit, and so is a head of prototypes; the rest is the root unit, which stays whole until its backward."""
    for module in model.modules():
        if type(module).__name__ in BLOCKS:
            fully_shard(module)
    return fully_shard(model, reshard_after_forward=not has_backward)


def make(run, folder, sizes):
    torch.manual_seed(1)
    description, family = json.loads((pathlib.Path(run["data"]["prepared"]) / "data.json").read_text()), run["model"]["family"]
    if "tokenizer" in description and family != "dinov2":
        sizes["vocab_size"] = description["tokenizer"]["vocabulary"]
    if family == "bert":
        sizes["id2label"] = dict(enumerate(description["labels"]))
        sizes["label2id"] = {name: at for at, name in enumerate(description["labels"])}
    if family == "t5":
        sizes["eos_token_id"] = description["tokenizer"]["eos"]
    config = transformers.AutoConfig.for_model(family, **sizes)
    getattr(transformers, RECIPES[run["recipe"]].model).from_config(config).save_pretrained(folder)


def adapters_of(run):
    """Where bench/recipes.py puts the first values of adapters."""
    return pathlib.Path(run["model"]["pretrained"]).parent / "adapters"


def build(run, recipe):
    """The sharded model, from the first weights. The teacher of dino becomes the recipe's."""
    def read():
        return getattr(transformers, recipe.model).from_pretrained(run["model"]["pretrained"], torch_dtype=torch.float32).train()

    if run["train"].get("lora_rank"):
        import peft
        # The unsharded base is read whole, as PEFT has it; its weights are frozen and sharded like the others.
        return sharded(peft.PeftModel.from_pretrained(read(), adapters_of(run), is_trainable=True))
    if run["recipe"] != "dino":
        return sharded(read())
    torch.manual_seed(1)
    student, recipe.teacher = (SelfDistilled(read(), run["train"]) for _ in range(2))
    recipe.teacher.load_state_dict(student.state_dict())
    recipe.teacher.requires_grad_(False)
    sharded(recipe.teacher, has_backward=False)
    return sharded(student)


class Batches(torch.utils.data.Dataset):
    """This rank's batches, by step. A process of the loader makes them ahead, as a thread of muster's does."""

    def __init__(self, recipe, steps):
        self.recipe, self.steps = recipe, steps

    def __len__(self):
        return len(self.steps)

    def __getitem__(self, step):
        return self.recipe.batch(self.steps[step])


def train(run, store):
    rank, ranks, options = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), run["train"]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks, store=dist.FileStore(store, ranks))
    recipe = RECIPES[run["recipe"]](run)
    model = build(run, recipe)
    order, each = shuffled(recipe.samples(), options["seed"]), options["batch_size"] // ranks
    assert options["steps"] * options["batch_size"] <= len(order), "the benchmark trains on less than one epoch"
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [{"params": [p for p in trained if p.dim() > 1], "weight_decay": options["weight_decay"]},
              {"params": [p for p in trained if p.dim() <= 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=options["learning_rate"], betas=(0.9, 0.95), eps=1e-8, fused=True)

    batches = Batches(recipe, [order[step * options["batch_size"] + rank * each:][:each] for step in range(options["steps"])])
    loader = iter(torch.utils.data.DataLoader(batches, batch_size=None, num_workers=1, prefetch_factor=2))
    told = {"step_ms": [], "tokens": [], "loss": []}
    dist.barrier()
    for _ in range(options["steps"]):
        begun = time.perf_counter()
        tensors, tokens, weight = next(loader)
        size = torch.tensor([float(tokens), float(weight)], dtype=torch.float64)
        dist.all_reduce(size)
        loss = recipe.loss(model, tensors)
        (loss * (ranks / size[1].item())).backward()
        torch.nn.utils.clip_grad_norm_(trained, options["clip_norm"])
        optimizer.step()
        optimizer.zero_grad()
        if hasattr(recipe, "after_step"):
            recipe.after_step(model)
        total = loss.detach().double()
        dist.all_reduce(total)
        told["loss"].append(total.item() / size[1].item())
        told["tokens"].append(size[0].item())
        told["step_ms"].append(1e3 * (time.perf_counter() - begun))
    print(json.dumps(told), flush=True)
    del loader  # ends its process
    dist.barrier()
    os._exit(0)  # Gloo's end of a process sometimes aborts it: "terminate called without an active exception"


def main():
    transformers.logging.set_verbosity_error()
    run = json.loads(pathlib.Path(sys.argv[2]).read_text())
    if sys.argv[1] == "make":
        make(run, sys.argv[3], json.loads(sys.argv[4]))
    else:
        train(run, sys.argv[3])


if __name__ == "__main__":
    main()
