"""Goal: local jobs share the GPUs and cores of a machine: each goes to one attempt at a time, over any crash of musterd.

Method: real musterd and real jobs, with GPUs that only their names know (--local-gpus, without a driver). Each rank writes down
which GPUs it sees when it begins and when it ends.
Usage: local_gpus_test.py BIN_FOLDER
"""

import json
import os
import pathlib
import random
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from daemon import JOB_LIMIT_S, Musterd, eventually  # noqa: E402

BIN = None
NO_DRIVER = ("--gpu-library", "/nowhere/libnvidia-ml.so.1")
GPUS = ("GPU-aaaa", "GPU-bbbb")


class LocalGpus(unittest.TestCase):
    def start(self, *flags):
        self.flags = (*NO_DRIVER, *flags)
        # What this test itself may see says nothing here.
        self.env = {"CUDA_VISIBLE_DEVICES": ""}
        self.musterd = Musterd(self, BIN, flags=self.flags, env=self.env)
        self.marks = self.musterd.folder / "marks"
        self.marks.touch()

    def kill_and_start_again(self):
        self.musterd.process.kill()
        self.musterd.process.wait()
        self.musterd = Musterd(self, BIN, flags=self.flags, data=self.musterd.data, env=self.env)

    def job(self, gpus=1, ranks=1, more="", seconds=None):
        """The text of a job whose ranks hold their GPUs for `seconds`, or until the file `end` is there."""
        until = f"sleep {seconds}" if seconds else f"while [ ! -e {self.marks}.end.$MUSTER_JOB_ID ]; do sleep 0.05; done"
        mark = f'echo $0 $MUSTER_JOB_ID $MUSTER_LOCAL_RANK ${{CUDA_VISIBLE_DEVICES-all}} >> {self.marks}'
        script = f"{mark.replace('$0', 'begin')}; {until}; {mark.replace('$0', 'end')}"
        return (f'name = "gpus"\ncommand = ["/bin/sh", "-c", {json.dumps(script)}]\n'
                f"[resources]\nranks_per_node = {ranks}\ngpus_per_rank = {gpus}\n{more}\n")

    def end(self, job):
        pathlib.Path(f"{self.marks}.end.{job}").touch()

    def lines(self):
        return [line.split() for line in self.marks.read_text().splitlines()]

    def begun(self):
        """The jobs in the order in which they began, once for each rank."""
        return [job for word, job, *_ in self.lines() if word == "begin"]

    def expect(self, condition, what):
        self.assertTrue(eventually(condition, JOB_LIMIT_S), f"{what}\n{self.marks.read_text()}\n{self.musterd.log.read_text()}")

    def why(self, job):
        return json.loads(self.musterd.muster("why", str(job), "--json").stdout)["reason"]

    def machine(self):
        return json.loads(self.musterd.muster("nodes", "--json").stdout)[-1]

    def expect_no_gpu_twice(self):
        has = {}
        for word, job, rank, gpus in self.lines():
            for gpu in gpus.split(","):
                self.assertIn(gpu, GPUS)
                if word == "begin":
                    self.assertNotIn(gpu, has, f"{gpu} of job {job} has another, too\n{self.marks.read_text()}")
                    has[gpu] = (job, rank)
                else:
                    self.assertEqual(has.pop(gpu), (job, rank))
        self.assertEqual(has, {})

    def test_three_jobs_on_two_gpus_take_turns_over_a_crash(self):
        self.start("--local-gpus", ",".join(GPUS))
        one, two, three = (self.musterd.submit(self.job()) for _ in range(3))
        self.expect(lambda: sorted(self.begun()) == [one, two], "two begin")
        waits = f"waits for 1 GPU: job {one} and job {two} have them"
        self.expect(lambda: self.why(three) == waits, self.why(three))
        self.kill_and_start_again()
        self.expect(lambda: self.why(three) == waits, self.why(three))
        machine = self.machine()
        self.assertEqual([(gpu["id"], str(gpu["job_id"])) for gpu in machine["gpus"]], list(zip(GPUS, (one, two))))
        self.assertEqual([str(job) for job in machine["waiting"]], [three])
        self.assertIn(f"waiting, the next one first: job {three}", self.musterd.muster("nodes").stdout)
        self.assertIn("GPUS", self.musterd.muster("top", "--once").stdout)

        # A job that wants both waits for both, and a later one does not pass it.
        both = self.musterd.submit(self.job(ranks=2))
        later = self.musterd.submit(self.job())
        self.end(one)
        self.expect(lambda: three in self.begun(), "the third has the GPU of the first")
        self.end(two)
        self.expect(lambda: self.why(later) == f"waits for 1 GPU: job {both} has waited longer, for 2", self.why(later))
        self.kill_and_start_again()
        self.end(three)
        self.expect(lambda: self.begun().count(both) == 2, "both")
        self.assertNotIn(later, self.begun())
        self.end(both)
        self.end(later)
        self.musterd.until(later, lambda shown: shown["state"] == "succeeded")
        self.expect_no_gpu_twice()
        self.assertEqual(self.machine()["holders"], [])

    def test_gpus_that_have_other_names_after_a_restart_are_held_back_until_the_job_ends(self):
        self.start("--local-gpus", "0,1")
        one = self.musterd.submit(self.job())
        self.expect(lambda: self.begun() == [one], "it begins")
        self.flags = (*NO_DRIVER, "--local-gpus", ",".join(GPUS))
        self.kill_and_start_again()
        two = self.musterd.submit(self.job(seconds=0.1))
        waits = f"waits for 1 GPU: nobody can tell which GPU job {one} has: it was given 0"
        self.expect(lambda: self.why(two).startswith(waits), self.why(two))
        self.assertIn(f"{one}?", self.musterd.muster("nodes").stdout)
        self.assertIn(f"nobody can tell which GPU job {one} has", self.musterd.log.read_text())
        self.end(one)
        self.musterd.until(two, lambda shown: shown["state"] == "succeeded")
        self.assertEqual([gpu for _, job, _, gpu in self.lines() if job == two], [GPUS[0]] * 2)

    def test_no_gpu_is_given_twice_wherever_musterd_dies(self):
        self.start("--local-gpus", ",".join(GPUS))
        chance = random.Random(7)
        jobs = []
        for _ in range(12):
            jobs.append(self.musterd.submit(self.job(ranks=chance.choice((1, 1, 2)), seconds=chance.choice((0.1, 0.4, 0.8)))))
            if chance.random() < 0.6:
                time.sleep(chance.random() * 0.2)  # where musterd is then, nobody knows
                self.kill_and_start_again()
        for job in jobs:
            self.musterd.until(job, lambda shown: shown["state"] == "succeeded")
        self.assertEqual(sorted(set(self.begun()), key=int), jobs)
        self.expect_no_gpu_twice()
        self.assertEqual(self.machine()["holders"], [])

    def test_more_than_there_is_is_refused_at_submit(self):
        self.start("--local-gpus", ",".join(GPUS), "--local-cores", "3")
        file = self.musterd.folder / "job.toml"
        for text, said in ((self.job(ranks=3), "it asks for 3 GPUs with its 3 ranks, and this machine has 2 (--local-gpus)"),
                           (self.job(more="cpus_per_rank = 4"), "it asks for 4 cores with its 1 rank, and this machine has 3")):
            file.write_text(text)
            done = self.musterd.muster("submit", file)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(said, " ".join(done.stderr.split()))
        self.assertEqual(json.loads(self.musterd.muster("list", "--json").stdout), [])

    def test_a_sweep_fills_the_machine_by_itself(self):
        self.start("--local-gpus", ",".join(GPUS))
        text = self.job(seconds=0.3) + '[sweep]\n"env.LR" = ["1", "2", "3", "4", "5"]\n'
        file = self.musterd.folder / "sweep.toml"
        file.write_text(text)
        done = self.musterd.muster("submit", file)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.expect(lambda: len([word for word, *_ in self.lines() if word == "end"]) == 5, "all ran")
        self.expect_no_gpu_twice()
        at_once, most = 0, 0
        for word, *_ in self.lines():
            at_once += 1 if word == "begin" else -1
            most = max(most, at_once)
        self.assertEqual(most, 2)

    def test_cores_are_counted_where_a_job_says_how_many(self):
        self.start("--local-cores", "3")
        one = self.musterd.submit(self.job(gpus=0, more="cpus_per_rank = 2"))
        self.expect(lambda: self.begun() == [one], "it begins")
        two = self.musterd.submit(self.job(gpus=0, more="cpus_per_rank = 2"))
        free = self.musterd.submit(self.job(gpus=0, ranks=4))
        self.expect(lambda: self.begun().count(free) == 4, "one that does not say how many it wants waits for none")
        self.assertEqual(self.why(two), f"waits for 2 cores, of which 1 is free: job {one} has the others")
        self.end(one)
        self.expect(lambda: two in self.begun(), "its turn")
        for job in (two, free):
            self.end(job)
            self.musterd.until(job, lambda shown: shown["state"] == "succeeded")

    def test_a_job_that_asks_for_no_gpu_sees_none_and_is_told(self):
        self.start("--local-gpus", ",".join(GPUS))
        script = 'test "${CUDA_VISIBLE_DEVICES-all}" = ""'
        job = self.musterd.submit(f"name = \"none\"\ncommand = [\"/bin/sh\", \"-c\", {json.dumps(script)}]\n")
        shown = self.musterd.until(job, lambda shown: shown["state"] in ("succeeded", "failed"))
        self.assertEqual(shown["state"], "succeeded", shown)
        self.assertIn("It asks for no GPU, so it sees none of the 2 GPUs of this machine", " ".join(shown["notes"]))

    def test_a_job_that_is_cancelled_while_it_starts_gives_back_its_gpu(self):
        self.start("--local-gpus", GPUS[0])
        for _ in range(4):
            job = self.musterd.submit(self.job())
            self.musterd.muster("cancel", job)
            self.musterd.muster("wait", job, "--timeout", "60s")
        last = self.musterd.submit(self.job(seconds=0.1))
        self.musterd.until(last, lambda shown: shown["state"] == "succeeded")
        self.expect(lambda: self.machine()["holders"] == [], "nobody has it")


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
