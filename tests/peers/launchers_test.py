"""Goal: a command that starts its ranks itself runs as it is: torchrun, accelerate launch, and Lightning's own launcher.

Method: the released launchers in jobs of a real musterd, as local processes and on a private Slurm of two nodes, two ranks a node.
Usage: MUSTER_BIN_FOLDER=... run.py, see tests/peers/run.py
"""

import json
import os
import pathlib
import re
import shlex
import socket
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "system"))
from daemon import Musterd, eventually  # noqa: E402
from private_slurm import PrivateSlurm, missing  # noqa: E402

BIN = pathlib.Path(os.environ["MUSTER_BIN_FOLDER"])
PROGRAM = str(HERE / "launched.py")
TORCHRUN = ["-m", "torch.distributed.run", "--nproc-per-node", "2", PROGRAM]


class Jobs(unittest.TestCase):
    executor = "local"
    nodes = 1

    def setUp(self):
        self.musterd = Musterd(self, BIN)

    def submit(self, name, command, launcher="own"):
        """The submitter's PYTHONPATH is the job's: it has the package."""
        path = self.musterd.folder / f"{name}.toml"
        path.write_text(f'name = "{name}"\nlauncher = "{launcher}"\ncommand = {json.dumps(command)}\n'
                        f'executor = "{self.executor}"\n[env]\nOMP_NUM_THREADS = "1"\n[resources]\nnodes = {self.nodes}\n')
        done = self.musterd.muster("submit", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        return re.search(r"\d+", done.stdout).group()

    def submit_script(self):
        """A script for sbatch as guides have it: torchrun on each node, which meet on the first."""
        torchrun = shlex.join([sys.executable, "-m", "torch.distributed.run"])
        path = self.musterd.folder / "run.sh"
        path.write_text(f"""#!/bin/bash
#SBATCH --nodes={self.nodes} --ntasks-per-node=1
set -euo pipefail
export OMP_NUM_THREADS=1
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun {torchrun} --nnodes "$SLURM_NNODES" --nproc-per-node 2 --rdzv-id "$SLURM_JOB_ID" --rdzv-backend c10d \\
  --rdzv-endpoint "$head:$2" "$1" torch
""")
        with socket.socket() as free:  # other tests have a job 1 on this machine, too
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        done = self.musterd.muster("submit", "--set", f"working_folder={self.musterd.folder}", path, PROGRAM, str(port))
        self.assertEqual(done.returncode, 0, done.stderr)
        return re.search(r"\d+", done.stdout).group()

    def end_of(self, job):
        shown = self.musterd.until(job, lambda job: job["state"] in ("succeeded", "failed", "cancelled"))
        return shown, self.musterd.muster("logs", job).stdout[-3000:]

    def check(self, job):
        shown, log = self.end_of(job)
        self.assertEqual((shown["state"], len(shown["attempts"])), ("succeeded", 1), f"{shown['reason']}\n{log}")
        wanted = [(step, 2 * self.nodes) for step in range(1, 6)]

        def told():
            rows = json.loads(self.musterd.muster("metrics", job, "--json").stdout)
            return [(row["step"], row["series"]["ranks"]) for row in rows]

        eventually(lambda: told() == wanted, 60)  # the last rows may come a moment after the news of the end
        self.assertEqual(told(), wanted, "of the two ranks of a node one reports")


class Launchers(Jobs):
    def test_two_jobs_with_torchrun_run_beside_each_other(self):
        jobs = [self.submit(f"torchrun-{number}", [sys.executable, *TORCHRUN, "torch"]) for number in range(2)]
        for job in jobs:
            self.check(job)

    def test_torchrun_as_the_only_rank_of_a_job(self):
        self.check(self.submit("torchrun", [sys.executable, *TORCHRUN, "torch"], launcher="muster"))

    def test_the_reason_is_the_error_of_the_worker_that_failed_first(self):
        shown, log = self.end_of(self.submit("fails", [sys.executable, *TORCHRUN, "fail"]))
        self.assertEqual(shown["state"], "failed", log)
        self.assertEqual({one["error"] for one in shown["attempts"]}, {"RuntimeError: loss is not finite at step 17"}, log)

    def test_a_training_with_forked_data_loaders_saves_when_it_is_asked_to_leave(self):
        job = self.submit("loaders", [sys.executable, PROGRAM, "loaders"], launcher="muster")
        self.musterd.until(job, lambda job: (job["step"] or 0) > 20)
        self.assertEqual(self.musterd.muster("requeue", job).returncode, 0)
        shown, log = self.end_of(job)
        self.assertEqual((shown["state"], len(shown["attempts"])), ("succeeded", 2), log)
        self.assertGreater(shown["attempts"][1]["resumed_from_step"], 20, log)

    def test_accelerate_launch(self):
        self.check(self.submit("accelerate", [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2",
                                              "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no",
                                              PROGRAM, "torch"]))

    def test_lightnings_own_launcher(self):
        self.check(self.submit("lightning", [sys.executable, PROGRAM, "lightning"]))

    def test_a_script_for_sbatch_with_torchrun(self):
        self.check(self.submit_script())


@unittest.skipIf(missing(), f"no Slurm here: {missing()}")
class LaunchersOnSlurm(Jobs):
    """The command is started once on each node, and the launchers of a job find each other."""

    executor = "slurm"
    nodes = 2

    def setUp(self):
        slurm = PrivateSlurm(self, "--nodes", "2")
        self.musterd = Musterd(self, BIN, slurm="yes", env=slurm.env)

    def test_torchrun(self):
        self.check(self.submit("torchrun", [sys.executable, *TORCHRUN, "torch"]))

    def test_a_script_for_sbatch_with_torchrun(self):
        self.check(self.submit_script())

    def test_accelerate_launch(self):
        """As docs/launchers.md has it: accelerate takes the nodes from its options alone."""
        command = (f"exec {shlex.quote(sys.executable)} -m accelerate.commands.launch --multi_gpu --num_machines $MUSTER_NODES "
                   "--machine_rank $NODE_RANK --main_process_ip $MASTER_ADDR --main_process_port $MASTER_PORT "
                   "--num_processes $((2 * MUSTER_NODES)) --mixed_precision no --dynamo_backend no "
                   f"{shlex.quote(PROGRAM)} torch")
        self.check(self.submit("accelerate", ["sh", "-c", command]))

    def test_lightnings_own_launcher(self):
        self.check(self.submit("lightning", [sys.executable, PROGRAM, "lightning"]))

    def test_the_reason_is_the_error_of_the_worker_that_failed_first(self):
        shown, log = self.end_of(self.submit("fails", [sys.executable, *TORCHRUN, "fail"]))
        self.assertEqual(shown["state"], "failed", log)
        self.assertEqual({one["error"] for one in shown["attempts"]}, {"RuntimeError: loss is not finite at step 17"}, log)


if __name__ == "__main__":
    unittest.main()
