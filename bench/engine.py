"""Steps of the engine beside PyTorch's: FSDP2 at two ranks, and unsharded models at one."""

import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

from promise import Promise

HERE = pathlib.Path(__file__).resolve().parent
WIDTHS = (256, 512, 1024)
# Units so small that arithmetic hardly counts.
SMALL = ["--layers", "64", "--dim", "32", "--heads", "2", "--vocab", "64", "--seq", "16", "--batch", "1"]
# The newest PyTorch, for the PYTHONPATH of python().
NEWEST_TORCH = HERE.parent / ".deps" / "peers-torch-newest"
PEERS = HERE.parent / ".deps" / "peers" / "bin" / "python"


def peer_python():
    """The Python with PyTorch; None: there is none."""
    return shutil.which(os.environ.get("MUSTER_PEER_PYTHON") or str(PEERS))


def python():
    found = peer_python()
    if not found:
        sys.exit("bench: engine wants a Python with PyTorch: run ./dev setup --peers, or set MUSTER_PEER_PYTHON")
    return found


def newest_torch():
    """The folder with the newest PyTorch; None: ./dev setup --newest-torch has not installed it."""
    folder = pathlib.Path(os.environ.get("MUSTER_NEWEST_TORCH") or NEWEST_TORCH)
    return folder if (folder / ".complete").exists() else None


def version_of_torch(folder=None):
    """The version that python() imports, with this folder before its own packages."""
    ask = [python(), "-c", "import importlib.metadata as m; print(m.version('torch').split('+')[0])"]
    return subprocess.run(ask, env=before_packages(folder), stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def before_packages(folder):
    """The environment of a Python that finds this folder first; None: its own packages alone."""
    return {**os.environ, **({"PYTHONPATH": str(folder)} if folder else {})}


class Programs:
    """Every rank has one thread."""

    def __init__(self, binaries, quick):
        peer = [python(), "-B", HERE / "engine_peer.py"]
        self.commands = {"muster": [binaries / "engine_bench"], "pytorch": peer, "newest pytorch": peer}
        self.folders = {"newest pytorch": newest_torch()}
        self.quick = quick

    def run(self, program, *options):
        counts = ["--steps", "3", "--warm-up", "2"] if self.quick else ["--steps", "10", "--warm-up", "3"]
        command = [*self.commands[program], *counts, *options]  # the last of equal options counts
        environment = {**before_packages(self.folders.get(program)), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        return json.loads(done.stdout.splitlines()[-1])

    def rounds(self, runs, rounds, fewer=None):
        """Runs each of `runs`, name to (program, options), once a round. Every other round goes backwards, so that a drift of the
        machine favours none. `fewer`: name to a smaller number of rounds. Returns the results by name, in the order of the rounds."""
        results = {name: [] for name in runs}
        for number in range(2 if self.quick else rounds):
            for name in sorted(runs, reverse=number % 2 == 1):
                if number >= (fewer or {}).get(name, rounds):
                    continue
                program, *options = runs[name]
                results[name].append(self.run(program, *options))
        return results


def middle(results, key):
    return statistics.median(result[key] for result in results)


def ratio(slower, faster):
    """How many times as long a step of `slower` takes: the median over the rounds."""
    return statistics.median(a["step_ms"] / b["step_ms"] for a, b in zip(slower, faster))


def width_options(width):
    """Wide steps take up to seconds, so five of them tell enough."""
    fewer = ["--steps", "5", "--warm-up", "2"] if width > 256 else []
    return [*fewer, "--dim", str(width), "--heads", str(width // 64)]


def pairs(programs, options, rounds):
    """The same steps of the engine and of FSDP2, at two ranks and at one. The engine's ranks of one node share memory; with
    sockets they do what ranks of two nodes do."""
    runs = {f"{program} {ranks}": (program, "--world-size", str(ranks), *options) for program in ("muster", "pytorch") for ranks in (1, 2)}
    runs["sockets 2"] = ("muster", "--world-size", "2", "--transport", "sockets", *options)
    return programs.rounds(runs, rounds)


def versions(programs, width):
    """Steps at two ranks under FSDP2 of the pinned PyTorch and of the newest one, each also compiled as torchtitan does it."""
    options = ["--world-size", "2", *width_options(width)]
    runs = {"muster": ("muster", *options)}
    for program in ("pytorch", "newest pytorch") if newest_torch() else ("pytorch",):
        runs |= {program: (program, *options), f"{program} compiled": (program, "--compile", *options)}
    return programs.rounds(runs, 5)


def version_rows(all_of):
    """A row for each program: its step and how many times as long as muster's of the same round, by width."""
    torch = {"pytorch": version_of_torch()} | ({"newest pytorch": version_of_torch(newest_torch())} if newest_torch() else {})
    for name in next(iter(all_of.values())):
        program = name.removesuffix(" compiled")
        what = "muster, shared memory" if name == "muster" else f"FSDP2{' compiled' if name != program else ''}, torch {torch[program]}"
        cells = [cell for of in all_of.values() for cell in (f"{middle(of[name], 'step_ms'):.1f} ms", f"{ratio(of[name], of['muster']):.2f}")]
        yield f"| {what} | {' | '.join(cells)} |"
    if not newest_torch():
        yield ""
        yield "The newest PyTorch was not installed; `./dev setup --newest-torch` installs it."


def speed_row(what, of):
    step = {name: f"{middle(results, 'step_ms'):.1f}" for name, results in of.items()}
    return (f"| {what} | {step['muster 2']} ms | {step['sockets 2']} ms | {step['pytorch 2']} ms | "
            f"{ratio(of['pytorch 2'], of['muster 2']):.2f} | {ratio(of['pytorch 2'], of['sockets 2']):.2f} | "
            f"{step['muster 1']} ms | {step['pytorch 1']} ms |")


def memory_row(what, of):
    return (f"| {what} | {middle(of['muster 2'], 'tensor_peak_mb'):.0f} MB | {middle(of['muster 2'], 'peak_rss_mb'):.0f} MB | "
            f"{middle(of['pytorch 2'], 'peak_rss_mb'):.0f} MB | {middle(of['muster 2'], 'minor_faults'):.0f} | "
            f"{middle(of['pytorch 2'], 'minor_faults'):.0f} |")


def alone(programs, width):
    options = width_options(width)
    return programs.rounds({"muster": ("muster", *options), "libtorch": ("muster", "--plain", *options),
                            "pytorch": ("pytorch", "--plain", *options),
                            "compiled": ("pytorch", "--plain", "--compile", *options)}, 9)


def alone_row(width, of):
    return (f"| {width} | {middle(of['muster'], 'step_ms'):.1f} ms | {middle(of['libtorch'], 'step_ms'):.1f} ms | "
            f"{ratio(of['muster'], of['libtorch']):.3f} | {middle(of['pytorch'], 'step_ms'):.1f} ms | "
            f"{ratio(of['muster'], of['pytorch']):.3f} | {middle(of['compiled'], 'step_ms'):.1f} ms | "
            f"{ratio(of['compiled'], of['muster']):.3f} |")


def updates(programs):
    """AdamW's part of a step, of 50 million elements on one rank."""
    options = ["--dim", "640", "--heads", "10", "--vocab", "8192", "--seq", "16", "--batch", "1", "--steps", "5", "--warm-up", "2"]
    return programs.rounds({moments: ("muster", "--moments", moments, *options) for moments in ("fp32", "bf16", "int8")}, 5)


def update_row(moments, of):
    return f"| {moments} | {middle(of[moments], 'update_ms'):.0f} ms | {middle(of[moments], 'state_mb'):.0f} MB |"


def measure(binaries, quick):
    programs = Programs(binaries, quick)
    update = updates(programs)
    wide = {width: pairs(programs, width_options(width), 5 if width < 1024 else 3) for width in WIDTHS}
    small = pairs(programs, SMALL, 5)
    by_version = {width: versions(programs, width) for width in WIDTHS[:2]}
    one = {width: alone(programs, width) for width in WIDTHS[:2]}
    first = {name: middle(wide[256][name], "start_to_first_step_s") for name in ("muster 2", "pytorch 2", "pytorch 1")}
    text = "\n".join([
        "# The engine beside PyTorch", "",
        "Steps of a Llama-like decoder: forward, backward and fused AdamW in fp32, on CPUs. Each rank has one thread and",
        "its own batch of 2 sequences of 128 tokens. A layer is a unit, and the rest is the root unit. Both sides compute the same",
        "decoder; `bench/engine.cpp` and `bench/engine_peer.py` take the same options. A number is the median over rounds, and a",
        "round runs every program once. Ratios are medians over rounds, too.", "",
        "## Two ranks: full_shard beside FSDP2", "",
        "The last two columns are the limit: the same step on one rank, which communicates nothing.", "",
        "FSDP2's ranks use Gloo.", "",
        "| model | muster, shared memory | muster, sockets | FSDP2 | FSDP2 / shared memory | FSDP2 / sockets | muster, one rank | "
        "FSDP2, one rank |", "|---|---|---|---|---|---|---|---|",
        *(speed_row(f"8 layers of width {width}", of) for width, of in wide.items()),
        speed_row("64 layers of width 32, 16 tokens", small), "",
        "Memory of rank 0, and page faults in the timed steps:", "",
        "| model | muster, tensors | muster, resident | FSDP2, resident | muster, faults | FSDP2, faults |", "|---|---|---|---|---|---|",
        *(memory_row(f"8 layers of width {width}", of) for width, of in wide.items()), "",
        "## Two ranks: FSDP2 by its version, also compiled", "",
        "The newest PyTorch stands beside the pinned one. \"Compiled\" is `torch.compile(layer, fullgraph=True)`, as torchtitan does it;",
        "compiling is no part of a step. The ratio is to muster's step of the same round.", "",
        f"| two ranks | {' | '.join(f'width {width} | / muster' for width in by_version)} |", f"|---|{'---|---|' * len(by_version)}",
        *version_rows(by_version), "",
        "## One rank: the engine beside unsharded models", "",
        "| width | muster | plain LibTorch | muster / LibTorch | plain PyTorch | muster / PyTorch | compiled PyTorch | compiled / muster |",
        "|---|---|---|---|---|---|---|---|",
        *(alone_row(width, of) for width, of in one.items()), "",
        "## The update of AdamW by the format of its moments", "",
        "50 million elements on one rank, which has one thread: the optimizer's part of a step, and the bytes of its states.", "",
        "| moments | update | states |", "|---|---|---|", *(update_row(moments, update) for moments in update), "",
        "## From the start of the program to the end of the first step", "",
        "| muster, two ranks | FSDP2, two ranks | FSDP2, one rank |", "|---|---|---|",
        f"| {first['muster 2']:.2f} s | {first['pytorch 2']:.2f} s | {first['pytorch 1']:.2f} s |"]) + "\n"
    promises = []
    for over, name, wide_least, small_least in (("shared memory", "muster 2", 1.6, 10), ("sockets", "sockets 2", 1.4, 5)):
        promises += [Promise(f"FSDP2's step over muster's by {over} at width {width}", ratio(of["pytorch 2"], of[name]),
                             at_least=wide_least) for width, of in wide.items()]
        promises.append(Promise(f"FSDP2's step over muster's by {over} with 64 small units", ratio(small["pytorch 2"], small[name]),
                                at_least=small_least))
    for width, of in one.items():
        promises.append(Promise(f"muster's step over plain LibTorch's at width {width}", ratio(of["muster"], of["libtorch"]), at_most=1.02))
        promises.append(Promise(f"muster's step over plain PyTorch's at width {width}", ratio(of["muster"], of["pytorch"]), at_most=1))
        promises.append(Promise(f"compiled PyTorch's step over muster's at width {width}", ratio(of["compiled"], of["muster"]), at_least=1.1))
    for width, of in by_version.items():
        promises.append(Promise(f"compiled FSDP2's step over muster's at width {width}", ratio(of["pytorch compiled"], of["muster"]),
                                at_least=1.6))
    promises.append(Promise("start to the first step at two ranks, in s", first["muster 2"], at_most=1))
    return text, promises
