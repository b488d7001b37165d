"""Goal: musterd is reached from this machine alone unless somebody asks for more, in so many words.

Method: the real program; what it listens on is read from the kernel, in a network of its own so that its usual ports are free.
Usage: listen_test.py BIN_FOLDER
"""

import pathlib
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

MUSTERD = None
START_LIMIT_S = 120
REFUSAL_LIMIT_S = 30
STOP_LIMIT_S = 60
LISTENING = "0A"
OWN_NETWORK = ["unshare", "--map-root-user", "--net"]


def listening(pid):
    """(address, port) of every listening socket in the process's network."""
    found = set()
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in pathlib.Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] != LISTENING:
                continue
            address, port = words[1].split(":")
            # The kernel prints each 32 bits in the machine's own order.
            raw = b"".join(struct.pack("=I", int(address[at:at + 8], 16)) for at in range(0, len(address), 8))
            found.add((socket.inet_ntop(family, raw).removeprefix("::ffff:"), int(port, 16)))
    return found


class Listen(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.data = pathlib.Path(temporary.name) / "data"

    def refused(self, *flags):
        done = subprocess.run([MUSTERD, "--data-folder", self.data, "--slurm", "no", *flags], capture_output=True, text=True,
                              timeout=REFUSAL_LIMIT_S)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertFalse(self.data.exists(), "it refuses before it writes anything")
        return done.stderr

    def listens_on(self, *flags):
        """What a musterd with these flags listens on, in a network of its own."""
        possible = subprocess.run([*OWN_NETWORK, "true"], capture_output=True, text=True)
        if possible.returncode != 0:
            self.skipTest(f"no network of its own: {possible.stderr.strip()}")
        # unshare and the shell become musterd, so its process id is known.
        process = subprocess.Popen(
            [*OWN_NETWORK, "sh", "-c", 'ip link set lo up && exec "$@"', "sh",
             MUSTERD, "--data-folder", self.data, "--slurm", "no", *flags], stderr=subprocess.PIPE, text=True)
        try:
            deadline = time.monotonic() + START_LIMIT_S
            while not (self.data / "musterd.json").exists():
                self.assertIsNone(process.poll(), "musterd ended")
                self.assertLess(time.monotonic(), deadline, "musterd is not ready")
                time.sleep(0.02)
            return listening(process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=STOP_LIMIT_S)
            self.assertEqual(process.returncode, 0, errors)

    def test_by_default_it_listens_on_this_machine_alone(self):
        self.assertEqual(self.listens_on(), {("127.0.0.1", 7600), ("127.0.0.1", 7601)})

    def test_addresses_that_others_can_reach_are_refused_with_the_remedy(self):
        for flag in ("--listen", "--http"):
            for address in ("0.0.0.0:0", "[::]:0", "10.0.0.5:7600"):
                with self.subTest(flag=flag, address=address):
                    said = self.refused(flag, address)
                    self.assertTrue(said.startswith(f"musterd: {flag} {address} can be reached from other machines"), said)
                    self.assertIn("--insecure-listen", said)
                    self.assertEqual(said.count("\n"), 1)

    def test_who_insists_is_served(self):
        found = self.listens_on("--listen", "0.0.0.0:7000", "--http", "0.0.0.0:7001", "--insecure-listen")
        self.assertEqual({port for _, port in found}, {7000, 7001})
        self.assertTrue({host for host, _ in found} <= {"0.0.0.0", "::"}, found)

    def test_the_flag_alone_changes_nothing(self):
        self.assertEqual(self.listens_on("--insecure-listen"), {("127.0.0.1", 7600), ("127.0.0.1", 7601)})


if __name__ == "__main__":
    MUSTERD = pathlib.Path(sys.argv.pop(1)).resolve() / "musterd"
    unittest.main()
