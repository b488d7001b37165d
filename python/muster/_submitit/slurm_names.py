"""Parameters for Slurm (`slurm_partition`) where the cluster is muster.

submitit hands an executor the parameters of its own cluster alone. People's launchers name those of Slurm, and behind muster
there often is a Slurm. So AutoExecutor hands them to muster's executor too: there they mean what they mean in submitit if the
jobs go to Slurm. Otherwise one warning names them.

Nothing changes for executors of other clusters.
"""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import warnings
from typing import Any, Callable, Dict, Iterable, Mapping, Tuple

from . import parameters as rules

PREFIX = "slurm_"
OWN_PREFIX = "muster_"
ASK_PATIENCE_SECONDS = 30
# What submitit's executor for Slurm takes, and muster does itself.
WITHOUT_EFFECT = {
    "comment": "muster keeps its own mark in the comment of a Slurm job",
    "use_srun": "muster starts the tasks by srun",
}
OF_THE_EXECUTOR = ("max_num_timeout", "max_pickle_size_gb", "python")  # of its constructor


def own_names(names: Iterable[str], prefix: str) -> Dict[str, str]:
    """The names with this prefix, by the names that they have in muster's executor."""
    out = {}
    for name in names:
        if name.startswith(prefix):
            plain = name[len(prefix):]
            out[rules.SHARED.get(plain, plain)] = name
    return out


def split(given: Mapping[str, Any], convert: Callable[[Dict[str, Any]], Dict[str, Any]]) -> Tuple[Dict[str, Any], Dict[str, str]]:
    """The parameters for Slurm under muster's names, and what has no effect with the reason.

    given: as people give them to AutoExecutor. convert: what turns shared parameters into those of the executor."""
    values: Dict[str, Any] = {}
    without_effect: Dict[str, str] = {}
    for name, value in given.items():
        if not name.startswith(PREFIX) or value is None:
            continue
        plain = name[len(PREFIX):]
        if plain in rules.SHARED:
            values.update(convert({plain: value}))
        elif plain in WITHOUT_EFFECT and not (plain == "use_srun" and value is True):
            without_effect[name] = WITHOUT_EFFECT[plain]
        elif plain == "num_gpus":
            values["gpus_per_node"] = value
        elif plain not in WITHOUT_EFFECT:
            values[plain] = value
    return values, without_effect


@functools.lru_cache(maxsize=None)
def goes_to_slurm(muster: str) -> bool:
    """Whether muster's executor "auto" is Slurm. Asked once in a process."""
    try:
        done = subprocess.run([muster, "doctor", "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8",
                              timeout=ASK_PATIENCE_SECONDS, check=False)
        for finding in json.loads(done.stdout):
            if finding["check"] == "executor":
                return str(finding["text"]).startswith("slurm")
    except (OSError, ValueError, KeyError, TypeError, subprocess.TimeoutExpired):
        pass
    return shutil.which("sbatch") is not None  # a controller that is away will say why it refuses the submission


@functools.lru_cache(maxsize=None)
def warn_once(text: str) -> None:
    warnings.warn(text, stacklevel=2)


def hand_over() -> None:
    """Makes AutoExecutor hand parameters for Slurm to muster's executor. Twice is once."""
    from submitit.auto import auto
    if getattr(auto, "_hands_over_to_muster", False):
        return
    auto._hands_over_to_muster = True  # type: ignore[attr-defined]
    make, update = auto.flexible_init, auto.AutoExecutor._internal_update_parameters

    @functools.wraps(make)
    def flexible_init(cls: Any, folder: Any, **kwargs: Any) -> Any:
        if cls.name() == "muster":
            for name in OF_THE_EXECUTOR:
                if PREFIX + name in kwargs:
                    kwargs.setdefault(OWN_PREFIX + name, kwargs[PREFIX + name])
        return make(cls, folder, **kwargs)

    @functools.wraps(update)
    def _internal_update_parameters(self: Any, **kwargs: Any) -> None:
        update(self, **kwargs)  # refuses names that nobody knows
        if self.cluster == "muster":
            self._executor.take_parameters_for_slurm(kwargs)

    auto.flexible_init = flexible_init
    auto.AutoExecutor._internal_update_parameters = _internal_update_parameters  # type: ignore[method-assign]
