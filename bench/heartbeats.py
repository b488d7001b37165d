"""What a heartbeat costs musterd, how many ranks two cores carry, and whether an overload calls living ranks silent."""

import contextlib
import json
import pathlib
import statistics
import subprocess
import tempfile

from promise import Promise

# CPU of a heartbeat on a stream, for each microsecond that gRPC alone takes beside it: reading a message of its size from a stream of
# its own. Microseconds alone differ by a third from day to day on machines of one kind.
MOST_TIMES_BARE = 1.0


class Server:
    """musterd's store, controller and gRPC server in a process of its own, with a world that has no processes; or bare_stream."""

    def __init__(self, binaries, program, world, jobs, interval_ms):
        self.folder = tempfile.TemporaryDirectory(prefix="muster-beats-")
        self.process = subprocess.Popen([binaries / program, self.folder.name, str(world), str(jobs), str(interval_ms)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        stderr=open(pathlib.Path(self.folder.name) / "log", "w"))
        self.world = json.loads(self.process.stdout.readline())

    def stats(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        with contextlib.suppress(OSError):
            self.folder.cleanup()


def load(binaries, how, world, jobs, interval_ms, seconds, rows=False, calm=True, program="heartbeat_server"):
    """Plays all ranks of `jobs` jobs; what the client saw, and what it cost the server."""
    with Server(binaries, program, world, jobs, interval_ms) as server:
        client = subprocess.Popen([binaries / "heartbeat_load", str(server.world["port"]), how, str(world), str(jobs), str(interval_ms),
                                   str(seconds), str(int(rows)), str(int(calm))], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for job in sorted(server.world["tokens"], key=int):
            client.stdin.write(server.world["tokens"][job] + "\n")
        client.stdin.close()
        if client.stdout.readline().strip() != "warm":
            client.wait()
            raise RuntimeError("the client could not begin")
        before = server.stats()
        seen = json.loads(client.stdout.readline())
        after = server.stats()
        client.wait(30)
    cpu = after["cpu_s"] - before["cpu_s"]
    beats = max(1, seen["sent"] - seen["refused"])
    return seen | {"ranks": world * jobs, "cpu_percent": 100 * cpu / seen["seconds"], "us": 1e6 * cpu / beats,
                   "silent": after["silent"], "lag_ms": after["lag_ms"], "floor_ms": after["floor_ms"], "running": after["running"],
                   "beats_per_s": seen["sent"] / seen["seconds"]}


def row(name, result):
    return (f"| {name} | {result['ranks']} | {result['beats_per_s']:.0f} | {result['cpu_percent']:.0f} | {result['us']:.0f} "
            f"| {result['p50_ms']:.1f} | {result['p99_ms']:.1f} | {result['refused'] + result['lost']} | {result['silent']} |")


def measure(binaries, quick):
    seconds = 5 if quick else 15
    worlds = [(16, 64), (1024, 1)] if quick else [(16, 256), (1024, 4), (4096, 1)]
    lines, silent, times_bare, least_us = [], 0, [], float("inf")
    for world, jobs in worlds:
        bare = load(binaries, "stream", world, jobs, 1000, seconds, program="bare_stream")
        lines.append(row(f"{world} x {jobs}, gRPC alone, a stream", bare))
        for how, rows in (("stream", False), ("stream", True), ("call", False)):
            result = load(binaries, how, world, jobs, 1000, seconds, rows)
            lines.append(row(f"{world} x {jobs}, {'a stream' if how == 'stream' else 'calls'}{', a row each' if rows else ''}", result))
            if how == "stream":
                silent += result["silent"]
            if how == "stream" and not rows:
                times_bare.append(result["us"] / bare["us"])
    world, jobs = (1024, 1) if quick else (1024, 4)
    for how, name in (("task_stream", "tasks, a stream"), ("task_call", "tasks, calls")):
        lines.append(row(f"{world} x {jobs}, {name}", load(binaries, how, world, jobs, 1000, seconds)))
    # More ranks than descriptors: each sends more often instead.
    carried = 0
    for world, jobs, interval_ms in [(1024, 2, 500)] if quick else [(4096, 4, 1000), (4096, 4, 500), (4096, 4, 250)]:
        result = load(binaries, "stream", world, jobs, interval_ms, seconds)
        lines.append(row(f"{world} x {jobs}, streams, every {interval_ms} ms", result))
        silent += result["silent"]
        least_us = min(least_us, result["us"])
        if result["floor_ms"] == 0 and result["p99_ms"] < 1000:
            carried = max(carried, round(result["beats_per_s"]))
    # One core takes some 1e6 / us heartbeats a second. These ranks want twice as many.
    world, jobs = (1024, 2) if quick else (4096, 3)
    interval_ms = max(50, round(world * jobs * least_us / 2 / 1000))
    result = load(binaries, "stream", world, jobs, interval_ms, 20 if quick else 60, calm=False)
    silent += result["silent"]
    lines.append(row(f"{world} x {jobs}, streams, every {interval_ms} ms: twice what one core takes", result))
    text = "\n".join([
        "# Heartbeats", "",
        "musterd's store, controller and gRPC server, with attempts that have no processes, so silence is judged by heartbeats alone.",
        "One client on the same cores plays all ranks, a TCP connection each, one heartbeat a second unless said. CPU is utime + stime of",
        "the server, with all that its commits of metrics cost. Answers: of one heartbeat in sixteen on streams, of each call.",
        "gRPC alone: a server with gRPC's defaults that reads the same messages and does nothing with them.", "",
        "| world x jobs | ranks | heartbeats/s | CPU % | us each | answer p50 ms | p99 ms | refused or lost | called silent |",
        "|---|---|---|---|---|---|---|---|---|", *lines, "",
        f"Without a longer interval {carried} heartbeats a second were carried, with the client on the same two cores: as many ranks at one",
        "a second. In the last row ranks send as often as they are told: the interval at its end was "
        f"{result['interval_ms']:.0f} ms, with heartbeats", f"read {result['lag_ms']} ms after they arrive.", ""])
    return text, [Promise("CPU of a heartbeat on a stream, times that of gRPC alone", statistics.median(times_bare), at_most=MOST_TIMES_BARE),
                  Promise("living ranks called silent", silent, at_most=0)]
