"""The text of every configuration file, as pure functions of the options, the folder and the addresses."""

import dataclasses


@dataclasses.dataclass
class Site:
    """Where the daemons of one cluster listen, and which user they run as."""

    host_name: str
    control_address: str
    control_port: int
    node_addresses: list
    node_ports: list
    user: str
    database_port: int = 0
    host_address: str = "127.0.0.1"
    own_host_names: bool = False  # each node is a host with its own name, in a namespace


def slurm_conf(options, layout, site):
    folder = layout.folder
    lines = [
        "ClusterName=muster",
        f"SlurmctldHost={site.host_name}({site.control_address})",
        f"SlurmctldPort={site.control_port}",
        f"SlurmUser={site.user}",
        f"SlurmdUser={site.user}",
        "AuthType=auth/munge",
        "CredType=cred/munge",
        f"AuthInfo=socket={layout.munge_socket},cred_expire={options.cred_expire}",
        f"StateSaveLocation={folder}/state",
        f"SlurmdSpoolDir={folder}/spool/%n",
        f"SlurmctldPidFile={layout.run}/slurmctld.pid",
        f"SlurmdPidFile={layout.run}/slurmd-%n.pid",
        f"SlurmctldLogFile={layout.log}/slurmctld.log",
        f"SlurmdLogFile={layout.log}/slurmd-%n.log",
        "ProctrackType=proctrack/linuxproc",
        f"TaskPlugin=task/{'cgroup' if options.memory_limits else 'none'}",
        "JobAcctGatherType=jobacct_gather/none",
        "MpiDefault=none",
        "SelectType=select/cons_tres",
        f"SelectTypeParameters=CR_CPU{'_Memory' if options.memory_limits else ''}",
        "SlurmdParameters=config_overrides",
        "ReturnToService=2",
        "MailProg=/bin/true",
        "SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=1,sched_interval=1",
        "PriorityType=priority/basic",
        "PreemptType=preempt/partition_prio",
        "PreemptMode=REQUEUE",
        f"SlurmdTimeout={options.slurmd_timeout}",
        f"KillWait={options.kill_wait}",
        "CompleteWait=0",
        f"MinJobAge={options.min_job_age}",
        "MessageTimeout=5",
        f"MaxArraySize={options.max_array_size}",
    ]
    if options.requeue_exit == "on":
        lines += ["RequeueExit=99", "RequeueExitHold=98"]
    lines += accounting_lines(options, layout, site)
    lines += options.conf
    lines += node_lines(options, site)
    # Only jobs of low can be preempted, and only by high. main has low's priority and no preemption.
    lines += [
        "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=OFF",
        f"PartitionName=low Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime={options.grace}",
        "PartitionName=high Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF",
    ]
    return "\n".join(lines) + "\n"


def accounting_lines(options, layout, site):
    if not options.accounting:
        return ["AccountingStorageType=accounting_storage/none", "JobCompType=jobcomp/filetxt",
                f"JobCompLoc={layout.log}/jobcomp.txt"]
    return ["AccountingStorageType=accounting_storage/slurmdbd", f"AccountingStorageHost={site.control_address}",
            f"AccountingStoragePort={site.database_port}", f"AccountingStoragePass={layout.munge_socket}"]


def node_lines(options, site):
    gpus = f" Gres=gpu:fake:{options.gpus}" if options.gpus else ""
    lines = ["GresTypes=gpu"] if options.gpus else []
    # Slurm does not print the port of a node that listens on SlurmdPort, as on most clusters.
    lines.append(f"SlurmdPort={site.node_ports[0]}")
    lines.append(f"NodeName=DEFAULT CPUs={options.cpus} RealMemory=4000{gpus} State=UNKNOWN")
    for name, address, port in zip(options.node_names(), site.node_addresses, site.node_ports):
        host = name if site.own_host_names else "localhost"
        lines.append(f"NodeName={name} NodeHostname={host} NodeAddr={address} Port={port}")
    return lines


def gres_conf(options, layout):
    """The text of gres.conf. File must be a device: with a regular file Slurm leaves CUDA_VISIBLE_DEVICES unset, and without
    a file the node is invalid."""
    if not options.gpus:
        return ""
    last = options.gpus - 1
    return f"Name=gpu Type=fake File={layout.folder}/dev/fakegpu{f'[0-{last}]' if last else '0'}\n"


def cgroup_conf(options, layout):
    lines = ["CgroupAutomount=no"]
    if options.memory_limits:
        lines += ["CgroupPlugin=cgroup/v1", f"CgroupMountpoint={layout.control_groups}", "ConstrainRAMSpace=yes"]
    return "\n".join(lines) + "\n"


def slurmdbd_conf(layout, site):
    return "\n".join([
        "AuthType=auth/munge",
        f"AuthInfo=socket={layout.munge_socket}",
        f"DbdHost={site.host_name}",
        f"DbdAddr={site.control_address}",
        f"DbdPort={site.database_port}",
        f"SlurmUser={site.user}",
        f"LogFile={layout.log}/slurmdbd.log",
        f"PidFile={layout.run}/slurmdbd.pid",
        "StorageType=accounting_storage/mysql",
        "StorageHost=localhost",
        f"StorageUser={site.user}",
        "StorageLoc=slurm",
    ]) + "\n"


def hosts_file(options, site):
    """/etc/hosts of the nodes."""
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost", f"{site.host_address} {site.host_name}"]
    if not options.unresolvable_names:
        lines += [f"{address} {name}" for name, address in zip(options.node_names(), site.node_addresses)]
    return "\n".join(lines) + "\n"


def write_all(options, layout, site):
    layout.conf.write_text(slurm_conf(options, layout, site))
    (layout.folder / "cgroup.conf").write_text(cgroup_conf(options, layout))
    (layout.folder / "gres.conf").write_text(gres_conf(options, layout))
    (layout.folder / "nodes" / "hosts").write_text(hosts_file(options, site))
    for i in range(options.gpus):
        (layout.folder / "dev" / f"fakegpu{i}").symlink_to("/dev/null")
    if options.accounting:
        path = layout.folder / "slurmdbd.conf"
        path.touch(mode=0o600)
        path.write_text(slurmdbd_conf(layout, site))
