"""Goal: on nodes of Slurm a network that is cut ends no training, and a hang ends with the stacks of its ranks.

Method: real musterd on a private Slurm of two nodes, a rank on each. The ranks and their tasks reach musterd through a proxy of
this process, which stands still for some of them as a cut network does. Slurm itself is not cut.
Usage: partitions_and_hangs_test.py BIN_FOLDER
"""

import json
import pathlib
import sys
import time
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "system"), str(TESTS / "peers")]
from daemon import JOB_LIMIT_S, TRAINING, Musterd, eventually  # noqa: E402
from hangs import check_hang, frames, job_text  # noqa: E402
from partition_test import Network  # noqa: E402
from private_slurm import PrivateSlurm, missing  # noqa: E402

BIN = None
NODES = "nodes = 2\nranks_per_node = 1"
ONE_THREAD = '[env]\nOMP_NUM_THREADS = "1"\n'


def processes_of(data):
    """The ids here of the ranks and tasks of a data folder, by their node."""
    found = {}
    for folder in pathlib.Path("/proc").glob("[1-9]*"):
        try:
            variables = dict(entry.split("=", 1) for entry in (folder / "environ").read_text(errors="replace").split("\0") if "=" in entry)
            line = (folder / "cmdline").read_text(errors="replace")
        except OSError:  # it has ended, or is not ours
            continue
        is_task = "muster-agent\0" in line and str(data) in line
        if is_task or variables.get("MUSTER_ATTEMPT_FOLDER", "").startswith(f"{data}/"):
            found.setdefault(variables.get("SLURMD_NODENAME", ""), []).append(int(folder.name))
    return found


@unittest.skipIf(missing(), f"no Slurm here: {missing()}")
class SlurmCase(unittest.TestCase):
    def setUp(self):
        self.network = Network()
        self.addCleanup(self.network.close)
        slurm = PrivateSlurm(self, "--nodes", "2")
        self.musterd = Musterd(self, BIN, slurm="yes", env=slurm.env, flags=["--advertise", f"127.0.0.1:{self.network.port}"])
        self.network.target = self.musterd.grpc


class Partitions(SlurmCase):
    def cut(self, seconds, nodes):
        """A training of two nodes, in whose middle so many nodes are cut off for so long."""
        steps = 60 + 4 * seconds
        # Both nodes are this machine: a thread for each rank is plenty.
        text = TRAINING.replace("steps = 60", f"steps = {steps}").replace("ranks_per_node = 2", NODES) + ONE_THREAD
        job = self.musterd.submit(text)
        shown = self.musterd.until(job, lambda shown: shown["state"] == "failed" or (shown["step"] or 0) > 30)
        self.assertEqual(shown["state"], "running", shown)
        by_node = processes_of(self.musterd.data)
        self.assertEqual([len(pids) >= 2 for _, pids in sorted(by_node.items())], [True, True], by_node)
        self.network.cut([pid for _, pids in sorted(by_node.items())[:nodes] for pid in pids])
        suspected = False
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            shown = self.musterd.show(job)
            self.assertEqual((shown["state"], len(shown["attempts"])), ("running", 1), shown)
            suspected = suspected or "suspected" in shown["status"]
            time.sleep(0.5)
        self.network.mend()
        self.assertTrue(suspected, self.musterd.muster("events", job).stdout)
        self.assertTrue(eventually(lambda: self.musterd.show(job)["status"] == "running", JOB_LIMIT_S))
        done = self.musterd.until(job, lambda shown: shown["state"] in ("succeeded", "failed"))
        self.assertEqual((done["state"], len(done["attempts"])), ("succeeded", 1), done)
        rows = json.loads(self.musterd.muster("metrics", job, "--json").stdout)
        self.assertEqual([row["step"] for row in rows], list(range(1, steps + 1)), "each step is told once")

    def test_of_all_nodes(self):
        self.cut(25, 2)

    def test_of_one_node(self):
        self.cut(25, 1)

    def test_of_all_nodes_for_a_minute(self):
        self.cut(60, 2)

    def test_of_one_node_for_a_minute(self):
        self.cut(60, 1)

    def test_of_all_nodes_for_minutes(self):
        self.cut(300, 2)

    def test_of_one_node_for_minutes(self):
        self.cut(300, 1)


class Hangs(SlurmCase):
    def test_of_one_rank_ends_with_the_stacks_of_all(self):
        for view in check_hang(self, self.musterd, self.musterd.submit(job_text("rank1", NODES))):
            self.assertEqual(frames(view, 1)[:2], ["evaluates", "trains"])
            self.assertEqual(frames(view, 0)[:2], ["all_reduce", "trains"])
            self.assertRegex(view["summary"], r"rank 0 stands at trains \(<string>:\d+\)|rank 1 stands at trains")


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
