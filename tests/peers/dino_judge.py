"""A second computation of what self-distillation adds to DINOv2, and of its training, for comparison with muster's own.

dino_judge.py FOLDER JUDGE writes inputs and expected results into FOLDER/JUDGE.safetensors. A judge is one of:
  head       the head of prototypes, with gradients
  losses     targets, centres and losses of one micro-batch, with gradients
  knn        the share of queries that a weighted vote names rightly
  pixels     each step of the augmentation
  training   a folder for each of TRAININGS: the weights of a student, the batches of 20 steps, and what a training at 1 and at 2
             ranks makes of them. Its backbone is transformers' Dinov2Model, or Dinov2WithRegistersModel.

Formulas are those of facebookresearch/dinov2 (layers/dino_head.py, loss/*.py, train/ssl_meta_arch.py), written down again in
fp32 for one process, without any of its code. Pixels are computed one by one where that is the plainer way.
"""

import colorsys
import copy
import math
import pathlib
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

IMAGES, LOCAL_CROPS, PROTOTYPES, WIDTH = 3, 2, 32, 16
STUDENT_TEMPERATURE, TEACHER_TEMPERATURE = 0.1, 0.07
# A step has all 4 images, and all steps together are one epoch.
STEPS, RATE, DECAY, CENTRE_MOMENTUM, KEPT_EVERY = 20, 1e-3, 0.04, 0.9, 5
FIRST_MOMENTUM, LAST_MOMENTUM = 0.8, 0.95  # of the teacher, by a cosine
FIRST_TEACHER_TEMPERATURE, WARM_STEPS = 0.04, 10
FROZEN_STEPS, PATCH_EMBED_RATE = 3, 0.2
DINO_WEIGHT, IBOT_WEIGHT, KOLEO_WEIGHT = 0.8, 1.5, 0.1
# By name: how the teacher's answers become targets, whether patches have a head of their own, and members of the config.
TRAININGS = {
    "centred": (False, False, dict()),
    "balanced": (True, True, dict(num_register_tokens=2, use_swiglu_ffn=True)),
    "centred_heads": (False, True, dict(num_register_tokens=1)),
}


def save(path, tensors):
    save_file({name: torch.as_tensor(value).detach().clone().contiguous() for name, value in tensors.items()}, path)


class Head(torch.nn.Module):
    def __init__(self, prototypes):
        super().__init__()
        layers = [torch.nn.Linear(WIDTH, 24), torch.nn.GELU(), torch.nn.Linear(24, 24), torch.nn.GELU(), torch.nn.Linear(24, 8)]
        self.mlp = torch.nn.Sequential(*layers)
        self.last_layer = torch.nn.Module()
        self.last_layer.weight_g = torch.nn.Parameter(torch.rand(prototypes, 1) + 0.5)
        self.last_layer.weight_v = torch.nn.Parameter(torch.randn(prototypes, 8))

    def forward(self, x):
        g, v = self.last_layer.weight_g, self.last_layer.weight_v
        return F.linear(F.normalize(self.mlp(x), dim=-1, p=2, eps=1e-12), torch._weight_norm(v, g, 0))


def head(folder):
    model = Head(20)
    x = torch.randn(5, WIDTH, requires_grad=True)
    out = model(x)
    out.pow(2).sum().backward()
    parameters = dict(model.named_parameters())
    save(folder / "head.safetensors", {"x": x, "out": out, "grad/x": x.grad, **parameters,
                                       **{"grad/" + name: value.grad for name, value in parameters.items()}})


def sinkhorn_knopp(teacher, temperature, rounds=3):
    """Doubles, and with all the factors that the result does not depend on."""
    q = torch.exp(teacher.double() / temperature).t()
    prototypes, samples = q.shape
    q /= q.sum()
    for _ in range(rounds):
        q /= q.sum(dim=1, keepdim=True)
        q /= prototypes
        q /= q.sum(dim=0, keepdim=True)
        q /= samples
    return (q * samples).t().float()


def cross_entropies(student, targets):
    return -(targets * F.log_softmax(student / STUDENT_TEMPERATURE, dim=-1)).sum(-1)


def dino_loss(student_global, student_local, targets):
    """`targets` of the two global crops, in the order of the crops."""
    first, second = targets.chunk(2)
    terms = LOCAL_CROPS * 2 + 2
    of_local = sum(cross_entropies(crop, target).mean() for crop in student_local.chunk(LOCAL_CROPS) for target in (first, second))
    of_global = cross_entropies(student_global, torch.cat([second, first])).mean() * 2
    return of_local / terms + of_global / terms


def ibot_loss(student, targets, weights, crops):
    return (cross_entropies(student, targets) * weights).sum() / crops


def koleo_loss(features):
    def of_crops(x):
        x = F.normalize(x, p=2, dim=-1, eps=1e-8)
        with torch.no_grad():
            nearest = (x @ x.t() - 3 * torch.eye(len(x))).argmax(dim=1)
        return -torch.log(torch.nn.PairwiseDistance(2, eps=1e-8)(x, x[nearest]) + 1e-8).mean()

    return sum(of_crops(crops) for crops in features.chunk(2))


def losses(folder):
    student = {
        "student_global": torch.randn(2 * IMAGES, PROTOTYPES),
        "student_local": torch.randn(LOCAL_CROPS * IMAGES, PROTOTYPES),
        "student_patches": torch.randn(7, PROTOTYPES),
        "features": torch.randn(2 * IMAGES, WIDTH),
    }
    teacher, teacher_patches, centre = torch.randn(2 * IMAGES, PROTOTYPES), torch.randn(7, PROTOTYPES), torch.randn(1, PROTOTYPES)
    weights = torch.tensor([1 / 3] * 3 + [1 / 4] * 4)
    targets = F.softmax((teacher - centre) / TEACHER_TEMPERATURE, dim=-1)
    patches = sinkhorn_knopp(teacher_patches, TEACHER_TEMPERATURE)
    for value in student.values():
        value.requires_grad_()
    dino = dino_loss(student["student_global"], student["student_local"], targets)
    ibot = ibot_loss(student["student_patches"], patches, weights, 2 * IMAGES)
    koleo = koleo_loss(student["features"])
    (dino + ibot + 0.1 * koleo).backward()
    save(folder / "losses.safetensors", {
        **student, **{"grad/" + name: value.grad for name, value in student.items()},
        "teacher": teacher, "teacher_patches": teacher_patches, "centre": centre, "weights": weights, "targets": targets,
        "patches": patches, "sinkhorn_of_crops": sinkhorn_knopp(teacher, TEACHER_TEMPERATURE),
        "centre_after": 0.9 * centre + 0.1 * teacher.mean(dim=0, keepdim=True), "dino": dino, "ibot": ibot, "koleo": koleo})


def knn(folder):
    """Votes are counted one by one."""
    bank, queries = torch.randn(90, WIDTH), torch.randn(40, WIDTH)
    bank_labels, labels = torch.randint(5, (90,)), torch.randint(5, (40,))
    queries[::2] = bank[:20] + 0.7 * torch.randn(20, WIDTH)
    labels[::2] = bank_labels[:20]
    cosines = F.normalize(queries, dim=-1).double() @ F.normalize(bank, dim=-1).double().t()
    right = 0
    for row, label in zip(cosines.tolist(), labels.tolist()):
        votes = [0.0] * 5
        for cosine, voter in sorted(zip(row, bank_labels.tolist()), reverse=True)[:20]:
            votes[voter] += math.exp(cosine / 0.07)
        right += votes.index(max(votes)) == label
    save(folder / "knn.safetensors", {"bank": bank, "queries": queries, "bank_labels": bank_labels, "labels": labels,
                                      "accuracy": torch.tensor(right / 40, dtype=torch.float64)})


def each_pixel(image, change):
    rows = image.permute(1, 2, 0).tolist()
    return torch.tensor([[change(*pixel) for pixel in row] for row in rows]).permute(2, 0, 1)


def luminance(r, g, b):
    return 0.2989 * r + 0.587 * g + 0.114 * b


def blurred(image, sigma):
    weights = [math.exp(-0.5 * (place / sigma) ** 2) for place in range(-4, 5)]
    out, (_, height, width) = torch.zeros_like(image), image.shape

    def reflected(place, size):
        return -place if place < 0 else 2 * (size - 1) - place if place >= size else place

    for down, of_row in zip(range(-4, 5), weights):
        for right, of_column in zip(range(-4, 5), weights):
            rows = [reflected(row + down, height) for row in range(height)]
            columns = [reflected(column + right, width) for column in range(width)]
            out += of_row * of_column * image[:, rows][:, :, columns]
    return out / sum(weights) ** 2


def pixels(folder):
    bytes_ = torch.randint(256, (37, 53, 3), dtype=torch.uint8)
    bytes_[:9, :9] = bytes_[:9, :9, :1]  # grey pixels, which have no hue
    all_ = bytes_.permute(2, 0, 1).float() / 255
    out = {"bytes": bytes_}
    # Larger, smaller, and both; the box is (top, left, height, width) and the result (height, width).
    for i, (box, size) in enumerate([((0, 0, 37, 53), (16, 16)), ((3, 5, 8, 9), (24, 20)), ((1, 20, 36, 7), (12, 28))]):
        top, left, height, width = box
        part = all_[None, :, top:top + height, left:left + width].contiguous()
        resized = F.interpolate(part, size=size, mode="bicubic", antialias=True, align_corners=False).clamp(0, 1)[0]
        out.update({f"box{i}": torch.tensor(box), f"resized{i}": resized})
    image = all_[:, :12, :14].contiguous()
    mean = sum(luminance(*pixel) for pixel in image.flatten(1).t().tolist()) / (12 * 14)

    def cut(*values):
        return [min(max(value, 0.0), 1.0) for value in values]

    def turned(r, g, b):
        h, s, v = colorsys.rgb_to_hsv(r, g, b)
        return list(colorsys.hsv_to_rgb((h + 0.07) % 1.0, s, v))

    def saturated(r, g, b):
        grey = luminance(r, g, b)
        return cut(*(1.2 * value + (1 - 1.2) * grey for value in (r, g, b)))

    def normalised(r, g, b):
        return [(r - 0.485) / 0.229, (g - 0.456) / 0.224, (b - 0.406) / 0.225]

    save(folder / "pixels.safetensors", {
        **out, "image": image, "brightness": each_pixel(image, lambda *p: cut(*(1.4 * v for v in p))),
        "contrast": each_pixel(image, lambda *p: cut(*(0.7 * v + 0.3 * mean for v in p))),
        "saturation": each_pixel(image, saturated), "hue": each_pixel(image, turned),
        "grey": each_pixel(image, lambda *p: [luminance(*p)] * 3), "blurred": blurred(image, 1.3),
        "solarized": each_pixel(image, lambda *p: [1 - v if v >= 128 / 255 else v for v in p]),
        "normalised": each_pixel(image, normalised)})


class SelfDistilled(torch.nn.Module):
    def __init__(self, separate_head, members):
        import transformers as hf  # importing it takes seconds
        super().__init__()
        self.registers = members.get("num_register_tokens", 0)
        config = hf.Dinov2WithRegistersConfig if self.registers else hf.Dinov2Config
        model = hf.Dinov2WithRegistersModel if self.registers else hf.Dinov2Model
        # Biases of keys have no gradient but rounding noise, which AdamW makes steps of.
        self.backbone = model(config(hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=2, image_size=16, patch_size=4,
                                     qkv_bias=False, layerscale_value=0.5, **members))
        self.dino_head = Head(PROTOTYPES)
        if separate_head:
            self.ibot_head = Head(PROTOTYPES)

    def forward(self, pixels, masks=None, masked=None):
        tokens = self.backbone(pixels, bool_masked_pos=masks).last_hidden_state
        head = getattr(self, "ibot_head", self.dino_head)
        patches = None if masked is None else head(tokens[:, 1 + self.registers:].flatten(0, 1)[masked])
        return tokens[:, 0], self.dino_head(tokens[:, 0]), patches


def cosine(first, last, share):
    return last + (first - last) * (1 + math.cos(math.pi * share)) / 2


def groups_of(student):
    """Groups of the optimizer, with the share of the rate that each has in a step."""
    def kind(name, parameter):
        return parameter.dim() > 1, "patch_embeddings" in name, "last_layer" in name

    groups = {}
    for name, parameter in student.named_parameters():
        groups.setdefault(kind(name, parameter), []).append(parameter)
    return [{"params": parameters, "weight_decay": DECAY if decays else 0.0, "is_patch": is_patch, "is_last": is_last}
            for (decays, is_patch, is_last), parameters in groups.items()]


def rate_of(group, step):
    if group["is_last"] and step < FROZEN_STEPS:
        return 0.0
    return RATE * (PATCH_EMBED_RATE if group["is_patch"] else 1)


class Targets:
    """What the teacher's answers to one kind of token become. `answers` are those of each rank."""

    def __init__(self, balanced):
        self.balanced, self.centre = balanced, torch.zeros(1, PROTOTYPES)

    def of(self, answers, temperature):
        if self.balanced:
            return sinkhorn_knopp(torch.cat(answers), temperature).split([len(rows) for rows in answers])
        targets = [F.softmax((rows - self.centre) / temperature, dim=-1) for rows in answers]
        self.centre = CENTRE_MOMENTUM * self.centre + (1 - CENTRE_MOMENTUM) * torch.cat(answers).mean(dim=0, keepdim=True)
        return targets


def train(student, batches, ranks, balanced):
    """A rank has an equal part of the images. KoLeo compares its own alone; targets are made of the answers of all ranks. Returns
    the losses of the steps and what a checkpoint holds after some of them."""
    teacher, of_crops, of_patches = copy.deepcopy(student), Targets(balanced), Targets(balanced)
    optimizer = torch.optim.AdamW(groups_of(student), lr=RATE, betas=(0.9, 0.999), fused=True)
    told, kept = [], {}
    for step, (first, second, local, masks) in enumerate(zip(*batches)):
        images = len(first) // ranks
        parts = []
        for rank in range(ranks):
            mine = slice(rank * images, (rank + 1) * images)
            of_mine = masks[:, mine].flatten(0, 1)
            weights = (1 / of_mine.sum(1).clamp(min=1))[:, None].expand_as(of_mine)[of_mine]
            parts.append((torch.cat([first[mine], second[mine]]), local[:, mine].flatten(0, 1), of_mine,
                          of_mine.flatten().nonzero().flatten(), weights))
        warmth = min(step / WARM_STEPS, 1.0)
        temperature = FIRST_TEACHER_TEMPERATURE + warmth * (TEACHER_TEMPERATURE - FIRST_TEACHER_TEMPERATURE)
        with torch.no_grad():
            answers = [teacher(pixels, None, masked) for pixels, _, _, masked, _ in parts]
            wanted = of_crops.of([crops for _, crops, _ in answers], temperature)
            wanted_patches = of_patches.of([patches for *_, patches in answers], temperature)
        losses = []
        for (pixels, small, of_mine, masked, weights), targets, patch_targets in zip(parts, wanted, wanted_patches):
            features, of_global, patches = student(pixels, of_mine, masked)
            losses.append(torch.stack([dino_loss(of_global, student(small)[1], targets),
                                       ibot_loss(patches, patch_targets, weights, 2 * images), koleo_loss(features)]))
        mean = sum(losses) / ranks
        loss = mean @ torch.tensor([DINO_WEIGHT, IBOT_WEIGHT, KOLEO_WEIGHT])
        optimizer.zero_grad()
        loss.backward()
        for group in optimizer.param_groups:
            group["lr"] = rate_of(group, step)
        optimizer.step()
        told.append([loss.item(), *mean.tolist()])
        with torch.no_grad():
            for slow, fast in zip(teacher.parameters(), student.parameters()):
                slow.lerp_(fast, 1 - cosine(FIRST_MOMENTUM, LAST_MOMENTUM, (step + 1) / STEPS))
        if (step + 1) % KEPT_EVERY == 0:
            kept.update({f"{step + 1}/centres/parameter/dino_center": of_crops.centre,
                         f"{step + 1}/centres/parameter/ibot_center": of_patches.centre})
            for part, model in (("student", student), ("teacher", teacher)):
                kept.update({f"{step + 1}/{part}/parameter/{name}": value.detach().clone()
                             for name, value in model.named_parameters()})
    losses = dict(zip(("loss", "dino_loss", "ibot_loss", "koleo_loss"), torch.tensor(told, dtype=torch.float64).t()))
    return {**losses, **kept}


def training(folder):
    for name, (balanced, separate_head, members) in TRAININGS.items():
        student = SelfDistilled(separate_head, members)
        with torch.no_grad():
            for parameter_name, parameter in student.backbone.named_parameters():
                parameter.mul_(4.0) if parameter.dim() > 1 else parameter.add_(0.1 * torch.randn_like(parameter))
        (folder / name).mkdir()
        save(folder / name / "model.safetensors", dict(student.named_parameters()))

        def repeated(values):  # few batches, so that the model learns them
            return values.repeat(STEPS // 2, *[1] * (values.dim() - 1))

        batches = [repeated(torch.randn(2, 4, 3, 16, 16)), repeated(torch.randn(2, 4, 3, 16, 16)),
                   repeated(torch.randn(2, LOCAL_CROPS, 4, 3, 8, 8)), repeated(torch.rand(2, 2, 4, 16) < 0.3)]
        save(folder / name / "batches.safetensors", dict(zip(("first", "second", "local", "masks"), batches)))
        for ranks in (1, 2):
            save(folder / name / f"{ranks}.safetensors", train(copy.deepcopy(student), batches, ranks, balanced))


if __name__ == "__main__":
    torch.manual_seed(24)
    torch.set_num_threads(1)
    {"head": head, "losses": losses, "knn": knn, "pixels": pixels, "training": training}[sys.argv[2]](pathlib.Path(sys.argv[1]))
