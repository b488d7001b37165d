"""What first_contact.py does on this machine: its GPUs, the model, and the commands and job files of its parts."""

import dataclasses
import json
import pathlib
import shutil
import subprocess

import engine
import model_flops

ROOT = pathlib.Path(__file__).resolve().parent.parent
CPU_RANKS = 2
WARM_UP = 10  # steps that no number counts
STORY_DELAY_MS = 100  # a step of kill and stop takes so much longer, so that they come in the midst of it
PARTS = ("build", "tests", "two_communicators", "one_communicator", "kill", "stop", "fsdp2")
OF_GPUS = ("build", "tests")


class Failed(Exception):
    """A part did not do what it should. The text is one sentence for the user."""


@dataclasses.dataclass(frozen=True)
class Machine:
    """`seen`: GPUs that nvidia-smi lists. `name`, `memory_bytes`: of the smallest one."""
    seen: int
    name: str = ""
    memory_bytes: int = 0
    driver: str = ""


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is measured, and where. `batch`: sequences of a rank in a step."""
    machine: Machine
    ranks: int
    shape: model_flops.Shape
    sequence: int
    batch: int
    steps: int
    cpu: bool
    binaries: pathlib.Path
    folder: pathlib.Path

    def tokens(self):
        """Tokens of a rank in a step."""
        return self.batch * self.sequence

    def story_steps(self):
        """Steps of kill and stop, which measure no speed."""
        return 80 if self.cpu else max(20, self.steps // 10)

    def setup(self):
        """What must be equal for two results to stand in one table."""
        return {"gpus": [self.machine.name, self.machine.driver, self.ranks], "cpu": self.cpu, "shape": self.shape.name,
                "sequence": self.sequence, "batch": self.batch}

    def of_ranks(self):
        return f"{self.ranks} {'ranks on CPUs' if self.cpu else self.machine.name}"


def look_at_gpus():
    """What the driver says of this machine's GPUs."""
    if shutil.which("nvidia-smi") is None:
        return Machine(0)
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits"]
    done = subprocess.run(query, capture_output=True, text=True)
    rows = [[word.strip() for word in line.split(",")] for line in done.stdout.splitlines() if line.count(",") == 2]
    if done.returncode or not rows:
        return Machine(0)
    name, mib, driver = min(rows, key=lambda row: int(row[1]))
    return Machine(len(rows), name, int(mib) << 20, driver)


def job_text(plan, part):
    """The job file of a part. Trainings save at their end alone; kill saves every quarter of its steps. What names no mode of
    communicators takes muster's own choice."""
    shape, story = plan.shape, part in ("kill", "stop")
    steps = plan.story_steps() if story else plan.steps
    mode = "" if story or plan.ranks == 1 else f"separate_reductions = {'true' if part == 'two_communicators' else 'false'}"
    text = f"""name = "first-contact-{part.replace('_', '-')}"
executor = "local"
[resources]
ranks_per_node = {plan.ranks}
{'' if plan.cpu else 'gpus_per_rank = 1'}
stop_grace = "10m"
[model]
family = "llama"
vocab_size = {shape.vocabulary}
hidden_size = {shape.width}
intermediate_size = {shape.intermediate}
num_hidden_layers = {shape.layers}
num_attention_heads = {shape.heads}
num_key_value_heads = {shape.kv_heads}
max_position_embeddings = {plan.sequence}
tie_word_embeddings = false
[data]
source = "folder"
path = {json.dumps(str(plan.folder / "text"))}
sequence_length = {plan.sequence}
validation_fraction = 0
[train]
steps = {steps}
micro_batch_size = {plan.batch}
batch_size = {plan.batch * plan.ranks}
precision = "{'fp32' if plan.cpu else 'bf16'}"
validation_every_steps = 0
step_delay_ms = {STORY_DELAY_MS if story else 0}
[fsdp]
activation_checkpointing = "block"
{mode}
[checkpoint]
every_steps = {steps // 4 if part == "kill" else 0}
keep = 1
[requeue]
backoff_initial = "100ms"
backoff_max = "1s"
"""
    return "".join(line + "\n" for line in text.splitlines() if line)


def dev_command(part):
    return {"build": ["./dev", "build", "--preset", "cuda"], "tests": ["./dev", "test", "--preset", "cuda", "-L", "gpu"]}[part]


def peer_command(plan):
    """engine_peer.py with the model, batch and recomputation of the job files."""
    shape = plan.shape
    sizes = {"world-size": plan.ranks, "dim": shape.width, "layers": shape.layers, "heads": shape.heads, "kv-heads": shape.kv_heads,
             "intermediate": shape.intermediate, "vocab": shape.vocabulary, "seq": plan.sequence, "batch": plan.batch,
             "steps": min(plan.steps, 100), "warm-up": min(WARM_UP, plan.steps)}
    words = [word for name, value in sizes.items() for word in (f"--{name}", str(value))]
    return [engine.peer_python() or str(engine.PEERS), "-B", str(ROOT / "bench" / "engine_peer.py"), "--compile", "--checkpointing", "--device",
            "cpu" if plan.cpu else "cuda", "--dtype", "fp32" if plan.cpu else "bf16", *words]
