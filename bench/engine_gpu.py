"""Steps of the engine on one GPU beside FSDP2 and unsharded models.

Needs a GPU, and engine_bench of the preset cuda: ./dev build --preset cuda engine_bench
"""

import shutil
import subprocess
import sys

from engine import Programs, middle, ratio
from promise import Promise

BF16 = ["--device", "cuda", "--dtype", "bf16", "--warm-up", "5"]
MODELS = {
    "8 layers of width 1024, vocabulary 8192, 8 x 1024 tokens":
        ["--dim", "1024", "--layers", "8", "--heads", "16", "--seq", "1024", "--batch", "8", "--vocab", "8192", "--steps", "20"],
    "8 layers of width 2048, vocabulary 32000, 4 x 2048 tokens":
        ["--dim", "2048", "--layers", "8", "--heads", "16", "--seq", "2048", "--batch", "4", "--vocab", "32000", "--steps", "10"],
    "64 layers of width 256, vocabulary 512, 2 x 64 tokens":
        ["--dim", "256", "--layers", "64", "--heads", "4", "--seq", "64", "--batch", "2", "--vocab", "512", "--steps", "20"]}
# Name to program and its options.
WAYS = {"muster": ("muster",), "graph": ("muster", "--cuda-graph"), "muster plain": ("muster", "--plain"), "FSDP2": ("pytorch",),
        "FSDP2 compiled": ("pytorch", "--compile"), "PyTorch": ("pytorch", "--plain")}
ROUNDS = 3
FEWER = {"muster plain": 2, "FSDP2 compiled": 2, "PyTorch": 2}


def gpu():
    """What NVIDIA's driver says of the GPU; empty where there is none."""
    if shutil.which("nvidia-smi") is None:
        return ""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True).stdout.splitlines()[0]


def measured(programs, options):
    runs = {name: (program, *BF16, *options, *more) for name, (program, *more) in WAYS.items()}
    return programs.rounds(runs, ROUNDS, FEWER)


def row(what, of, key, unit):
    return f"| {what} | " + " | ".join(f"{middle(of[name], key):.{0 if unit == 'MB' else 1}f} {unit}" for name in WAYS) + " |"


def measure(binaries, quick):
    card = gpu()
    if not card:
        sys.exit("bench: engine_gpu wants a GPU, and nvidia-smi finds none")
    of_cuda = binaries.parents[1] / "cuda" / "bin"
    if not (of_cuda / "engine_bench").exists():
        sys.exit(f"bench: no engine_bench in {of_cuda}: run ./dev build --preset cuda engine_bench")
    programs = Programs(of_cuda, quick)
    all_of = {what: measured(programs, options) for what, options in MODELS.items()}
    small = list(all_of.values())[-1]
    head = "| model | muster | muster, CUDA graph | muster without sharding | FSDP2 | FSDP2, compiled | PyTorch without sharding |"
    text = "\n".join([
        "# The engine beside PyTorch on a GPU", "",
        f"Steps of a Llama-like decoder in bf16 with fp32 masters: forward, backward and fused AdamW, on one {card.replace(', ', ', driver ')}.",
        "Each number is the mean of the timed steps between two synchronisations, and the median of three runs (two for",
        "compiled and unsharded ones), in which the programs took turns. One rank, so nothing is communicated; FSDP2 still",
        "copies. All compute the same decoder with scaled dot-product attention. muster has kernels for rotary embedding,",
        "SwiGLU and the loss of the head. \"CUDA graph\" is `train.cuda_graph`. \"Compiled\" is `torch.compile(layer,",
        "fullgraph=True)`, as torchtitan does it.", "",
        head, "|---|---|---|---|---|---|---|", *(row(what, of, "step_ms", "ms") for what, of in all_of.items()), "",
        "Peak of the GPU's memory, as the allocator counts it:", "",
        head, "|---|---|---|---|---|---|---|", *(row(what, of, "peak_cuda_mb", "MB") for what, of in all_of.items()), "",
        "From the start of the program to the end of the first step:", "",
        head, "|---|---|---|---|---|---|---|", *(row(what, of, "start_to_first_step_s", "s") for what, of in all_of.items())]) + "\n"
    promises = [Promise(f"FSDP2's step over muster's, {what}", ratio(of["FSDP2"], of["muster"]), at_least=1) for what, of in all_of.items()]
    promises.append(Promise("a called step over a replayed one, of many small layers", ratio(small["muster"], small["graph"]), at_least=2))
    return text, promises
