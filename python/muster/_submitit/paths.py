"""The files of a job, as submitit names them, and the tags in the names of folders."""

from __future__ import annotations

from pathlib import Path
from typing import Callable, Optional, Tuple, Union

from submitit.core import utils

# The name of a job's array and its place there, from 0; None: it is no element of one.
Array = Optional[Tuple[str, int]]


class MusterJobPaths(utils.JobPaths):
    """%j is muster's number of the job. In an array %A is the name of muster's sweep, and %a the place in it."""

    def __init__(self, folder: Union[Path, str], job_id: Optional[str] = None, task_id: Optional[int] = None,
                 array_of: Callable[[str], Array] = lambda job_id: None) -> None:
        super().__init__(folder, job_id=job_id, task_id=task_id)
        self._array_of = array_of

    @property
    def submission_file(self) -> Path:
        """The job file. All jobs of an array have the same."""
        array = self._array_of(self.job_id) if self.job_id else None
        if array:
            return self.get_first_id_independent_folder(self._folder) / f"{array[0]}_submission.toml"
        return self.folder / f"{self.job_id or '%j'}_submission.toml"

    def _format_id(self, path: Union[Path, str]) -> Path:
        text = str(path)
        if self.job_id is None:
            return Path(text)
        text = text.replace("%j", self.job_id).replace("%t", str(self.task_id))
        if "%A" not in text and "%a" not in text:
            return Path(text)
        array = self._array_of(self.job_id)
        if array is None:
            if "%a" in text:
                raise ValueError("%a is in the folder path but this is not a job array")
            return Path(text.replace("%A", self.job_id))
        return Path(text.replace("%A", array[0]).replace("%a", str(array[1])))
