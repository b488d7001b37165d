"""The launcher: one multirun becomes one sweep of muster, and each of its jobs one JobReturn."""

from __future__ import annotations

import logging
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, filter_overrides, run_job, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

from .config import OF_THE_LAUNCHER, SHARED
from .told import OwnReport, settings_of

log = logging.getLogger(__name__)

LOOK_EVERY_SECONDS = 0.5


class Element:
    """One job of a multirun, as it travels. A job that is preempted runs again from the beginning, in the same folder."""

    def __init__(self, context: HydraContext, task: TaskFunction, config: DictConfig, overrides: List[str], number: int,
                 singletons: Any) -> None:
        self.context = context
        self.task = task
        self.config = config
        self.overrides = overrides
        self.number = number
        self.singletons = singletons
        self.muster_settings: Mapping[str, str] = {}  # what muster shows of the job beside those of the same multirun

    def __call__(self) -> JobReturn:
        import submitit
        from muster._submitit.rank import fail_after_result
        Singleton.set_state(self.singletons)
        setup_globals()
        config = self.context.config_loader.load_sweep_config(self.config, self.overrides)
        with open_dict(config.hydra.job):
            config.hydra.job.id = submitit.JobEnvironment().job_id
            config.hydra.job.num = self.number
        report = OwnReport(filter_overrides(self.overrides))
        done = run_job(hydra_context=self.context, task_function=self.task, config=config, job_dir_key="hydra.sweep.dir",
                       job_subdir_key="hydra.sweep.subdir")
        if done.status == JobStatus.FAILED:
            # Hydra hands the exception on as a result. To muster the job has failed, with this error.
            fail_after_result()
            error = done._return_value
            traceback.print_exception(type(error), error, error.__traceback__, file=sys.stderr)
        else:
            report.tell_result(done.return_value, _direction(config))
        return done

    def checkpoint(self) -> Any:
        import submitit
        return submitit.helpers.DelayedSubmission(self)


class MusterLauncher(Launcher):
    def __init__(self, **params: Any) -> None:
        self.params: Dict[str, Any] = {
            name: OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
            for name, value in params.items()
        }
        self.config: Optional[DictConfig] = None
        self.task_function: Optional[TaskFunction] = None
        self.hydra_context: Optional[HydraContext] = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.config = config
        self.hydra_context = hydra_context
        self.task_function = task_function

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        assert self.config is not None and self.hydra_context is not None and self.task_function is not None
        setup_globals()
        sweep_dir = Path(str(self.config.hydra.sweep.dir))
        sweep_dir.mkdir(parents=True, exist_ok=True)
        if "mode" in self.config.hydra.sweep:
            os.chmod(sweep_dir, mode=int(str(self.config.hydra.sweep.mode), 8))
        elements = [
            Element(self.hydra_context, self.task_function, self.config, list(overrides), initial_job_idx + index,
                    Singleton.get_state())
            for index, overrides in enumerate(job_overrides)
        ]
        for element, settings in zip(elements, settings_of([filter_overrides(element.overrides) for element in elements])):
            element.muster_settings = settings
        jobs = self._executor().submit_array(elements)
        log.info(f"muster runs {len(jobs)} jobs; output: {sweep_dir}")
        for element, job in zip(elements, jobs):
            log.info(f"\t#{element.number} : {_text(element)} (job {job.job_id})")
        return self._wait(elements, jobs)

    def _executor(self) -> Any:
        import submitit
        executor = submitit.AutoExecutor(folder=self.params["submitit_folder"], cluster="muster",
                                         muster_max_num_timeout=self.params["max_num_timeout"])
        executor.update_parameters(**{
            name if name in SHARED else f"muster_{name}": value
            for name, value in self.params.items() if name not in OF_THE_LAUNCHER
        })
        return executor

    def _wait(self, elements: Sequence[Element], jobs: Sequence[Any]) -> Sequence[JobReturn]:
        """Waits for all jobs, and tells of each failure when it happens. A failure takes no other job's result away."""
        returns: List[Optional[JobReturn]] = [None] * len(jobs)
        while None in returns:
            for index, (element, job) in enumerate(zip(elements, jobs)):
                if returns[index] is None and job.done():
                    returns[index] = _return_of(element, job)
            if None in returns:
                time.sleep(LOOK_EVERY_SECONDS)
        return returns  # type: ignore[return-value]


def _direction(config: DictConfig) -> str:
    """Of a sweeper that optimizes what the function returns, such as Optuna's; empty: not told."""
    direction = OmegaConf.select(config, "hydra.sweeper.direction")
    return str(getattr(direction, "name", direction)) if isinstance(direction, str) or hasattr(direction, "name") else ""


def _text(element: Element) -> str:
    return " ".join(filter_overrides(element.overrides))


def _return_of(element: Element, job: Any) -> JobReturn:
    """What the job returned. A job that left no result, killed or cancelled, has failed as one whose function raised."""
    try:
        done: JobReturn = job.results()[0]
    except Exception as error:
        done = JobReturn(overrides=list(filter_overrides(element.overrides)), status=JobStatus.FAILED, _return_value=error)
    if done.status == JobStatus.FAILED:
        log.error(f"#{element.number} : {_text(element)} (job {job.job_id}) failed: {str(done._return_value).strip()}")
    return done
