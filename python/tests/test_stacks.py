"""What the agent beside a rank finds when it asks a program for its stack. The agent's side is in tests/agent/stacks."""

import signal
import textwrap
import unittest

from test_report import Program

BEGIN = """
    import ctypes, glob, os, signal, sys, threading, time
    os.environ["MUSTER_ATTEMPT_FOLDER"] = "/some/attempt"

    def memories(pid):
        found = []
        for path in glob.glob(f"/proc/{pid}/fd/*"):
            try:
                if (target := os.readlink(path)).startswith("/memfd:muster-stack-"): found.append((path, target))
            except OSError:
                pass
        return found

    def caught(pid):
        line = next(line for line in open(f"/proc/{pid}/status") if line.startswith("SigCgt:"))
        return bool(int(line.split()[1], 16) >> (signal.SIGURG - 1) & 1)

    def ask(pid):
        # As the agent does: the thread that waits for it.
        (thread,) = [int(path.split("/")[4]) for path in glob.glob(f"/proc/{pid}/task/*/comm")
                     if open(path).read() == "muster-stacks\\n"]
        assert ctypes.CDLL(None).syscall(234, pid, thread, signal.SIGURG) == 0  # tgkill

    def masks(pid):
        # Whether the signal is blocked, ignored, caught.
        words = dict(line.split(":", 1) for line in open(f"/proc/{pid}/status"))
        return [int(words[name], 16) >> (signal.SIGURG - 1) & 1 for name in ("SigBlk", "SigIgn", "SigCgt")]

    def text(within=10):
        path, _ = memories("self")[0]
        end = time.monotonic() + within
        size = 0
        while time.monotonic() < end and (size == 0 or os.stat(path).st_size != size):
            size = os.stat(path).st_size
            time.sleep(0.1)
        return open(path).read()
"""


class Stacks(unittest.TestCase):
    def setUp(self):
        self.program = Program(self)

    def run_program(self, text):
        done = self.program.run(textwrap.dedent(BEGIN) + textwrap.dedent(text))
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_a_program_writes_the_frames_of_all_threads_into_memory(self):
        said = self.run_program("""
            def evaluates(): time.sleep(60)
            threading.Thread(target=evaluates, daemon=True).start()
            run = muster.init()
            (path, target), = memories("self")
            assert target == f"/memfd:muster-stack-{os.getpid()} (deleted)", target
            def trains(): ask(os.getpid()); print(text())
            trains()
        """)
        self.assertRegex(said, r"[Tt]hread 0x[0-9a-f]+ \(most recent call first\):\n  File \".*\", line \d+ in evaluates\n")
        main = said.split("most recent call first")[-1]
        self.assertRegex(main, r"^\):\n(  File .*\n)*  File \".*\", line \d+ in trains\n", "the main thread comes last")

    def test_what_comes_after_the_file_was_emptied_begins_at_its_start(self):
        said = self.run_program("""
            muster.init()
            ask(os.getpid())
            assert text()
            os.truncate(memories("self")[0][0], 0)
            ask(os.getpid())
            print(text())
        """)
        self.assertRegex(said, r"^(Current t|T)hread 0x")

    def test_a_lock_of_the_interpreter_that_is_held_holds_nothing_up(self):
        said = self.run_program("""
            muster.init()
            pid = os.getpid()
            if os.fork() == 0:  # the agent, which asks once more
                for _ in range(2):
                    time.sleep(0.5)
                    ask(pid)
                os._exit(0)
            def stands(): ctypes.PyDLL(None).sleep(3)
            began = time.monotonic()
            stands()
            first = open(memories("self")[0][0]).read()
            assert time.monotonic() - began > 2.9, "the call was not interrupted"
            assert " in stands" in first, first
            print(first)
        """)
        self.assertIn(" in stands\n", said)

    def test_no_system_call_of_the_program_is_interrupted(self):
        said = self.run_program("""
            import select, socket
            muster.init()
            here, there = socket.socketpair()
            pid = os.getpid()
            if os.fork() == 0:
                there.send(b"1")
                for _ in range(5):
                    time.sleep(0.1)
                    ask(pid)
                there.send(b"2")
                os._exit(0)
            assert here.recv(2, socket.MSG_WAITALL) == b"12", "a signal cuts such a call short"
            class Timespec(ctypes.Structure): _fields_ = [("s", ctypes.c_long), ("ns", ctypes.c_long)]
            if os.fork() == 0:
                for _ in range(5):
                    time.sleep(0.1)
                    ask(pid)
                os._exit(0)
            assert ctypes.CDLL(None).nanosleep(ctypes.byref(Timespec(1, 0)), None) == 0
            print(bool(text()))
        """)
        self.assertEqual(said, "True\n")

    def test_a_program_that_is_started_has_the_signal_neither_blocked_nor_caught(self):
        said = self.run_program("""
            import subprocess
            before = masks("self")
            run = muster.init()
            assert masks("self") == [0, 0, 1], masks("self")
            threads = [masks(f"self/task/{one}") for one in os.listdir("/proc/self/task")]
            assert all(blocked == 0 for blocked, _, _ in threads), threads
            show = ["grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status"]
            def bits(text): return [int(line.split()[1], 16) >> (signal.SIGURG - 1) & 1 for line in text.splitlines()]
            started = threading.Thread(target=lambda: print(bits(subprocess.check_output(show, text=True)), flush=True))
            started.start()
            started.join()
            print(bits(subprocess.check_output(show, text=True)))
            print(bits(subprocess.check_output(show, text=True, preexec_fn=lambda: None)))
            print(bits(os.popen(" ".join(show).replace("(", "'(").replace(")", ")'")).read()), flush=True)
            os.posix_spawn("/bin/sh", ["sh", "-c", "grep -E '^SigBlk' /proc/self/status"], os.environ)
            os.wait()
            os.execvp(show[0], show)
        """).splitlines()
        self.assertEqual(said[:4], ["[0, 0, 0]"] * 4)
        self.assertEqual(len(said), 8)
        for line in said[4:]:
            self.assertEqual(int(line.split()[1], 16) >> (signal.SIGURG - 1) & 1, 0, line)

    def test_without_its_thread_the_process_answers(self):
        said = self.run_program("""
            def refuse(*_, **__): raise RuntimeError("can't start new thread")
            threading.Thread.start, start = refuse, threading.Thread.start
            from muster import _stack
            assert _stack.offer()
            threading.Thread.start = start
            def trains(): os.kill(os.getpid(), signal.SIGURG); print(text())
            trains()
        """)
        self.assertIn(" in trains\n", said)

    def test_a_forked_child_has_no_handler_and_no_file(self):
        said = self.run_program("""
            muster.init()
            ready, told = os.pipe()
            child = os.fork()
            if child == 0:
                os.write(told, b"x")
                time.sleep(60)
                os._exit(7)
            os.read(ready, 1)
            assert not caught(child) and memories(child) == [], memories(child)
            os.kill(child, signal.SIGURG)
            time.sleep(0.2)
            assert os.waitpid(child, os.WNOHANG) == (0, 0), "the signal has ended it"
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            assert os.stat(memories("self")[0][0]).st_size == 0, "the child has written"
            assert caught("self")
            print("fine")
        """)
        self.assertEqual(said, "fine\n")

    def test_a_child_of_a_library_in_c_has_a_file_of_another_number_so_that_nobody_asks_it(self):
        said = self.run_program("""
            muster.init()
            child = ctypes.PyDLL(None).fork()  # no hook of Python runs
            if child == 0:
                while True: time.sleep(0.01)
            (_, target), = memories(child)
            assert target.split()[0] == f"/memfd:muster-stack-{os.getpid()}", target
            os.kill(child, signal.SIGURG)
            time.sleep(0.2)
            assert os.waitpid(child, os.WNOHANG) == (0, 0), "the signal has ended it"
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            print("fine")
        """)
        self.assertEqual(said, "fine\n")

    def test_a_program_with_a_handler_of_its_own_keeps_it(self):
        said = self.run_program("""
            signal.signal(signal.SIGURG, lambda *_: print("mine"))
            muster.init()
            assert memories("self") == []
            os.kill(os.getpid(), signal.SIGURG)
            time.sleep(0.1)
        """)
        self.assertEqual(said, "mine\n")

    def test_outside_muster_nothing_is_taken(self):
        said = self.run_program("""
            del os.environ["MUSTER_ATTEMPT_FOLDER"]
            muster.init()
            assert memories("self") == [] and not caught("self")
            print("fine")
        """)
        self.assertEqual(said, "fine\n")


if __name__ == "__main__":
    unittest.main()
