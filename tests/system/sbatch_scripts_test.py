"""Goal: `muster submit slurm_submit.sh` runs a script for sbatch as sbatch would, on this machine and on Slurm.

Method: scripts under a real musterd, as local processes and on a private Slurm of two nodes.
Usage: sbatch_scripts_test.py BIN_FOLDER
"""

import json
import os
import pathlib
import re
import sys
import tempfile
import textwrap
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent / "peers"))
from daemon import Musterd, eventually  # noqa: E402
from private_slurm import PrivateSlurm, missing  # noqa: E402

SOURCE = HERE.parent.parent
ENDS = ("succeeded", "failed", "cancelled")
# What a task does until it is asked to leave: it says who it is, and leaves in good order.
OBEDIENT = """
    import os, signal, sys, time
    def leave(number, frame):
        open(f"left-{os.environ['SLURM_PROCID']}-{os.environ['MUSTER_ATTEMPT']}", "w").close()
        sys.exit(99)
    signal.signal(signal.SIGTERM, leave)
    open(f"there-{os.environ['SLURM_PROCID']}-{os.environ['MUSTER_ATTEMPT']}", "w").close()
    if os.environ["MUSTER_ATTEMPT"] == "2":
        sys.exit(0)
    while True:
        time.sleep(0.05)
"""


class Scripts(unittest.TestCase):
    def start(self):
        return Musterd(self, BIN)

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        before = os.getcwd()
        os.chdir(self.folder)
        self.addCleanup(os.chdir, before)
        self.musterd = self.start()

    def write(self, name, text):
        path = self.folder / name
        path.write_text(textwrap.dedent(text).lstrip())
        return path

    def submit(self, text, *arguments):
        script = self.write("run.sh", text)
        done = self.musterd.muster("submit", script, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def log(self, job):
        return self.musterd.muster("logs", job).stdout

    def end(self, job, state="succeeded"):
        shown = self.musterd.until(job, lambda job: job["state"] in ENDS)
        self.assertEqual(shown["state"], state, f"{shown['reason']}\n{self.log(job)}{self.musterd.muster('logs', job, '--slurm').stdout}")
        return shown

    def until_there(self, *names):
        self.assertTrue(eventually(lambda: all((self.folder / name).exists() for name in names), 60),
                        f"{names}: {os.listdir(self.folder)}")


class Local(Scripts):
    def test_the_body_runs_once_with_what_a_batch_script_finds(self):
        job = self.submit("""
            #!/bin/bash
            #SBATCH --job-name=body --nodes=1 --ntasks=2 -c 1 --output=logs/%x-%j.out
            set -euo pipefail
            echo "once $0: $* in $PWD of $SLURM_SUBMIT_DIR"
            echo "job $SLURM_JOB_ID tasks $SLURM_NTASKS cpus $SLURM_CPUS_PER_TASK nodes $SLURM_NNODES $SLURM_JOB_NAME"
            echo "restarts ${SLURM_RESTART_COUNT:-none} rank ${RANK:-none} ${MASTER_ADDR:-none}"
            [ "$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)" = "$SLURMD_NODENAME" ]
            srun --label bash -c 'echo "task $SLURM_PROCID of $SLURM_NTASKS at $SLURM_LOCALID"' | sort
            srun -n 1 --output=one-%j-%t.txt echo single
            """, "a", "b c")
        shown = self.end(job)
        log = self.log(job)
        self.assertRegex(log, rf"once /.*/slurm_script: a b c in {self.folder} of {self.folder}\n")
        self.assertIn(f"job {job} tasks 2 cpus 1 nodes 1 body\nrestarts none rank none none\n", log)
        self.assertIn("0: task 0 of 2 at 0\n1: task 1 of 2 at 1\n", log)
        self.assertEqual(log.count("once"), 1)
        self.assertEqual((self.folder / f"logs/body-{job}.out").read_text(), log)
        self.assertEqual((self.folder / f"one-{job}-0.txt").read_text(), "single\n")
        self.assertEqual(len(shown["attempts"]), 1)
        self.assertIn("1 rank", self.musterd.muster("show", job).stdout)

    def test_a_later_edit_changes_nothing_and_spec_prints_a_job_file_that_does_the_same(self):
        job = self.submit("#!/bin/bash\n#SBATCH --hold\necho \"first '$1'\"\n", "x")
        self.write("run.sh", "#!/bin/bash\necho second\n")
        self.assertEqual(self.musterd.muster("release", job).returncode, 0)
        self.end(job)
        self.assertEqual(self.log(job), "first 'x'\n")
        text = self.musterd.muster("spec", job).stdout
        again = self.musterd.submit(text, "--set", "hold=false", "--set", f"working_folder={self.folder}")
        self.end(again)
        self.assertEqual(self.log(again), "first 'x'\n")

    def test_tasks_are_asked_to_leave_and_the_next_attempt_runs_the_script_again(self):
        self.write("task.py", OBEDIENT)
        job = self.submit("#!/bin/bash\n#SBATCH -n 2\nsrun python3 task.py\n")
        self.until_there("there-0-1", "there-1-1")
        self.assertEqual(self.musterd.muster("requeue", job).returncode, 0)
        shown = self.end(job)
        self.assertEqual([one["cause"] for one in shown["attempts"]], ["requeued", "completed"])
        self.until_there("left-0-1", "left-1-1", "there-0-2", "there-1-2")

    def test_a_trap_is_asked_and_a_task_that_fails_fails_the_job(self):
        job = self.submit("""
            #!/bin/bash
            trap 'echo trapped; exit 99' TERM
            touch there
            [ "$MUSTER_ATTEMPT" = 2 ] && { srun -n 3 bash -c 'exit $((SLURM_PROCID * 3))'; exit $?; }
            while :; do sleep 0.05; done
            """, "--set", "requeue.max_failed=0")
        self.until_there("there")
        self.assertEqual(self.musterd.muster("requeue", job).returncode, 0)
        shown = self.end(job, "failed")
        self.assertEqual([one["cause"] for one in shown["attempts"]], ["requeued", "failed"])
        self.assertEqual(shown["attempts"][1]["exit_code"], 6, "the highest of its tasks")
        self.assertIn("trapped", self.musterd.muster("logs", job, "--attempt", "1").stdout)

    def test_a_login_shell_and_a_script_of_python_find_srun_as_well(self):
        login = self.submit("#!/bin/bash -l\n#SBATCH -n 2\nsrun bash -c 'echo task $SLURM_PROCID' | sort\n")
        self.end(login)
        self.assertEqual(self.log(login), "task 0\ntask 1\n")
        python = self.submit("""
            #!/usr/bin/env python3
            #SBATCH --ntasks=2
            import subprocess, sys
            print(sys.argv[1:], flush=True)
            sys.exit(subprocess.call(["srun", "-n1", "echo", "from python"]))
            """, "a")
        self.end(python)
        self.assertEqual(self.log(python), "['a']\nfrom python\n")

    def test_an_array_is_a_sweep_with_two_tasks_at_a_time(self):
        sweep = self.submit("""
            #!/bin/bash
            #SBATCH --array=1-7:2%2 --output=out/%A_%a.txt
            mkdir -p running
            touch running/$SLURM_ARRAY_TASK_ID
            ls running | wc -l > most-$SLURM_ARRAY_TASK_ID
            echo "$SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT in $SLURM_ARRAY_JOB_ID"
            sleep 0.5
            rm running/$SLURM_ARRAY_TASK_ID
            """)
        jobs = json.loads(self.musterd.muster("list", "--json", "--sweep", sweep).stdout)
        numbers = sorted(job["id"] for job in jobs)
        for number in numbers:
            self.end(str(number))
        first = numbers[0]
        for task in (1, 3, 5, 7):
            self.assertEqual((self.folder / f"out/{first}_{task}.txt").read_text(), f"{task} of 4 in {first}\n")
            self.assertLessEqual(int((self.folder / f"most-{task}").read_text()), 2)

    def test_rank_0_alone_reports(self):
        self.write("train.py", """
            import os, sys
            sys.path.insert(0, os.environ["PACKAGE"])
            import muster
            run = muster.init(total_steps=3)
            for step in range(1, 4):
                run.log(step, rank=int(os.environ["SLURM_PROCID"]))
            """)
        job = self.submit("#!/bin/bash\n#SBATCH -n 3\nsrun python3 train.py\n", "--env", f"PACKAGE={SOURCE / 'python'}")
        self.end(job)

        def told():
            rows = json.loads(self.musterd.muster("metrics", job, "--json").stdout)
            return [(row["step"], row["series"]["rank"]) for row in rows]

        eventually(lambda: len(told()) == 3, 60)
        self.assertEqual(told(), [(1, 0), (2, 0), (3, 0)])

    def test_what_cannot_be_is_told_with_file_and_line(self):
        script = self.write("run.sh", "#!/bin/bash\n#SBATCH --time=90x\n#SBATCH --array=0-3\ntrue\n")
        done = self.musterd.muster("submit", script, "--sweep", "env.A=1,2")
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, r"run\.sh:2: --time=90x: want a duration")
        self.assertRegex(done.stderr, r"run\.sh:3: --array=0-3: --sweep makes a sweep, too")
        nodes = self.write("nodes.sh", "#!/bin/bash\n#SBATCH -N 2\nsrun hostname\n")
        refused = self.musterd.muster("submit", nodes)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("local processes run on this machine alone", refused.stderr)
        debug = self.musterd.muster("submit", self.write("one.sh", "#!/bin/sh\ntrue\n"), "--executor", "debug")
        self.assertIn("--executor debug: want auto, slurm or local", debug.stderr)


@unittest.skipIf(missing(), f"no Slurm here: {missing()}")
class OnSlurm(Scripts):
    def start(self):
        self.slurm = PrivateSlurm(self, "--nodes", "2")
        return Musterd(self, BIN, slurm="yes", env=self.slurm.env)

    def test_the_body_runs_on_the_first_node_and_srun_starts_the_tasks_of_all(self):
        job = self.submit("""
            #!/bin/bash
            #SBATCH --job-name=body --nodes=2 --ntasks-per-node=2 --output=%x-%j.out
            set -euo pipefail
            echo "once: $* in $PWD of $SLURM_SUBMIT_DIR, tasks $SLURM_NTASKS on $SLURM_NNODES, rank ${RANK:-none}"
            export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
            echo "at $SLURMD_NODENAME, master $MASTER_ADDR"
            srun bash -c 'echo "task $SLURM_PROCID at $SLURM_LOCALID on $SLURMD_NODENAME"' | sort
            srun --nodes=1 --ntasks=1 echo single
            """, "a", "b")
        self.end(job)
        log = self.log(job)
        self.assertIn(f"once: a b in {self.folder} of {self.folder}, tasks 4 on 2, rank none\nat node1, master node1\n", log)
        self.assertIn("task 0 at 0 on node1\ntask 1 at 1 on node1\ntask 2 at 0 on node2\ntask 3 at 1 on node2\nsingle\n", log)
        links = list(self.folder.glob("body-*.out"))
        self.assertEqual([link.read_text() for link in links], [log])

    def test_a_trap_of_usr1_requeues_by_scontrol(self):
        job = self.submit("""
            #!/bin/bash
            #SBATCH --signal=B:USR1@50 --time=00:01:00
            trap 'echo "caught USR1"; scontrol requeue "$SLURM_JOB_ID"' USR1
            echo "restarts ${SLURM_RESTART_COUNT:-none}"
            if [ "${SLURM_RESTART_COUNT:-0}" != 0 ]; then exit 0; fi
            sleep 600 &
            wait
            echo "after the trap"
            wait
            """, "--set", "stop_grace=5s")
        shown = self.end(job)
        self.assertEqual([one["cause"] for one in shown["attempts"]], ["requeued", "completed"], shown["attempts"])
        self.assertIn("restarts none\ncaught USR1\n", self.musterd.muster("logs", job, "--attempt", "1").stdout)
        self.assertEqual(self.log(job).splitlines()[-1], "restarts 1")

    def test_tasks_are_asked_to_leave_and_the_next_attempt_runs_the_script_again(self):
        self.write("task.py", OBEDIENT)
        job = self.submit("#!/bin/bash\n#SBATCH -N 2 --ntasks-per-node=1\nsrun python3 task.py\n")
        self.until_there("there-0-1", "there-1-1")
        self.assertEqual(self.musterd.muster("requeue", job).returncode, 0)
        shown = self.end(job)
        self.assertEqual([one["cause"] for one in shown["attempts"]], ["requeued", "completed"])
        self.until_there("left-0-1", "left-1-1", "there-0-2", "there-1-2")

    def test_an_array_is_a_sweep(self):
        sweep = self.submit("""
            #!/bin/bash
            #SBATCH --array=2,4,6 --output=out-%a.txt
            echo "$SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT"
            """)
        for job in json.loads(self.musterd.muster("list", "--json", "--sweep", sweep).stdout):
            self.end(str(job["id"]))
        for task in (2, 4, 6):
            self.assertEqual((self.folder / f"out-{task}.txt").read_text(), f"{task} of 3\n")

    def test_gpus_are_asked_for_as_the_script_asks(self):
        job = self.submit("#!/bin/bash\n#SBATCH --gres=gpu:2 -n 2\nsrun bash -c 'echo gpus $CUDA_VISIBLE_DEVICES'\n")
        self.end(job)
        self.assertEqual(self.log(job), "gpus 0,1\n" * 2, "each task sees both, as with sbatch")
        script = self.musterd.muster("submit", "--print-script", "run.sh").stdout
        self.assertIn("#SBATCH --gres=gpu:2\n", script)
        self.assertIn("#SBATCH --ntasks=2\n", script)
        self.assertNotIn("\n  srun", script)
        self.assertEqual(self.musterd.muster("submit", "--check", "run.sh").returncode, 0)


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
