"""submitit and Hydra through muster on a real Slurm: several nodes, arrays, a partition that preempts, time limits."""

import os
import pathlib
import subprocess
import sys
import unittest
import warnings

import submitit_functions as functions
from private_slurm import PrivateSlurm, missing
from submitit.core.utils import FailedJobError
from submitit_world import BIN, LIMIT_S, Musterd, World

HERE = pathlib.Path(__file__).parent
os.environ["PYTHONPATH"] = f"{os.environ.get('PYTHONPATH', '')}:{HERE}"


@unittest.skipIf(missing(), f"no Slurm here: {missing()}")
class Slurm(World):
    slurm = None

    @classmethod
    def start_daemon(cls, test):
        # Those of partition low keep 20 s when one of high wants their nodes.
        cls.slurm = PrivateSlurm(test, "--nodes", "2", "--grace", "20")
        return Musterd(test, BIN, slurm="yes", env=cls.slurm.env)

    def test_a_training_on_two_nodes_is_preempted_and_goes_on(self):
        executor = self.executor(timeout_min=10, muster_partition="low", nodes=2, tasks_per_node=2, cpus_per_task=4, name="train",
                                 muster_signal_delay_s=30)
        job = executor.submit(functions.Counter(self.folder, 1500, 0.1, 0))
        for rank in range(4):
            self.until_file(self.folder / f"rank-{rank}-counts-1")
        self.slurm.run("sbatch", "--partition=high", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 1")
        self.until_file(self.folder / "saved-1")
        results = job.results()
        saved = int((self.folder / "saved-1").read_text())
        self.assertGreaterEqual(saved, 5)
        for reached, began in results:
            self.assertEqual((reached, began), (1500, [(1, 0), (2, saved)]))
        self.assertEqual(self.until_over(job)["state"], "succeeded")
        self.assertEqual(self.causes(job), ["preempted", "completed"])
        self.assertIn("this job is preempted", job.task(0).stdout())

    def test_a_preempted_function_with_forked_workers_goes_on(self):
        # Slurm's signal ends the workers, before or after it reaches the function.
        jobs = [self.executor(timeout_min=10, muster_partition="low", name="workers", muster_signal_delay_s=15).submit(
            functions.WithWorkers(folder, 2000, 0.05, 0)) for folder in self.folders(4)]
        for folder in self.folders(4):
            self.until_file(folder / "rank-0-counts-1")
        self.slurm.run("sbatch", "--partition=high", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 1")
        for job, folder in zip(jobs, self.folders(4)):
            saved = int((folder / "saved-1").read_text()) if job.result() else 0
            self.assertEqual(job.result(), (2000, [(1, 0), (2, saved)]))
            self.assertEqual(len((folder / "saves").read_text().split()), 1)
            self.assertEqual(self.causes(job), ["preempted", "completed"])

    def folders(self, count):
        all_of_them = [self.folder / str(number) for number in range(count)]
        for folder in all_of_them:
            folder.mkdir(exist_ok=True)
        return all_of_them

    def test_parameters_for_slurm_are_those_of_submitit(self):
        executor = self.executor(timeout_min=10, slurm_partition="low", slurm_time=3, slurm_setup=["if true; then", "export SET_UP=yes",
                                                                                                   "fi"])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            job = executor.submit(functions.variables, "SET_UP", "SLURM_JOB_PARTITION")
        self.assertEqual(job.result(), ["yes", "low"])
        self.assertIn('time_limit = "3m"', self.muster("spec", job.job_id))

    def test_setup_lines_do_what_they_do_locally(self):
        os.environ["OF_THE_SUBMITTER"] = "word"
        self.addCleanup(os.environ.pop, "OF_THE_SUBMITTER")
        executor = self.executor(muster_setup=["export LONGER=${OF_THE_SUBMITTER}s", "unset OF_THE_SUBMITTER", "cd /usr"])
        self.assertEqual(executor.submit(functions.variables, "LONGER", "OF_THE_SUBMITTER").result(), ["words", None])
        self.assertEqual(executor.submit(os.getcwd).result(), "/usr")

    def test_a_job_on_a_node_submits_further_jobs(self):
        job = self.executor(timeout_min=2).submit(functions.submit_further, self.folder / "inner", 5)
        self.assertEqual(job.result(), ([6, 7], [15, 15]))

    def test_tasks_know_their_nodes_and_share_their_gpus(self):
        executor = self.executor(nodes=2, tasks_per_node=2, gpus_per_node=2, muster_setup=["export SET_UP=yes"],
                                 muster_executor="slurm")
        job = executor.submit(functions.where)
        found = job.results()
        self.assertEqual([one["node"] for one in found], [0, 0, 1, 1])
        self.assertEqual([one["local_rank"] for one in found], [0, 1, 0, 1])
        self.assertEqual({(one["num_nodes"], one["num_tasks"], tuple(one["hostnames"])) for one in found},
                         {(2, 4, ("node1", "node2"))})
        names = executor.submit(functions.variables, "CUDA_VISIBLE_DEVICES", "SET_UP", "SUBMITIT_EXECUTOR").results()
        self.assertEqual(names, [["0,1", "yes", "muster"]] * 4)

    def test_a_map_is_one_array_of_slurm(self):
        jobs = self.executor().map_array(functions.fail_on, range(4), [2] * 4)
        self.assertEqual([job.result() for job in jobs[:2] + jobs[3:]], [0, 1, 3])
        with self.assertRaisesRegex(FailedJobError, "2 is bad"):
            jobs[2].result()
        numbers = [self.until_over(job)["attempts"][0]["scheduler_job"] for job in jobs]
        self.assertEqual(len({number.split("_")[0] for number in numbers}), 1, numbers)
        self.assertEqual([number.split("_")[1] for number in numbers], ["0", "1", "2", "3"])

    def test_a_time_limit_calls_checkpoint_and_is_counted(self):
        executor = self.executor(muster_time=0.15, muster_signal_delay_s=5, init={"muster_max_num_timeout": 1})
        job = executor.submit(functions.Endless(self.folder))
        with self.assertRaisesRegex(FailedJobError, "timed-out too many times"):
            job.result()
        self.assertEqual(self.until_over(job)["state"], "failed")
        self.assertEqual(self.causes(job), ["timed_out", "timed_out"])
        self.assertTrue((self.folder / "saved-1").exists())

    def test_slurms_own_requeue_calls_checkpoint(self):
        job = self.executor().submit(functions.Counter(self.folder, 2000, 0.05, 0))
        self.until_file(self.folder / "rank-0-counts-1")
        # Slurm may start a rank before sbatch's answer has reached muster.
        self.until(lambda: self.job(job)["attempts"], "sbatch's answer is not known")
        self.slurm.run("scontrol", "requeue", self.job(job)["attempts"][0]["scheduler_job"])
        self.assertEqual(job.result()[0], 2000)
        self.until_over(job)
        self.assertEqual(self.causes(job)[1:], ["completed"])

    def test_a_cancelled_job_is_gone_from_slurm(self):
        job = self.executor().submit(functions.Endless(self.folder))
        self.until_file(self.folder / "rank-0-counts-1")
        self.cancel(job)
        self.assertTrue(job.done(force_check=True))
        self.assertEqual(job.state, "CANCELLED")

    def test_a_multirun_of_hydra_of_which_one_fails_and_one_is_preempted(self):
        process = subprocess.Popen(
            [sys.executable, HERE / "hydra_app.py", "-m", "hydra/launcher=muster", f"hydra.sweep.dir={self.folder}/out",
             "hydra.launcher.partition=low", "hydra.launcher.name=multirun", "+x=1,2,3", "+bad=1", "+slow=3"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.folder)
        self.addCleanup(process.kill)
        self.until_file(self.folder / "out" / "2" / "attempt-1")
        self.slurm.run("sbatch", "--partition=high", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 1")
        out, _ = process.communicate(timeout=LIMIT_S)
        self.assertIn("ValueError: x=1 is bad", out)
        ids = sorted(job["id"] for job in self.list() if job["name"].startswith("multirun"))
        self.until(lambda: all(self.daemon.show(str(job))["state"] in ("succeeded", "failed") for job in ids), out)
        jobs = [self.daemon.show(str(job)) for job in ids]
        self.assertEqual([job["state"] for job in jobs], ["failed", "succeeded", "succeeded"])
        self.assertEqual([attempt["cause"] for attempt in jobs[2]["attempts"]], ["preempted", "completed"])


if __name__ == "__main__":
    unittest.main()
