"""The configuration node hydra/launcher=muster. The keys mean what they mean in submitit's launcher for Slurm."""

from dataclasses import dataclass, field, make_dataclass
from typing import Any, Dict, List, Optional

from hydra.core.config_store import ConfigStore

from muster._submitit.slurm_keys import KINDS

# Hydra reads the types of this file before Python knows the module, so the types can't be texts
# (from __future__ import annotations).

# Parameters of AutoExecutor that have no prefix there.
SHARED = frozenset({"timeout_min", "cpus_per_task", "gpus_per_node", "tasks_per_node", "mem_gb", "nodes", "name",
                    "stderr_to_stdout"})
# What is no parameter of a submission.
OF_THE_LAUNCHER = frozenset({"submitit_folder", "max_num_timeout"})


# The keys of [slurm] that take a text or a size.
SlurmConf = make_dataclass("SlurmConf", [(name, Optional[str], None) for name, kind in KINDS.items() if kind in ("text", "size")])


@dataclass
class MusterConf(SlurmConf):
    _target_: str = "hydra_plugins.hydra_muster_launcher.muster_launcher.MusterLauncher"

    submitit_folder: str = "${hydra.sweep.dir}/.submitit/%j"  # pickles, results, logs; %j is muster's number of the job

    timeout_min: int = 60
    cpus_per_task: Optional[int] = None
    gpus_per_node: Optional[int] = None
    tasks_per_node: int = 1
    mem_gb: Optional[int] = None
    nodes: int = 1
    name: str = "${hydra.job.name}"
    stderr_to_stdout: bool = False

    executor: str = "auto"  # auto, local, slurm
    max_num_timeout: int = 0  # how often a job comes back after timeout_min; it comes back after a preemption in any case
    signal_delay_s: int = 120  # time to leave before the job is killed
    array_parallelism: int = 256  # jobs of a sweep that run at once
    environment: str = "all"  # of the submitter's variables: all, submit (PATH and the like), clean
    set: Dict[str, Any] = field(default_factory=dict)  # keys of a job file of muster, such as {requeue.max_node_failed: 3}

    # Of Slurm, besides the keys of [slurm].
    cpus_per_gpu: Optional[int] = None
    gpus_per_task: Optional[int] = None
    additional_parameters: Dict[str, Any] = field(default_factory=dict)  # further options of sbatch
    setup: Optional[List[str]] = None  # shell lines before the tasks


ConfigStore.instance().store(group="hydra/launcher", name="muster", node=MusterConf(), provider="muster_launcher")
