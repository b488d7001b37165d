"""The options of a private cluster. The command line, cluster.json and the tests use the same fields."""

import dataclasses
import pathlib

# munged, slurmstepd and the guard bind Unix sockets below the folder. Such a path has at most 107 bytes.
LONGEST_FOLDER = 66
BREAKS_SLURM_CONF = set(" \t\n\"'\\#%,=[]()")


@dataclasses.dataclass
class Options:
    nodes: int = 4
    cpus: int = 8
    gpus: int = 2
    grace: int = 0
    slurmd_timeout: int = 10
    kill_wait: int = 2
    min_job_age: int = 300
    max_array_size: int = 1001
    cred_expire: int = 5
    requeue_exit: str = "off"
    network: str = "shared"
    unresolvable_names: bool = False
    accounting: bool = False
    memory_limits: bool = False
    conf: list = dataclasses.field(default_factory=list)

    def node_names(self):
        return [f"node{i}" for i in range(1, self.nodes + 1)]


def add_arguments(parser):
    """Adds one command-line option per field, with the defaults of Options."""
    d = Options()
    number = {"type": int, "metavar": "N"}
    parser.add_argument("--nodes", default=d.nodes, **number, help="nodes node1..nodeN (4)")
    parser.add_argument("--cpus", default=d.cpus, **number, help="CPUs a node claims to have (8)")
    parser.add_argument("--gpus", default=d.gpus, **number, help="fake GPUs of a node, links to /dev/null (2)")
    parser.add_argument("--grace", default=d.grace, **number,
                        help="seconds a job of partition low keeps when a job of high preempts it (0)")
    parser.add_argument("--slurmd-timeout", default=d.slurmd_timeout, **number,
                        help="seconds until Slurm takes a silent node for down (10; Slurm's own default is 300)")
    parser.add_argument("--kill-wait", default=d.kill_wait, **number, help="seconds from SIGTERM to SIGKILL (2)")
    parser.add_argument("--min-job-age", default=d.min_job_age, **number,
                        help="seconds squeue and scontrol remember an ended job (300)")
    parser.add_argument("--max-array-size", default=d.max_array_size, **number, help="one more than the highest index (1001)")
    parser.add_argument("--cred-expire", default=d.cred_expire, **number,
                        help="seconds; a requeued job is held for one second longer (5; Slurm's own default is 120)")
    parser.add_argument("--requeue-exit", choices=["on", "off"], default=d.requeue_exit,
                        help="on: exit code 99 requeues a job, 98 requeues and holds it (off, as on most clusters)")
    parser.add_argument("--network", choices=["shared", "separate"], default=d.network,
                        help="shared: all nodes are on this machine's loopback. separate: a network namespace and an address "
                             "of 10.213.x.y for each node (root only)")
    parser.add_argument("--unresolvable-names", action="store_true",
                        help="nodes cannot resolve each other's names (this machine never can)")
    parser.add_argument("--accounting", action="store_true", help="run slurmdbd with a MariaDB of its own, for sacct")
    parser.add_argument("--memory-limits", action="store_true",
                        help="the kernel limits jobs to their requested memory and kills processes that need more (root, "
                             "control groups version 1)")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE",
                        help="another line for slurm.conf; may be repeated, the last one counts")


def from_arguments(arguments):
    return Options(**{f.name: getattr(arguments, f.name) for f in dataclasses.fields(Options)})


def problem(options, folder):
    """Why these options cannot make a cluster, with the remedy; None if they can."""
    folder = str(folder)
    if not 1 <= options.nodes <= 200:
        return f"--nodes {options.nodes}: from 1 to 200"
    for name in ("cpus", "max_array_size", "cred_expire"):
        if getattr(options, name) < 1:
            return f"--{name.replace('_', '-')} {getattr(options, name)}: at least 1"
    for name in ("gpus", "grace", "slurmd_timeout", "kill_wait", "min_job_age"):
        if getattr(options, name) < 0:
            return f"--{name.replace('_', '-')} {getattr(options, name)}: not below 0"
    if len(folder.encode()) > LONGEST_FOLDER:
        return (f"the folder {folder} has a path of {len(folder.encode())} bytes; Unix sockets allow {LONGEST_FOLDER} here: "
                "choose a shorter one with --folder")
    if BREAKS_SLURM_CONF & set(folder):
        return f"slurm.conf cannot hold the folder {folder!r}: choose one without blanks or punctuation with --folder"
    bad = next((line for line in options.conf if "=" not in line or "\n" in line), None)
    return f"--conf {bad!r}: wants KEY=VALUE" if bad is not None else None


class Layout:
    """The paths of one cluster's files."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder).absolute()
        self.conf = self.folder / "slurm.conf"
        self.run = self.folder / "run"
        self.log = self.folder / "log"
        self.munge_socket = self.run / "munge.sock"
        self.guard_socket = self.run / "guard.sock"
        self.record = self.folder / "cluster.json"
        self.control_groups = self.folder / "cgroup"
        self.lock = self.folder / "lock"

    def make(self):
        for name in ("run", "log", "state", "spool", "dev", "nodes", "munge", "database"):
            path = self.folder / name
            path.mkdir(mode=0o755, exist_ok=True)
            path.chmod(0o755)
        # munged requires a private folder for its key.
        (self.folder / "munge").chmod(0o700)
