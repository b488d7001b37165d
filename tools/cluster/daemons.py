"""Starts and ends the daemons of one cluster, and waits until they answer. Runs in the guard, the parent of all daemons."""

import os
import shutil
import signal
import socket
import subprocess
import time

import config

UP_LIMIT_S = 30
STOP_LIMIT_S = 10
POLL_S = 0.02
FIXED_PORTS = {"slurmctld": 6817, "slurmd": 6818, "slurmdbd": 6819}  # ports in a cluster with its own network


class ClusterFailed(Exception):
    """The cluster failed. The text says what did not work and quotes the logs."""


def program(name):
    """The path of a program. Debian keeps daemons in folders that an ordinary PATH does not have."""
    found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/bin:/bin")
    if not found:
        raise ClusterFailed(f"{name} is not installed: ./dev setup installs it")
    return found


class Daemons:
    def __init__(self, options, layout, site, namespaces, network):
        self.options, self.layout, self.site = options, layout, site
        self.namespaces, self.network = namespaces, network
        self.children = {}  # name -> Popen of a running child
        self.environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "HOME": os.environ.get("HOME", "/"),
                            "SLURM_CONF": str(layout.conf)}

    def start_all(self):
        config.write_all(self.options, self.layout, self.site)
        self.start_munged()
        if self.options.accounting:
            self.start_accounting()
        self.start_slurmctld()
        for node in self.options.node_names():
            self.start_node(node)
        self.wait_for_nodes(self.options.node_names())

    # --- one child -----------------------------------------------------------------------------------------------------------

    def spawn(self, name, command, environment=None, **how):
        """Starts a daemon as the leader of a session, so that its helpers can be ended with it."""
        with open(self.layout.log / f"{name}.out", "ab") as output:
            self.children[name] = subprocess.Popen(
                [program(command[0]), *command[1:]], env={**self.environment, **(environment or {})}, stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, start_new_session=True, cwd=self.layout.folder, **how)

    def reap(self):
        """Reaps ended children, and the orphans of ended daemons, which the guard has adopted."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for name, child in list(self.children.items()):
                if child.pid == pid:
                    child.returncode = os.waitstatus_to_exitcode(status)
                    del self.children[name]

    def until(self, done, limit_s, what, daemon=None):
        """Polls until `done()`. Gives up at once when the awaited daemon has ended."""
        deadline = time.monotonic() + limit_s
        while not done():
            self.reap()
            if daemon and daemon not in self.children:
                raise ClusterFailed(f"{daemon} ended by itself\n{self.last_lines()}")
            if time.monotonic() > deadline:
                raise ClusterFailed(f"{what} took more than {limit_s} s\n{self.last_lines()}")
            time.sleep(POLL_S)

    def until_listens(self, name, address, port):
        """Waits until the daemon listens. Slurm's commands would wait for seconds when no daemon listens."""
        def listens():
            try:
                socket.create_connection((address, port), timeout=0.1).close()
                return True
            except OSError:
                return False
        self.until(listens, UP_LIMIT_S, f"starting {name}", name)

    def end(self, name, number):
        """Signals a daemon and waits until it is gone. SIGKILL also goes to its helpers."""
        child = self.children.get(name)
        if child is None:
            raise ClusterFailed(f"{name} does not run")
        (os.killpg if number == signal.SIGKILL else os.kill)(child.pid, number)
        self.until(lambda: name not in self.children, STOP_LIMIT_S, f"stopping {name}")

    def client(self, *command):
        """The output of a Slurm command, or None if it failed, as it may while daemons start."""
        try:
            done = subprocess.run([program(command[0]), *command[1:]], env=self.environment, capture_output=True, text=True,
                                  timeout=UP_LIMIT_S)
        except subprocess.TimeoutExpired:
            return None
        return done.stdout if done.returncode == 0 else None

    def last_lines(self, count=5):
        text = []
        for path in sorted(self.layout.log.glob("*")):
            lines = path.read_text(errors="replace").splitlines()[-count:]
            text += [f"--- {path.name}", *lines] if lines else []
        return "\n".join(text)

    # --- the daemons ---------------------------------------------------------------------------------------------------------

    def start_munged(self):
        key = self.layout.folder / "munge" / "key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(1024))
        # --force accepts a folder under /tmp, or one that others may read. Both are good enough here.
        self.spawn("munged", [
            "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={self.layout.munge_socket}",
            f"--pid-file={self.layout.run}/munged.pid", f"--log-file={self.layout.log}/munged.log",
            f"--seed-file={self.layout.folder}/munge/seed"])
        self.until(self.layout.munge_socket.exists, UP_LIMIT_S, "munged", "munged")

    def start_accounting(self):
        data, socket_path = self.layout.folder / "database", self.layout.run / "database.sock"
        # MariaDB names temporary tables by process id, and another cluster's processes may have the same ids.
        temporary = self.layout.folder / "database-temporary"
        temporary.mkdir(exist_ok=True)
        made = subprocess.run(
            [program("mariadb-install-db"), "--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal",
             "--skip-test-db", f"--user={self.site.user}", f"--tmpdir={temporary}"], capture_output=True, text=True, timeout=60)
        if made.returncode != 0:
            raise ClusterFailed(f"mariadb-install-db failed:\n{made.stdout[-2000:]}{made.stderr[-2000:]}")
        self.spawn("mariadbd", [
            "mariadbd", "--no-defaults", f"--datadir={data}", f"--socket={socket_path}", "--skip-networking",
            "--skip-grant-tables", f"--tmpdir={temporary}", f"--user={self.site.user}", f"--pid-file={self.layout.run}/mariadbd.pid",
            "--innodb-flush-log-at-trx-commit=0"])
        self.until(socket_path.exists, UP_LIMIT_S, "mariadbd", "mariadbd")
        # slurmdbd has no setting for the socket. MariaDB's client library reads the socket's path from this variable.
        self.spawn("slurmdbd", ["slurmdbd", "-D"], {"MYSQL_UNIX_PORT": str(socket_path)})
        self.until_listens("slurmdbd", self.site.control_address, self.site.database_port)
        self.until(lambda: self.client("sacctmgr", "-n", "list", "cluster") is not None, UP_LIMIT_S, "slurmdbd", "slurmdbd")

    def start_slurmctld(self):
        if "slurmctld" in self.children:
            raise ClusterFailed("slurmctld runs already")
        self.spawn("slurmctld", ["slurmctld", "-D", "-f", str(self.layout.conf)])
        self.until_listens("slurmctld", self.site.control_address, self.site.control_port)
        self.until(lambda: (self.client("scontrol", "ping") or "").find("is UP") >= 0, UP_LIMIT_S, "slurmctld", "slurmctld")

    def start_node(self, node):
        """Starts a node: slurmd and all its descendants. With namespaces the node is like a host, with its own name,
        processes, /etc/hosts and /dev/shm. Killing its first process then cuts its power."""
        if node in self.children:
            raise ClusterFailed(f"{node} runs already")
        slurmd = [program("slurmd"), "-D", "-N", node, "-f", str(self.layout.conf)]
        if not self.namespaces:
            self.spawn(node, slurmd)
            return
        lines = ["set -e", f"hostname {node}", f"mount --bind {self.layout.folder}/nodes/hosts /etc/hosts",
                 "mount -t tmpfs tmpfs /dev/shm"]
        unshare = ["unshare", "--pid", "--uts", "--mount", "--fork", "--kill-child", "--mount-proc"]
        how = {}
        if self.network:
            address = dict(zip(self.options.node_names(), self.site.node_addresses))[node]
            lines += self.network.node_commands(node, address, self.network.switch)
            unshare.append("--net")
            how["pass_fds"] = [self.network.switch]
        # The shell stays as the node's first process and reaps orphans. slurmd would not.
        lines += [" ".join(slurmd) + " &", "wait $!"]
        self.spawn(node, [*unshare, program("sh"), "-c", "\n".join(lines)], **how)

    def cut_power(self, node):
        """Kills the first process of the node's PID namespace. The kernel then kills all others in the namespace."""
        self.end(node, signal.SIGKILL)

    def wait_for_nodes(self, nodes):
        """Waits until Slurm would give the nodes jobs. Slurm's state alone is not enough, because Slurm may not have noticed yet
        that a node lost its power."""
        for node, address, port in zip(self.options.node_names(), self.site.node_addresses, self.site.node_ports):
            if node in nodes:
                self.until_listens(node, address, port)

        def ready():
            listing = self.client("sinfo", "-h", "-N", "-n", ",".join(nodes), "-o", "%N %t") or ""
            up = {line.split()[0] for line in listing.splitlines() if line.split()[1] in ("idle", "mix", "alloc", "comp")}
            return up == set(nodes)
        self.until(ready, UP_LIMIT_S, f"registering {', '.join(nodes)}", nodes[0])
