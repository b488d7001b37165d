"""The recipes beside the same trainings with transformers and FSDP2: speed and memory of two ranks on CPUs.

`./dev bench --only recipes` writes recipes.md. To measure some recipes:
recipes.py --bin FOLDER [--quick] [--only NAME] [--rounds N] [--json FILE]
prints the table alone. Exit status: 0, or 1 when a rank fails or the losses of the two sides differ.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from engine import python
from promise import Promise

FILE = pathlib.Path(__file__).resolve().with_suffix(".md")
LEARNED = "## What the recipes learn"
PEER = pathlib.Path(__file__).resolve().parent / "recipes_peer.py"
RANKS = 2
ROUNDS = 2  # even: each side comes first as often as the other
RUN_LIMIT_S = 300
SLOWEST_EXIT_S = 10
# Losses agree until rounding has grown; measured: 2e-5 at most.
LOSS_TOLERANCE = 1e-3
TRAIN = {"learning_rate": 1e-3, "schedule": "constant", "warmup_steps": 0, "weight_decay": 0.1, "clip_norm": 1, "seed": 1,
         "validation_every_steps": 0}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@dataclasses.dataclass(frozen=True)
class Recipe:
    title: str
    recipe: str
    family: str
    prepare: list  # options of muster data prepare
    sizes: dict    # of the model's config.json
    data: dict     # keys of the run file
    train: dict    # the same
    shown: tuple   # in recipes.md: the model, the batch of both ranks, the data


CHESS = ["--from", "chess", "--count", "2000", "--notation", "san"]
LLAMA = {"hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 4, "num_attention_heads": 4, "max_position_embeddings": 256,
         "rms_norm_eps": 1e-5}
PACKED = {"sequence_length": 256, "packing": "documents"}
# How the base of LoRA is kept: the value of train.quantize_base, and the title of a row.
FORMATS = {"none": "bf16", "int8": "int8", "nf4": "nf4"}
KEPT = re.compile(r"tensors: parameters ([\d.]+) MiB.*? pool ([\d.]+) MiB")
RECIPES = {
    "llama": Recipe("causal_lm, Llama", "causal_lm", "llama", CHESS, LLAMA, PACKED, {"batch_size": 16},
                    ("4 layers of width 256", "16 rows of 256 tokens, packed documents", "games of chess")),
    "lora": Recipe(
        "causal_lm, Llama with LoRA", "causal_lm", "llama", CHESS, LLAMA, PACKED, {"batch_size": 16, "lora_rank": 8},
        ("the same, frozen; adapters of rank 8 at the queries and values of each layer", "the same", "the same")),
    "gpt_neox": Recipe(
        "causal_lm, GPT-NeoX", "causal_lm", "gpt_neox", ["--from", "man", "--max-bytes", "2MiB"],
        {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 4, "max_position_embeddings": 256},
        {"sequence_length": 128}, {"batch_size": 32},
        ("4 layers of width 256", "32 rows of 128 tokens", "manual pages")),
    "t5": Recipe(
        "seq2seq, T5", "seq2seq", "t5", ["--from", "man-pairs", "--prefix", "summarize: ", "--count", "2000"],
        {"d_model": 256, "d_kv": 64, "d_ff": 1024, "num_layers": 3, "num_heads": 4, "dropout_rate": 0.0, "decoder_start_token_id": 0},
        {"sequence_length": 256, "target_length": 64}, {"batch_size": 16, "rouge": False},
        ("3 + 3 layers of width 256", "16 pairs of at most 256 and 64 tokens", "manual pages and what their NAME lines say")),
    "bert": Recipe(
        "classify, BERT", "classify", "bert", ["--from", "packages"],
        {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 4, "max_position_embeddings": 256,
         **NO_DROPOUT},
        {"sequence_length": 64}, {"batch_size": 64},
        ("4 layers of width 256", "64 texts of at most 64 tokens", "descriptions of packages")),
    "dinov2": Recipe(
        "dino, DINOv2", "dino", "dinov2", ["--from", "shapes", "--count", "1500", "--size", "48"],
        {"hidden_size": 192, "num_hidden_layers": 4, "num_attention_heads": 4, "image_size": 48, "patch_size": 8,
         "layerscale_value": 1e-5},
        {"local_crops": 4, "local_crops_size": 24},
        {"batch_size": 32, "clip_norm": 3, "prototypes": 1024, "head_hidden_size": 512, "head_bottleneck_size": 64,
         "first_teacher_temperature": 0.04, "freeze_last_layer_epochs": 0, "patch_embed_rate": 1},
        ("4 layers of width 192, 1,024 prototypes", "32 images of 48 pixels: 2 large and 4 small crops of each", "drawn shapes")),
}

TEXT = """# The recipes: what they learn, and their speed beside transformers and FSDP2

{learned}

## Speed and memory beside transformers and FSDP2

Each recipe trains a small model on two ranks of one machine, in fp32, on CPUs. A rank has one thread and half of the batch.
The other side is the same training written with transformers and PyTorch's FSDP2 (`fully_shard`), with Gloo; for LoRA with PEFT,
too. Both sides take turns: in the first round FSDP2 comes first, in the next one muster, and so on. There were {rounds} rounds.
A run has 3 steps to warm up and 7 that count. A side's speed in a run is the tokens of a step, without padding, divided by its
median time. Numbers are medians over the runs, and ratios are medians over the rounds.

{table}

### Adapters beside a quantised base

The same Llama with LoRA, in bf16: `train.quantize_base` keeps and gathers the weights of the layers in fewer bits. muster alone runs
here, the three formats in turns, with the same rounds and steps as above. Kept is what a rank has of parameters between steps,
the fp32 adapters included, and the pool is what it has for gathered ones and for gradients. Sent is what a rank sends in a step.

{formats}

All of it took {minutes:.1f} minutes. `python3 bench/recipes.py --bin build/dev/bin --only NAME` measures one recipe, and `--json FILE`
writes all numbers. The Python with PyTorch and transformers is that of `./dev setup --peers`, or `MUSTER_PEER_PYTHON`.

### The trainings

| recipe | model | batch of both ranks | data |
|---|---|---|---|
{trainings}

Both sides start from the same folder of transformers, read the same files of `muster data prepare` and the same run file, and
take the same samples in the same order. With LoRA both start from adapters that muster has drawn and exported, and PEFT has read.
Both have AdamW, clip the norm of the gradients, make a unit of each transformer block, keep all activations and have no dropout.
One thread (muster) or one process (FSDP2) makes the batches ahead. FSDP2's AdamW is the fused one. transformers has its defaults:
attention is PyTorch's `scaled_dot_product_attention`, but for T5, which has its own.

The benchmark fails unless the losses of all steps of the first round agree to one part in a thousand. Here they differ by {most:.1e}
at most, with {furthest}. So both sides do the same work. DINOv2 is the exception: each side draws its own crops, masks and heads.
There FSDP2's side has the same augmentations, losses, centres and teacher, but masks single patches where muster masks blocks
of them.

GPUs and other ways to shard are left out.

### What the numbers contain

A step of FSDP2 begins with taking its batch. A step of muster begins with its first computation, and takes the next batch. Both
end after the optimizer, and for dino after the teacher. Each side times its steps with its own clock on rank 0. For muster the
benchmark also checks that the times of the steps fill the time between their reports.

Resident is the peak of a process (VmHWM), as the kernel tells when it has ended: that of the rank with more. It counts
everything: the program, the libraries' pages that were touched, tensors, and the memory that both ranks share. muster's rank is
a C++ program with LibTorch for CPUs; its peak includes reading the first weights and saving a checkpoint at the end. FSDP2's
rank is a Python interpreter with PyTorch from PyPI, which is built for CUDA, and transformers; the process that makes its
batches is not counted. The numbers in brackets leave the programs out: they are what model, states, activations and batches add.
With LoRA FSDP2's rank has also read PEFT, which is not left out.
Tensors is the most that muster's tensors took at one time in a step. PyTorch does not tell this on CPUs.
"""


class Failed(Exception):
    """One sentence and the log of the rank."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def variables_of_ranks(folder, name):
    """The variables of each rank. Both sides get the same; FSDP2's ranks meet in a file."""
    shared = {"WORLD_SIZE": str(RANKS), "LOCAL_WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
              "OMP_NUM_THREADS": "1", "HOME": str(folder), "TMPDIR": str(folder), "HF_HUB_OFFLINE": "1"}
    return [{**shared, "RANK": str(rank), "LOCAL_RANK": str(rank), "MUSTER_METRICS_FILE": str(folder / f"{name}.{rank}.jsonl")}
            for rank in range(RANKS)]


def run_ranks(command, folder, name):
    """Runs a process a rank to its end. Returns the peak of each rank's resident memory in bytes, as the kernel counts it (VmHWM)."""
    shared = {name: value for name, value in os.environ.items() if not name.startswith("MUSTER_")}
    processes, peaks = {}, {}
    try:
        for rank, own in enumerate(variables_of_ranks(folder, name)):
            with open(folder / f"{name}.{rank}.out", "wb") as out, open(folder / f"{name}.{rank}.log", "wb") as log:
                processes[rank] = subprocess.Popen(command, env=shared | own, stdout=out, stderr=log, stdin=subprocess.DEVNULL, cwd=folder)
        deadline = time.monotonic() + RUN_LIMIT_S
        while len(peaks) < RANKS:
            for rank in processes.keys() - peaks.keys():
                pid, status, usage = os.wait4(processes[rank].pid, os.WNOHANG)
                if pid == 0:
                    continue
                processes[rank].returncode = os.waitstatus_to_exitcode(status)
                peaks[rank] = usage.ru_maxrss * 1024
                if processes[rank].returncode:
                    raise Failed(f"{name}: rank {rank} ended with {processes[rank].returncode}\n"
                                 + (folder / f"{name}.{rank}.log").read_text()[-3000:])
            if time.monotonic() > deadline:
                raise Failed(f"{name}: the ranks still run after {RUN_LIMIT_S} s")
            time.sleep(0.02)
    finally:
        for process in processes.values():
            if process.returncode is None:
                process.kill()
                process.wait(SLOWEST_EXIT_S)
    return [peaks[rank] for rank in range(RANKS)]


def told_by_muster(folder, name):
    """What rank 0 reported of each step."""
    lines = [json.loads(line) for line in (folder / f"{name}.0.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "step_ms" in line]
    # The steps must fill the time between their reports, or they would look faster than they are.
    clock, counted = steps[-1]["at_ms"] - steps[0]["at_ms"], sum(step["step_ms"] for step in steps[1:])
    if counted < 0.95 * clock - 20:
        raise Failed(f"{name}: steps of {counted:.0f} ms took {clock:.0f} ms")
    return {"step_ms": [step["step_ms"] for step in steps], "loss": [step["loss"] for step in steps],
            "tokens": [step.get("tokens_per_s", 0) * step["step_ms"] / 1e3 for step in steps],
            "tensor_peak": max(step["tensor_peak_bytes"] for step in steps), "sent": steps[-1]["bytes_communicated"],
            "data_wait_ms": [step["data_wait_ms"] for step in steps]}


def told_by_peer(folder, name):
    return json.loads((folder / f"{name}.0.out").read_text().splitlines()[-1])


class Bench:
    def __init__(self, binaries, folder, rounds, quick):
        self.binaries, self.folder, self.rounds = binaries, folder, 1 if quick else rounds
        self.steps, self.warm_up = (5, 2) if quick else (10, 3)

    def set_up(self, name, recipe):
        """Prepares the data, draws first weights, and writes the run file of both sides. Returns its path."""
        folder = self.folder / name
        folder.mkdir()
        subprocess.run([self.binaries / "muster", "data", "prepare", *recipe.prepare, "--to", folder / "data"], check=True,
                       stderr=subprocess.DEVNULL)
        run = {"format": 1, "name": name, "recipe": recipe.recipe,
               "model": {"family": recipe.family, "pretrained": str(folder / "model")},
               "data": {"prepared": str(folder / "data"), **recipe.data},
               "train": {**TRAIN, **recipe.train, "steps": self.steps, "micro_batch_size": recipe.train["batch_size"] // RANKS},
               "checkpoint": {"every_steps": 0}, "fsdp": {"strategy": "full_shard"}}
        file = folder / "run.json"
        file.write_text(json.dumps(run))
        self.make_model(file, recipe.sizes)
        if "lora_rank" in recipe.train:
            self.draw_adapters(run, folder)
        return file

    def make_model(self, file, sizes):
        subprocess.run([python(), "-B", PEER, "make", file, file.parent / "model", json.dumps(sizes)], check=True,
                       env={**os.environ, "RANK": "0", "TMPDIR": str(file.parent)})

    def train_by_peer(self, file, store, name):
        """Returns the ranks' peaks of memory."""
        return run_ranks([python(), "-B", PEER, "train", file, store], file.parent, name)

    def draw_adapters(self, run, folder):
        """Lets muster draw the first adapters of its seed, which PEFT then reads. A step of this learning rate changes no weight."""
        train = {**run["train"], "steps": 1, "learning_rate": 1e-30, "export_merged": False, "export_folder": str(folder / "adapters")}
        own = folder / "adapters.json"
        own.write_text(json.dumps({**run, "train": train, "checkpoint": {"every_steps": 0, "folder": str(folder / "no-steps")}}))
        run_ranks([self.binaries / "muster-worker", "--run-file", own], folder, "adapters")

    def run(self, side, file, number):
        folder, name = file.parent, f"{side}-{number}"
        if side == "muster":
            run = json.loads(file.read_text())
            run["checkpoint"]["folder"] = str(folder / f"checkpoints-{number}")
            own = folder / f"run-{number}.json"
            own.write_text(json.dumps(run))
            peaks = run_ranks([self.binaries / "muster-worker", "--run-file", own], folder, name)
            told = told_by_muster(folder, name)
        else:
            peaks = self.train_by_peer(file, folder / f"store-{number}", name)
            told = told_by_peer(folder, name)
        return {**told, "peak_rss": max(peaks)}

    def compare(self, name, recipe):
        """Both sides in turns: which one comes first changes with each round."""
        file = self.set_up(name, recipe)
        results = {"muster": [], "fsdp2": []}
        for number in range(self.rounds):
            for side in sorted(results, reverse=number % 2 == 0):
                results[side].append(self.run(side, file, number))
        samples = recipe.train["batch_size"]
        out = {"recipe": recipe.title, "unit": "images" if recipe.recipe == "dino" else "tokens"}
        for side, of in results.items():
            for one in of:
                each = samples if recipe.recipe == "dino" else statistics.mean(one["tokens"][self.warm_up:])
                one["step"] = statistics.median(one["step_ms"][self.warm_up:])
                one["per_s"] = each / one["step"] * 1e3
            out[side] = {"per_s": statistics.median(one["per_s"] for one in of), "step_ms": statistics.median(one["step"] for one in of),
                         "peak_rss_mb": statistics.median(one["peak_rss"] for one in of) / 1e6}
        out["muster"]["tensor_peak_mb"] = statistics.median(one["tensor_peak"] for one in results["muster"]) / 1e6
        waits = [wait for one in results["muster"] for wait in one["data_wait_ms"][self.warm_up:]]
        out["muster"]["data_wait_ms"] = statistics.median(waits)
        out["speed_ratio"] = statistics.median(a["per_s"] / b["per_s"] for a, b in zip(results["muster"], results["fsdp2"]))
        out["memory_ratio"] = statistics.median(a["peak_rss"] / b["peak_rss"] for a, b in zip(results["muster"], results["fsdp2"]))
        self.check(name, recipe, out, results["muster"][0], results["fsdp2"][0])
        return out

    def compare_formats(self):
        """LoRA of muster alone, in turns with its base in each format."""
        recipe = RECIPES["lora"]
        file = self.set_up("formats", dataclasses.replace(recipe, train={**recipe.train, "precision": "bf16"}))
        run = json.loads(file.read_text())
        results = {kept: [] for kept in FORMATS}
        for number in range(self.rounds):
            for kept in sorted(results, reverse=number % 2 == 0):
                own = file.parent / kept / "run.json"
                own.parent.mkdir(exist_ok=True)
                own.write_text(json.dumps({**run, "train": {**run["train"], "quantize_base": kept}}))
                one = self.run("muster", own, number)
                log = (own.parent / f"muster-{number}.0.out").read_text()
                if (said := KEPT.search(log)) is None:
                    raise Failed(f"formats: the log of rank 0 does not say what it keeps\n{log[-3000:]}")
                results[kept].append({"step_ms": statistics.median(one["step_ms"][self.warm_up:]), "tensors_mib": one["tensor_peak"] / 2**20,
                                      "kept_mib": float(said[1]), "pool_mib": float(said[2]), "sent_mib": one["sent"] / 2**20,
                                      "loss": one["loss"][-1]})
        return {kept: {name: statistics.median(one[name] for one in of) for name in of[0]} for kept, of in results.items()}

    @staticmethod
    def check(name, recipe, out, ours, peer):
        """The same batches and first weights give the same losses. Crops of images are drawn by either side for itself."""
        if recipe.recipe == "dino":
            out["losses"] = {"muster": ours["loss"], "fsdp2": peer["loss"]}
            return
        if any(abs(a - b) > 0.5 for a, b in zip(ours["tokens"], peer["tokens"])):
            raise Failed(f"{name}: the sides trained on other batches: {ours['tokens']} and {peer['tokens']} tokens")
        out["loss_difference"] = max(abs(a - b) / abs(b) for a, b in zip(ours["loss"], peer["loss"]))
        if out["loss_difference"] > LOSS_TOLERANCE:
            raise Failed(f"{name}: the sides trained differently: losses {ours['loss']} and {peer['loss']}")

    def alone(self):
        """The peak of each side's program, in MB, when it starts and does nothing."""
        commands = {"muster": [self.binaries / "muster-worker", "--help"],
                    "fsdp2": [python(), "-B", "-c", f"import sys; sys.path.insert(0, {str(PEER.parent)!r}); import recipes_peer; "
                               "import os, transformers; transformers.LlamaForCausalLM; os._exit(0)"]}
        return {side: max(run_ranks(command, self.folder, f"{side}-alone")) / 1e6 for side, command in commands.items()}


def row(of, alone):
    ours, peer = of["muster"], of["fsdp2"]
    resident = [f"{of[side]['peak_rss_mb']:.0f} MB ({of[side]['peak_rss_mb'] - alone[side]:.0f})" for side in ("muster", "fsdp2")]
    return (f"| {of['recipe']} | {ours['per_s']:,.0f} {of['unit']}/s | {peer['per_s']:,.0f} {of['unit']}/s | {of['speed_ratio']:.2f} | "
            f"{ours['step_ms']:.0f} ms | {peer['step_ms']:.0f} ms | {resident[0]} | {resident[1]} | {of['memory_ratio']:.2f} | "
            f"{ours['tensor_peak_mb']:.0f} MB |")


def table(found):
    alone = found["alone"]
    return "\n".join([
        "| recipe | muster | FSDP2 | muster / FSDP2 | muster, step | FSDP2, step | muster, resident | FSDP2, resident | muster / FSDP2 | "
        "muster, tensors |", "|---|---|---|---|---|---|---|---|---|---|", *(row(of, alone) for of in found["recipes"]), "",
        f"In brackets: above the program alone, which is {alone['muster']:.0f} MB of muster-worker, and {alone['fsdp2']:.0f} MB of Python "
        "with PyTorch and transformers."])


def formats_table(found):
    return "\n".join([
        "| base in | step | kept | pool | sent in a step | tensors at the peak | loss of the last step |", "|---|---|---|---|---|---|---|",
        *(f"| {FORMATS[kept]} | {of['step_ms']:.0f} ms | {of['kept_mib']:.1f} MiB | {of['pool_mib']:.1f} MiB | {of['sent_mib']:.1f} MiB | "
          f"{of['tensors_mib']:.0f} MiB | {of['loss']:.4f} |" for kept, of in found["formats"].items())])


def compare_all(binaries, rounds, quick, only=None):
    """The numbers of all recipes, or of one, and how often each was compared."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
        bench = Bench(binaries, pathlib.Path(folder), rounds, quick)
        found = {"alone": bench.alone(), "recipes": []}
        for name, recipe in RECIPES.items():
            if only in (None, name):
                found["recipes"].append(bench.compare(name, recipe))
                print(json.dumps(found["recipes"][-1]), file=sys.stderr, flush=True)
        if only in (None, "formats"):
            found["formats"] = bench.compare_formats()
    return {**found, "rounds": bench.rounds, "seconds": time.monotonic() - begun}


def data_table():
    return "\n".join(f"| {' | '.join([recipe.title, *recipe.shown])} |" for recipe in RECIPES.values())


def learned():
    """The section of recipes.md whose numbers are those of tests/system/recipes_test.py."""
    text = FILE.read_text()
    begin = text.index(LEARNED)
    return text[begin:text.index("\n## ", begin)].rstrip()


def measure(binaries, quick):
    found = compare_all(binaries, ROUNDS, quick)
    apart = {of["recipe"]: of["loss_difference"] for of in found["recipes"] if "loss_difference" in of}
    text = TEXT.format(learned=learned(), table=table(found), formats=formats_table(found), rounds=found["rounds"],
                       minutes=found["seconds"] / 60, trainings=data_table(), most=max(apart.values()), furthest=max(apart, key=apart.get))
    promises = [promise for of in found["recipes"] for promise in (
        Promise(f"recipes: {of['recipe']}: speed / FSDP2's", of["speed_ratio"], at_least=1),
        Promise(f"recipes: {of['recipe']}: resident memory / FSDP2's", of["memory_ratio"], at_most=0.6))]
    promises.append(Promise("recipes: LoRA in nf4: sent in a step / in bf16",
                            found["formats"]["nf4"]["sent_mib"] / found["formats"]["none"]["sent_mib"], at_most=0.5))
    return text, promises


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, type=pathlib.Path)
    parser.add_argument("--quick", action="store_true", help="one round of few steps")
    parser.add_argument("--only", choices=sorted([*RECIPES, "formats"]))
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="pairs of runs of each recipe")
    parser.add_argument("--json", type=pathlib.Path, help="also write the numbers there")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # through finally, which ends the ranks
    try:
        found = compare_all(options.bin.resolve(), options.rounds, options.quick, options.only)
    except (Failed, subprocess.CalledProcessError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print(table(found) if found["recipes"] else formats_table(found))
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
