"""Crops of images as DINOv2 makes them, with the steps and probabilities of worker/batch/images.cpp, in PyTorch."""

import math

import torch
import torch.nn.functional as F

LUMINANCE = torch.tensor([0.2989, 0.587, 0.114])[:, None, None]
MEAN, DEVIATION = (torch.tensor(values)[:, None, None] for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
# (blurred, solarized): probabilities of the first large crop, the second one, and the small ones.
FIRST, SECOND, SMALL = (1.0, 0.0), (0.1, 0.2), (0.5, 0.0)


def grey(x):
    return (x * LUMINANCE).sum(0, keepdim=True)


def part(image, size, low, high, random):
    height, width = image.shape[-2:]
    for _ in range(10):
        area, ratio = height * width * random.uniform(low, high), math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        rows, columns = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
        if 0 < rows <= height and 0 < columns <= width:
            break
    else:
        rows = columns = min(height, width)
    top, left = int(random.integers(height - rows + 1)), int(random.integers(width - columns + 1))
    box = image[None, :, top:top + rows, left:left + columns]
    return F.interpolate(box, size=(size, size), mode="bicubic", antialias=True, align_corners=False)[0].clamp(0, 1)


def with_hue(x, shift):
    """By way of hue, saturation and value."""
    red, green, blue = x
    value, low = x.amax(0), x.amin(0)
    span = value - low
    least = span.clamp(min=1e-12)
    hue = torch.where(value == red, (green - blue) / least % 6,
                      torch.where(value == green, (blue - red) / least + 2, (red - green) / least + 4)) / 6
    hue = (hue + shift) % 1 * 6
    place = (torch.tensor([5.0, 3.0, 1.0])[:, None, None] + hue) % 6
    return value - span * torch.minimum(place, 4 - place).clamp(0, 1)


def jittered(x, random):
    for step in random.permutation(4):
        if step == 0:
            x = (x * random.uniform(0.6, 1.4)).clamp(0, 1)
        elif step == 1:
            factor = random.uniform(0.6, 1.4)
            x = (factor * x + (1 - factor) * grey(x).mean()).clamp(0, 1)
        elif step == 2:
            factor = random.uniform(0.8, 1.2)
            x = (factor * x + (1 - factor) * grey(x)).clamp(0, 1)
        else:
            x = with_hue(x, random.uniform(-0.1, 0.1))
    return x


def blurred(x, sigma):
    taps = torch.exp(-0.5 * (torch.arange(-4.0, 5.0) / sigma) ** 2)
    taps = (taps / taps.sum()).expand(3, 1, 1, 9)
    x = F.pad(x[None], (4, 4, 4, 4), mode="reflect")
    return F.conv2d(F.conv2d(x, taps, groups=3), taps.transpose(2, 3), groups=3)[0]


def view(image, size, low, high, kind, random):
    """A crop of an image, fp32 [3, height, width] from 0 to 1."""
    x = part(image, size, low, high, random)
    if random.random() < 0.5:
        x = x.flip(-1)
    if random.random() < 0.8:
        x = jittered(x, random)
    if random.random() < 0.2:
        x = grey(x).expand(3, -1, -1)
    if random.random() < kind[0]:
        x = blurred(x, random.uniform(0.1, 2))
    if random.random() < kind[1]:
        x = torch.where(x >= 128 / 255, 1 - x, x)
    return (x - MEAN) / DEVIATION


def masks(crops, patches, random):
    """bool [crops, patches]. Half of the crops are masked, in a tenth to a half of their patches. These lie anywhere, where muster
    masks blocks of them."""
    out = torch.zeros(crops, patches, dtype=torch.bool)
    for row in out:
        if random.random() < 0.5:
            row[torch.from_numpy(random.permutation(patches)[:int(patches * random.uniform(0.1, 0.5))])] = True
    return out
