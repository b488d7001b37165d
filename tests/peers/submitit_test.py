"""submitit's documented behaviour through AutoExecutor(cluster="muster"), with the released submitit and local processes."""

import asyncio
import os
import pathlib
import pickle
import signal
import stat
import subprocess
import sys
import time
import unittest
import warnings
from unittest import mock

import submitit
import submitit_functions as functions
from muster._submitit import slurm_names
from submitit.core.utils import FailedJobError, UncompletedJobError
from submitit_world import World

EXAMPLES = pathlib.Path(__file__).resolve().parent.parent.parent / "examples" / "python"
os.environ["PYTHONPATH"] = f"{os.environ.get('PYTHONPATH', '')}:{pathlib.Path(__file__).parent}"


class Results(World):
    def test_a_result_comes_back(self):
        job = self.executor().submit(functions.add, 5, b=7)
        self.assertEqual(job.result(), 12)
        self.assertEqual(job.results(), [12])
        self.assertIsNone(job.exception())
        self.assertTrue(job.done())
        self.assertEqual(self.until_over(job)["state"], "succeeded")
        # The output may reach its files after the result, but before the end of the job.
        self.assertIn("adding 5 and 7", job.stdout())
        self.assertEqual(job.stderr(), "a word for stderr\n")
        self.assertTrue(job.watcher.is_done(job.job_id, mode="force"))
        self.assertEqual(job.state, "COMPLETED")
        self.assertEqual(job.submission().args, (5,))
        self.assertIn("name = \"submitit\"", job.paths.submission_file.read_text())
        self.assertEqual(pathlib.Path(self.job(job)["spec"]["job_file"]), job.paths.submission_file.resolve())
        log = self.muster("logs", job.job_id)
        self.assertIn("adding 5 and 7", log)
        self.assertIn("a word for stderr", log)

    def test_what_the_function_closes_over_travels_with_it(self):
        number = 20
        self.assertEqual(self.executor().submit(lambda: number + 1).result(), 21)

    def test_an_exception_comes_back_and_ends_the_job(self):
        job = self.executor().submit(functions.fail, "of no use")
        with self.assertRaisesRegex(FailedJobError, "ValueError: of no use"):
            job.result()
        self.assertIsInstance(job.exception(), FailedJobError)
        view = self.until_over(job)
        self.assertEqual(view["state"], "failed")
        self.assertEqual(len(view["attempts"]), 1)
        self.assertIn("ValueError: of no use", view["reason"])
        job.get_info(mode="force")
        self.assertEqual(job.state, "FAILED")

    def test_a_crash_is_an_uncompleted_job(self):
        job = self.executor().submit(functions.crash)
        reason = self.until_over(job)["reason"]
        began = time.monotonic()
        error = job.exception()
        self.assertLess(time.monotonic() - began, 8, "a local job's result was waited for though the job was over")
        self.assertIsInstance(error, UncompletedJobError)
        self.assertNotIsInstance(error, FailedJobError)
        self.assertIn("SIGKILL", reason)
        self.assertIn(f"muster: {reason}", str(error))
        self.assertEqual(self.causes(job), ["failed"])

    def test_both_outputs_in_one_file(self):
        job = self.executor(stderr_to_stdout=True).submit(functions.add, 1, 2)
        job.result()
        self.until_over(job)
        self.assertIn("a word for stderr", job.stdout())
        self.assertIsNone(job.stderr())

    def test_a_job_is_found_again_by_another_process(self):
        job = self.executor().submit(functions.add, 1, 2)
        copy = pickle.loads(pickle.dumps(job))
        self.assertEqual(copy.result(), 3)
        again = type(job)(self.folder / "log", job.job_id)
        self.assertEqual(again.result(), 3)
        other = subprocess.run([sys.executable, "-c", f"import pickle; print(pickle.loads({pickle.dumps(job)!r}).result())"],
                               capture_output=True, text=True)
        self.assertEqual(other.stdout, "3\n", other.stderr)

    def test_asyncio_waits_for_jobs(self):
        jobs = self.executor().map_array(functions.add, [1, 2], [3, 4])

        async def results():
            return await asyncio.gather(*(job.awaitable().result(0.1) for job in jobs))

        self.assertEqual(asyncio.run(results()), [4, 6])


class Examples(World):
    def test_the_example_prints_its_losses(self):
        done = subprocess.run([sys.executable, EXAMPLES / "submitit_train.py", self.folder / "log"], capture_output=True,
                              text=True, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"^job \d+: loss 0.366032\njob \d+: loss 2.7e-05\n$")


class Parameters(World):
    def test_an_unknown_parameter_is_refused_with_the_valid_ones(self):
        with self.assertRaisesRegex(NameError, "Unknown argument 'colour' for executor 'muster'.*partition"):
            self.executor(muster_colour="red")
        with self.assertRaisesRegex(ValueError, "parameter executor is 'moon': want one of auto, local, slurm"):
            self.executor(muster_executor="moon")
        with self.assertRaisesRegex(ValueError, "parameter dependency is \"after:x\""):
            self.executor(muster_dependency="after:x")

    def test_parameters_for_slurm_have_no_effect_on_local_processes_and_one_warning(self):
        slurm_names.warn_once.cache_clear()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for _ in range(2):
                job = self.executor(timeout_min=3, slurm_partition="gpu", slurm_time=7).submit(functions.add, 1, 2)
        texts = [str(one.message) for one in told if "slurm_partition" in str(one.message)]
        self.assertEqual(texts, ["muster runs these jobs as local processes, so parameters for Slurm have no effect: "
                                 "slurm_partition, slurm_time"])
        self.assertEqual(job.result(), 3)
        spec = self.muster("spec", job.job_id)
        self.assertIn('time_limit = "3m"', spec)
        self.assertNotIn("partition", spec)

    def test_parameters_for_slurm_mean_the_same_where_jobs_go_there(self):
        # Nobody submits: the job file is enough.
        executor = submitit.AutoExecutor(self.folder / "log", cluster="muster", slurm_max_num_timeout=30)
        executor.update_parameters(timeout_min=3, nodes=2, slurm_partition="gpu", slurm_time=7, slurm_gpus_per_node=8,
                                   slurm_mem_gb=3.5, slurm_signal_delay_s=120, slurm_constraint="a100", slurm_use_srun=True,
                                   muster_executor="slurm", muster_constraint="h100")
        text = executor._executor._make_submission_file_text("true", "")
        for line in ('partition = "gpu"', 'time_limit = "420000ms"', "nodes = 2", 'gres = "gpu:8"', 'mem = "3584MiB"',
                     'stop_grace = "120s"', 'constraint = "h100"', "max_timed_out = 30"):
            self.assertIn(line, text)
        with self.assertRaisesRegex(NameError, "Unknown argument 'colour' for executor 'slurm'"):
            executor.update_parameters(slurm_colour="red")
        with self.assertRaisesRegex(ValueError, "parameter setup is 'a': want a list of texts"):
            executor.update_parameters(slurm_setup="a")
        slurm_names.warn_once.cache_clear()
        with self.assertWarnsRegex(UserWarning, "slurm_comment has no effect: muster keeps its own mark"):
            executor.update_parameters(slurm_comment="mine")

    def test_a_job_submits_further_jobs(self):
        job = self.executor().submit(functions.submit_further, self.folder / "inner", 5)
        self.assertEqual(job.result(), ([6, 7], [15, 15]))

    def test_a_job_submits_further_jobs_where_the_data_folder_leads(self):
        others = {name: value for name, value in os.environ.items() if not name.startswith("MUSTER_")}
        with mock.patch.dict(os.environ, others | {"MUSTER_DATA_FOLDER": os.path.relpath(self.daemon.data)}, clear=True):
            job = self.executor().submit(functions.submit_further, self.folder / "inner", 5)
            self.assertEqual(job.result(), ([6, 7], [15, 15]))
            self.assertEqual(self.executor().submit(functions.variables, "MUSTER_DATA_FOLDER").result(), [str(self.daemon.data)])

    def test_what_muster_refuses_is_an_error_with_its_words(self):
        with self.assertRaisesRegex(FailedJobError, "resources.nodes"):
            self.executor(nodes=2, muster_executor="local").submit(functions.add, 1, 2)
        with self.assertRaisesRegex(FailedJobError, "requeue.max_fialed"):
            self.executor(muster_set={"requeue.max_fialed": 1}).submit(functions.add, 1, 2)
        self.assertEqual(list((self.folder / "log").iterdir()), [])

    def test_parameters_become_keys_of_the_job_file(self):
        executor = self.executor(
            name="a name / b", timeout_min=90, mem_gb=3.5, cpus_per_task=2, muster_partition="gpu", muster_constraint="a100",
            muster_additional_parameters={"hint": "nomultithread", "mail-user": "me"}, muster_set={"requeue.max_failed": 2})
        job = executor.submit(functions.add, 1, 2)
        self.assertEqual(job.result(), 3)
        spec = self.muster("spec", job.job_id)
        for line in ('name = "a-name-b"', 'time_limit = "1h30m"', "cpus_per_rank = 2", 'partition = "gpu"', 'mem = "3584MiB"',
                     'constraint = "a100"', 'hint = "nomultithread"', 'mail_user = "me"', "max_failed = 2"):
            self.assertIn(line, spec)

    def test_the_submitters_environment_arrives_and_stays_private(self):
        os.environ["OF_THE_SUBMITTER"] = "word ä"
        self.addCleanup(os.environ.pop, "OF_THE_SUBMITTER")
        job = self.executor().submit(functions.variables, "OF_THE_SUBMITTER", "MUSTER_TOKEN")
        self.assertEqual(job.result(), ["word ä", self.daemon.token])
        spec = self.muster("spec", job.job_id, "--secrets")
        self.assertNotIn("OF_THE_SUBMITTER", spec)
        self.assertNotIn(self.daemon.token, spec)
        [kept] = (self.folder / "log").glob(".submission_*.env.json")
        self.assertEqual(stat.S_IMODE(kept.stat().st_mode), 0o600)
        self.assertEqual(self.executor(muster_environment="submit").submit(functions.variables, "OF_THE_SUBMITTER").result(),
                         [None])

    def test_setup_lines_come_first(self):
        executor = self.executor(muster_setup=["export SET_UP=yes", "# a remark"])
        self.assertEqual(executor.submit(functions.variables, "SET_UP").result(), ["yes"])
        job = self.executor(muster_setup=["if true; then", "  exit 3", "fi"]).submit(functions.variables, "SET_UP")
        self.assertEqual(self.until_over(job)["state"], "failed")
        self.assertEqual(self.executor(muster_setup=["false"]).submit(functions.add, 1, 2).result(), 3, "as in a script of sbatch")
        job = self.executor(muster_setup=["exit 0"]).submit(functions.add, 1, 2)
        self.assertEqual(self.until_over(job)["state"], "failed")

    def test_setup_lines_see_the_submitters_environment_and_lead_the_function(self):
        os.environ["OF_THE_SUBMITTER"] = "word"
        self.addCleanup(os.environ.pop, "OF_THE_SUBMITTER")
        executor = self.executor(muster_setup=["export LONGER=${OF_THE_SUBMITTER}s", "unset OF_THE_SUBMITTER", "cd /usr"])
        self.assertEqual(executor.submit(functions.variables, "LONGER", "OF_THE_SUBMITTER").result(), ["words", None])
        self.assertEqual(executor.submit(os.getcwd).result(), "/usr")

    def test_dependencies_are_kept(self):
        first = self.executor().submit(functions.sleep, self.folder, 2)
        second = self.executor(muster_dependency=f"afterok:{first.job_id}").submit(functions.add, 1, 2)
        self.assertEqual(second.state, "PENDING")
        self.assertEqual(second.result(), 3)
        self.assertTrue(first.done())

    def test_muster_is_no_default(self):
        self.assertNotEqual(submitit.AutoExecutor.which(), "muster")


class Arrays(World):
    def test_a_map_is_one_sweep(self):
        jobs = self.executor(name="map").map_array(functions.fail_on, range(5), [3] * 5)
        self.assertEqual([job.result() for job in jobs[:3] + jobs[4:]], [0, 1, 2, 4])
        self.assertIn("ValueError: 3 is bad", str(jobs[3].exception()))
        views = [self.until_over(job) for job in jobs]
        self.assertEqual(len({view["sweep"]["sweep"] for view in views}), 1)
        self.assertEqual([view["sweep"]["index"] for view in views], list(range(5)))
        self.assertEqual([view["state"] for view in views], ["succeeded"] * 3 + ["failed", "succeeded"])
        self.assertEqual(len({job.paths.submission_file for job in jobs}), 1)
        self.assertTrue(jobs[4].paths.submission_file.exists())

    def test_a_batch_is_one_sweep(self):
        executor = self.executor()
        jobs = []
        with executor.batch():
            for number in range(3):
                jobs.append(executor.submit(functions.add, number, 1))
            with self.assertRaises(AttributeError):
                jobs[0].job_id
        self.assertEqual([job.result() for job in jobs], [1, 2, 3])
        self.assertEqual(len({self.job(job)["sweep"]["sweep"] for job in jobs}), 1)

    def test_one_call_asks_for_all_jobs(self):
        jobs = self.executor().map_array(functions.add, range(20), range(20))
        watcher = jobs[0].watcher
        before = watcher.num_calls
        for job in jobs:
            job.state
        self.assertLessEqual(watcher.num_calls - before, 1)
        self.assertEqual([job.result() for job in jobs], [2 * number for number in range(20)])

    def test_tags_of_arrays_stand_in_folders(self):
        jobs = self.executor(self.folder / "%A" / "%a").map_array(functions.where, *[[]] * 0) or []
        self.assertEqual(jobs, [])
        jobs = self.executor(self.folder / "%A" / "%a-%j").map_array(lambda number: functions.where(), range(2))
        for index, job in enumerate(jobs):
            found = job.result()
            array = self.job(job)["sweep"]["sweep"]
            self.assertEqual((found["array_job_id"], found["array_task_id"], found["job_id"]),
                             (array, str(index), job.job_id))
            self.assertEqual(job.paths.stdout, self.folder / array / f"{index}-{job.job_id}" / f"{job.job_id}_0_log.out")
            self.assertEqual(found["stdout"], str(job.paths.stdout))
            other = subprocess.run([sys.executable, "-c", "import sys; from muster.submitit_plugin import MusterJob; "
                                    "print(MusterJob(sys.argv[1], sys.argv[2]).paths.stdout)",
                                    self.folder / "%A" / "%a-%j", job.job_id], capture_output=True, text=True)
            self.assertEqual(other.stdout.strip(), str(job.paths.stdout), other.stderr)
        with self.assertRaisesRegex(ValueError, "%a is in the folder path but this is not a job array"):
            self.executor(self.folder / "%a").submit(functions.add, 1, 2)

    def test_the_parallelism_of_an_array_is_kept(self):
        jobs = self.executor(muster_array_parallelism=1).map_array(functions.sleep, [self.folder] * 3, [0.3] * 3)
        [job.result() for job in jobs]
        spans = sorted((a["started_at"], a["ended_at"]) for a in (self.until_over(job)["attempts"][0] for job in jobs))
        for earlier, later in zip(spans, spans[1:]):
            self.assertLessEqual(earlier[1], later[0])


class Tasks(World):
    def test_each_task_has_a_result_and_a_place(self):
        job = self.executor(tasks_per_node=2).submit(functions.where)
        found = job.results()
        self.assertEqual([one["global_rank"] for one in found], [0, 1])
        self.assertEqual([one["local_rank"] for one in found], [0, 1])
        for one in found:
            self.assertEqual((one["cluster"], one["job_id"], one["num_tasks"], one["num_nodes"], one["node"]),
                             ("muster", job.job_id, 2, 1, 0))
            self.assertIsNone(one["array_job_id"])
            self.assertEqual(one["hostnames"], [one["hostname"]])
            self.assertFalse(one["torchrun"])
        self.assertEqual(job.num_tasks, 2)
        self.assertEqual(job.task(1).result()["global_rank"], 1)
        self.until_over(job)
        self.assertIn("global_rank=1(2)", job.task(1).stdout())

    def test_the_helper_for_torch_exports_its_variables(self):
        found = self.executor(tasks_per_node=2).submit(functions.torch_environment).results()
        self.assertEqual([one[:4] for one in found], [(0, 2, 0, "0"), (1, 2, 1, "1")])
        self.assertEqual(found[0][4], found[1][4])

    def test_torchruns_variables_stay_where_they_are_wanted(self):
        job = self.executor(tasks_per_node=2, muster_torchrun_variables=True).submit(functions.variables, "RANK", "WORLD_SIZE")
        self.assertEqual(job.results(), [["0", "2"], ["1", "2"]])

    def test_all_tasks_leave_when_rank_0_has_saved(self):
        job = self.executor(tasks_per_node=2, muster_signal_delay_s=60).submit(functions.Counter(self.folder, 4000, 0.02, 0))
        for rank in (0, 1):
            self.until_file(self.folder / f"rank-{rank}-counts-1")
        began = time.monotonic()
        self.muster("requeue", job.job_id)
        self.until(lambda: len(self.job(job)["attempts"]) == 2, "no second attempt")
        self.assertLess(time.monotonic() - began, 30, "rank 1 waited for the end of its grace")
        results = job.results()
        saved = int((self.folder / "saved-1").read_text())
        self.assertEqual(results[0], (4000, [(1, 0), (2, saved)]))
        self.assertEqual(results[1], (4000, [(1, 0), (2, saved)]))


    def test_a_task_that_fails_ends_the_others(self):
        began = time.monotonic()
        job = self.executor(tasks_per_node=2, muster_signal_delay_s=60).submit(functions.fail_beside_a_sleeper, self.folder)
        view = self.until_over(job)
        self.assertLess(time.monotonic() - began, 45, "task 0 waited for the end of its grace")
        self.assertEqual((view["state"], len(view["attempts"])), ("failed", 1))
        self.assertIn("ValueError: task 1 fails", view["reason"])
        self.assertIn("ValueError: task 1 fails", str(job.task(1).exception()))
        self.assertIsInstance(job.task(0).exception(), UncompletedJobError)

    def test_a_task_that_fails_because_task_0_has_left_ends_nothing(self):
        self.ends_nothing(functions.Tied(self.folder, 2000, 0.02, 0))

    def test_nor_does_a_task_that_hears_of_the_stop_only_after_its_failure(self):
        # What it has written takes a second to its files.
        (self.folder / "tee").write_text("#!/bin/sh\nall=$(cat)\nsleep 1\necho \"$all\" | /usr/bin/tee \"$@\"\n")
        (self.folder / "tee").chmod(0o755)
        job = self.ends_nothing(functions.TiedAndLate(self.folder, on_its_way_out=False),
                                muster_setup=[f"export PATH={self.folder}:$PATH"])
        self.assertIn("muster asks this job to leave", job.task(1).stdout() + job.task(1).stderr())

    def test_nor_does_a_task_that_hears_of_the_stop_on_its_way_out(self):
        """Its error is there until it starts again, when task 0 may have its result long since."""
        late = "if [ $RANK$MUSTER_ATTEMPT = 12 ]; then sleep 3; fi"
        self.ends_nothing(functions.TiedAndLate(self.folder, on_its_way_out=True), muster_setup=[late])

    def ends_nothing(self, function, **parameters):
        job = self.executor(tasks_per_node=2, **parameters).submit(function)
        for rank in (0, 1):
            self.until_file(self.folder / f"rank-{rank}-counts-1")
        self.muster("requeue", job.job_id)
        self.until(lambda: len(self.job(job)["attempts"]) == 2, "no second attempt")
        self.assertEqual([reached for reached, _ in job.results()], [2000, 2000])
        self.assertEqual(self.until_over(job)["state"], "succeeded")
        return job


class Stops(World):
    def test_a_preempted_job_goes_on_from_its_checkpoint(self):
        counter = functions.Counter(self.folder, 4000, 0.02, 0, slow_attempts=2)
        job = self.executor(timeout_min=5, init={"muster_max_num_timeout": 0}).submit(counter)
        self.until_file(self.folder / "rank-0-counts-1")
        job._interrupt()
        self.until_file(self.folder / "rank-0-counts-2")
        job._interrupt()
        reached, began = job.result()
        self.assertEqual(reached, 4000)
        self.assertEqual(began, [(1, 0), (2, int((self.folder / "saved-1").read_text())),
                                 (3, int((self.folder / "saved-2").read_text()))])
        self.assertEqual(self.until_over(job)["state"], "succeeded")
        self.assertEqual(self.causes(job), ["requeued", "requeued", "completed"])
        self.assertIn("this job is preempted", job.stdout())

    def test_a_preempted_job_without_checkpoint_starts_anew(self):
        job = self.executor().submit(functions.sleep_once, self.folder)
        self.until_file(self.folder / "sleeping-0-1")
        self.muster("requeue", job.job_id)
        self.assertEqual(job.result(), "2")

    def test_a_preempted_function_with_forked_workers_saves_once(self):
        job = self.executor().submit(functions.WithWorkers(self.folder, 2000, 0.02, 0))
        self.until_file(self.folder / "rank-0-counts-1")
        job._interrupt()
        reached, began = job.result()
        self.assertEqual((reached, began), (2000, [(1, 0), (2, int((self.folder / "saved-1").read_text()))]))
        self.assertEqual(len((self.folder / "saves").read_text().split()), 1, "a worker saved, too")
        self.assertEqual((self.folder / "workers-at-save").read_text(), "2", "muster's signal reached the workers")
        self.assertEqual(self.until_over(job)["state"], "succeeded")
        self.assertEqual(self.causes(job), ["requeued", "completed"])

    def test_a_worker_that_is_ended_ends_alone(self):
        job = self.executor().submit(functions.EndsAWorker(self.folder))
        self.assertEqual(job.result(), (3, -signal.SIGTERM))
        self.assertFalse((self.folder / "saved").exists(), "the end of a worker saved the job's state")
        self.assertEqual(self.causes(job), ["completed"])

    def test_a_stop_after_the_result_runs_nothing_again(self):
        job = self.executor(muster_signal_delay_s=3).submit(functions.return_and_linger, self.folder)
        self.until_file(self.folder / "sleeping-0-1")
        self.muster("requeue", job.job_id)
        self.assertEqual(self.until_over(job)["state"], "succeeded")
        self.assertEqual(job.result(), "1")
        self.assertFalse((self.folder / "sleeping-0-2").exists())

    def test_a_save_that_was_cut_off_does_no_harm(self):
        for with_pickle in (True, False):
            job = self.executor().submit(functions.sleep_in_a_torn_save, self.folder, with_pickle)
            self.until_file(self.folder / "sleeping-0-1")
            self.muster("requeue", job.job_id)
            self.assertEqual(job.result(), "2")
            (self.folder / "sleeping-0-1").unlink()

    def pass_the_limit(self, job, attempt, *, is_last=False):
        """The time of this attempt is over once its function counts, however long Python has taken to start. The next one has an
        hour. The attempt has run for more than a second by then."""
        self.until_file(self.folder / f"rank-0-counts-{attempt}")
        if is_last:  # nothing can be asked of the job afterwards
            self.muster("limit", job.job_id, "2s")
            return
        self.muster("hold", job.job_id)
        self.muster("limit", job.job_id, "2s")
        self.until(lambda: self.job(job)["attempts"][attempt - 1]["ended_at"], "the attempt goes on")
        self.muster("limit", job.job_id, "1h")
        self.muster("release", job.job_id)

    def test_timeouts_are_counted_apart_from_preemptions(self):
        job = self.executor(init={"muster_max_num_timeout": 1}).submit(functions.Endless(self.folder))
        self.until_file(self.folder / "rank-0-counts-1")
        self.muster("requeue", job.job_id)
        self.pass_the_limit(job, 2)
        self.pass_the_limit(job, 3, is_last=True)
        with self.assertRaisesRegex(FailedJobError, "Job not requeued because: timed-out too many times"):
            job.result()
        self.assertEqual(self.until_over(job)["state"], "failed")
        self.assertEqual(self.causes(job), ["requeued", "timed_out", "timed_out"])
        job.get_info(mode="force")
        self.assertEqual(job.state, "TIMEOUT")

    def test_timeouts_are_counted_by_submitit_where_musters_budget_refills(self):
        executor = self.executor(init={"muster_max_num_timeout": 1}, muster_set={"requeue.healthy_after": "1s"})
        job = executor.submit(functions.Endless(self.folder))
        self.pass_the_limit(job, 1)
        self.pass_the_limit(job, 2)
        self.assertIn("timed-out too many times", str(job.exception()))
        self.assertEqual(self.until_over(job)["state"], "failed")
        # The third attempt reads the last word of the second, and leaves.
        self.assertEqual(self.causes(job), ["timed_out", "timed_out", "failed"])
        self.assertFalse((self.folder / "rank-0-counts-3").exists())

    def test_a_job_that_times_out_goes_on(self):
        job = self.executor().submit(functions.Counter(self.folder, 4000, 0.02, 0))
        self.pass_the_limit(job, 1)
        reached, began = job.result()
        self.assertEqual(reached, 4000)
        self.assertGreater(len(began), 1)
        self.assertEqual(set(self.causes(job)[:-1]), {"timed_out"})

    # Python has long started when the time is over, also on a busy machine.
    def test_a_timeout_without_checkpoint_ends_the_job(self):
        job = self.executor(muster_time=0.12).submit(functions.sleep, self.folder)
        self.assertIn("timed-out and not checkpointable", str(job.exception()))
        self.assertEqual(self.until_over(job)["state"], "failed")
        self.assertEqual(self.causes(job), ["timed_out"])

    def test_a_timeout_can_be_simulated(self):
        job = self.executor(init={"muster_max_num_timeout": 0}).submit(functions.Endless(self.folder))
        self.until_file(self.folder / "rank-0-counts-1")
        job._interrupt(timeout=True)
        self.assertIn("timed-out too many times", str(job.exception()))
        # muster has not counted a timeout, so it starts the job once more, which then has nothing to do.
        self.assertEqual(self.until_over(job)["state"], "failed")
        self.assertFalse((self.folder / "rank-0-counts-2").exists())

    def test_a_checkpoint_that_is_none_ends_the_job(self):
        job = self.executor().submit(functions.GivesUp(self.folder))
        self.until_file(self.folder / "rank-0-counts-1")
        self.muster("requeue", job.job_id)
        self.assertIn("checkpoint function returned None", str(job.exception()))
        self.assertEqual(self.until_over(job)["state"], "failed")

    def test_a_checkpoint_that_fails_ends_the_job_with_its_exception(self):
        job = self.executor().submit(functions.CannotSave(self.folder))
        self.until_file(self.folder / "rank-0-counts-1")
        self.muster("requeue", job.job_id)
        self.assertIn("OSError: the disk is full", str(job.exception()))
        self.assertEqual(self.until_over(job)["state"], "failed")

    def test_a_function_that_catches_everything_leaves_in_time(self):
        job = self.executor(muster_signal_delay_s=3).submit(functions.Stubborn(self.folder, 2000))
        self.until_file(self.folder / "rank-0-counts-1")
        self.muster("requeue", job.job_id)
        self.assertEqual(job.result()[1], [(1, 0), (2, int((self.folder / "saved-1").read_text()))])
        self.assertEqual([attempt["exit_code"] for attempt in self.job(job)["attempts"]][:1], [None])

    def test_a_failed_job_that_a_person_requeues_runs_again(self):
        job = self.executor().submit(functions.fail_on, 1, 1)
        job.exception()
        self.until_over(job)
        submitit.helpers.DelayedSubmission(functions.fail_on, 2, 1).dump(job.paths.submitted_pickle)
        self.muster("requeue", job.job_id)
        self.until(lambda: len(self.job(job)["attempts"]) == 2, "no second attempt")
        self.until_over(job)
        self.assertEqual(job.result(), 2)

    def test_a_loop_with_musters_own_package_leaves_by_itself(self):
        job = self.executor().submit(functions.train, self.folder, 800)
        self.until_file(self.folder / "rank-0-counts-1")
        self.muster("requeue", job.job_id)
        self.assertEqual(job.result(), 2)
        view = self.until_over(job)
        self.assertEqual(view["attempts"][1]["resumed_from_step"], int((self.folder / "step").read_text()))
        self.assertEqual(view["step"], 800)

    def test_a_cancelled_job_is_over(self):
        job = self.executor(muster_signal_delay_s=60).submit(functions.Endless(self.folder))
        self.until_file(self.folder / "rank-0-counts-1")
        self.assertFalse(job.done())
        began = time.monotonic()
        self.cancel(job)
        self.assertLess(time.monotonic() - began, 30, "the job waited for the end of its grace")
        self.assertEqual(job.state, "CANCELLED")
        self.assertIsInstance(job.exception(), UncompletedJobError)
        self.assertFalse((self.folder / "saved-1").exists())
        job.cancel()  # twice does no harm

    def test_a_job_may_end_with_its_object(self):
        job = self.executor().submit(functions.Endless(self.folder)).cancel_at_deletion()
        self.until_file(self.folder / "rank-0-counts-1")
        job_id = job.job_id
        del job
        self.until(lambda: self.daemon.show(job_id)["state"] == "cancelled", "not cancelled")


if __name__ == "__main__":
    unittest.main()
