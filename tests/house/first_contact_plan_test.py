"""Goal: bench/first_contact.sh plans what the machine can do, and its table computes right. Method: the real script with an nvidia-smi of
this test in PATH, which shows any number of GPUs, and --dry; the arithmetic against numbers made by hand and published ones.
"""

import dataclasses
import os
import pathlib
import subprocess
import sys
import tempfile
import tomllib
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import first_contact  # noqa: E402
import first_contact_parts  # noqa: E402
import first_contact_plan  # noqa: E402
import first_contact_table  # noqa: E402
import model_flops  # noqa: E402


class Arithmetic(unittest.TestCase):
    def test_parameters_and_flops_of_a_model_made_by_hand(self):
        # Width 4: q and o of 4 x 4, k and v of 4 x 2, three of 4 x 6, two norms of 4.
        shape = model_flops.Shape("hand", layers=3, width=4, heads=2, kv_heads=1, intermediate=6, vocabulary=10)
        self.assertEqual(shape.layer_parameters(), 2 * 16 + 2 * 8 + 72 + 8)
        self.assertEqual(shape.parameters(), 2 * 40 + 3 * 128 + 4)
        self.assertEqual(shape.flops_per_token(5), 6 * (40 + 3 * 128 + 4) + 12 * 3 * 2 * 2 * 5)
        self.assertEqual(model_flops.utilisation(shape, 5, tokens_per_s=100, peak=10 * shape.flops_per_token(5) * 100), 0.1)

    def test_llama_8b_has_its_parameters_and_torchtitans_utilisation(self):
        shape = model_flops.SHAPES[0]
        self.assertEqual(shape.parameters(), 8_030_261_248)  # as transformers counts Llama-3.1-8B
        peak = model_flops.peak_flops("NVIDIA H100 80GB HBM3")
        # torchtitan tells 33 % without torch.compile and 39 % with it.
        self.assertAlmostEqual(model_flops.utilisation(shape, 8192, 5762, peak), 0.337, delta=0.001)
        self.assertAlmostEqual(model_flops.utilisation(shape, 8192, 6667, peak), 0.390, delta=0.001)

    def test_peaks_are_found_by_the_drivers_names(self):
        for name, peak in (("NVIDIA H200", 989e12), ("NVIDIA H100 PCIe", 756e12), ("NVIDIA A100-SXM4-80GB", 312e12), ("NVIDIA B200", 2.25e15),
                           ("NVIDIA GB200", 2.5e15), ("NVIDIA L40S", 362e12), ("NVIDIA L4", 121e12), ("NVIDIA H100 NVL", 835e12)):
            self.assertEqual(model_flops.peak_flops(name), peak, name)
        self.assertIsNone(model_flops.peak_flops("GeForce 256"))

    def test_the_largest_model_that_fits_is_chosen(self):
        def chosen(ranks, gib, tokens=16384):
            shape = model_flops.largest_that_fits(ranks, tokens, gib << 30)
            return shape and shape.name
        self.assertEqual([chosen(ranks, 80) for ranks in (1, 2, 4, 8)], ["1B", "3B", "8B", "8B"])
        self.assertEqual([chosen(1, gib) for gib in (141, 24, 4)], ["3B", "125M", None])


class Planned(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def script(self, gpus, *options, name="NVIDIA H100 80GB HBM3", driver="580.65.06"):
        """The script where nvidia-smi shows so many GPUs."""
        fake = self.folder / "nvidia-smi"
        fake.write_text("#!/bin/sh\n" + f"echo '{name}, 81559, {driver}'\n" * gpus)
        fake.chmod(0o755)
        return subprocess.run([ROOT / "bench" / "first_contact.sh", "--folder", self.folder / "out", *options], capture_output=True, text=True,
                              env={**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}"}, timeout=60)

    def refused(self, words, *arguments, **named):
        done = self.script(*arguments, **named)
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        self.assertIn(words, done.stderr)
        self.assertFalse((self.folder / "out").exists())

    def parts(self, text):
        """{part: what --dry prints of it}"""
        found = {}
        for block in text.split("\n\n"):
            part, colon, words = block.strip().partition(": ")
            if colon and part in first_contact_plan.PARTS:
                found[part] = words
        return found

    def jobs(self, text):
        return {part: tomllib.loads(words.partition("submit - of\n")[2]) for part, words in self.parts(text).items() if "submit" in words}

    def test_eight_gpus_train_8b_in_both_modes_and_the_tests_may_not_be_skipped(self):
        done = self.script(8, "--dry")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("8 NVIDIA H100 80GB HBM3: 8B", done.stdout)
        parts, jobs = self.parts(done.stdout), self.jobs(done.stdout)
        self.assertEqual(list(parts), list(first_contact_plan.PARTS))
        self.assertEqual(parts["tests"], "MUSTER_EXPECT_GPUS=8 ./dev test --preset cuda -L gpu")
        self.assertEqual({part: job["fsdp"].get("separate_reductions") for part, job in jobs.items()},
                         {"two_communicators": True, "one_communicator": False, "kill": None, "stop": None})
        for part, job in jobs.items():
            self.assertEqual((job["resources"]["ranks_per_node"], job["resources"]["gpus_per_rank"], job["train"]["precision"]), (8, 1, "bf16"))
            self.assertEqual(job["train"]["steps"], 100 if part in ("kill", "stop") else 1000)
        self.assertEqual(jobs["kill"]["checkpoint"]["every_steps"], 25)
        self.assertIn("--compile --checkpointing --device cuda --dtype bf16 --world-size 8 --dim 4096 --layers 32", parts["fsdp2"])
        self.assertFalse((self.folder / "out").exists(), "--dry does nothing")

    def test_one_gpu_does_what_one_can(self):
        done = self.script(1, "--dry", "--steps", "200")
        self.assertIn("two_communicators is left out: one rank communicates nothing", done.stdout)
        self.assertIn("1 NVIDIA H100 80GB HBM3: 1B", done.stdout)
        self.assertNotIn("two_communicators", self.parts(done.stdout))
        self.assertEqual(self.jobs(done.stdout)["one_communicator"]["train"]["steps"], 200)

    def test_no_gpu_is_said_and_is_no_success(self):
        for options in ((), ("--dry",)):
            self.refused("nvidia-smi shows no GPU on this machine", 0, *options)

    def test_what_can_not_be_is_refused_before_anything_is_done(self):
        self.refused("the driver is 550.12, and LibTorch for CUDA 13 needs 580 or newer", 1, driver="550.12")
        self.refused("--gpus 4: nvidia-smi shows 2", 2, "--gpus", "4")
        self.refused("--only tets: want some of build, tests", 2, "--only", "build,tets")
        self.refused("--only tests: it is for GPUs; leave out --cpu", 0, "--cpu", "--only", "tests")

    def test_parts_that_are_named_run_alone_and_in_their_order(self):
        self.assertEqual(list(self.parts(self.script(2, "--dry", "--only", "stop,build").stdout)), ["build", "stop"])


class Table(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        machine = first_contact_plan.Machine(8, "NVIDIA H100 80GB HBM3", 80 << 30, "580.65.06")
        self.plan = first_contact_plan.Plan(machine, 8, model_flops.SHAPES[0], 8192, 2, 1000, False, self.folder, self.folder)

    def test_a_row_has_speed_memory_and_utilisation_beside_the_published_ones(self):
        # 16,384 tokens in 2 s are 8,192 a second, of 57.91 GFLOPs each: 474.4 of 989 TFLOPs a second.
        results = {"one_communicator": {"steps": 1000, "step_ms": 2000.0, "memory_bytes": 50 << 30, "losses": [11.0, 5.0]},
                   "two_communicators": {"steps": 1000, "step_ms": 2000.0, "memory_bytes": 50 << 30, "losses": [11.0, 4.0]}}
        text = first_contact_table.table(self.plan, results)
        self.assertIn("| muster, one communicator | 8 | 2,000 ms | 8,192 | 50.0 GiB | 48.0 % |", text)
        self.assertIn("| torchtitan, FSDP2 compiled (published) | 8 | 2,457 ms | 6,667 | 77.0 GiB | 39.0 % |", text)
        self.assertIn("losses of both modes differ by 2.0e-01 at most", text)

    def test_a_part_that_fails_is_told_and_the_others_go_on(self):
        before = dict(first_contact_parts.DO)
        self.addCleanup(first_contact_parts.DO.update, before)

        def fail(plan, part):
            raise first_contact_plan.Failed("rank 3 is lost")

        first_contact_parts.DO.update(kill=fail, build=lambda plan, part: {"said": "built"})
        with open(os.devnull, "w") as nowhere:
            out, sys.stdout = sys.stdout, nowhere
            try:
                failed = first_contact.run(self.plan, ["kill", "build"])
            finally:
                sys.stdout = out
        self.assertEqual(failed, ["kill"])
        table = (self.folder / "table.md").read_text()
        self.assertIn("- kill: FAILED: rank 3 is lost", table)
        self.assertIn("- build: built", table)

    def test_what_was_measured_with_another_model_is_in_no_table(self):
        first_contact.keep(self.plan, {"build": {"said": "built"}})
        self.assertEqual(first_contact.kept(self.plan), {"build": {"said": "built"}})
        self.assertEqual(first_contact.kept(dataclasses.replace(self.plan, batch=1)), {})


if __name__ == "__main__":
    unittest.main()
