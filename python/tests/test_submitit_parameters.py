"""submitit's parameters as job files, without submitit."""

import os
import shlex
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

PACKAGE = str(Path(__file__).resolve().parent.parent)
sys.path.insert(0, PACKAGE)
from muster._submitit.parameters import READERS, SHARED, checked, dependencies, job_file, memory_text  # noqa: E402
from muster._submitit.submission import Submission  # noqa: E402

try:
    import tomllib
except ImportError:  # Python 3.10 and older
    tomllib = None


@unittest.skipIf(tomllib is None, "no TOML reader in this Python")
class JobFile(unittest.TestCase):
    def job(self, count=1, timeouts=3, variables=None, **parameters):
        return tomllib.loads(job_file(parameters, ["python3", "-m", "x"], "/work", variables or {}, count, timeouts))

    def test_defaults_are_submitits(self):
        job = self.job()
        self.assertEqual(job["name"], "submitit")
        self.assertEqual(job["command"], ["python3", "-m", "x"])
        self.assertEqual(job["working_folder"], "/work")
        self.assertEqual(job["resources"], {"nodes": 1, "ranks_per_node": 1, "time_limit": "300000ms", "stop_grace": "90s"})
        self.assertEqual(job["requeue"], {"max_failed": 0, "max_out_of_memory": 0, "max_timed_out": 3,
                                          "healthy_after": "10000d", "max_node_failed": 100})
        self.assertNotIn("slurm", job)
        self.assertNotIn("sweep", job)

    def test_every_shared_parameter_has_a_reader(self):
        self.assertEqual(set(SHARED.values()) - set(READERS), set())

    def test_any_text_survives(self):
        text = "a \"quoted\" \\ word\nof two lines \x7f \t ä 𝄞"
        job = self.job(variables={"WORD": text}, set={"env.OTHER": text}, setup=["echo '" + "x" * 3 + "'"])
        self.assertEqual(job["env"], {"WORD": text, "OTHER": text})
        self.assertEqual(job["slurm"]["setup"], ["echo 'xxx'"])
        self.assertEqual(job["command"], ["python3", "-m", "x"])

    def test_setup_lines_are_one_script_for_local_processes_too(self):
        lines = ["if true; then", "  export WORD=yes", "fi", "function say() {", "  echo $1 \\", "    more", "}", "false", "say hello"]
        local = tomllib.loads(job_file({"setup": lines}, ["python3", "-c", "import os; print(os.environ['WORD'])"], "/work", {}, 1,
                                       0, on_slurm=False))
        self.assertNotIn("slurm", local)
        done = subprocess.run(local["command"], capture_output=True, text=True)
        self.assertEqual((done.stdout, done.stderr), ("hello more\nyes\n", ""))
        on_slurm = tomllib.loads(job_file({"setup": lines}, ["true"], "/work", {}, 1, 0, on_slurm=True))
        self.assertEqual((on_slurm["slurm"]["setup"], on_slurm["command"]),
                         ([*lines, 'export SUBMITIT_MUSTER_FOLDER="$PWD"'], ["true"]))

    def run_both(self, lines, variables=None):
        """What a task says after the setup lines: of local processes, and of a script as Slurm runs it."""
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        submission = Submission(str(folder / ".submission"))
        submission.write_environment(variables or {})
        script = submission.write_environment_script()
        (folder / "task.py").write_text(textwrap.dedent("""
            import os, sys
            from muster._submitit import rank, submission
            given = dict(os.environ)
            rank.go_where_setup_went(given.pop("SUBMITIT_MUSTER_FOLDER", None))
            in_shell = given.pop("SUBMITIT_MUSTER_IN_SHELL", None) == "1"
            found = {**submission.Submission(sys.argv[1]).environment(in_shell), **given}
            print(os.getcwd(), *(f"{name}={found.get(name)}" for name in ("A", "B", "C", "D E")))
        """))
        command = [sys.executable, "-B", str(folder / "task.py"), submission.path]
        env = {"PATH": os.environ["PATH"], "C": "of muster", "PYTHONPATH": PACKAGE, "HOME": "/root"}
        said = []
        for on_slurm in (False, True):
            job = tomllib.loads(job_file({"setup": lines}, command, "/", {}, 1, 0, on_slurm, script))
            if on_slurm:  # srun starts the task, and the agent puts it into the working folder
                script_file = folder / "batch.sh"
                script_file.write_text("#!/bin/bash\n" + "\n".join(job["slurm"]["setup"]) + "\n" +
                                       "env --chdir=/ " + shlex.join(job["command"]) + "\n")
                run = ["bash", str(script_file)]
            else:
                run = job["command"]
            done = subprocess.run(run, cwd="/", env=env, capture_output=True, text=True, timeout=60)
            said.append((done.returncode, done.stdout.strip()))
        return said

    def test_setup_lines_do_the_same_locally_and_on_slurm(self):
        inner = self.enterContext(tempfile.TemporaryDirectory())
        Path(inner, "it's.sh").write_text('echo "$# given"; export B="${A}2"; sets() { export A=$1; }')
        for lines, want in (
            (["cd " + inner], (0, f"{inner} A=1 B=None C=of muster D E=6")),
            (['. "' + inner + '/it\'s.sh"', "sets 'x y'"], (0, "0 given\n/ A=x y B=12 C=of muster D E=6")),
            (["unset A", "set -- more words", "false"], (0, "/ A=None B=None C=of muster D E=6")),
            (["set -e", "false", "echo never"], (1, "")),
            (["set -euo pipefail", "true"], (0, "/ A=1 B=None C=of muster D E=6")),
            (["exit 3"], (3, "")),
        ):
            with self.subTest(lines):
                local, slurm = self.run_both(lines, {"A": "1", "C": "3", "D E": "6"})
                self.assertEqual(local, want)
                self.assertEqual(slurm, want)

    def test_setup_lines_that_end_well_before_the_function_have_failed(self):
        (code, _), _ = self.run_both(["exit 0"])
        self.assertEqual(code, 1)

    def test_names_fit_muster(self):
        self.assertEqual(self.job(job_name="lr=0.1, seed 3")["name"], "lr-0.1-seed-3")
        self.assertEqual(len(self.job(job_name="x" * 200)["name"]), 50)
        self.assertEqual(self.job(job_name="ä/ö")["name"], "submitit")

    def test_gpus_of_a_node_are_seen_by_all_its_tasks(self):
        self.assertEqual(self.job(gpus_per_node=8)["slurm"]["gres"], "gpu:8")
        self.assertEqual(self.job(gpus_per_node=2, gres="license:1")["slurm"]["gres"], "license:1,gpu:2")
        self.assertNotIn("slurm", self.job(gpus_per_node=0))
        here = tomllib.loads(job_file({"gpus_per_node": 3, "ntasks_per_node": 2}, ["true"], "/work", {}, 1, 0, on_slurm=False))
        self.assertEqual(here["resources"]["gpus_per_rank"], 2)
        self.assertEqual(here["env"]["SUBMITIT_MUSTER_GPUS"], "3")
        self.assertNotIn("slurm", here)
        self.assertNotIn("gpus_per_rank", self.job(gpus_per_node=8)["resources"])
        self.assertEqual(self.job(gpus_per_task=1)["resources"]["gpus_per_rank"], 1)

    def test_memory_is_counted_as_slurm_does(self):
        self.assertEqual([memory_text(4), memory_text(3.5)], ["4GB", "3584MB"])
        self.assertEqual([self.job(mem=text)["slurm"]["mem"] for text in ("4GB", "3584MB", "4096", "2T", "1GiB")],
                         ["4GiB", "3584MiB", "4096MiB", "2TiB", "1GiB"])
        with self.assertRaisesRegex(ValueError, "parameter mem is 'much': want a size"):
            self.job(mem="much")

    def test_an_array_is_a_sweep_and_its_limit_that_of_whoever_counts(self):
        self.assertEqual(self.job(3)["sweep"], {"env.SUBMITIT_MUSTER_INDEX": "0..2"})
        self.assertEqual(self.job(300)["sweep"]["parallel"], 256)
        self.assertEqual(self.job(3, array_parallelism=2)["sweep"]["parallel"], 2)
        slurm = self.job(3, array_parallelism=2, executor="slurm")
        self.assertEqual(slurm["slurm"]["array_parallelism"], 2)
        self.assertNotIn("parallel", slurm["sweep"])

    def test_further_options_of_sbatch(self):
        job = self.job(additional_parameters={"hint": "nomultithread", "mail-user": "me", "spread_job": True}, wckey="k",
                       cpus_per_gpu=4)
        self.assertEqual(job["slurm"], {"mail_user": "me", "options": {
            "wckey": "k", "cpus-per-gpu": "4", "hint": "nomultithread", "spread-job": True}})

    def test_keys_of_muster_have_the_last_word(self):
        job = self.job(set={"requeue.max_failed": 2, "hold": True, "liveness.hung_after": "5m"})
        self.assertEqual((job["requeue"]["max_failed"], job["hold"], job["liveness"]), (2, True, {"hung_after": "5m"}))

    def test_dependencies(self):
        self.assertEqual(dependencies("afterok:7:8,afterany:9"), ["succeeded:7", "succeeded:8", "ended:9"])
        self.assertEqual(self.job(dependency="afternotok:7")["after"], ["failed:7"])
        for text in ("7", "after:7", "afterok", "afterok:x"):
            with self.assertRaises(ValueError, msg=text):
                dependencies(text)


class Values(unittest.TestCase):
    def test_none_is_not_set(self):
        self.assertEqual(checked({"partition": None, "nodes": 2}), {"nodes": 2})

    def test_a_value_that_makes_no_sense_is_named(self):
        for name, value, want in (("nodes", 0, "at least 1"), ("time", "1:00:00", "number of minutes"), ("setup", "a", "list of"),
                                  ("exclusive", "yes", "True or False"), ("executor", "debug", "one of auto, local, slurm"),
                                  ("set", ["a"], "a dict"), ("gpus_per_node", True, "whole number")):
            with self.assertRaisesRegex(ValueError, f"parameter {name} is .*{want}"):
                checked({name: value})


if __name__ == "__main__":
    unittest.main()
