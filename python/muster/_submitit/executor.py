"""submitit.AutoExecutor(folder, cluster="muster")."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
import uuid
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set, Union

from submitit.core import core, utils

from . import parameters as rules, slurm_names
from .job import MusterJob, find_muster, make_jobs, muster_program
from .submission import Submission


class MusterExecutor(core.PicklingExecutor):
    """Submits functions as jobs of muster.

    Parameters
    ----------
    folder: Path/str
        for the pickles, the results, the logs and the job files. On Slurm all nodes must see it.
    max_num_timeout: int
        how often a job with checkpoint() comes back after its time limit. Preemptions do not count.
    max_pickle_size_gb: float
        the largest sum of pickles of one submission
    python: str
        command that starts Python, such as "singularity exec image.sif python"; the present one unless given
    """

    job_class = MusterJob

    def __init__(self, folder: Union[Path, str], max_num_timeout: int = 3, max_pickle_size_gb: float = 1.0,
                 python: Optional[str] = None) -> None:
        super().__init__(folder, max_num_timeout=max_num_timeout, max_pickle_size_gb=max_pickle_size_gb)
        self.python = shlex.quote(sys.executable) if python is None else python
        self._for_slurm: Dict[str, Any] = {}  # parameters that were given as slurm_*
        self._for_muster: Set[str] = set()  # names that were given as muster_*, which win over them
        muster_program()  # refuses at once where there is none

    @classmethod
    def affinity(cls) -> int:
        """AutoExecutor takes muster only where it is asked for."""
        return -1 if find_muster() is None else 0

    @classmethod
    def _equivalence_dict(cls) -> core.EquivalenceDict:
        return rules.SHARED  # type: ignore[return-value]

    @classmethod
    def _valid_parameters(cls) -> Set[str]:
        return set(rules.READERS)

    def _convert_parameters(self, params: Dict[str, Any]) -> Dict[str, Any]:
        params = super()._convert_parameters(params)
        if not isinstance(params.get("mem"), (str, type(None))):
            params["mem"] = rules.memory_text(params["mem"])
        return params

    def _internal_update_parameters(self, **kwargs: Any) -> None:
        rules.job_file({**self.parameters, **kwargs}, ["true"], "/", {}, 1, 0)  # refuses here what makes no sense
        super()._internal_update_parameters(**kwargs)

    def take_parameters_for_slurm(self, given: Mapping[str, Any]) -> None:
        """What AutoExecutor was given with the prefix slurm_, for jobs that go to Slurm."""
        self._for_muster |= set(slurm_names.own_names(given, slurm_names.OWN_PREFIX))
        values, without_effect = slurm_names.split(given, self._convert_parameters)
        if values:
            rules.job_file({**self.parameters, **values}, ["true"], "/", {}, 1, 0)
        self._for_slurm.update(values)
        for name, why in without_effect.items():
            slurm_names.warn_once(f"the parameter {name} has no effect: {why}")

    def _goes_to_slurm(self) -> bool:
        wanted = self.parameters.get("executor") or "auto"
        return slurm_names.goes_to_slurm(muster_program()) if wanted == "auto" else wanted == "slurm"

    def _all_parameters(self) -> Dict[str, Any]:
        """With those for Slurm, if the jobs go there."""
        chosen = {name: value for name, value in self._for_slurm.items() if name not in self._for_muster}
        if not chosen:
            return dict(self.parameters)
        if self._goes_to_slurm():
            return {**self.parameters, **chosen}
        slurm_names.warn_once("muster runs these jobs as local processes, so parameters for Slurm have no effect: " +
                              ", ".join(sorted(slurm_names.PREFIX + name for name in chosen)))
        return dict(self.parameters)

    def _internal_process_submissions(self, delayed_submissions: List[utils.DelayedSubmission]) -> List[core.Job[Any]]:
        """One job, or one sweep of all."""
        folder = utils.JobPaths.get_first_id_independent_folder(self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        pickles: List[Path] = []
        can_save = False
        parameters = self._all_parameters()
        for delayed in delayed_submissions:
            pickles.append(folder / f"{uuid.uuid4().hex}.pkl")
            delayed.set_timeout(parameters.get("time", rules.DEFAULT_TIME_MIN), self.max_num_timeout)
            delayed.dump(pickles[-1])
            can_save = can_save or hasattr(delayed.function, "checkpoint")
            if len(pickles) == 1:
                self._check_size(pickles[0], len(delayed_submissions))
        try:
            settings = [getattr(delayed.function, "muster_settings", None) for delayed in delayed_submissions]
            jobs = self._submit(shlex.split(self._submitit_command_str), len(pickles), can_save, settings)
        except Exception:
            for pickle in pickles:
                pickle.unlink()
            raise
        for job, pickle in zip(jobs, pickles):
            job.paths.move_temporary_file(pickle, "submitted_pickle")
        return list(jobs)

    def _check_size(self, pickle: Path, count: int) -> None:
        size = pickle.stat().st_size / 1024**3
        if count * size <= self.max_pickle_size_gb:
            return
        pickle.unlink()
        raise RuntimeError(
            f"Submitting an estimated {count} x {size:.2f} > {self.max_pickle_size_gb}GB of objects (function and arguments) "
            "through pickle (this can be slow / overload the file system). If this is the intended behavior, you should "
            "update executor.max_pickle_size_gb to a larger value")

    def _submit_command(self, command: str) -> core.Job[Any]:
        return self._submit(shlex.split(command), 1, False)[0]

    def _submit(self, command: Sequence[str], count: int, can_save: bool,
                settings: Sequence[Optional[Mapping[str, str]]] = ()) -> List[MusterJob[Any]]:
        """Writes the job file, and submits a job or a sweep of `count` jobs: all of them or none.

        settings: what is shown of each job of a sweep, if all have them."""
        parameters = self._all_parameters()
        folder = utils.JobPaths.get_first_id_independent_folder(self.folder)
        uid = uuid.uuid4().hex
        submission = Submission(str(folder / f".submission_{uid}"))
        variables = {"SUBMITIT_EXECUTOR": "muster", "SUBMITIT_MUSTER_SUBMISSION": submission.path}
        if parameters.get("stderr_to_stdout"):
            variables["SUBMITIT_MUSTER_STDERR_TO_STDOUT"] = "1"
        if parameters.get("torchrun_variables"):
            variables["SUBMITIT_MUSTER_TORCHRUN"] = "1"
        environment = parameters.get("environment") or "all"
        if environment != "clean":
            submission.write_environment(os.environ, environment == "all")
        job_file = folder / f"submission_{uid}.toml"  # muster show names it, so the name lasts
        on_slurm = script = None
        if parameters.get("setup"):
            on_slurm = self._goes_to_slurm()
            script = submission.write_environment_script() if environment == "all" else None
        job_file.write_text(rules.job_file(parameters, command, os.getcwd(), variables, count,
                                           self.max_num_timeout if can_save else 0, on_slurm, script), encoding="utf-8")
        submit = self._make_submission_command(job_file)
        if count > 1 and settings and all(settings):
            submit += ["--sweep-settings", submission.write_settings(settings)]
        self._last_job_submitted = time.time()
        try:
            answer = utils.CommandFunction(submit, verbose=False)()
        except utils.FailedJobError:
            submission.remove()
            job_file.unlink()
            raise
        finally:
            submission.remove_settings()
        job_ids, sweep = _read_answer(answer)
        if len(job_ids) != count:
            raise utils.FailedSubmissionError(f"muster submitted {len(job_ids)} jobs and not {count}: {answer}")
        if sweep:
            submission.write_array(sweep)
        jobs = make_jobs(self.folder, job_ids, self._num_tasks(), sweep)
        link = jobs[0].paths.submission_file
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(job_file, link.parent))
        return jobs

    @property
    def _submitit_command_str(self) -> str:
        return " ".join([self.python, "-u -m muster._submitit.rank", shlex.quote(str(self.folder))])

    def _num_tasks(self) -> int:
        return rules.tasks_of(rules.checked(self._all_parameters()))

    def _make_submission_file_text(self, command: str, uid: str) -> str:
        return rules.job_file(self._all_parameters(), shlex.split(command), os.getcwd(), {}, 1, self.max_num_timeout)

    def _make_submission_command(self, submission_file_path: Path) -> List[str]:
        return [muster_program(), "submit", "--json", str(submission_file_path)]

    @staticmethod
    def _get_job_id_from_submission_command(string: Union[bytes, str]) -> str:
        return _read_answer(string if isinstance(string, str) else string.decode())[0][0]


def _read_answer(text: str) -> tuple[List[str], Optional[str]]:
    """The numbers of the jobs that `muster submit --json` tells, and the name of their sweep."""
    try:
        answer = json.loads(text)
        ids = answer["job_ids"] if "sweep" in answer else [answer["job_id"]]
        return [str(job_id) for job_id in ids], answer.get("sweep")
    except (KeyError, TypeError, ValueError):
        raise utils.FailedSubmissionError(f'Could not make sense of the answer of muster submit: "{text}"') from None
