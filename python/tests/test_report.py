"""The report file: what stands in it, and what a bad disk, a fork and an exception do to it."""

import fcntl
import json
import math
import os
import re
import select
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from pathlib import Path

PACKAGE = str(Path(__file__).resolve().parent.parent)
sys.path.insert(0, PACKAGE)


class Program:
    """Runs a Python program as a rank would run."""

    def __init__(self, case: unittest.TestCase) -> None:
        self.folder = Path(tempfile.mkdtemp())
        case.addCleanup(lambda: subprocess.run(["rm", "-rf", str(self.folder)], check=False))
        self.report = self.folder / "rank-0.jsonl"
        self.stop = self.folder / "rank-0.stop"
        self.env = {**os.environ, "PYTHONPATH": PACKAGE, "MUSTER_REPORT": str(self.report), "MUSTER_STOP": str(self.stop)}

    def start(self, text: str, **more) -> subprocess.Popen:
        return subprocess.Popen([sys.executable, "-c", "import muster\n" + textwrap.dedent(text)], env=self.env, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)

    def run(self, text: str, code: int = 0) -> subprocess.CompletedProcess:
        process = self.start(text)
        out, err = process.communicate(timeout=60)
        assert process.returncode == code, f"exit {process.returncode}: {out}\n{err}"
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def lines(self) -> list:
        return [json.loads(line) for line in self.report.read_text().splitlines()]

    def without_times(self) -> list:
        return [{key: value for key, value in line.items() if key not in ("at_ms", "step_ms")} for line in self.lines()]


class Lines(unittest.TestCase):
    def setUp(self):
        self.program = Program(self)

    def test_every_kind_of_report_is_a_line(self):
        checkpoint = self.program.folder / "ckpt"
        checkpoint.mkdir()
        (checkpoint / "weights").write_bytes(b"12345")
        self.program.run(f"""
            run = muster.init(total_steps=60, config={{"lr": 3e-4, "nested": {{"a": [1, None]}}, "path": muster.Run}})
            run.describe({{"accuracy": {{"unit": "%", "better": "higher"}}}})
            assert run.resume(lambda: 40) == 40
            run.status("downloading data")
            run.log(41, {{"validation/loss": 2.5}}, loss=2.25)
            with run.section("evaluate"): pass
            run.checkpoint({str(checkpoint)!r}, 41, took_ms=12.5)
        """)
        lines = self.program.without_times()
        self.assertEqual(lines[0], {"total_steps": 60, "config": {
            "lr": 3e-4, "nested": {"a": [1, None]}, "path": "<class 'muster._run.Run'>"}})
        self.assertEqual(lines[1:], [
            {"series": {"accuracy": {"unit": "%", "better": "higher"}}},
            {"resumed": 40},
            {"status": "downloading data"},
            {"step": 41, "validation/loss": 2.5, "loss": 2.25},
            {"section": "evaluate"}, {"section": "step"},
            {"checkpoint": str(checkpoint), "step": 41, "bytes": 5, "took_ms": 12.5},
        ])
        self.assertTrue(all(abs(line["at_ms"] / 1000 - time.time()) < 60 for line in self.program.lines()))

    def test_the_step_time_leaves_out_sections_and_counts_steps_between(self):
        self.program.run("""
            import time
            run = muster.init()
            run.log(0, loss=1)
            time.sleep(0.2)
            with run.section("evaluate"): time.sleep(3)
            run.log(10, loss=1)
        """)
        steps = [line for line in self.program.lines() if "step" in line]
        self.assertNotIn("step_ms", steps[0])
        self.assertGreaterEqual(steps[1]["step_ms"], 19)
        self.assertLess(steps[1]["step_ms"], 300, "the section was counted")

    def test_numbers_that_json_does_not_know_and_numbers_of_libraries(self):
        self.program.run("""
            class Tensor:
                def item(self): return 1.5
            run = muster.init()
            run.log(1, a=float("nan"), b=float("inf"), c=Tensor(), d=True)
        """)
        line = self.program.lines()[0]
        self.assertTrue(math.isnan(line["a"]))
        self.assertEqual((line["b"], line["c"], line["d"]), (math.inf, 1.5, 1))

    def test_wrong_arguments_are_named_inside_and_outside_muster(self):
        text = """
            run = muster.init()
            for call, words in [
                (lambda: run.log(1, loss="high"), "loss"), (lambda: run.log("x"), "'x'"), (lambda: run.log(-1), "-1"),
                (lambda: run.log(1, step_ms=3), "step_ms"), (lambda: run.log(1, {("a", 1): 2.0}), "('a', 1)"),
                (lambda: run.describe({"acc": {"better": "more"}}), "lower, higher, neither"),
                (lambda: run.describe({"acc": {"color": "red"}}), "color"),
            ]:
                try: call()
                except (TypeError, ValueError) as error: assert words in str(error), error
                else: raise SystemExit(words)
        """
        self.program.run(text)
        del self.program.env["MUSTER_REPORT"], self.program.env["MUSTER_STOP"]
        self.program.run(text)

    def test_outside_muster_nothing_happens(self):
        del self.program.env["MUSTER_REPORT"], self.program.env["MUSTER_STOP"]
        done = self.program.run("""
            import signal, threading
            run = muster.init(total_steps=3, config={"a": 1})
            assert not run.is_active and run.resume(None) == 0 and not run.should_stop(1) and run.stop is None
            run.log(1, loss=2.0); run.checkpoint("/nowhere", 1); run.status("x")
            with run.section("evaluate"): pass
            assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL and threading.active_count() == 1
        """)
        self.assertEqual((done.stdout, done.stderr), ("", ""))
        self.assertEqual(list(self.program.folder.iterdir()), [])

    def test_the_keys_that_are_no_series_are_those_that_muster_reads(self):
        header = (Path(PACKAGE).parent / "spec/report_keys.h").read_text()
        table = header[header.index("kReportKeys{"):header.index("};")]
        from muster import _run
        self.assertEqual(set(re.findall(r'"(\w+)"', table)), set(_run.RESERVED))

    def test_a_line_that_is_too_long_is_left_out_with_a_warning(self):
        done = self.program.run("""
            run = muster.init(config={"text": "x" * 70_000})
            run.log(1, loss=1)
        """)
        self.assertEqual([line["step"] for line in self.program.lines()], [1])
        self.assertIn("over the limit of 65536 bytes", done.stderr)


class Shared(unittest.TestCase):
    """Processes of torchrun and the like, where muster has started one."""

    LOGS = "run = muster.init(config={'a': 1})\nfor step in range(1, 4): run.log(step, of=run.rank)"

    def setUp(self):
        self.program = Program(self)

    def as_worker(self, own, of_muster="0", elastic="none"):
        for name, value in (("MUSTER_LOCAL_RANK", of_muster), ("LOCAL_RANK", own), ("RANK", own), ("TORCHELASTIC_RUN_ID", elastic)):
            self.program.env.pop(name, None)
            if value is not None:
                self.program.env[name] = value

    def told(self):
        return [line["of"] for line in self.program.lines() if "of" in line]

    def test_the_first_worker_reports_beside_another(self):
        self.as_worker("1")
        second = self.program.start("""
            import sys, time
            run = muster.init()
            run.log(1, of=1)
            assert not run.is_active
            print("ready", flush=True)
            sys.stdin.readline()
            run.log(2, of=1)
        """, stdin=subprocess.PIPE)
        second.stdout.readline()
        self.as_worker("0")
        self.program.run(self.LOGS)
        _, err = second.communicate("go on\n", timeout=30)
        self.assertEqual((self.told(), second.returncode, err), ([0, 0, 0], 0, ""))

    def test_of_torchrun_in_the_second_process_of_a_node_the_first_worker_reports(self):
        self.as_worker("0", of_muster="1")
        self.program.run("from muster import _report\n_report.TURN_SECONDS = 1e6\n" + self.LOGS)
        self.assertEqual(self.told(), [0, 0, 0])
        self.as_worker("1", of_muster="1")
        self.program.run(self.LOGS)
        self.assertEqual(self.told(), [0, 0, 0])

    def test_a_process_of_muster_itself_reports(self):
        for of_muster, own, elastic in (("1", "1", "muster-7"), ("0", None, None), (None, "1", None), ("1", "1", None)):
            self.program.report.unlink(missing_ok=True)
            self.as_worker(own, of_muster, elastic)
            self.program.run(self.LOGS)
            self.assertEqual(len(self.told()), 3, (of_muster, own, elastic))
        self.assertEqual([path.name for path in self.program.folder.iterdir()], ["rank-0.jsonl"])

    def test_of_a_script_for_sbatch_rank_0_of_all_nodes_reports(self):
        self.program.env["MUSTER_BATCH"] = "1"
        # Those that report tell three steps more each. LOCAL_RANK is 0 on each node.
        for rank, task, wanted in ((None, None, 3), (None, "0", 6), ("0", "1", 9), (None, "1", 9), ("2", "0", 9)):
            self.as_worker("0", of_muster=None)
            for name, value in (("RANK", rank), ("SLURM_PROCID", task)):
                self.program.env.pop(name, None)
                if value is not None:
                    self.program.env[name] = value
            self.program.run(self.LOGS)
            self.assertEqual(len(self.told()), wanted, (rank, task))

    def test_a_child_with_another_local_rank_leaves_the_steps_to_its_sibling(self):
        self.as_worker("0", elastic="muster-7")
        self.program.run(self.LOGS + "\nrun.checkpoint('/ckpt', 3)")
        self.as_worker("1", elastic="muster-7")
        self.program.run(self.LOGS)
        self.assertEqual(self.told(), [0, 0, 0])

    def test_where_the_first_worker_tells_no_step_another_does(self):
        """As with the last stage of a pipeline, which alone has a loss."""
        self.as_worker("0")
        first = self.program.start("""
            import sys
            run = muster.init(total_steps=9)
            run.checkpoint("/ckpt", 0)
            assert run.flush()
            print("ready", flush=True)
            sys.stdin.readline()
            run.log(3, of=0)
            run.status("still here")
        """, stdin=subprocess.PIPE)
        first.stdout.readline()
        self.as_worker("1")
        self.program.run("""
            import time
            from muster import _report
            _report.TURN_SECONDS, _report.LOOK_FOR_TURN_SECONDS = 0.3, 0.05
            run = muster.init()
            run.log(1, of=1)
            end = time.monotonic() + 30
            while not run.is_active and time.monotonic() < end: time.sleep(0.01)
            run.log(2, of=1)
        """)
        _, err = first.communicate("go on\n", timeout=30)
        self.assertIn("the process with LOCAL_RANK 1 tells the steps of this rank", err)
        self.assertEqual(self.told(), [1, 1])
        self.assertEqual({key for line in self.program.without_times() for key in line},
                         {"total_steps", "checkpoint", "step", "of", "status"})

    def test_a_short_training_that_the_second_worker_alone_tells(self):
        self.as_worker("1")
        self.program.run(self.LOGS)
        self.assertEqual(self.told(), [1, 1, 1])
        self.program.run(self.LOGS)  # started again by the launcher
        self.assertEqual(len(self.told()), 6)

    def test_a_worker_that_tells_no_step_writes_nothing(self):
        self.as_worker("1")
        self.program.run("run = muster.init(config={'a': 1}); run.status('x'); run.flush()")
        self.assertFalse(self.program.report.exists())


class Ends(unittest.TestCase):
    def setUp(self):
        self.program = Program(self)

    def test_an_uncaught_exception_is_the_last_line_and_is_printed_as_ever(self):
        done = self.program.run("""
            run = muster.init()
            run.log(1, loss=1)
            def f(): raise ValueError("no such file: data.bin")
            f()
        """, code=1)
        error = self.program.lines()[-1]["error"]
        self.assertEqual((error["type"], error["message"]), ("ValueError", "no such file: data.bin"))
        self.assertIn("in f", error["trace"])
        self.assertIn("ValueError: no such file: data.bin", done.stderr)

    def test_a_long_trace_fits_into_a_line(self):
        self.program.run("""
            run = muster.init()
            raise ValueError("é" * 50_000)
        """, code=1)
        self.assertEqual(self.program.lines()[-1]["error"]["message"], "é" * 2000)

    def test_leave_ends_with_99_after_all_lines_are_written(self):
        self.program.run("""
            run = muster.init()
            for step in range(2000): run.log(step, loss=1.0)
            run.leave()
        """, code=99)
        self.assertEqual([line["step"] for line in self.program.lines()], list(range(2000)))

    def test_a_killed_program_has_written_what_it_logged_a_moment_before(self):
        process = self.program.start("""
            import time
            run = muster.init()
            run.log(7, loss=1.0)
            time.sleep(0.5); print("done", flush=True); time.sleep(60)
        """)
        process.stdout.readline()
        process.kill()
        process.communicate()
        self.assertEqual(self.program.lines()[0]["step"], 7)

    def test_a_forked_child_writes_nothing(self):
        self.program.run("""
            import os
            run = muster.init()
            run.log(1, loss=1)
            child = os.fork()
            run.log(2, loss=2)
            if child == 0: raise SystemExit(0)
            os.waitpid(child, 0)
        """)
        self.assertEqual([line["step"] for line in self.program.lines()], [1, 2])


class Disk(unittest.TestCase):
    def setUp(self):
        self.program = Program(self)

    def test_a_full_disk_never_blocks_and_lines_are_whole_when_it_has_room_again(self):
        # A limit on the file's size is a disk that takes a part of a line and then nothing.
        done = self.program.run("""
            import resource, signal, time
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (500, hard))
            run = muster.init()
            began = time.monotonic()
            for step in range(100): run.log(step, loss=1.0)
            assert time.monotonic() - began < 1
            assert not run.flush(0.3)
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            assert run.flush(10)
        """)
        self.assertIn("File too large; the reports wait", done.stderr)
        self.assertEqual([line["step"] for line in self.program.lines()], list(range(100)))

    def test_a_frozen_disk_never_blocks_the_training_nor_its_end_for_long(self):
        os.mkfifo(self.program.report)  # opening it waits for a reader that never comes
        began = time.monotonic()
        done = self.program.run("""
            import time
            run = muster.init()
            began = time.monotonic()
            for step in range(1000): run.log(step, loss=1.0)
            assert time.monotonic() - began < 1
        """)
        self.assertLess(time.monotonic() - began, 10)
        self.assertIn("the disk takes none", done.stderr)

    def test_what_waits_is_bounded_and_the_newest_stay(self):
        os.mkfifo(self.program.report)
        self.program.run("""
            from muster import _report
            _report.MOST_WAITING_LINES = 200
            _report.MOST_WAITING_BYTES = 10_000
            _report.STANDS_SECONDS = 0.05
            run = muster.init()
            report = run._report
            for step in range(1000): run.log(step, loss=1.0)
            assert 700 < report.lost < 900 and len(report._waiting) <= 200, (report.lost, len(report._waiting))
            assert report._waiting[-1]["step"] == 999
            for number in range(1000): report.write({"status": f"{number:0100}"})
            texts = [line for line in report._waiting if isinstance(line, bytes)]
            assert sum(map(len, texts)) <= 10_000 and report.lost > 1700, report.lost
            assert b'999"' in report._waiting[-1]
        """)

    def test_a_log_on_the_same_full_disk_costs_no_line(self):
        log = self.program.folder / "log"
        log.write_bytes(b"x" * 1000)
        with log.open("a") as file:
            done = subprocess.run([sys.executable, "-c", textwrap.dedent("""
                import resource, signal, time
                import muster
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
                resource.setrlimit(resource.RLIMIT_FSIZE, (500, hard))
                run = muster.init()
                for step in range(100): run.log(step, loss=1.0)
                assert not run.flush(0.5)
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
                run.log(100, loss=1.0)
                assert run.flush(10)
            """)], env=self.program.env, stderr=file, timeout=60)
        self.assertEqual(done.returncode, 0, log.read_text())
        self.assertEqual([line["step"] for line in self.program.lines()], list(range(101)))

    # The limit on the file's size is a disk that is full; a limited queue stands for a long time.
    FULL = """
        import resource, signal, threading, time
        from muster import _report
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        def full(is_full): resource.setrlimit(resource.RLIMIT_FSIZE, (500 if is_full else soft, hard))
        _report.MOST_WAITING_LINES = 200
        run = muster.init()
        full(True)
    """

    def test_lines_that_are_lost_while_the_disk_stands_are_counted_and_told(self):
        done = self.program.run(textwrap.dedent(self.FULL) + textwrap.dedent("""
            _report.STANDS_SECONDS = 0.2
            for step in range(2000): run.log(step, loss=1.0)
            lost = run._report.lost
            assert lost > 1000, lost
            full(False)
            assert run.flush(10)
            for step in range(2000, 9000): run.log(step, loss=1.0)
            assert run._report.lost == lost, "lost on a disk that takes lines"
            print(lost)
        """))
        lost = int(done.stdout)
        self.assertIn(f"muster: {lost} lines of reports are lost: the disk took none for a while", done.stderr)
        steps = [line["step"] for line in self.program.lines()]
        self.assertEqual((len(steps), steps[-1]), (9000 - lost, 8999))

    def test_lost_lines_are_told_at_the_end_if_the_disk_stands_until_then(self):
        done = self.program.run(textwrap.dedent(self.FULL) + textwrap.dedent("""
            _report.STANDS_SECONDS = 0.2
            _report.PATIENCE_AT_EXIT_SECONDS = 0.2
            for step in range(2000): run.log(step, loss=1.0)
            print(run._report.lost, len(run._report._waiting) + 1)
        """))
        lost, waiting = done.stdout.split()
        self.assertIn(f"muster: {lost} lines of reports are lost", done.stderr)
        self.assertIn(f"muster: {waiting} lines are not in", done.stderr)

    def test_a_disk_that_is_full_for_a_moment_costs_no_line(self):
        self.program.run(textwrap.dedent(self.FULL) + textwrap.dedent("""
            threading.Timer(0.6, full, (False,)).start()
            for step in range(2000): run.log(step, loss=1.0)
            assert run._report.lost == 0, run._report.lost
        """))
        self.assertEqual([line["step"] for line in self.program.lines()], list(range(2000)))

    def test_the_end_waits_as_long_as_a_slow_disk_takes_lines(self):
        os.mkfifo(self.program.report)
        reader = os.open(self.program.report, os.O_RDONLY | os.O_NONBLOCK)
        fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
        os.set_blocking(reader, True)
        process = self.program.start("""
            from muster import _report
            _report.PATIENCE_AT_EXIT_SECONDS = 0.5
            run = muster.init()
            for step in range(40): run.status(f"{step:0490}")
        """)
        texts = []
        with open(reader, "rb", buffering=0) as file:
            select.select([file], [], [], 30)
            while piece := file.read(512):
                texts.append(piece)
                time.sleep(0.05)
        process.communicate(timeout=30)
        self.assertEqual([int(json.loads(line)["status"]) for line in b"".join(texts).splitlines()], list(range(40)))

    def test_the_thread_outlives_a_line_that_is_no_json_and_closed_files(self):
        done = self.program.run("""
            import os
            run = muster.init()
            run.log(1, loss=1.0)
            assert run.flush()
            run._report.write({"loss": object()}, may_wait=True)
            os.close(run._report._fd)
            run.log(2, loss=1.0)
        """)
        self.assertIn("is no JSON and was left out", done.stderr)
        self.assertEqual([line["step"] for line in self.program.lines()], [1, 2])

    def test_a_burst_slows_the_program_and_costs_no_line(self):
        self.program.run("""
            from muster import _report
            _report.MOST_WAITING_LINES = 200
            run = muster.init()
            for step in range(1, 20_001): run.log(step, loss=1.0)
            assert run._report.lost == 0, run._report.lost
        """)
        self.assertEqual([line["step"] for line in self.program.lines() if "step" in line], list(range(1, 20_001)))


if __name__ == "__main__":
    unittest.main()
