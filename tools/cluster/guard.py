"""The parent of every daemon of a cluster. Answers requests on run/guard.sock, one at a time. See keeper.py."""

import json
import os
import pwd
import signal
import socket

import config
import daemons
import network
import processes

REQUEST_LIMIT = 64 * 1024
POLL_S = 0.2


class Guard:
    def __init__(self, options, layout, namespaces, report):
        self.options, self.layout, self.namespaces, self.report = options, layout, namespaces, report
        self.network = self.ports = None
        self.stopping = False

    def run(self):
        if self.namespaces:
            processes.unshare(processes.CLONE_NEWNS)
        else:
            processes.adopt_orphans()
        signal.signal(signal.SIGTERM, self.die)
        try:
            self.daemons = daemons.Daemons(self.options, self.layout, self.make_site(), self.namespaces, self.network)
            self.daemons.start_all()
        except (daemons.ClusterFailed, network.NetworkFailed, OSError) as e:
            self.say({"error": str(e)})
            return 1
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self.layout.guard_socket))
            listener.listen(16)
            listener.settimeout(POLL_S)
            self.say(self.describe())
            while not self.stopping:
                self.serve(listener)
                self.daemons.reap()
        return 0

    def die(self, *_):
        if not self.namespaces:
            processes.kill_descendants()
        os._exit(1)

    def say(self, what):
        os.write(self.report, json.dumps(what).encode())
        os.close(self.report)

    def make_site(self):
        options, name = self.options, socket.gethostname().split(".")[0]
        user = pwd.getpwuid(os.getuid()).pw_name
        if options.network == "separate":
            if not self.namespaces:
                raise daemons.ClusterFailed("--network separate needs root: leave it out, or run as root")
            self.network = network.Network()
            fixed = daemons.FIXED_PORTS
            return config.Site(name, self.network.control_address, fixed["slurmctld"],
                               self.network.node_addresses(options.nodes), [fixed["slurmd"]] * options.nodes, user,
                               fixed["slurmdbd"], self.network.host_address, True)
        self.ports = processes.Ports()
        control = self.ports.take()
        node_ports = [self.ports.take() for _ in range(options.nodes)]
        return config.Site(name, "127.0.0.1", control, ["127.0.0.1"] * options.nodes, node_ports, user, self.ports.take(),
                           own_host_names=self.namespaces)

    def describe(self):
        return {"folder": str(self.layout.folder), "conf": str(self.layout.conf), "log": str(self.layout.log),
                "host_address": self.daemons.site.host_address, "namespaces": self.namespaces, "options": vars(self.options),
                "node_names": self.options.node_names(), "node_addresses": self.daemons.site.node_addresses}

    # --- requests ------------------------------------------------------------------------------------------------------------

    def serve(self, listener):
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            return
        with connection:
            connection.settimeout(5)
            try:
                with connection.makefile("rb") as stream:
                    request = json.loads(stream.readline(REQUEST_LIMIT))
                answer = self.answer(request)
            except (daemons.ClusterFailed, network.NetworkFailed) as e:
                answer = {"error": str(e)}
            except (ValueError, TimeoutError) as e:
                answer = {"error": f"not a request: {e}"}
            try:
                connection.sendall(json.dumps(answer).encode() + b"\n")
            except OSError:
                pass  # the client has gone

    def answer(self, request):
        command, node = request.get("command"), request.get("node")
        if node is not None and node not in self.options.node_names():
            raise daemons.ClusterFailed(f"no node {node}: there are {', '.join(self.options.node_names())}")
        self.daemons.reap()
        actions = {
            "status": lambda: None,
            "stop": self.stop,
            "kill-ctld": lambda: self.daemons.end("slurmctld", signal.SIGKILL),
            "stop-ctld": lambda: self.daemons.end("slurmctld", signal.SIGTERM),
            "start-ctld": self.daemons.start_slurmctld,
            "power-cut": lambda: self.power_cut(node),
            "power-on": lambda: self.power_on(node),
            "cut-network": lambda: self.own_network().cut(node),
            "mend-network": lambda: self.own_network().mend(node),
        }
        if command not in actions:
            raise daemons.ClusterFailed(f"unknown command {command}")
        actions[command]()
        return {"running": sorted(self.daemons.children)}

    def stop(self):
        self.stopping = True

    def power_cut(self, node):
        if not self.namespaces:
            raise daemons.ClusterFailed("a power cut needs nodes in namespaces: run the cluster as root")
        self.daemons.cut_power(node)

    def power_on(self, node):
        self.daemons.start_node(node)
        self.daemons.wait_for_nodes([node])

    def own_network(self):
        if self.network is None:
            raise daemons.ClusterFailed("the nodes share this machine's network: start with --network separate")
        return self.network
