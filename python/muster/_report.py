"""The report file of a rank: JSON lines that muster reads beside the program. docs/report.md is the contract.

A thread writes the lines, so that a full or frozen disk never blocks the training. To wake a thread costs a step up to a
tenth of a millisecond where the other cores sleep, so lines of steps wait until the thread looks by itself. The thread
turns them into text, too: a step costs the training no more than a place in a queue.
"""

from __future__ import annotations

import atexit
import collections
import errno
import json
import os
import sys
import threading
import time
from typing import Any, Deque, Dict, Optional, Union

from . import _own

MOST_LINE_BYTES = 64 * 1024  # with its newline; muster ignores a longer line
# Of lines that the disk has not taken. Beyond, the program waits until half of them are written. A disk that has taken
# nothing for STANDS_SECONDS holds nobody up: the oldest are lost and counted. Lines of steps are no text yet, so their bytes
# are not known.
MOST_WAITING_LINES = 65536
MOST_WAITING_BYTES = 16 * 1024 * 1024
STANDS_SECONDS = 1.0
RETRY_SECONDS = 0.1  # less than STANDS_SECONDS: a disk that has room again takes lines before one is given up
LOOK_SECONDS = 0.1  # between two looks for lines that may wait
IDLE_LOOKS = 20  # without a line; after them the thread sleeps until a line comes
PATIENCE_AT_EXIT_SECONDS = 3.0  # without a line that the disk takes
MOST_SECONDS_AT_EXIT = 120.0
TELL_LOST_SECONDS = 10.0  # between two warnings that lines are lost

_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode


class ReportFile:
    """Appends lines to `path`. No method raises for the disk's sake. A program that reports faster than the disk takes is
    slowed; but for that no method blocks on the disk except flush().

    A forked child of the program writes nothing: the lines are those of the rank.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._waiting: Deque[Union[bytes, Dict[str, Any]]] = collections.deque()
        self._waiting_bytes = 0  # of those that are text
        self._lost = 0
        self._lost_told = 0
        self._tell_lost_at = 0.0
        self._written = 0
        self._stands = False  # the disk has taken nothing for STANDS_SECONDS, and not since
        self._news = threading.Condition()
        self._closed = False
        self._pid = os.getpid()
        self._fd = -1
        self._is_writing = False
        self._idle_looks = 0
        self._told: set = set()
        self._thread = threading.Thread(target=self._run, name="muster-report", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def write(self, line: Dict[str, Any], may_wait: bool = False) -> None:
        """Takes a line. It is written at once, after all earlier ones. One that may wait is written within LOOK_SECONDS; it
        holds numbers alone and belongs to the file from now on. A line over 64 KiB is left out, with a warning."""
        if self._closed or not self.is_mine:
            return
        if may_wait:
            self._waiting.append(line)  # in one step, so without the lock
            if self._idle_looks >= IDLE_LOOKS or len(self._waiting) > MOST_WAITING_LINES:
                with self._news:
                    self._news.notify_all()
                    self._make_room()
            return
        data = self._encode(line)
        if data is None:
            return
        with self._news:
            if self._closed:
                return
            self._waiting.append(data)
            self._waiting_bytes += len(data)
            self._news.notify_all()
            self._make_room()

    def _text_of(self, line: Union[bytes, Dict[str, Any]]) -> Optional[bytes]:
        """What the thread writes for a line. The thread outlives a line that is no JSON."""
        if isinstance(line, bytes):
            return line
        try:
            return self._encode(line)
        except (TypeError, ValueError, RecursionError) as error:
            self._warn(f"a line is no JSON and was left out: {error}")
            return None

    def _encode(self, line: Dict[str, Any]) -> Optional[bytes]:
        data = _dumps(line).encode(errors="replace") + b"\n"  # a lone surrogate is no UTF-8
        if len(data) <= MOST_LINE_BYTES:
            return data
        self._warn(f"a line of {len(data)} bytes is over the limit of {MOST_LINE_BYTES} bytes and was left out: "
                   f"{data[:60].decode(errors='replace')}...")
        return None

    def _take(self) -> Union[bytes, Dict[str, Any]]:
        """The oldest line. Needs the lock."""
        line = self._waiting.popleft()
        if isinstance(line, bytes):
            self._waiting_bytes -= len(line)
        return line

    def _is_over(self, part: int = 1) -> bool:
        return self._waiting_bytes > MOST_WAITING_BYTES // part or len(self._waiting) > MOST_WAITING_LINES // part

    def _make_room(self) -> None:
        """Needs the lock, which is released while the disk takes lines."""
        if not self._is_over():
            return
        while not self._stands and not self._closed and self._is_over(2):
            written = self._written
            self._news.wait_for(lambda: not self._is_over(2) or self._closed, STANDS_SECONDS)
            self._stands = self._written == written
        while self._is_over():
            self._take()
            self._lost += 1

    @property
    def is_mine(self) -> bool:
        """False in a forked child."""
        return _own.is_mine(self._pid)

    @property
    def lost(self) -> int:
        """Lines given up since the disk did not take them."""
        return self._lost

    def flush(self, patience: float = PATIENCE_AT_EXIT_SECONDS) -> bool:
        """Waits until all lines are in the file, at most `patience` seconds. False: some are not."""
        return not self.is_mine or self._wait_until_written(patience, patience)

    def close(self) -> None:
        """Flushes as long as the disk takes lines, and takes no further lines."""
        if self._closed or not self.is_mine:
            return
        is_whole = self._wait_until_written(PATIENCE_AT_EXIT_SECONDS, MOST_SECONDS_AT_EXIT)
        with self._news:
            waiting = len(self._waiting) + self._is_writing
            self._closed = True
            self._news.notify_all()
        if not is_whole:
            self._warn(f"{waiting} lines are not in {self.path}: the disk takes none")
        self._tell_lost(at_once=True)
        atexit.unregister(self.close)

    def _wait_until_written(self, patience: float, most: float) -> bool:
        """False: the disk has taken no line for `patience` seconds, or `most` seconds are over."""
        begin = progress = time.monotonic()
        with self._news:
            self._news.notify_all()
            written = self._written
            while self._waiting or self._is_writing:
                now = time.monotonic()
                if self._written != written:
                    written, progress = self._written, now
                left = min(progress + patience, begin + most) - now
                if left <= 0 or not self._thread.is_alive():
                    return False
                self._news.wait(left)
        return True

    def _tell_lost(self, at_once: bool = False) -> None:
        lost, now = self._lost, time.monotonic()
        if lost == self._lost_told or (not at_once and now < self._tell_lost_at):
            return
        if self._print(f"{lost - self._lost_told} lines of reports are lost: the disk took none for a while, and "
                       f"{self.path} lacks them"):
            self._lost_told = lost
            self._tell_lost_at = now + TELL_LOST_SECONDS

    def _warn(self, text: str) -> None:
        if text not in self._told and len(self._told) < 10 and self._print(text):
            self._told.add(text)

    @staticmethod
    def _print(text: str) -> bool:
        """False: the log takes nothing either. It may lie on the same disk, and a program may have closed it."""
        try:
            if sys.stderr is not None:
                sys.stderr.write(f"muster: {text}\n")
                sys.stderr.flush()
            return True
        except (OSError, ValueError):
            return False

    def _run(self) -> None:
        while True:
            with self._news:
                while not self._waiting:
                    if self._closed:
                        if self._fd >= 0:
                            os.close(self._fd)
                        return
                    self._news.wait(LOOK_SECONDS if self._idle_looks < IDLE_LOOKS else None)
                    self._idle_looks += 1
                self._idle_looks = 0
                line = self._take()
                self._is_writing = True
            try:
                data = self._text_of(line)
                if data is not None:
                    self._write_whole(data)
            finally:
                with self._news:
                    self._is_writing = False
                    self._written += 1
                    self._stands = False
                    self._news.notify_all()
                    is_closed = self._closed
            if not is_closed:  # then close() tells it
                self._tell_lost()

    def _write_whole(self, line: bytes) -> None:
        """Writes one line with one write. Where the disk takes a part, the rest follows, so that no line is torn."""
        while line and not self._closed:
            try:
                if self._fd < 0:
                    self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
                line = line[os.write(self._fd, line):]
            except OSError as error:
                if error.errno == errno.EBADF:  # the program has closed all of its files
                    self._fd = -1
                if error.errno == errno.ESTALE:
                    os.close(self._fd)
                    self._fd = -1
                if error.errno != errno.EINTR:
                    self._warn(f"cannot write {self.path}: {error.strerror}; the reports wait")
                    with self._news:
                        self._news.wait_for(lambda: self._closed, RETRY_SECONDS)


def open_report(path: Optional[str]) -> Optional[ReportFile]:
    """The report file that muster named for this rank; None outside muster.

    torchrun and other launchers start several ranks where muster has started one process. They share one file, so the first
    of them reports: the one whose LOCAL_RANK is that of the process that muster has started."""
    of_muster = os.environ.get("MUSTER_LOCAL_RANK")
    own = os.environ.get("LOCAL_RANK")
    if of_muster is not None and own not in (None, of_muster):
        return None
    return ReportFile(path) if path else None
