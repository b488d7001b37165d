"""The side of the commands: they ask the guard, or clean up after a guard that is gone."""

import fcntl
import json
import os
import pathlib
import re
import signal
import socket
import time

import processes

ANSWER_LIMIT_S = 45
STOP_LIMIT_S = 10
STEPD = re.compile(r"slurmstepd: \[(\d+)(?:_\d+)?\.")


class CommandFailed(Exception):
    """A command failed. The text is one sentence with the remedy."""


def runs(layout):
    """Whether a keeper holds the folder's lock."""
    try:
        lock = os.open(layout.lock, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except OSError:
        return True
    finally:
        os.close(lock)


def record(layout):
    """The cluster.json of the running cluster, or of the last one; None if there never was a cluster."""
    try:
        return json.loads(layout.record.read_text())
    except (OSError, ValueError):
        return None


def ask(layout, command, node=None):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ANSWER_LIMIT_S)
        try:
            connection.connect(str(layout.guard_socket))
            connection.sendall(json.dumps({"command": command, "node": node}).encode() + b"\n")
            with connection.makefile("rb") as stream:
                answer = json.loads(stream.readline())
        except (OSError, ValueError) as e:
            if not runs(layout):
                raise CommandFailed(f"no cluster runs in {layout.folder}: start one with ./dev cluster start") from None
            raise CommandFailed(f"the cluster in {layout.folder} does not answer ({e}): end it with ./dev cluster stop") from None
    if "error" in answer:
        raise CommandFailed(answer["error"])
    return answer


def stop(layout):
    """Ends all processes of the cluster, even when its guard hangs. Returns whether there was something to end."""
    known = record(layout) or {}
    if not runs(layout):
        return end_recorded(known)
    try:
        ask(layout, "stop")
    except CommandFailed:
        end_recorded(known)
    deadline = time.monotonic() + STOP_LIMIT_S
    while runs(layout) or any(lives(known.get(role)) for role in ("guard", "keeper")):
        if time.monotonic() > deadline:
            raise CommandFailed(f"processes of {layout.folder} are still there after {STOP_LIMIT_S} s: see {layout.log}")
        time.sleep(0.02)
    return True


def lives(who):
    """Whether the recorded process still runs, and its pid was not reused."""
    return who is not None and processes.start_ticks(who["pid"]) == who["start_ticks"]


def end_recorded(known):
    """Kills keeper and guard by pid, if these pids were not reused."""
    ended = False
    for role in ("guard", "keeper"):
        who = known.get(role)
        if not who:
            continue
        try:
            handle = os.pidfd_open(who["pid"])
        except OSError:
            continue
        try:
            # The check comes after the handle was opened, so the pid cannot become another process's in between.
            if lives(who):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                ended = True
        except ProcessLookupError:
            pass
        finally:
            os.close(handle)
    return ended


def stepds(layout, node, job):
    """The pids, in this namespace, of the slurmstepds of a job on a node. A slurmstepd keeps its node's log file open. The
    log file tells it apart from those of other nodes and clusters."""
    log = str(layout.log / f"slurmd-{node}.log")
    return sorted(pid for pid in processes.all_pids() if is_stepd(pid, job) and log in open_files(pid))


def is_stepd(pid, job):
    try:
        title = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return False
    found = STEPD.match(title)
    return found is not None and int(found[1]) == job


def open_files(pid):
    folder = pathlib.Path(f"/proc/{pid}/fd")
    try:
        return {os.readlink(entry) for entry in folder.iterdir()}
    except OSError:
        return set()


def kill_stepd(layout, node, job):
    """Sends SIGKILL to the slurmstepds of all steps of the job on that node. The tasks live on."""
    pids = stepds(layout, node, job)
    if not pids:
        raise CommandFailed(f"job {job} has no slurmstepd on {node}")
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return pids
