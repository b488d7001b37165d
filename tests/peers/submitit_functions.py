"""What the tests submit. Jobs import this module as any user's: from the folder that PYTHONPATH has."""

import atexit
import multiprocessing
import os
import pathlib
import shutil
import signal
import sys
import time

import submitit


def add(a, b):
    print(f"adding {a} and {b}")
    print("a word for stderr", file=sys.stderr)
    return a + b


def fail(text):
    raise ValueError(text)


def fail_on(value, bad):
    if value == bad:
        raise ValueError(f"{value} is bad")
    return value


def submit_further(folder, number):
    """A job that submits jobs, and an array of jobs, to the controller of its submitter."""
    executor = submitit.AutoExecutor(folder, cluster="muster")
    executor.update_parameters(timeout_min=2, muster_signal_delay_s=10)
    jobs = [executor.submit(add, number, more) for more in (1, 2)]
    array = executor.map_array(add, [number, number], [10, 10])
    return [job.result() for job in jobs], [job.result() for job in array]


def variables(*names):
    return [os.environ.get(name) for name in names]


def where():
    env = submitit.JobEnvironment()
    return {name: getattr(env, name) for name in (
        "cluster", "job_id", "array_job_id", "array_task_id", "num_tasks", "num_nodes", "node", "global_rank", "local_rank",
        "hostnames", "hostname")} | {"torchrun": "RANK" in os.environ, "stdout": str(env.paths.stdout)}


def torch_environment():
    env = submitit.helpers.TorchDistributedEnvironment().export(set_cuda_visible_devices=False)
    return env.rank, env.world_size, env.local_rank, os.environ["RANK"], os.environ["MASTER_ADDR"]


def sleep(folder, seconds=600):
    pathlib.Path(folder, f"sleeping-{submitit.JobEnvironment().global_rank}-{os.environ['MUSTER_ATTEMPT']}").touch()
    time.sleep(seconds)
    return os.environ["MUSTER_ATTEMPT"]


def sleep_once(folder):
    """Sleeps in the first attempt alone."""
    return sleep(folder, 600 if os.environ["MUSTER_ATTEMPT"] == "1" else 0)


def fail_beside_a_sleeper(folder):
    if submitit.JobEnvironment().global_rank == 0:
        sleep(folder)
    while not pathlib.Path(folder, "sleeping-0-1").exists():
        time.sleep(0.01)
    raise ValueError("task 1 fails")


def return_and_linger(folder):
    """Has its result, but its process takes its time to end."""
    atexit.register(sleep, folder, 600)
    return os.environ["MUSTER_ATTEMPT"]


def sleep_in_a_torn_save(folder, with_pickle):
    """Leaves what a kill in the middle of a save leaves."""
    paths = submitit.JobEnvironment().paths
    if os.environ["MUSTER_ATTEMPT"] == "1":
        for path in (paths.result_pickle, paths.submitted_pickle):
            shutil.copy(paths.submitted_pickle, f"{path}.save_tmp")
        if not with_pickle:
            paths.submitted_pickle.unlink()
    return sleep_once(folder)


def crash():
    os.kill(os.getpid(), 9)


class Counter:
    """Counts to `end`, slowly, and goes on after each checkpoint. Every rank counts; rank 0 saves."""

    def __init__(self, folder, end, pause=0.02, pause_later=None, slow_attempts=1):
        self.folder = pathlib.Path(folder)
        self.end = end
        self.pause = pause
        self.pause_later = pause if pause_later is None else pause_later  # after the checkpoint of the last slow attempt
        self.slow_attempts = slow_attempts
        self.reached = 0
        self.began = []

    def __call__(self):
        self.began.append((int(os.environ["MUSTER_ATTEMPT"]), self.reached))
        rank = submitit.JobEnvironment().global_rank
        while self.reached < self.end:
            self.reached += 1
            if self.reached - self.began[-1][1] == 5:
                (self.folder / f"rank-{rank}-counts-{os.environ['MUSTER_ATTEMPT']}").touch()
            time.sleep(self.pause)
        return self.reached, self.began

    def checkpoint(self):
        (self.folder / f"saved-{os.environ['MUSTER_ATTEMPT']}").write_text(str(self.reached))
        if len(self.began) >= self.slow_attempts:
            self.pause = self.pause_later
        return submitit.helpers.DelayedSubmission(self)


class Tied(Counter):
    """Its task 1 fails as soon as task 0 saves, as one in a collective with a task that has left."""

    def __call__(self):
        if submitit.JobEnvironment().global_rank == 0 or os.environ["MUSTER_ATTEMPT"] != "1":
            return super().__call__()
        (self.folder / "rank-1-counts-1").touch()
        while not (self.folder / "saved-1").exists():
            time.sleep(0.005)
        raise ConnectionError("task 0 is gone")


class TiedAndLate(Tied):
    """Its task 1 hears of a stop only after task 0 has saved, as on a busy machine: within the patience of a task that fails,
    or when it is on its way out."""

    def __init__(self, folder, on_its_way_out):
        super().__init__(folder, 2000, 0.02, 0)
        self.on_its_way_out = on_its_way_out

    def __call__(self):
        if submitit.JobEnvironment().global_rank != 0 and os.environ["MUSTER_ATTEMPT"] == "1":
            from muster._submitit import environment
            self.hears = False
            read_stop = environment._stop.read_stop
            environment._stop.read_stop = lambda path: read_stop(path) if self.hears else None
            if self.on_its_way_out:
                environment.SIGNAL_PATIENCE_SECONDS = 0
                environment.WORKER_PATIENCE_SECONDS = 0
                atexit.register(self.hear, environment.StopHandler)
            else:
                environment.leave_children_alone = self.begin_to_hear
        return super().__call__()

    def begin_to_hear(self):
        self.hears = True

    def hear(self, handler):
        self.hears = True
        end = time.monotonic() + 30
        while not handler.is_stopping and time.monotonic() < end:
            time.sleep(0.01)


WORKERS = []


def raise_for_a_worker(*_):
    """As PyTorch's own handler of SIGCHLD does while a DataLoader has workers."""
    for worker in WORKERS:
        if worker.exitcode not in (None, 0):
            raise RuntimeError(f"DataLoader worker (pid {worker.pid}) is killed by signal: Terminated.")


class WithWorkers(Counter):
    """Counts beside two forked workers, as data loaders fork them."""

    def __call__(self):
        if not self.began:
            context = multiprocessing.get_context("fork")
            WORKERS.extend(context.Process(target=time.sleep, args=(600,), daemon=True) for _ in range(2))
            for worker in WORKERS:
                worker.start()
            signal.signal(signal.SIGCHLD, raise_for_a_worker)
        return super().__call__()

    def checkpoint(self):
        time.sleep(0.3)  # a save takes its time
        with open(self.folder / "saves", "a") as file:
            file.write(f"{os.getpid()} ")
        with open(self.folder / "workers-at-save", "a") as file:
            file.write(f"{sum(worker.is_alive() for worker in WORKERS)}")
        return super().checkpoint()


class EndsAWorker:
    """multiprocessing ends its workers by SIGTERM, in good order."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def __call__(self):
        context = multiprocessing.get_context("fork")
        with context.Pool(2) as pool:
            total = sum(pool.map(abs, [-1, -2]))
        worker = context.Process(target=time.sleep, args=(600,))
        worker.start()
        worker.terminate()
        worker.join(30)
        return total, worker.exitcode

    def checkpoint(self):
        (self.folder / "saved").touch()
        return submitit.helpers.DelayedSubmission(self)


class Endless(Counter):
    """One that is never done."""

    def __init__(self, folder):
        super().__init__(folder, 10**9)


class GivesUp(Endless):
    def checkpoint(self):
        return None


class CannotSave(Endless):
    def checkpoint(self):
        raise OSError("the disk is full")


class Stubborn(Counter):
    """Catches everything, SystemExit too."""

    def __call__(self):
        self.began.append((int(os.environ["MUSTER_ATTEMPT"]), self.reached))
        while self.reached < self.end:
            try:
                self.reached += 1
                if self.reached == 5:
                    (self.folder / f"rank-0-counts-{os.environ['MUSTER_ATTEMPT']}").touch()
                time.sleep(self.pause if self.began[-1][0] == 1 else 0)
            except BaseException:  # noqa: B036
                pass
        return self.reached, self.began


def train(folder, steps):
    """A loop with muster's own package: it saves and leaves by itself."""
    import muster
    saved = pathlib.Path(folder) / "step"
    run = muster.init(total_steps=steps)
    for step in range(run.resume(int(saved.read_text()) if saved.exists() else 0) + 1, steps + 1):
        run.log(step, loss=1.0 / step)
        if step == 5:
            (pathlib.Path(folder) / "rank-0-counts-1").touch()
        if run.should_stop(step):
            saved.write_text(str(step))
            run.checkpoint(saved, step)
            run.leave()
        time.sleep(0.02)
    return run.attempt
