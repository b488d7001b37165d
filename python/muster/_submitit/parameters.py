"""submitit's parameters as a job file of muster.

    update_parameters(timeout_min=60, muster_partition="gpu")  ->  Parameters  ->  job_file()  ->  the text of a .toml

A parameter means what it means in submitit's executor for Slurm. docs/submitit.md has the table.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from .slurm_keys import KINDS

# Parameters that submitit shares between its executors, under the names that its executor for Slurm has for them too.
SHARED = {
    "name": "job_name",
    "timeout_min": "time",
    "mem_gb": "mem",
    "nodes": "nodes",
    "cpus_per_task": "cpus_per_task",
    "gpus_per_node": "gpus_per_node",
    "tasks_per_node": "ntasks_per_node",
}
DEFAULT_TIME_MIN = 5  # submitit's
DEFAULT_SIGNAL_DELAY_S = 90  # submitit's
DEFAULT_ARRAY_PARALLELISM = 256  # submitit's
MOST_NODES_LOST = 100  # Slurm's own number is without limit; here nothing refills this budget
MOST_NAME_CHARACTERS = 50  # muster allows 64 with the number of a sweep's element
EXECUTORS = ("auto", "local", "slurm")
ENVIRONMENTS = ("all", "submit", "clean")
FOLDER = "SUBMITIT_MUSTER_FOLDER"  # where the setup lines have gone, for tasks that Slurm starts elsewhere

Job = Dict[str, Any]  # a job file, as nested tables


def _text(value: Any) -> str:
    if isinstance(value, (str, int)) and not isinstance(value, bool) and str(value):
        return str(value)
    raise ValueError("want a text")


def _whole(least: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and value >= least:
            return value
        raise ValueError(f"want a whole number, at least {least}")
    return read


def _integer(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError("want a whole number")


def _minutes(value: Any) -> Union[int, float]:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
        return value
    raise ValueError("want a number of minutes above 0")


def _lines(value: Any) -> List[str]:
    if isinstance(value, (list, tuple)) and all(isinstance(line, str) for line in value):
        return list(value)
    raise ValueError("want a list of texts")


def _memory(value: Any) -> str:
    """As sbatch has it: 8G, 8GB, 3584MB, and 4096 for megabytes. Slurm's units are powers of 1024."""
    found = re.fullmatch(r"(\d+)\s*(?:([KMGT])i?B?)?", str(value), re.IGNORECASE)
    if found is None:
        raise ValueError('want a size such as "8GB"')
    return f"{found[1]}{(found[2] or 'M').upper()}iB"


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError("want True or False")


def _table(value: Any) -> Dict[str, Any]:
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return dict(value)
    raise ValueError("want a dict with texts as keys")


def _one_of(*words: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if value in words:
            return value
        raise ValueError(f"want one of {', '.join(words)}")
    return read


# Each parameter with what reads its value. Those of [slurm] keep their names.
_READERS: Dict[str, Callable[[Any], Any]] = {"text": _text, "size": _memory, "flag": _flag, "whole": _integer, "lines": _lines}
SLURM: Dict[str, Callable[[Any], Any]] = {name: _READERS[kind] for name, kind in KINDS.items()}
OPTIONS: Dict[str, Callable[[Any], Any]] = {"wckey": _text, "cpus_per_gpu": _whole(1)}  # of [slurm.options]
OWN: Dict[str, Callable[[Any], Any]] = {
    "job_name": _text,
    "time": _minutes,
    "nodes": _whole(1),
    "ntasks_per_node": _whole(1),
    "cpus_per_task": _whole(1),
    "gpus_per_node": _whole(0),
    "gpus_per_task": _whole(0),
    "signal_delay_s": _whole(1),
    "dependency": _text,
    "array_parallelism": _whole(1),
    "additional_parameters": _table,
    "stderr_to_stdout": _flag,
    "executor": _one_of(*EXECUTORS),
    "environment": _one_of(*ENVIRONMENTS),
    "torchrun_variables": _flag,
    "set": _table,
}
READERS: Dict[str, Callable[[Any], Any]] = {**SLURM, **OPTIONS, **OWN}


def checked(parameters: Mapping[str, Any]) -> Dict[str, Any]:
    """The parameters, without those that are None. ValueError: one is unknown, or its value makes no sense."""
    unknown = sorted(set(parameters) - set(READERS))
    if unknown:
        raise ValueError(f"Unavailable parameter(s): {unknown}\nValid parameters are:\n  - " +
                         "\n  - ".join(sorted(READERS)))
    out = {}
    for name, value in parameters.items():
        if value is None:
            continue
        try:
            out[name] = READERS[name](value)
        except ValueError as error:
            raise ValueError(f"parameter {name} is {value!r}: {error}") from None
    return out


def memory_text(gigabytes: Union[int, float]) -> str:
    """mem_gb as sbatch wants it, as submitit writes it."""
    return f"{int(gigabytes)}GB" if gigabytes == int(gigabytes) else f"{int(gigabytes * 1024)}MB"


def tasks_of(parameters: Mapping[str, Any]) -> int:
    return parameters.get("nodes", 1) * parameters.get("ntasks_per_node", 1)


def job_file(parameters: Mapping[str, Any], command: Sequence[str], working_folder: str, variables: Mapping[str, str],
             count: int, max_num_timeout: int, on_slurm: Optional[bool] = None, environment_script: Optional[str] = None) -> str:
    """The job file of `count` jobs that differ only in their pickles. Beyond one they are to be submitted as a sweep.

    max_num_timeout: how often a job comes back after its time limit.
    on_slurm: whether the jobs go to Slurm; None: not known. Setup lines need to know.
    environment_script: a shell script that sets the submitter's variables before the setup lines.
    """
    values = checked(parameters)
    if values.get("setup"):
        lines = [". " + shlex.quote(environment_script)] if environment_script else []
        lines += values["setup"]
        if on_slurm is False:
            del values["setup"]
            command = after_setup(lines, command)
        else:
            values["setup"] = [*lines, f'export {FOLDER}="$PWD"'] if on_slurm else lines
    job: Job = {
        "name": _job_name(values.get("job_name", "submitit")),
        "command": list(command),
        "working_folder": working_folder,
        "executor": values.get("executor", "auto"),
        "environment": "clean" if values.get("environment") == "clean" else "submit",
    }
    if "dependency" in values:
        job["after"] = dependencies(values["dependency"])
    job["resources"] = _resources(values)
    if on_slurm is False and "gpus_per_node" in values:
        # muster gives local GPUs by rank. Together the tasks get as many as were asked for, and each sees all of them.
        gpus = values.pop("gpus_per_node")
        if gpus is not None:
            job["resources"].setdefault("gpus_per_rank", -(-gpus // job["resources"]["ranks_per_node"]))
            variables = {**variables, "SUBMITIT_MUSTER_GPUS": str(gpus)}
    job["slurm"] = _slurm(values)
    # submitit's rules: no second try after a crash or for lack of memory, any number of tries after a preemption.
    # Timeouts count over the whole life of a job, so that a long run does not refill their budget.
    job["requeue"] = {"max_failed": 0, "max_out_of_memory": 0, "max_timed_out": max_num_timeout, "healthy_after": "10000d",
                      "max_node_failed": MOST_NODES_LOST}
    job["env"] = dict(variables)
    if values.get("gpus_per_node") is not None:
        job["env"]["SUBMITIT_MUSTER_GPUS"] = str(values["gpus_per_node"])
    most = values.get("array_parallelism", DEFAULT_ARRAY_PARALLELISM)
    if count > 1:
        job["sweep"] = {"env.SUBMITIT_MUSTER_INDEX": f"0..{count - 1}"}
        if count > most:
            # Slurm throttles its arrays by itself. For local processes, and where nobody knows, muster counts.
            if job["executor"] == "slurm":
                job["slurm"]["array_parallelism"] = most
            else:
                job["sweep"]["parallel"] = most
    for key, value in values.get("set", {}).items():
        _put(job, key, value)
    return "# Written by muster's plugin for submitit.\n" + "\n".join(_toml({k: v for k, v in job.items() if v != {}}))


def dependencies(text: str) -> List[str]:
    """afterok:7:8,afterany:9 as sbatch has it, with numbers of muster's jobs -> muster's after."""
    words = {"afterok": "succeeded", "afternotok": "failed", "afterany": "ended"}
    out = []
    for part in text.split(","):
        kind, *jobs = part.strip().split(":")
        if kind not in words or not jobs or not all(job.isdigit() for job in jobs):
            raise ValueError(f'parameter dependency is "{text}": want {", ".join(words)} with numbers of muster\'s jobs, '
                             f'such as "afterok:7:8"')
        out += [f"{words[kind]}:{job}" for job in jobs]
    return out


def _job_name(name: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:MOST_NAME_CHARACTERS]
    return plain if re.search(r"[A-Za-z0-9]", plain) else "submitit"


def after_setup(lines: Sequence[str], command: Sequence[str]) -> List[str]:
    """A command that runs the setup lines and then `command`. Slurm's batch script runs the lines itself. Local processes
    have no such script, so each task runs the lines: as one script, as they are and without arguments, so that they mean
    the same there. As on Slurm, a script that ends before the function has failed."""
    text = "\n".join(lines)
    return ["bash", "-c", f"{_NOT_REACHED}\n{text}\ntrap - EXIT\nexec {shlex.join(command)}"]


# Exit 0 of the setup lines would be the end of a job that is done.
_NOT_REACHED = ("trap 'muster_setup=$?; echo \"muster: the setup lines ended the script before the function was started\" >&2; "
                "[ \"$muster_setup\" != 0 ] || muster_setup=1; exit \"$muster_setup\"' EXIT")


def _resources(values: Mapping[str, Any]) -> Job:
    out: Job = {"nodes": values.get("nodes", 1), "ranks_per_node": values.get("ntasks_per_node", 1)}
    if "cpus_per_task" in values:
        out["cpus_per_rank"] = values["cpus_per_task"]
    if "gpus_per_task" in values:
        out["gpus_per_rank"] = values["gpus_per_task"]
    out["time_limit"] = f"{round(values.get('time', DEFAULT_TIME_MIN) * 60_000)}ms"
    out["stop_grace"] = f"{values.get('signal_delay_s', DEFAULT_SIGNAL_DELAY_S)}s"
    return out


def _slurm(values: Mapping[str, Any]) -> Job:
    out: Job = {name: values[name] for name in SLURM if name in values}
    options: Dict[str, str] = {}
    # --gpus-per-node shows each task all GPUs of its node. muster's gpus_per_rank would give each task its own.
    if values.get("gpus_per_node"):
        gpus = f"gpu:{values['gpus_per_node']}"
        out["gres"] = f"{out['gres']},{gpus}" if "gres" in out else gpus
    for name in OPTIONS:
        if name in values:
            options[name.replace("_", "-")] = str(values[name])
    for name, value in values.get("additional_parameters", {}).items():
        plain = name.replace("-", "_")
        if plain in SLURM:
            out[plain] = SLURM[plain](value)
        else:
            options[name.replace("_", "-")] = value if value is True else str(value)
    if options:
        out["options"] = options
    return out


def _put(job: Job, key: str, value: Any) -> None:
    """Sets a key of a table, such as "requeue.max_failed"."""
    table, dot, name = key.partition(".")
    if not dot:
        job[key] = value
        return
    _put(job.setdefault(table, {}), name, value)


def _toml(table: Mapping[str, Any], path: Tuple[str, ...] = ()) -> List[str]:
    lines = [f"{_toml_key(key)} = {_toml_value(value)}" for key, value in table.items() if not isinstance(value, Mapping)]
    for key, value in table.items():
        if isinstance(value, Mapping):
            inner = (*path, key)
            lines += ["", "[" + ".".join(_toml_key(part) for part in inner) + "]", *_toml(value, inner)]
    return lines if path else [*lines, ""]


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _toml_value(key)


def _toml_value(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml_value(one) for one in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    raise ValueError(f"{value!r} has no place in a job file: want a text, a number, True, False or a list of these")


def index_of(variables: Mapping[str, str]) -> Optional[int]:
    """The place of a job in its array, from 0; None: it is no element of one."""
    text = variables.get("SUBMITIT_MUSTER_INDEX", "")
    return int(text) if text.isdigit() else None
