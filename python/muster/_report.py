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
import re
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
# Of a process that is not the first of those that share a file: how long it waits for a step of the first.
TURN_SECONDS = 10.0
LOOK_FOR_TURN_SECONDS = 0.5
MOST_HELD_LINES = 10_000  # meanwhile; the newest stay
MOST_SEARCHED_BYTES = 1024 * 1024  # of the file, for a step

_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode


class Turn:
    """Which of several processes tells the steps of the rank whose file they share: the first of them. If that one tells none,
    as where the last stage of a pipeline alone has a loss, the first other one that does. A small file beside the report file
    then says who it is, also after a restart by the launcher."""

    def __init__(self, path: str, local_rank: str, is_first: bool) -> None:
        self._report = path
        self._path = path + ".by"
        self._local_rank = local_rank
        self.is_first = is_first

    def owner(self) -> str:
        """LOCAL_RANK of the process that stands in for the first one; empty: there is none."""
        try:
            with open(self._path, encoding="ascii", errors="replace") as file:
                return file.read()
        except OSError:
            return ""

    def is_taken(self) -> bool:
        """By another process."""
        owner = self.owner()
        return owner != self._local_rank if owner else not self.is_first and self._has_steps()

    def take(self) -> bool:
        """Stands in for the first process from now on. False: another one does, or the first one tells steps."""
        if self.is_taken():
            return False
        draft = f"{self._path}-{os.getpid()}"
        try:
            with open(draft, "w", encoding="ascii", errors="replace") as file:
                file.write(self._local_rank)
            os.link(draft, self._path)
        except OSError:  # also on a disk that takes nothing: then it is nobody's yet
            return not self.is_taken()
        finally:
            try:
                os.unlink(draft)
            except OSError:
                pass
        return True

    def _has_steps(self) -> bool:
        try:
            with open(self._report, "rb") as file:
                text = file.read(MOST_SEARCHED_BYTES)
        except OSError:
            return False
        return text.startswith(_STEP) or b"\n" + _STEP in text


_STEP = b'{"step":'  # as log() writes it


class ReportFile:
    """Appends lines to `path`. No method raises for the disk's sake. A program that reports faster than the disk takes is
    slowed; but for that no method blocks on the disk except flush().

    A forked child of the program writes nothing: the lines are those of the rank.
    """

    def __init__(self, path: str, turn: Turn) -> None:
        self.path = path
        self._turn: Optional[Turn] = turn  # until it is known
        self._left_out = ""  # why steps of this process are left out
        self._is_candidate = not turn.is_first
        self._first_step_at: Optional[float] = None
        self._closing = False
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
        if may_wait and not self._is_candidate:
            self._waiting.append(line)  # in one step, so without the lock
            if self._idle_looks >= IDLE_LOOKS or len(self._waiting) > MOST_WAITING_LINES:
                with self._news:
                    self._news.notify_all()
                    self._make_room()
            return
        data: Union[bytes, Dict[str, Any], None] = line if may_wait else self._encode(line)
        if data is None:
            return
        with self._news:
            if self._closed:
                return
            self._waiting.append(data)
            self._waiting_bytes += len(data) if isinstance(data, bytes) else 0
            if self._is_candidate:
                self._hold(may_wait)
            else:
                self._news.notify_all()
                self._make_room()

    def _hold(self, is_step: bool) -> None:
        """What a process has told before its turn is known. Needs the lock."""
        while len(self._waiting) > MOST_HELD_LINES or self._waiting_bytes > MOST_WAITING_BYTES:
            self._take()
        if is_step and self._first_step_at is None:
            self._first_step_at = time.monotonic()
            self._news.notify_all()

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
    def is_read(self) -> bool:
        """Whether the reports of this process go into the file."""
        return self.is_mine and not self._is_candidate and not self._closed

    @property
    def lost(self) -> int:
        """Lines given up since the disk did not take them."""
        return self._lost

    def flush(self, patience: float = PATIENCE_AT_EXIT_SECONDS) -> bool:
        """Waits until all lines are in the file, at most `patience` seconds. False: some are not."""
        return not self.is_mine or self._is_candidate or self._wait_until_written(patience, patience)

    def close(self) -> None:
        """Flushes as long as the disk takes lines, and takes no further lines."""
        if self._closed or not self.is_mine:
            return
        with self._news:
            self._closing = True
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

    def _has_the_turn(self) -> bool:
        """Waits until it is known. False: another process tells the steps."""
        assert self._turn is not None
        closing_at: Optional[float] = None
        while True:
            with self._news:
                begun = self._first_step_at
                if begun is None and not self._closing:
                    self._news.wait()
                    continue
                now = time.monotonic()
                if self._closing and closing_at is None:
                    closing_at = now + LOOK_FOR_TURN_SECONDS  # the first process may write its first step just now
                is_due = begun is None or now >= begun + TURN_SECONDS or (closing_at is not None and now >= closing_at)
            wins = begun is not None and is_due and self._turn.take()
            with self._news:
                if wins:
                    self._is_candidate = False
                    return True
                if is_due or self._turn.is_taken():
                    self._closed = True
                    self._is_candidate = False
                    self._waiting.clear()
                    self._news.notify_all()
                    return False
                self._news.wait(LOOK_FOR_TURN_SECONDS)

    def _keeps_the_turn(self) -> bool:
        """Of the first process, at its first step. False: another one has told steps meanwhile."""
        assert self._turn is not None
        if not self._left_out:  # the turn does not come back, so the disk is asked until then
            if not self._turn.is_taken():
                self._turn = None
                return True
            self._left_out = (f"the process with LOCAL_RANK {self._turn.owner()} tells the steps of this rank, since it told some "
                              f"{TURN_SECONDS:.0f} s before this one; steps of this one are left out")
        self._warn(self._left_out)
        return False

    def _run(self) -> None:
        if self._is_candidate:
            if not self._has_the_turn():
                return
            self._turn = None
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
                is_left_out = self._turn is not None and not isinstance(line, bytes) and not self._keeps_the_turn()
                data = None if is_left_out else self._text_of(line)
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

    torchrun and other launchers start several ranks where muster has started one process. They share one file, see Turn."""
    if not path:
        return None
    if os.environ.get("MUSTER_BATCH"):
        # A script's srun and torchrun start the ranks of all nodes, and rank 0 of all of them is the first.
        own = os.environ.get("RANK") or os.environ.get("SLURM_PROCID") or "0"
        return ReportFile(path, Turn(path, own, own == "0"))
    of_muster = os.environ.get("MUSTER_LOCAL_RANK")
    own = os.environ.get("LOCAL_RANK")
    elastic = os.environ.get("TORCHELASTIC_RUN_ID")
    # torchrun counts its workers from 0, whichever process of muster's has started it.
    first = of_muster if elastic is None or _OF_MUSTER.fullmatch(elastic) else "0"
    return ReportFile(path, Turn(path, own or "0", of_muster is None or own in (None, first)))


_OF_MUSTER = re.compile(r"muster-\d+")  # TORCHELASTIC_RUN_ID of a process that muster itself has started
