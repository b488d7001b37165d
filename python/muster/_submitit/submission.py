"""What a submission leaves beside the pickles for its ranks: the environment of the submitter, and the array's name."""

from __future__ import annotations

import json
import os
import re
import shlex
import time
from pathlib import Path
from typing import Dict, Mapping, Optional, Sequence, TextIO

PATIENCE_SECONDS = 60  # submitit's, for the pickle

# Variables that belong to one machine, one process or one job. A job gets its own.
_KEPT_PREFIXES = ("MUSTER_", "SUBMITIT_", "SLURM_", "SLURMD_", "SRUN_", "SBATCH_", "TORCHELASTIC_", "ROLE_", "GROUP_")
TORCHRUN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK")
_KEPT = {*TORCHRUN, "_", "PWD", "OLDPWD", "SHLVL", "HOSTNAME"}
# A job that submits further jobs finds the controller as its submitter did.
_LEADING = ("MUSTER_ADDRESS", "MUSTER_HTTP_ADDRESS", "MUSTER_TOKEN", "MUSTER_TOKEN_FILE", "MUSTER_DATA_FOLDER", "MUSTER_PROGRAM")
_LEADING_PATHS = ("MUSTER_TOKEN_FILE", "MUSTER_DATA_FOLDER")


IN_SHELL = "SUBMITIT_MUSTER_IN_SHELL"  # the setup lines had the submitter's environment


def _is_of_shell(name: str) -> bool:
    """Not exported functions, and not what leads to the controller: on Slurm muster sets its own variables anew."""
    return re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is not None and name not in _LEADING


def _create(file: str) -> TextIO:
    """A new file that its owner alone reads."""
    return open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8", errors="surrogateescape")


def leading(variables: Mapping[str, str]) -> Dict[str, str]:
    """The variables that lead to the controller, with paths that mean the same in every folder."""
    return {name: os.path.abspath(variables[name]) if name in _LEADING_PATHS else variables[name]
            for name in _LEADING if variables.get(name)}


class Submission:
    """Two files beside the pickles of one submission. `path` is where both names begin."""

    def __init__(self, path: str) -> None:
        self.path = path

    def write_environment(self, variables: Mapping[str, str], with_all: bool = True) -> None:
        """For its owner's eyes: an environment holds secrets. Without `with_all` only what leads to the controller."""
        kept = leading(variables)
        if with_all:
            kept.update({name: value for name, value in variables.items()
                         if name not in _KEPT and not name.startswith(_KEPT_PREFIXES)})
        with _create(self.path + ".env.json") as file:
            json.dump(kept, file, ensure_ascii=False)

    def write_environment_script(self) -> str:
        """The same environment for setup lines, which see it as those of sbatch do; the file's name. A variable that is
        there wins. For its owner's eyes."""
        script = self.path + ".env.sh"
        lines = [f"[ -n \"${{{name}+x}}\" ] || export {name}={shlex.quote(value)}\n"
                 for name, value in self.environment().items() if _is_of_shell(name)]
        with _create(script) as file:
            file.writelines([*lines, f"export {IN_SHELL}=1\n"])
        return script

    def environment(self, is_in_shell: bool = False) -> Dict[str, str]:
        """Empty where the submitter left none. is_in_shell: without what the setup lines have had, and may have unset."""
        try:
            with open(self.path + ".env.json", encoding="utf-8", errors="surrogateescape") as file:
                kept: Dict[str, str] = json.load(file)
        except FileNotFoundError:
            return {}
        return {name: value for name, value in kept.items() if not (is_in_shell and _is_of_shell(name))}

    def write_settings(self, settings: Sequence[Optional[Mapping[str, str]]]) -> str:
        """What is shown of each job of a sweep; the file's name."""
        file = Path(self.path + ".settings.json")
        file.write_text(json.dumps(settings), encoding="utf-8")
        return str(file)

    def remove(self) -> None:
        """For a submission that was refused."""
        Path(self.path + ".env.json").unlink(missing_ok=True)
        Path(self.path + ".env.sh").unlink(missing_ok=True)

    def remove_settings(self) -> None:
        """muster has them now."""
        Path(self.path + ".settings.json").unlink(missing_ok=True)

    def write_array(self, name: str) -> None:
        Path(self.path + ".array.new").write_text(name, encoding="utf-8")
        os.replace(self.path + ".array.new", self.path + ".array")

    def array(self) -> str:
        """The name of the array. The submitter writes it a moment after the submission."""
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return Path(self.path + ".array").read_text(encoding="utf-8")
            except FileNotFoundError:
                if time.monotonic() > end:
                    raise RuntimeError(f"no {self.path}.array after {PATIENCE_SECONDS} s: the submission was cut off, so "
                                       f"submit again") from None
                time.sleep(0.1)
