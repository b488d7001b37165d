"""The outer of the two processes that own a cluster. It watches the caller and ends the guard.

    keeper   started by the caller, in the caller's namespaces
      guard  parent of every daemon. With root it is the first process of a PID namespace. When it dies, the kernel ends
             everything in the namespace.

Without root there is no such namespace. Keeper and guard then adopt orphans and kill their descendants. Only a SIGKILL of
both at once leaves processes behind.
"""

import fcntl
import json
import os
import select
import shutil
import signal
import traceback

import daemons
import memory
import processes
from guard import Guard


class Keeper:
    def __init__(self, options, layout, die_with_parent, remove_folder):
        self.options, self.layout = options, layout
        self.die_with_parent, self.remove_folder = die_with_parent, remove_folder

    def run(self):
        """Starts the cluster, prints one line of JSON, and returns the exit status when the cluster has ended."""
        try:
            lock = self.claim_folder()
            groups = memory.MemoryGroups(self.layout.control_groups) if self.options.memory_limits else None
        except (daemons.ClusterFailed, memory.NoMemoryGroups) as e:
            print(json.dumps({"error": str(e)}), flush=True)
            return 1
        # Keeper and guard must not keep the caller's stderr open, because the caller may wait for the end of that stream.
        self.redirect(2, self.layout.log / "guard.out")
        namespaces = processes.can_make_namespaces()
        if not namespaces:
            processes.adopt_orphans()
        wake = self.watch_signals()
        report, child = self.fork_guard(namespaces)
        status = self.watch(child, report, wake)
        if not namespaces:
            processes.kill_descendants()
        if groups:
            groups.remove()
        if self.remove_folder:
            shutil.rmtree(self.layout.folder, ignore_errors=True)
        os.close(lock)
        return status

    def claim_folder(self):
        """Locks the folder and removes the files of an earlier cluster."""
        folder = self.layout.folder
        if folder.exists() and any(folder.iterdir()) and not self.layout.lock.exists():
            raise daemons.ClusterFailed(f"{folder} holds other things than a cluster: choose a new folder with --folder")
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.layout.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise daemons.ClusterFailed(f"a cluster runs in {folder} already: stop it first, or choose another --folder") from None
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path != self.layout.lock:
                path.unlink()
        self.layout.make()
        return lock

    @staticmethod
    def redirect(fd, path):
        with open(path, "ab") as file:
            os.dup2(file.fileno(), fd)

    @staticmethod
    def watch_signals():
        """A pipe that becomes readable with each signal."""
        read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        return read

    def fork_guard(self, namespaces):
        read, write = os.pipe2(os.O_CLOEXEC)
        keeper = os.getpid()
        if namespaces:
            processes.unshare(processes.CLONE_NEWPID)
        child = os.fork()
        if child:
            os.close(write)
            return read, child
        status = 1
        try:
            os.close(read)
            os.setsid()
            signal.set_wakeup_fd(-1)
            # With namespaces the kernel ends the whole cluster when this process dies. Without them the guard does so
            # when it gets SIGTERM.
            processes.die_with_parent(signal.SIGKILL if namespaces else signal.SIGTERM)
            if not namespaces and os.getppid() != keeper:
                os._exit(1)
            status = Guard(self.options, self.layout, namespaces, write).run()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

    def watch(self, child, report, wake):
        """Passes the guard's report on. Returns when the guard ends, at a signal, or when the caller ends."""
        poll = select.poll()
        poll.register(wake, select.POLLIN)
        poll.register(report, select.POLLIN)
        if self.die_with_parent:
            poll.register(0, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == report:
                    self.pass_on(report, child)
                    poll.unregister(report)
                    os.close(report)
                elif fd == 0 and os.read(0, 4096) == b"":
                    return self.end(child)
                elif fd == wake and self.asked_to_end(os.read(wake, 4096)):
                    return self.end(child)
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)

    @staticmethod
    def asked_to_end(numbers):
        return any(number != signal.SIGCHLD for number in numbers)

    @staticmethod
    def end(child):
        """Kills the guard. SIGKILL is enough, because the next start empties the folder."""
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return 0

    def pass_on(self, report, child):
        text = b""
        while part := os.read(report, 65536):
            text += part
        described = json.loads(text) if text else {"error": f"the guard ended without a word: see {self.layout.log}/guard.out"}
        if "error" not in described:
            described["keeper"] = {"pid": os.getpid(), "start_ticks": processes.start_ticks(os.getpid())}
            described["guard"] = {"pid": child, "start_ticks": processes.start_ticks(child)}
            part = self.layout.record.with_suffix(".part")
            part.write_text(json.dumps(described, indent=1) + "\n")
            part.rename(self.layout.record)
        try:
            print(json.dumps(described), flush=True)
        except BrokenPipeError:
            pass  # the caller has gone; with --die-with-parent its closed pipe ends the loop
        self.redirect(1, "/dev/null")
