"""What the package installs in a process acts in that process alone: real children, forked and spawned."""

import os
import signal
import subprocess
import sys
import textwrap
import time
import unittest

from test_report import Program

# A rank that has asked for stops, as in each step of a training loop.
BEGIN = """
    import multiprocessing as mp, os, signal, sys, time
    run = muster.init()
    run.log(1, loss=1.0)
    assert not run.should_stop(1)
    assert signal.getsignal(signal.SIGTERM) != signal.SIG_DFL
"""


class Signals(unittest.TestCase):
    def setUp(self):
        self.program = Program(self)

    def run_program(self, text):
        return self.program.run(textwrap.dedent(BEGIN) + textwrap.dedent(text)).stdout.split()

    def test_terminate_ends_a_child(self):
        for method in ("fork", "spawn", "forkserver"):
            with self.subTest(method):
                said = self.run_program(f"""
                    child = mp.get_context("{method}").Process(target=time.sleep, args=(60,))
                    child.start()
                    child.terminate()
                    child.join(30)
                    print(child.exitcode)
                """)
                self.assertEqual(said, [str(-signal.SIGTERM)])

    def test_a_pool_ends(self):
        for method in ("fork", "spawn", "forkserver"):
            with self.subTest(method):
                began = time.monotonic()
                said = self.run_program(f"""
                    with mp.get_context("{method}").Pool(2) as pool:
                        print(sum(pool.map(abs, [-1, -2])))
                """)
                self.assertEqual(said, ["3"])
                self.assertLess(time.monotonic() - began, 30)

    def test_a_worker_outlives_a_stop_that_its_parent_has_not_sent(self):
        for method in ("fork", "spawn", "forkserver"):
            with self.subTest(method):
                script = self.program.folder / "workers.py"
                script.write_text(textwrap.dedent(f"""
                    import multiprocessing as mp, os, subprocess, sys, time
                    import muster

                    def work(ready):
                        muster.worker_init(0)
                        ready.set()
                        time.sleep(60)

                    if __name__ == "__main__":
                        context = mp.get_context("{method}")
                        ready = context.Event()
                        worker = context.Process(target=work, args=(ready,))
                        worker.start()
                        ready.wait(30)
                        subprocess.run(["kill", "-TERM", str(worker.pid)])  # as Slurm does
                        time.sleep(0.3)
                        outlived = worker.is_alive()
                        worker.terminate()
                        worker.join(30)
                        with context.Pool(2, initializer=muster.worker_init) as pool:
                            total = sum(pool.map(abs, [-1, -2]))
                        print(outlived, worker.exitcode, total)
                """))
                done = subprocess.run([sys.executable, script], env=self.program.env, capture_output=True, text=True, timeout=60)
                self.assertEqual(done.stdout.split(), ["True", str(-signal.SIGTERM), "3"], done.stderr)

    def test_a_signal_at_the_childs_first_moment_ends_it(self):
        said = self.run_program("""
            ballast = [bytes(1000) for _ in range(100_000)]  # a larger process forks more slowly
            codes = set()
            for _ in range(100):
                child = os.fork()
                if child == 0:
                    time.sleep(60)
                    os._exit(1)
                os.kill(child, signal.SIGTERM)
                end = time.monotonic() + 20
                while time.monotonic() < end and (found := os.waitpid(child, os.WNOHANG))[0] == 0:
                    time.sleep(0.001)
                if found[0] == 0:
                    os.kill(child, signal.SIGKILL)
                    found = os.waitpid(child, 0)
                codes.add(os.waitstatus_to_exitcode(found[1]))
            print(*codes)
        """)
        self.assertEqual(said, [str(-signal.SIGTERM)])

    def test_a_child_of_a_library_in_c_is_ended_too(self):
        said = self.run_program("""
            import ctypes
            child = ctypes.PyDLL(None).fork()  # no hook of Python runs
            if child == 0:
                while True: time.sleep(0.01)
            time.sleep(0.3)
            os.kill(child, signal.SIGTERM)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            print(signal.getsignal(signal.SIGTERM) != signal.SIG_DFL)
        """)
        self.assertEqual(said, [str(-signal.SIGTERM), "True"])

    def test_a_stop_reaches_the_rank_and_its_children_end(self):
        process = self.program.start(textwrap.dedent(BEGIN) + textwrap.dedent("""
            child = mp.get_context("fork").Process(target=time.sleep, args=(60,))
            child.start()
            print("ready", flush=True)
            step = 2
            while not run.should_stop(step):
                step += 1
                time.sleep(0.01)
            child.join(30)
            print(run.stop.why, child.exitcode, flush=True)
            run.leave()
        """), start_new_session=True)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        process.stdout.readline()
        self.program.stop.write_text('{"why": "preempted", "save": true}')
        os.killpg(process.pid, signal.SIGTERM)
        out, err = process.communicate(timeout=30)
        self.assertEqual((process.returncode, out.split()), (99, ["preempted", str(-signal.SIGTERM)]), err)

    def test_a_child_has_the_handler_that_stood_before(self):
        said = self.program.run("""
            import os, signal
            mine = lambda *_: os._exit(7)
            signal.signal(signal.SIGTERM, mine)
            run = muster.init()
            run._watch.take_sigterm(from_others=True)  # as the callback for Lightning does
            child = os.fork()
            if child == 0:
                os.kill(os.getpid(), signal.SIGTERM)
                os._exit(1)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), signal.getsignal(signal.SIGTERM) is mine)
        """).stdout.split()
        self.assertEqual(said, ["7", "False"])

    def test_a_handler_that_the_program_installs_later_stays_in_a_child(self):
        said = self.run_program("""
            signal.signal(signal.SIGTERM, lambda *_: os._exit(8))
            child = os.fork()
            if child == 0:
                os.kill(os.getpid(), signal.SIGTERM)
                os._exit(1)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """)
        self.assertEqual(said, ["8"])

    def test_a_child_asks_for_no_signal_by_the_parents_run(self):
        said = self.program.run("""
            import os, signal
            run = muster.init()
            child = os.fork()
            if child == 0:
                run.should_stop(1)
                os._exit(signal.getsignal(signal.SIGTERM) != signal.SIG_DFL)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """).stdout.split()
        self.assertEqual(said, ["0"])

    def test_an_exception_of_a_handler_is_not_lost_in_a_fork(self):
        """submitit's handler ends the program by SystemExit. The signal comes while the parent is in fork()."""
        done = subprocess.Popen([sys.executable, "-c", textwrap.dedent("""
            import os, signal, sys, time
            # Hooks of the parent run in the order of their registration: this one before those of the package.
            os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGUSR1))
            from muster import _own
            _own.take(signal.SIGUSR1, lambda *_: sys.exit(5))
            if os.fork() == 0: os._exit(0)
            time.sleep(20)
        """)], env=self.program.env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(lambda: done.poll() is None and done.kill())
        out, err = done.communicate(timeout=30)
        self.assertEqual((done.returncode, err), (5, ""))


class Reports(unittest.TestCase):
    def setUp(self):
        self.program = Program(self)

    def steps(self):
        return [line["step"] for line in self.program.lines() if "step" in line]

    def test_nothing_of_a_forked_child_is_told(self):
        self.program.run("""
            import os
            run = muster.init()
            run.log(1, loss=1)
            child = os.fork()
            if child == 0:
                assert not run.is_active
                run.log(2, loss=2); run.status("in a child"); muster.init(config={"of": "a child"}).checkpoint("/x", 3)
                raise ValueError("of a child")
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
            run.log(3, loss=3)
        """)
        self.assertEqual(self.program.without_times(), [{"step": 1, "loss": 1}, {"step": 3, "loss": 3}])

    def test_a_spawned_child_that_imports_the_program_tells_nothing(self):
        for method in ("spawn", "forkserver"):
            with self.subTest(method):
                self.program.report.unlink(missing_ok=True)
                script = self.program.folder / "train.py"
                script.write_text(textwrap.dedent(f"""
                    import multiprocessing as mp
                    import muster
                    run = muster.init(total_steps=9)  # nobody guards this line
                    run.log(1, loss=1.0)

                    def work(number):
                        run.log(100 + number, loss=2.0)
                        return number

                    if __name__ == "__main__":
                        with mp.get_context("{method}").Pool(2) as pool:
                            assert pool.map(work, [1, 2]) == [1, 2]
                        run.log(2, loss=1.0)
                """))
                done = subprocess.run([sys.executable, script], env=self.program.env, capture_output=True, text=True, timeout=60)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(self.program.without_times(), [
                    {"total_steps": 9}, {"step": 1, "loss": 1.0}, {"step": 2, "loss": 1.0}])

    def test_a_spawned_child_that_asks_for_a_run_of_its_own_gets_one(self):
        script = self.program.folder / "train.py"
        script.write_text(textwrap.dedent("""
            import multiprocessing as mp

            def train():
                import muster
                muster.init().log(7, loss=1.0)

            if __name__ == "__main__":
                child = mp.get_context("spawn").Process(target=train)
                child.start()
                child.join()
        """))
        subprocess.run([sys.executable, script], env=self.program.env, check=True, timeout=60)
        self.assertEqual(self.steps(), [7])


if __name__ == "__main__":
    unittest.main()
