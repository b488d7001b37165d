"""muster for Python trainings.

    import muster

    run = muster.init(total_steps=9000, config=vars(args))
    for step in range(run.resume(load_newest_checkpoint) + 1, 9001):
        loss = train_one_step()
        run.log(step, loss=loss)
        if run.should_stop(step):
            save(path)
            run.checkpoint(path, step)
            run.leave()

Nothing happens outside muster: the same program runs unchanged. Programs submit and follow jobs with muster.submit() and
muster.Job (see muster._client).
"""

from typing import TYPE_CHECKING, Any

from ._run import REQUEUE_EXIT_CODE, Run, init
from ._stop import Stop
from ._worker import worker_init

if TYPE_CHECKING:
    from ._client import Job, JobFailed, JobStatus, Sweep, jobs, submit, submit_sweep
    from ._controller import MusterError

__all__ = ["REQUEUE_EXIT_CODE", "Job", "JobFailed", "JobStatus", "MusterError", "Run", "Stop", "Sweep", "init", "jobs",
           "submit", "submit_sweep", "worker_init"]


def __getattr__(name: str) -> Any:
    # A training that only reports need not load the HTTP client.
    if name in __all__:
        from . import _client
        return getattr(_client, name)
    raise AttributeError(f"module 'muster' has no attribute '{name}'")
