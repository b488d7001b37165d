"""One process of a test: started in a group of its own, watched, ended as a whole at its limit."""

import dataclasses
import os
import select
import signal
import subprocess
import tempfile
import time

LOOKS_EVERY_S = 0.25  # at what a program of several cases has printed, for the limit of a case
GRACE_S = 10  # for a guard to clean up after a test that is ended


@dataclasses.dataclass
class Ended:
    status: int  # an exit code, or minus the signal that ended the process
    timed_out: bool
    seconds: float
    cpu_seconds: float  # of the process and of all below it that were waited for
    output: bytes


class Process:
    def __init__(self, command, folder, environment):
        self._output = tempfile.TemporaryFile()
        self._began = time.monotonic()
        self._process = subprocess.Popen(command, cwd=folder, env={**os.environ, **dict(environment)}, stdin=subprocess.DEVNULL,
                                         stdout=self._output, stderr=subprocess.STDOUT, start_new_session=True)
        self._watch = os.pidfd_open(self._process.pid)

    def printed(self):
        return os.pread(self._output.fileno(), os.fstat(self._output.fileno()).st_size, 0)

    def _has_ended(self, within_s):
        poll = select.poll()
        poll.register(self._watch, select.POLLIN)
        return bool(poll.poll(max(0, within_s) * 1000))

    def _signal(self, number):
        if self._process.returncode is not None:  # its id may be another's
            return
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            pass

    def ask_to_end(self):
        self._signal(signal.SIGTERM)

    def stop(self):
        """Ends the process. A guard below it has time to end what the test has left."""
        self.ask_to_end()
        if not self._has_ended(GRACE_S):
            self._signal(signal.SIGKILL)

    def wait(self, timeout_s, changed=None):
        """Waits until the end. The limit starts anew whenever `changed(printed)` differs from what it was."""
        since, mark, timed_out = self._began, None, False
        while not self._has_ended(min(LOOKS_EVERY_S if changed else timeout_s, since + timeout_s - time.monotonic())):
            if changed and (now := changed(self.printed())) != mark:
                since, mark = time.monotonic(), now
            if time.monotonic() >= since + timeout_s:
                timed_out = True
                self.stop()
                break
        self._signal(signal.SIGKILL)  # what is left of the group, whose id is this process's until the next line
        _, status, usage = os.wait4(self._process.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        ended = Ended(self._process.returncode, timed_out, time.monotonic() - self._began, usage.ru_utime + usage.ru_stime,
                      self.printed())
        os.close(self._watch)
        self._output.close()
        return ended
