"""Goal: the CUDA side compiles and links, and a machine without a GPU is told so and never trains in silence.

Method: the worker that ./dev test builds with the preset cuda, in MUSTER_CUDA_WORKER, beside the one of the build under test.
"""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORKER = os.environ.get("MUSTER_CUDA_WORKER", "")


def has_gpu():
    return pathlib.Path("/proc/driver/nvidia/version").exists()


@unittest.skipUnless(WORKER, "no CUDA build: ./dev test -L long makes one where CUDA's packages are")
class CudaWorker(unittest.TestCase):
    def run_worker(self, program, visible):
        environment = {**os.environ, "RANK": "0", "WORLD_SIZE": "1", "CUDA_VISIBLE_DEVICES": visible, "OMP_NUM_THREADS": "1"}
        data = pathlib.Path(os.environ["MUSTER_CPU_WORKER"]).parent / "muster-data"
        with tempfile.TemporaryDirectory() as folder:  # its checkpoints are no other run's
            subprocess.run([data, "prepare", "--from", "fixture", "--to", "alone-data"], cwd=folder, check=True)
            return subprocess.run([program, "--run-file", ROOT / "examples" / "alone.json"], cwd=folder, env=environment,
                                  capture_output=True, text=True, timeout=200)

    def test_it_trains_on_the_cpu_as_the_cpu_build_does(self):
        losses = []
        for program in (WORKER, os.environ["MUSTER_CPU_WORKER"]):
            done = self.run_worker(program, visible="")
            self.assertEqual(done.returncode, 0, done.stderr)
            losses.append(re.findall(r"step (\d+/\d+) loss (\S+)", done.stdout + done.stderr))
        self.assertEqual(len(losses[0]), 3)
        self.assertEqual(losses[0], losses[1])

    @unittest.skipIf(has_gpu(), "this machine has NVIDIA's driver")
    def test_a_gpu_that_is_not_there_is_an_error_that_quotes_cuda(self):
        done = self.run_worker(WORKER, visible="0")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("CUDA_VISIBLE_DEVICES=0 gives this rank a GPU, and CUDA finds none", done.stderr)
        self.assertNotIn("step 1/3", done.stdout + done.stderr)

    def test_it_carries_the_collectives_and_kernels_of_gpus(self):
        symbols = subprocess.run(["nm", "-C", WORKER], capture_output=True, text=True, check=True).stdout
        for name in ("fsdp::make_nccl_transport", "fsdp::make_device_graph", "worker::kernels::swiglu"):
            self.assertRegex(symbols, rf"\b[Tt] {name}\b")


if __name__ == "__main__":
    unittest.main()
