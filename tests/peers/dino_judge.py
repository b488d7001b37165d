"""A second computation of what self-distillation adds to DINOv2, and of its training, for comparison with muster's own.

dino_judge.py FOLDER JUDGE writes inputs and expected results into FOLDER/JUDGE.safetensors. A judge is one of:
  head       the head of prototypes, with gradients
  losses     targets, centres and losses of one micro-batch, with gradients
  knn        the share of queries that a weighted vote names rightly
  pixels     each step of the augmentation
  training   a folder: config.json and weights of a student, the batches of 20 steps, and what a training at 1 and at 2 ranks makes
             of them. Its backbone is transformers' Dinov2Model.

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
STEPS, RATE, DECAY, MOMENTUM = 20, 1e-3, 0.04, 0.9


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
    """A head serves both objectives."""

    def __init__(self, config):
        from transformers import Dinov2Model  # importing it takes seconds
        super().__init__()
        self.backbone, self.dino_head = Dinov2Model(config), Head(PROTOTYPES)

    def forward(self, pixels, masks=None, masked=None):
        tokens = self.backbone(pixels, bool_masked_pos=masks).last_hidden_state
        patches = None if masked is None else self.dino_head(tokens[:, 1:].flatten(0, 1)[masked])
        return tokens[:, 0], self.dino_head(tokens[:, 0]), patches


def train(student, batches, ranks):
    """A rank has an equal part of the images. KoLeo compares its own alone. DINO's targets are centred, iBOT's are balanced over
    all ranks. Returns the losses and the centre."""
    teacher, centre, told = copy.deepcopy(student), torch.zeros(1, PROTOTYPES), []
    matrices = [p for p in student.parameters() if p.dim() > 1]
    others = [p for p in student.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}], lr=RATE,
                                  betas=(0.9, 0.999), fused=True)
    for first, second, local, masks in zip(*batches):
        images = len(first) // ranks
        parts = []
        for rank in range(ranks):
            mine = slice(rank * images, (rank + 1) * images)
            of_mine = masks[:, mine].flatten(0, 1)
            parts.append((torch.cat([first[mine], second[mine]]), local[:, mine].flatten(0, 1), of_mine,
                          of_mine.flatten().nonzero().flatten(), (1 / of_mine.sum(1).clamp(min=1))[:, None].expand_as(of_mine)[of_mine]))
        with torch.no_grad():
            answers = [teacher(pixels, None, masked) for pixels, _, _, masked, _ in parts]
            of_patches = sinkhorn_knopp(torch.cat([patches for *_, patches in answers]), TEACHER_TEMPERATURE).split(
                [len(masked) for *_, masked, _ in parts])
        losses = []
        for (pixels, small, of_mine, masked, weights), (_, of_teacher, _), targets in zip(parts, answers, of_patches):
            features, of_global, patches = student(pixels, of_mine, masked)
            centred = F.softmax((of_teacher - centre) / TEACHER_TEMPERATURE, dim=-1)
            losses.append(dino_loss(of_global, student(small)[1], centred) + ibot_loss(patches, targets, weights, 2 * images)
                          + 0.1 * koleo_loss(features))
        loss = sum(losses) / ranks
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        told.append(loss.item())
        centre = 0.9 * centre + 0.1 * torch.cat([of_teacher for _, of_teacher, _ in answers]).mean(dim=0, keepdim=True)
        with torch.no_grad():
            for slow, fast in zip(teacher.parameters(), student.parameters()):
                slow.lerp_(fast, 1 - MOMENTUM)
    return torch.tensor(told, dtype=torch.float64), teacher, centre


def training(folder):
    from transformers import Dinov2Config
    folder = folder / "training"
    # Biases of keys have no gradient but rounding noise, which AdamW makes steps of. Few batches, so that the model learns them.
    config = Dinov2Config(hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=2, image_size=16, patch_size=4, qkv_bias=False,
                          layerscale_value=0.5)
    student = SelfDistilled(config)
    with torch.no_grad():
        for name, parameter in student.backbone.named_parameters():
            parameter.mul_(4.0) if parameter.dim() > 1 else parameter.add_(0.1 * torch.randn_like(parameter))
    config.save_pretrained(folder)
    save(folder / "model.safetensors", dict(student.named_parameters()))

    def repeated(values):
        return values.repeat(STEPS // 2, *[1] * (values.dim() - 1))

    batches = [repeated(torch.randn(2, 4, 3, 16, 16)), repeated(torch.randn(2, 4, 3, 16, 16)),
               repeated(torch.randn(2, LOCAL_CROPS, 4, 3, 8, 8)), repeated(torch.rand(2, 2, 4, 16) < 0.3)]
    save(folder / "batches.safetensors", dict(zip(("first", "second", "local", "masks"), batches)))
    for ranks in (1, 2):
        trained = copy.deepcopy(student)
        losses, teacher, centre = train(trained, batches, ranks)
        save(folder / f"{ranks}.safetensors", {"losses": losses, "centre": centre,
                                               **{"student/" + name: value for name, value in trained.named_parameters()},
                                               **{"teacher/" + name: value for name, value in teacher.named_parameters()}})


if __name__ == "__main__":
    torch.manual_seed(24)
    torch.set_num_threads(1)
    {"head": head, "losses": losses, "knn": knn, "pixels": pixels, "training": training}[sys.argv[2]](pathlib.Path(sys.argv[1]))
