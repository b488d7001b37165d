"""A training that submitit submits to muster: python3 submitit_train.py

The training is a callable with checkpoint(), as for submitit on Slurm. The only change is cluster="muster".
"""

import sys
import time

import submitit


class Training:
    def __init__(self, learning_rate: float, steps: int) -> None:
        self.learning_rate = learning_rate
        self.steps = steps
        self.step = 0
        self.weight = 0.0

    def __call__(self) -> float:
        env = submitit.JobEnvironment()
        print(f"job {env.job_id}, task {env.global_rank} of {env.num_tasks}: begins at step {self.step}")
        while self.step < self.steps:
            self.weight += self.learning_rate * (1.0 - self.weight)
            self.step += 1
            time.sleep(0.02)
        return round((1.0 - self.weight) ** 2, 6)

    def checkpoint(self) -> submitit.helpers.DelayedSubmission:
        """muster stops the job: a preemption, a time limit, muster requeue. The job goes on from what this returns."""
        return submitit.helpers.DelayedSubmission(self)


def main(folder: str) -> None:
    executor = submitit.AutoExecutor(folder, cluster="muster", muster_max_num_timeout=3)
    executor.update_parameters(name="training", timeout_min=10, nodes=1, tasks_per_node=1)
    jobs = executor.submit_array([Training(learning_rate, 50) for learning_rate in (0.01, 0.1)])
    for job in jobs:
        print(f"job {job.job_id}: loss {job.result()}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "submitit_logs")
