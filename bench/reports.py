"""Lines of a report file: how many muster takes a second, and what they cost the trainer, the agent and musterd."""

import json
import os
import pathlib
import statistics
import time

from controller import Controller
from promise import Promise

ROOT = pathlib.Path(__file__).resolve().parent.parent
JOB = """
name = "reports"
command = ["python3", "-B", "program.py"]
working_folder = "{folder}"
[env]
PYTHONPATH = "{package}"
MODE = "{mode}"
LINES = "{lines}"
[resources]
ranks_per_node = 1
"""
# flood: all lines at once. steady: 1,000 a second. calls: the time of each call of the package and of each bare write: one
# after the other, between steps that sleep 1 ms, and between steps that compute for 5 ms and leave the caches to other data.
PROGRAM = """
import json, os, time
import muster
mode, lines = os.environ["MODE"], int(os.environ["LINES"])
fd = os.open(os.environ["MUSTER_REPORT"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
if mode == "flood":
    began = time.time()
    for first in range(1, lines + 1, 500):
        os.write(fd, "".join('{"step":%d,"loss":%.4f}\\n' % (n, 1 / n) for n in range(first, first + 500)).encode())
    said = {"began": began, "written": time.time()}
elif mode == "steady":
    began = time.monotonic()
    for n in range(1, lines + 1):
        os.write(fd, b'{"step":%d,"loss":0.5}\\n' % n)
        time.sleep(max(0.0, began + n / 1000 - time.monotonic()))
    said = {"seconds": time.monotonic() - began}
else:
    run, data, took = muster.init(), bytearray(8 << 20), {}
    def timed(name, call):
        begun = time.perf_counter_ns()
        call()
        took.setdefault(name, []).append(time.perf_counter_ns() - begun)
    for n in range(1, lines + 1):
        where = " apart" if n > lines - 300 else " asleep" if n > lines - 1300 else ""
        if where == " asleep":
            time.sleep(0.001)
        end = time.perf_counter() + (0.005 if where == " apart" else 0)
        while time.perf_counter() < end:
            bytes(data)
        timed("log" + where, lambda: run.log(n, loss=0.5, lr=1e-3))
        timed("write" + where, lambda: os.write(fd, b'{"status":"x"}\\n'))
    said = {name: [sorted(ns)[len(ns) // 2] / 1000, max(ns) / 1000] for name, ns in took.items()}
with open("said.json.new", "w") as file:
    json.dump(said, file)
os.rename("said.json.new", "said.json")
while not os.path.exists("end"):
    time.sleep(0.02)
"""


CALLS = {"log": "`run.log(step, loss=..., lr=...)`, one after the other", "write": "`write`, one after the other",
         "log asleep": "`run.log`, between steps that sleep 1 ms", "write asleep": "`write`, between steps that sleep 1 ms",
         "log apart": "`run.log`, between steps of 5 ms", "write apart": "`write`, between steps of 5 ms"}


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def parent_of(pid):
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def run(controller, mode, lines):
    """What the program said of itself, seconds until musterd had the last line, and CPU seconds of agent and musterd."""
    folder = controller.folder / f"{mode}-{time.monotonic_ns()}"
    folder.mkdir()
    (folder / "program.py").write_text(PROGRAM)
    musterd_before = cpu_seconds(controller.daemon.pid)
    job = controller.submit(JOB.format(folder=folder, package=ROOT / "python", mode=mode, lines=lines))
    view = controller.wait(lambda: (lambda v: v if v["ranks"] and v["ranks"][0]["pid"] > 1 else None)(controller.json("show", job)), 60,
                           "the rank")
    agent = parent_of(view["ranks"][0]["pid"])
    said = json.loads(controller.wait(lambda: (folder / "said.json").exists() and (folder / "said.json").read_text(), 300,
                                      "the program's words"))
    controller.wait(lambda: controller.json("show", job)["step"] == lines, 300, f"step {lines}")
    arrived = time.time()
    cpu = cpu_seconds(agent), cpu_seconds(controller.daemon.pid) - musterd_before
    (folder / "end").touch()
    controller.muster("wait", job, "--timeout", "60s")
    rows = len(controller.json("metrics", job))
    return said, arrived, cpu, rows


def measure(binaries, quick):
    flood, steady = (20_000, 3_000) if quick else (200_000, 20_000)
    rounds = 1 if quick else 3
    floods, steadies, calls = [], [], []
    with Controller(binaries) as controller:
        for _ in range(rounds):
            said, arrived, cpu, rows = run(controller, "flood", flood)
            floods.append((flood / (arrived - said["began"]), cpu[0] / flood * 1e6, cpu[1] / flood * 1e6, rows))
            said, arrived, cpu, rows = run(controller, "steady", steady)
            assert rows == steady, (rows, steady)
            steadies.append((steady / said["seconds"], cpu[0] / steady * 1e6, cpu[1] / steady * 1e6))
            said, _, _, rows = run(controller, "calls", 3_000)
            assert rows == 3_000, rows
            calls.append([number for name in CALLS for number in said[name]])
    middle = [[statistics.median(column) for column in zip(*table)] for table in (floods, steadies, calls)]
    lines = ["# Lines of a report file", "",
             f"One rank on local processes. Each line has a step and a loss. Medians of {rounds} rounds. The CPU time of the agent and",
             "of musterd is that of the whole run, with start and end, and with what `muster show` asks meanwhile.", "",
             "| lines | a second, until musterd has the last one | steps that are stored | CPU of the agent, a line | CPU of musterd, a line |",
             "|---|---|---|---|---|",
             f"| {flood:,} at once | {middle[0][0]:,.0f} | {middle[0][3]:,.0f} | {middle[0][1]:.1f} us | {middle[0][2]:.1f} us |",
             f"| {steady:,}, 1,000 a second | {middle[1][0]:,.0f} | {steady:,} | {middle[1][1]:.1f} us | {middle[1][2]:.1f} us |", "",
             "What the trainer waits for, in its own process. `run.log` is that of the Python package, and `write` is a bare system",
             "call with a short line. Steps that compute leave the caches to their own data, so both calls cost more after them.", "",
             "| | median | most |", "|---|---|---|",
             *(f"| {text} | {median:.1f} us | {most:.0f} us |"
               for text, median, most in zip(CALLS.values(), middle[2][::2], middle[2][1::2])), ""]
    return "\n".join(lines), [Promise("microseconds of a log(), median of calls in a row", middle[2][0], at_most=20),
                              Promise("microseconds of a log() after 1 ms of sleep, median",
                                      middle[2][2 * list(CALLS).index("log asleep")], at_most=20),
                              Promise("lines a second that one rank's flood gets through", middle[0][0], at_least=10_000)]
