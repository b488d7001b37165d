"""Hydra's multirun through hydra/launcher=muster, with the released Hydra and local processes."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

from submitit_world import LIMIT_S, World

APP = pathlib.Path(__file__).parent / "hydra_app.py"
# The app, which also writes down what the launcher returned for each job.
RESULTS = """
import json, runpy
from hydra.core.plugins import Plugins
instantiate_launcher = Plugins.instantiate_launcher
def instantiate(self, *args, **more):
    launcher = instantiate_launcher(self, *args, **more)
    launch = launcher.launch
    def keep(job_overrides, initial_job_idx):
        found = launch(job_overrides, initial_job_idx)
        with open({out!r}, "w") as file:
            json.dump([[one.status.name, str(one._return_value), list(one.overrides)] for one in found], file)
        return found
    launcher.launch = keep
    return launcher
Plugins.instantiate_launcher = instantiate
runpy.run_path({app!r}, run_name="__main__")
"""


class Hydra(World):
    def app(self, *arguments, program=(APP,), mode=("-m",)):
        process = subprocess.Popen([sys.executable, *program, *mode, "hydra/launcher=muster", f"hydra.sweep.dir={self.folder}/out",
                                    "hydra.launcher.signal_delay_s=10", *arguments],
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.folder,
                                   env={**os.environ, "PYTHONPATH": f"{os.environ['PYTHONPATH']}:{APP.parent}"})
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        return process

    def end_of(self, process):
        out, _ = process.communicate(timeout=LIMIT_S)
        return out

    def jobs_of(self, name):
        return sorted((job for job in self.list() if job["name"].startswith(name)), key=lambda job: job["id"])

    def until_job_is_over(self, job):
        done = self.daemon.muster("wait", str(job["id"]), "--timeout", f"{LIMIT_S}s", limit_s=LIMIT_S + 10)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        return self.daemon.show(str(job["id"]))

    def test_a_multirun_is_one_sweep_with_hydras_folders(self):
        process = self.app("+x=1,2,3", "hydra.launcher.name=plain")
        out = self.end_of(process)
        self.assertEqual(process.returncode, 0, out)
        jobs = [self.until_job_is_over(job) for job in self.jobs_of("plain")]
        self.assertEqual([job["state"] for job in jobs], ["succeeded"] * 3)
        self.assertEqual(len({job["sweep"]["sweep"] for job in jobs}), 1)
        for number, job in enumerate(jobs):
            folder = self.folder / "out" / str(number)
            self.assertEqual((folder / "attempt-1").read_text(), f"{self.folder} {job['id']}")
            self.assertEqual((folder / ".hydra" / "overrides.yaml").read_text(), f"- +x={number + 1}\n")
            self.assertIn(f"job.id: '{job['id']}'".split(".")[1], (folder / ".hydra" / "hydra.yaml").read_text())
            self.assertIn(f"x: {number + 1}", self.muster("logs", str(job["id"])))
            self.assertIn(f"#{number} : +x={number + 1} (job {job['id']})", out)
            self.assertEqual(job["sweep"]["settings"], {"x": str(number + 1)})
            self.assertEqual(job["config"], {"x": str(number + 1)})
        sweep = jobs[0]["sweep"]["sweep"]
        self.assertEqual(self.muster("list", "--sweep", sweep).count("x="), 3)
        results = json.loads(self.muster("results", "--sweep", sweep, "--metric", "objective", "--best", "min", "--json"))
        self.assertEqual({str(one["job_id"]): one["value"] for one in results},
                         {str(job["id"]): 2.0 * (number + 1) for number, job in enumerate(jobs)})

    def test_one_that_fails_and_one_that_is_preempted_cost_no_other_result(self):
        kept = self.folder / "kept.json"
        program = self.folder / "program.py"
        program.write_text(RESULTS.format(app=str(APP), out=str(kept)))
        process = self.app("+x=1,2,3,4,5", "+bad=2", "+slow=3", "+killed=4", "hydra.launcher.name=mixed", program=(program,))
        self.until_file(self.folder / "out" / "2" / "attempt-1")
        slow = self.jobs_of("mixed")[2]
        self.muster("requeue", str(slow["id"]))
        out = self.end_of(process)
        self.assertNotEqual(process.returncode, 0)
        self.assertIn("ValueError: x=2 is bad", out)
        self.assertIn("#1 : +x=2", out)
        self.assertIn("#3 : +x=4", out)
        found = json.loads(kept.read_text())
        self.assertEqual([one[0] for one in found], ["COMPLETED", "FAILED", "COMPLETED", "FAILED", "COMPLETED"])
        self.assertEqual([found[0][1], found[1][1], found[2][1], found[4][1]], ["2.0", "x=2 is bad", "6.0", "10.0"])
        self.assertIn("has not produced any output", found[3][1])
        jobs = [self.until_job_is_over(job) for job in self.jobs_of("mixed")]
        self.assertEqual([job["state"] for job in jobs], ["succeeded", "failed", "succeeded", "failed", "succeeded"])
        self.assertIn("ValueError: x=2 is bad", jobs[1]["reason"])
        self.assertEqual([len(job["attempts"]) for job in jobs], [1, 1, 2, 1, 1])
        self.assertTrue((self.folder / "out" / "2" / "attempt-2").exists())

    def test_the_example_runs_as_its_first_line_says(self):
        program = APP.parent.parent.parent / "examples" / "python" / "hydra_app" / "train.py"
        process = self.app("lr=0.01,0.1", program=(program,))
        out = self.end_of(process)
        self.assertEqual(process.returncode, 0, out)
        logs = [self.muster("logs", str(job["id"])) for job in self.jobs_of("train")]
        self.assertIn("lr 0.01: loss 0.366032", logs[0])
        self.assertIn("lr 0.1: loss 0.000027", logs[1])

    def test_the_keys_of_the_launcher_can_be_printed(self):
        out = self.end_of(self.app("--cfg", "hydra", "-p", "hydra.launcher", mode=()))
        self.assertIn("submitit_folder:", out)
        self.assertIn("max_num_timeout: 0", out)

    def test_keys_of_the_launcher_reach_the_job_file(self):
        process = self.app("+x=1", "hydra.launcher.name=keys", "hydra.launcher.partition=gpu", "hydra.launcher.timeout_min=7",
                           "hydra.launcher.mem_gb=2", "hydra.launcher.max_num_timeout=5",
                           "+hydra.launcher.set={requeue.max_node_failed:4}")
        self.assertEqual(process.wait(LIMIT_S), 0, process.stdout.read())
        [job] = self.jobs_of("keys")
        spec = self.muster("spec", str(job["id"]))
        for line in ('partition = "gpu"', 'time_limit = "7m"', 'mem = "2GiB"', "max_node_failed = 4", "max_timed_out = 5",
                     'stop_grace = "10s"'):
            self.assertIn(line, spec)
        process = self.app("+x=1", "hydra.launcher.executor=moon")
        self.assertIn("parameter executor is 'moon'", self.end_of(process))


if __name__ == "__main__":
    unittest.main()
