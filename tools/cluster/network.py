"""A separate network for a cluster: a bridge in a namespace, an address for each node, and one for this machine.

    this machine  10.213.x.254  muclX ----- uplink \\
    slurmctld     10.213.x.253                      br0   (the guard's network namespace)
    node3         10.213.x.3    eth0 ------ node3.1 /

The kernel removes the links together with the processes in the namespaces, so nothing has to be undone.
"""

import os
import subprocess

import processes


class NetworkFailed(Exception):
    """A network command failed. The text is one sentence that quotes ip."""


def _ip(*arguments, **how):
    done = subprocess.run(["ip", *map(str, arguments)], capture_output=True, text=True, timeout=10, **how)
    if done.returncode != 0:
        raise NetworkFailed(f"ip {' '.join(map(str, arguments))}: {done.stderr.strip()}")


class Network:
    """The network of one cluster. The guard makes it, and leaves its old network namespace for good."""

    def __init__(self):
        outside = os.open("/proc/self/ns/net", os.O_RDONLY)
        processes.unshare(processes.CLONE_NEWNET)
        self.switch = os.open("/proc/self/ns/net", os.O_RDONLY)
        self.generation = 0
        self.links = {}
        _ip("link", "set", "lo", "up")
        _ip("link", "add", "br0", "type", "bridge")
        number = self._connect(outside)
        self.prefix = f"10.213.{number}"
        _ip("link", "set", "uplink", "master", "br0", "up")
        _ip("address", "add", f"{self.control_address}/24", "dev", "br0")
        _ip("link", "set", "br0", "up")
        there = {"preexec_fn": lambda: processes.set_namespace(outside), "pass_fds": [outside]}
        _ip("address", "add", f"{self.host_address}/24", "dev", f"mucl{number}", **there)
        _ip("link", "set", f"mucl{number}", "up", **there)
        os.close(outside)

    @staticmethod
    def _connect(outside):
        """Claims a subnet and returns its number. Making a link with the subnet's name succeeds only once."""
        refused = ""
        for i in range(250):
            number = 1 + (processes.host_pid() + i) % 250
            try:
                _ip("link", "add", "uplink", "type", "veth", "peer", "name", f"mucl{number}", "netns",
                    f"/proc/self/fd/{outside}", pass_fds=[outside])
                return number
            except NetworkFailed as e:
                if "exists" not in str(e):
                    raise
                refused = str(e)
        raise NetworkFailed(f"all of 10.213.1.0 to 10.213.250.0 are taken: {refused}")

    @property
    def host_address(self):
        return f"{self.prefix}.254"

    @property
    def control_address(self):
        return f"{self.prefix}.253"

    def node_addresses(self, count):
        return [f"{self.prefix}.{i}" for i in range(1, count + 1)]

    def node_commands(self, node, address, fd):
        """Shell lines that a node runs in its own network namespace; fd refers to this namespace. Each start of a node makes a
        new link, because the kernel takes a moment to remove the old one."""
        self.generation += 1
        link = f"{node}.{self.generation}"
        self.links[node] = link
        hardware = "02:" + ":".join(f"{int(part):02x}" for part in ("0", *address.split(".")))
        inside = f"nsenter --net=/proc/self/fd/{fd}"
        # A node keeps its hardware address over restarts. Otherwise others would send to the old address for a while.
        return [
            "ip link set lo up",
            f"ip link add eth0 address {hardware} type veth peer name {link} netns /proc/self/fd/{fd}",
            f"{inside} ip link set {link} master br0 up",
            f"ip address add {address}/24 dev eth0",
            "ip link set eth0 up",
            f"exec {fd}<&-",
        ]

    def cut(self, node):
        _ip("link", "set", self.links[node], "down")

    def mend(self, node):
        _ip("link", "set", self.links[node], "up")
