"""Programs of two ranks that hang in one of several ways, and what muster must have kept of the attempt that ended so."""

import datetime
import json
import pathlib
import re

SOURCE = pathlib.Path(__file__).resolve().parents[2]
SUSPECTED_WITHIN_S = 15
HUNG_AFTER_S = 14
ENDS_WITHIN_S = 12  # more: looking, stacks, a busy machine

# The ranks add up a number over TCP, as a collective does, and take their samples from a forked process. In attempt 1 they
# hang after step 8 as HANGS says.
PROGRAM = r"""
import multiprocessing as mp, os, socket, struct, sys, time
import muster

hangs = os.environ["HANGS"]
run = muster.init(total_steps=12)
rank = run.rank

def loads(samples):
    for step in range(1, 13):
        if hangs == "loader" and run.attempt == 1 and rank == 1 and step == 9:
            print("the loader is", os.getpid(), flush=True)
            time.sleep(3600)
        samples.send(step)

def meets():
    where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if rank == 0:
        listener = socket.create_server(where)
        return listener.accept()[0]
    while True:
        try:
            return socket.create_connection(where)
        except OSError:
            time.sleep(0.05)

def all_reduce(value):
    other.sendall(struct.pack("!d", value))
    return value + struct.unpack("!d", other.recv(8, socket.MSG_WAITALL))[0]

def broadcast():
    return other.recv(16, socket.MSG_WAITALL)

def next_batch():
    return samples.recv()

def evaluates():
    print("rank", rank, "hangs", flush=True)
    time.sleep(3600)

def trains(step):
    next_batch()
    if run.attempt == 1 and step == 9:
        if hangs == f"rank{rank}":
            evaluates()
        if hangs == "collective" and rank == 1:
            return broadcast()  # rank 0 has called another one, so each waits for the other
    all_reduce(1.0)

# One loader a rank, which is forked from the process that muster could ask for its stack.
samples, theirs = mp.get_context("fork").Pipe(duplex=False)
loader = mp.get_context("fork").Process(target=loads, args=(theirs,), daemon=True)
loader.start()
other = meets()
for step in range(1, 13):
    trains(step)
    run.log(step, loss=1.0 / step)
    time.sleep(0.1)
"""


def job_text(hangs, more="ranks_per_node = 2", pace=""):
    return (f"name = \"hangs\"\ncommand = [\"python3\", \"-B\", \"-c\", '''{PROGRAM}''']\n"
            f"[env]\nPYTHONPATH = \"{SOURCE}/python\"\nHANGS = \"{hangs}\"\n[resources]\n{more}\n"
            f"[liveness]\nhung_after = \"{HUNG_AFTER_S}s\"\n[requeue]\nbackoff_initial = \"100ms\"\n{pace}")


def events_of(musterd, job):
    said = musterd.muster("events", job, "--json").stdout
    return json.loads(said) if said.startswith("[") else [json.loads(line) for line in said.splitlines()]


def seconds_of(text):
    """An RFC 3339 time, since 1970."""
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def last_step_at(musterd, job):
    """When the newest step of attempt 1 was told, since 1970."""
    reports = (musterd.data / "jobs" / job / "attempt-1" / "logs").glob("rank-*.report.jsonl")
    lines = [json.loads(line) for report in reports for line in report.read_text().splitlines()]
    return max(line["at_ms"] for line in lines if "loss" in line) / 1000


def check_hang(test, musterd, job):
    """The job hangs in attempt 1 and succeeds in attempt 2. Returns the stacks that were kept: a view for each time."""
    suspected = musterd.until(job, lambda shown: "suspected" in shown["status"] or shown["state"] == "failed")
    test.assertEqual(suspected["status"], "running, suspected", suspected)
    test.assertRegex(musterd.muster("why", job).stdout, rf"muster stacks {job}\b")
    done = musterd.until(job, lambda shown: shown["state"] in ("succeeded", "failed", "cancelled"))
    test.assertEqual((done["state"], [one["cause"] for one in done["attempts"]]), ("succeeded", ["rank_hung", "completed"]),
                     f"{done['attempts']}\n{musterd.muster('events', job).stdout}")
    stood_at = last_step_at(musterd, job)
    first = {event["type"]: seconds_of(event["at"]) - stood_at for event in reversed(events_of(musterd, job))}
    test.assertLess(first["attempt_suspected"], SUSPECTED_WITHIN_S)
    test.assertGreaterEqual(first["rank_hung"], HUNG_AFTER_S - 1)
    test.assertLess(first["rank_hung"], HUNG_AFTER_S + ENDS_WITHIN_S)
    kept = json.loads(musterd.muster("stacks", job, "--attempt", "1", "--json").stdout)
    test.assertEqual([(one["why"], one["given"], one["ranks"]) for one in kept["sets"]],
                     [("suspected", 2, 2), ("before_end", 2, 2)], kept["sets"])
    views = [json.loads(musterd.muster("stacks", job, "--attempt", "1", "--set", str(one["number"]), "--json").stdout)
             for one in kept["sets"]]
    for view in views:
        test.assertEqual([one["problem"] for one in view["ranks"]], ["", ""])
        for one in view["ranks"]:
            test.assertIn("frames of Python, by its faulthandler", one["text"])
            test.assertIn("state of each thread, by the kernel", one["text"])
    return views


def frames(view, rank):
    """The functions of the rank's main thread, the innermost first."""
    text = view["ranks"][rank]["text"]
    own = text[text.index("by its faulthandler"):].split("\n== ")[0]
    block = own.split("most recent call first")[-1]  # the main thread comes last
    return re.findall(r" in (\S+)$", block, re.MULTILINE)


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False
