"""On Slurm: how fast thousands of waiting jobs are handed over, what they cost, and how long another user waits beside them."""

import http.client
import json
import pathlib
import tempfile
import time

from promise import Promise
from slurm_cluster import Cluster, SlurmController
from slurm_submit import COMMAND, seconds, wrap_squeue


def submit_as(controller, user, jobs, **more):
    """A sweep by the HTTP API, where a submission says whose it is."""
    host, port = controller.http.rsplit(":", 1)
    token = pathlib.Path(controller.environment["MUSTER_TOKEN_FILE"]).read_text().strip()
    body = {"job": {"name": "bench", "command": ["/bin/true"], "env": {"STEP": "0"}}, "folder": "/tmp", "user": user,
            "sweep": {"env.STEP": f"0..{jobs - 1}"}} | more
    connection = http.client.HTTPConnection(host.removeprefix("http://"), int(port), timeout=120)
    connection.request("POST", "/api/v1/sweeps", json.dumps(body), {"Authorization": f"Bearer {token}", "X-Muster": "1"})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    if answer.status != 201:
        raise RuntimeError(text)
    return json.loads(text)


def waiting(controller, sweep):
    """How many jobs of the sweep are not in Slurm's queue yet."""
    return len(controller.json("list", "--sweep", sweep, "--state", "pending", "--limit", "10000"))


def hand_over_arrays(controller, count):
    """(seconds from the submission until the last element is in Slurm's queue, files that they cost)"""
    file = controller.folder / "many.toml"
    file.write_text(COMMAND)
    begun = time.time()
    sweep = controller.muster("submit", str(file), "--sweep", f"env.STEP=0..{count - 1}").strip()
    # Asking often would cost what is measured.
    controller.wait(lambda: time.sleep(0.5) or waiting(controller, sweep) == 0, 600, "the queue")
    jobs = [job["id"] for job in controller.json("list", "--sweep", sweep, "--limit", str(count))]
    last = max(seconds(controller.json("show", str(job))["attempts"][0]["queued_at"]) for job in (*jobs[:3], *jobs[-3:], *jobs[::500]))
    data = controller.folder / "data"
    files = sum(path.is_file() for folder in ("jobs", "slurm") for path in (data / folder).rglob("*"))
    return last - begun, files


def beside(controller, count, calls):
    """(seconds until another user's job is in the queue beside so many handed over one by one, how many of these still waited,
    squeue calls a second meanwhile)"""
    crowd = submit_as(controller, "ada", count, parallel=count)["sweep"]
    controller.wait(lambda: waiting(controller, crowd) < count, 120, "the first of the crowd")
    before, begun = len(calls.read_text().splitlines()), time.time()
    job = submit_as(controller, "bob", 1)["job_ids"][0]
    submitted = seconds(controller.json("show", str(job))["submitted_at"])
    queued = controller.wait(lambda: (controller.json("show", str(job))["attempts"] or [{}])[0].get("queued_at"), 600, "bob's job")
    left = waiting(controller, crowd)
    time.sleep(10)
    polls = (len(calls.read_text().splitlines()) - before) / (time.time() - begun)
    controller.muster("cancel", "--sweep", crowd)
    return seconds(queued) - submitted, left, polls


def polls_at_rest(calls, over_s):
    before = len(calls.read_text().splitlines())
    time.sleep(over_s)
    return (len(calls.read_text().splitlines()) - before) / over_s


def measure(binaries, quick):
    elements, crowd, over_s = (500, 300, 15) if quick else (5000, 5000, 60)
    with tempfile.TemporaryDirectory() as folder:
        calls = wrap_squeue(pathlib.Path(folder))
        with Cluster("--conf", "MaxJobCount=30000") as cluster:
            # Jobs stay in the queue.
            cluster.run("scontrol", "update", "PartitionName=main", "State=DOWN")
            with SlurmController(binaries, cluster, folder) as controller:
                took, files = hand_over_arrays(controller, elements)
                time.sleep(10)
                at_rest = polls_at_rest(calls, over_s)
                cluster.run("scancel", "-u", "root")
            with SlurmController(binaries, cluster, folder) as controller:
                waited, left, polls = beside(controller, crowd, calls)
                cluster.run("scancel", "-u", "root")
    return "\n".join([
        "# On Slurm: thousands of waiting jobs", "", "| what | measured |", "|---|---|",
        f"| a sweep of {elements} jobs, from `muster submit` until the last is in Slurm's queue | {took:.1f} s |",
        f"| files that these waiting jobs cost | {files} |",
        f"| squeue calls while they wait, over {over_s} s | {at_rest:.2f} a second |",
        f"| a job of one user beside {crowd} of another that are handed over one by one, from its submission until it is in the queue | "
        f"{waited:.1f} s |",
        f"| jobs of the other user that waited still | {left} |",
        f"| squeue calls meanwhile | {polls:.2f} a second |"]) + "\n", [
            Promise(f"{elements} elements handed over, s", took, at_most=5),
            Promise("files of waiting elements, each thousand", files / max(1, elements / 1000), at_most=8 if quick else 4),
            Promise("squeue calls a second at rest", at_rest, at_most=0.2 + 1 / over_s),
            Promise("squeue calls a second while jobs are handed over", polls, at_most=1 + 4 / 10),
            Promise("wait of one user beside another's crowd, s", waited, at_most=2)]
