"""muster as a cluster of submitit.

    executor = submitit.AutoExecutor("logs", cluster="muster")
    executor.update_parameters(timeout_min=60, muster_partition="gpu")
    job = executor.submit(train, 1e-3)
    job.result()

submitit finds these classes by the package's entry points. docs/submitit.md has the parameters.
"""

from ._submitit.environment import MusterJobEnvironment
from ._submitit.executor import MusterExecutor
from ._submitit.job import MusterJob
from ._submitit.slurm_names import hand_over

hand_over()

__all__ = ["MusterExecutor", "MusterJob", "MusterJobEnvironment"]
