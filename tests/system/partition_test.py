"""Goal: a network that is cut between musterd and the ranks ends no training, and nothing that the ranks told is lost.

Method: real musterd and workers on this machine; the ranks reach musterd through a proxy of this process, which stands still as
a cut network does: connections stay open, and nothing passes.
Usage: partition_test.py BIN_FOLDER
"""

import json
import os
import pathlib
import selectors
import signal
import socket
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from daemon import JOB_LIMIT_S, TRAINING, Musterd, eventually  # noqa: E402

BIN = None


class Network:
    """Forwards connections to a port of this machine, until cut() stops those of some processes."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.listener.getsockname()[1]
        self.target = None
        self.pairs = []  # (socket of the rank, socket of musterd)
        self.cut_for = None
        self.closed = False
        self.owners = {}  # a port of a rank to its process; a port keeps its owner
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def close(self):
        self.closed = True
        self.thread.join()
        for sock in (self.listener, *(end for pair in self.pairs for end in pair)):
            sock.close()

    def cut(self, pids):
        """Of these processes alone."""
        self.cut_for = frozenset(pids)

    def mend(self):
        self.cut_for = None

    def _is_cut(self, rank_socket):
        cut_for = self.cut_for
        if cut_for is None:
            return False
        try:
            port = rank_socket.getpeername()[1]
        except OSError:  # its process is gone; the next read closes the pair
            return False
        if port not in self.owners:
            self.owners[port] = owner_of(port, cut_for)
        return self.owners[port] in cut_for

    def _run(self):
        self.listener.setblocking(False)
        while not self.closed:
            with selectors.DefaultSelector() as wanted:
                wanted.register(self.listener, selectors.EVENT_READ)
                for rank, musterd in self.pairs:
                    if not self._is_cut(rank):
                        wanted.register(rank, selectors.EVENT_READ, (rank, musterd))
                        wanted.register(musterd, selectors.EVENT_READ, (musterd, rank))
                ready = wanted.select(timeout=0.1)
            for key, _ in ready:
                if key.data is None:
                    self._accept()
                elif any(key.fileobj in pair for pair in self.pairs):
                    self._forward(*key.data)

    def _accept(self):
        rank, _ = self.listener.accept()
        self.pairs.append((rank, socket.create_connection(("127.0.0.1", self.target))))

    def _forward(self, source, sink):
        try:
            data = source.recv(1 << 16)
            if data:
                sink.sendall(data)
                return
        except OSError:
            pass
        for pair in [pair for pair in self.pairs if source in pair]:
            self.pairs.remove(pair)
            for end in pair:
                end.close()


def owner_of(port, pids):
    """Which of these processes has the socket of this local port."""
    lines = [line for table in ("tcp", "tcp6") for line in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]]
    for line in lines:
        fields = line.split()
        if int(fields[1].rsplit(":", 1)[1], 16) != port:
            continue
        for pid in pids:
            try:
                links = [link.readlink() for link in pathlib.Path(f"/proc/{pid}/fd").iterdir()]
            except OSError:
                continue
            if any(str(link) == f"socket:[{fields[9]}]" for link in links):
                return pid
    return None


class Partition(unittest.TestCase):
    def setUp(self):
        self.network = Network()
        self.addCleanup(self.network.close)
        self.daemon = Musterd(self, BIN, flags=["--advertise", f"127.0.0.1:{self.network.port}"])
        self.network.target = self.daemon.grpc

    def cut_in_a_training(self, seconds, of_rank=None):
        """A training of two ranks in whose middle the network is cut; what is told of the job at the end."""
        steps = 60 + 4 * seconds
        job = self.daemon.submit(TRAINING.replace("steps = 60", f"steps = {steps}"))
        shown = self.daemon.until(job, lambda shown: shown["state"] == "failed" or (shown["step"] or 0) > 30)
        self.assertEqual(shown["state"], "running", shown)
        pids = {rank["rank"]: rank["pid"] for rank in shown["ranks"]}
        self.network.cut(pids.values() if of_rank is None else [pids[of_rank]])
        missed = "(rank [01] has|2 ranks have)" if of_rank is None else f"rank {of_rank} has"  # one rank is missed a moment before the other
        suspected = False
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            shown = self.daemon.show(job)
            self.assertEqual((shown["state"], len(shown["attempts"])), ("running", 1), shown)
            if shown["status"] == "running, suspected":
                suspected = True
                self.assertRegex(shown["reason"], missed + " not been heard since .* UTC; the attempt goes on")
            time.sleep(0.5)
        self.network.mend()
        self.assertEqual(suspected, seconds > 20, self.daemon.muster("events", job).stdout)
        if suspected:
            self.assertTrue(eventually(lambda: self.daemon.show(job)["status"] == "running", JOB_LIMIT_S))
            self.assertRegex(self.daemon.muster("events", job).stdout, "all ranks are heard again, after ")
        done = self.daemon.until(job, lambda shown: shown["state"] in ("succeeded", "failed"))
        self.assertEqual((done["state"], len(done["attempts"])), ("succeeded", 1), done)
        rows = json.loads(self.daemon.muster("metrics", job, "--json").stdout)
        self.assertEqual([row["step"] for row in rows], list(range(1, steps + 1)), "each step is told once")

    def test_of_all_ranks_for_a_moment(self):
        self.cut_in_a_training(12)

    def test_of_all_ranks(self):
        self.cut_in_a_training(25)

    def test_of_one_rank(self):
        self.cut_in_a_training(25, of_rank=1)

    def test_of_all_ranks_for_minutes(self):
        self.cut_in_a_training(300)

    def test_of_one_rank_for_minutes(self):
        self.cut_in_a_training(300, of_rank=1)

    def test_of_one_rank_that_has_died_meanwhile_ends_the_attempt(self):
        job = self.daemon.submit(TRAINING)
        self.daemon.until(job, lambda shown: (shown["step"] or 0) > 10)
        pids = {rank["rank"]: rank["pid"] for rank in self.daemon.show(job)["ranks"]}
        self.network.cut(pids.values())
        pid = pids[1]
        self.assertGreater(pid, 1)
        os.kill(pid, signal.SIGKILL)
        killed = time.monotonic()
        self.daemon.until(job, lambda shown: shown["attempts"][0]["cause"] == "failed")
        self.assertLess(time.monotonic() - killed, 10, "its agent is heard")
        self.network.mend()
        done = self.daemon.until(job, lambda shown: shown["state"] in ("succeeded", "failed"))
        self.assertEqual((done["state"], len(done["attempts"])), ("succeeded", 2), done)


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
