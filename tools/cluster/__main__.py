"""A private Slurm cluster in one folder: munge, slurmctld, several slurmd with fake GPUs, and optionally slurmdbd with MariaDB.

Partitions: main (default), low and high. A job of high preempts jobs of low by requeueing them. With root each node has
its own host name and can lose its power.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

import client
import keeper
import options

DEFAULT_FOLDER = pathlib.Path(__file__).resolve().parent.parent.parent / ".cluster"
NODE_COMMANDS = {
    "power-cut": "kill everything on a node at once, as a power cut does (root)",
    "power-on": "start that node again and wait until Slurm gives it jobs",
    "cut-network": "take a node off the network; its processes live on (--network separate)",
    "mend-network": "put it back",
}
CONTROL_COMMANDS = {
    "kill-ctld": "kill slurmctld with SIGKILL; its state on disk stays",
    "stop-ctld": "end slurmctld in good order",
    "start-ctld": "start slurmctld again, from its state on disk",
}
STEPD_COMMANDS = {
    "stepd-pids": "print the pids of a job's slurmstepds on a node",
    "kill-stepd": "kill them with SIGKILL; the job's tasks live on",
}


def parse(arguments):
    parser = argparse.ArgumentParser(prog="./dev cluster", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--folder", type=pathlib.Path, default=DEFAULT_FOLDER, help="the cluster's own folder (.cluster)")
    common.add_argument("--json", action="store_true", help="print JSON, for programs")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    start = commands.add_parser("start", parents=[common], help="start a cluster; an earlier one's files are removed")
    options.add_arguments(start)
    start.add_argument("--foreground", action="store_true", help="stay until stopped; prints one line of JSON when ready")
    start.add_argument("--die-with-parent", action="store_true", help="with --foreground: end when standard input is closed")
    start.add_argument("--remove-folder", action="store_true", help="with --foreground: remove the folder at the end")
    commands.add_parser("stop", parents=[common], help="end the cluster, its jobs and all their processes")
    commands.add_parser("status", parents=[common], help="what runs, and what Slurm says about it")
    commands.add_parser("env", parents=[common], help="print what a shell needs: eval \"$(./dev cluster env)\"")
    for name, text in CONTROL_COMMANDS.items():
        commands.add_parser(name, parents=[common], help=text)
    for name, text in NODE_COMMANDS.items():
        commands.add_parser(name, parents=[common], help=text).add_argument("node")
    for name, text in STEPD_COMMANDS.items():
        command = commands.add_parser(name, parents=[common], help=text)
        command.add_argument("node")
        command.add_argument("job", type=int)
    return parser.parse_args(arguments)


def main(arguments):
    given = parse(arguments)
    layout = options.Layout(given.folder)
    try:
        if given.command == "start":
            return start(given, layout)
        return {"stop": stop, "status": status, "env": env}.get(given.command, act)(given, layout)
    except client.CommandFailed as e:
        print(json.dumps({"error": str(e)}) if given.json else f"cluster: {e}", file=sys.stdout if given.json else sys.stderr)
        return 1


def start(given, layout):
    wanted = options.from_arguments(given)
    problem = options.problem(wanted, layout.folder)
    if problem is None and client.runs(layout):
        problem = f"a cluster runs in {layout.folder} already: see ./dev cluster status, end it with ./dev cluster stop"
    if given.foreground:
        if problem:
            print(json.dumps({"error": problem}), flush=True)
            return 1
        return keeper.Keeper(wanted, layout, given.die_with_parent, given.remove_folder).run()
    if problem:
        raise client.CommandFailed(problem)
    described = start_in_background(layout)
    if given.json:
        print(json.dumps(described))
    else:
        explain(described)
    return 0


def start_in_background(layout):
    command = [sys.executable, "-B", str(pathlib.Path(__file__).parent), *sys.argv[1:], "--foreground"]
    started = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True)
    line = started.stdout.readline()
    described = json.loads(line) if line else {"error": "the cluster's keeper ended without a word"}
    if "error" in described:
        started.wait()
        raise client.CommandFailed(f"the cluster did not start; its logs stay in {layout.log}: {described['error']}")
    return described


def explain(described):
    names = described["node_names"]
    partitions = "main (default), low and high; high preempts low"
    print(f"A Slurm cluster with {len(names)} node{'s' if len(names) > 1 else ''} runs in {described['folder']}.\n"
          f"  partitions   {partitions}\n"
          f"  use it       eval \"$(./dev cluster env{other_folder(described['folder'])})\"   # in each shell; then sbatch, squeue, ...\n"
          f"  try it       srun -N {min(2, len(names))} hostname\n"
          f"  logs         {described['log']}\n"
          f"  end it       ./dev cluster stop{other_folder(described['folder'])}")


def other_folder(folder):
    return "" if folder == str(DEFAULT_FOLDER) else f" --folder {folder}"


def stop(given, layout):
    ended = client.stop(layout)
    if given.json:
        print(json.dumps({"ended": ended}))
    else:
        print(f"the cluster in {layout.folder} has ended; its logs stay there" if ended
              else f"no cluster runs in {layout.folder}")
    return 0


def status(given, layout):
    answer = client.ask(layout, "status")
    described = {**(client.record(layout) or {}), **answer}
    if given.json:
        print(json.dumps(described))
        return 0
    print(f"running in {layout.folder}: {', '.join(answer['running'])}")
    missing = [n for n in described.get("node_names", []) if n not in answer["running"]]
    if missing:
        print(f"without power: {', '.join(missing)}")
    if "slurmctld" not in answer["running"]:
        print("slurmctld does not run: ./dev cluster start-ctld")
        return 0
    sys.stdout.flush()
    return subprocess.run(["sinfo"], env=environment(layout), timeout=30).returncode


def environment(layout):
    return {**os.environ, "SLURM_CONF": str(layout.conf)}


def env(given, layout):
    if not client.runs(layout):
        raise client.CommandFailed(f"no cluster runs in {layout.folder}: start one with ./dev cluster start")
    if given.json:
        print(json.dumps({"SLURM_CONF": str(layout.conf)}))
    else:
        print(f"export SLURM_CONF={layout.conf}\n"
              f"# For this shell: eval \"$(./dev cluster env{other_folder(str(layout.folder))})\"; "
              "then sbatch --partition low --gres gpu:1 --wrap 'hostname'")
    return 0


def act(given, layout):
    if given.command in STEPD_COMMANDS:
        kill = given.command == "kill-stepd"
        pids = (client.kill_stepd if kill else client.stepds)(layout, given.node, given.job)
        print(json.dumps({"pids": pids}) if given.json else " ".join(map(str, pids)))
        return 0
    answer = client.ask(layout, given.command, getattr(given, "node", None))
    if given.json:
        print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
