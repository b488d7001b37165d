"""Connections that a test makes itself, byte for byte: those of strangers, and those of ranks without the program.

gRPC is HTTP/2: a client sends a preface and SETTINGS, then a call is one HEADERS and one DATA frame.
"""

import resource
import select
import socket
import struct
import threading
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, PING = 0, 1, 4, 6
END_STREAM, END_HEADERS, ACK = 1, 4, 1


def frame(kind, flags, stream, body=b""):
    return struct.pack(">I", len(body))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + body


HELLO = PREFACE + frame(SETTINGS, 0, 0)


def text(value):
    """A string as HPACK has it, without Huffman's code."""
    raw = value.encode()
    assert len(raw) < 127
    return bytes([len(raw)]) + raw


def varint(number):
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def rank_key(job, attempt, rank):
    body = b"\x08" + varint(job) + b"\x10" + varint(attempt) + b"\x18" + varint(rank)
    return b"\x0a" + varint(len(body)) + body


def call(method, token, message, stream=1):
    """A call without compression: ":method POST", ":scheme http", ":path", ":authority", content-type, te, authorization."""
    block = (b"\x83\x86\x04" + text(method) + b"\x01" + text("muster") + b"\x0f\x10" + text("application/grpc") +
             b"\x00" + text("te") + text("trailers") + b"\x0f\x08" + text("Bearer " + token))
    payload = b"\x00" + struct.pack(">I", len(message)) + message
    return frame(HEADERS, END_HEADERS, stream, block) + frame(DATA, END_STREAM, stream, payload)


def heartbeat(token, job, attempt, rank, stream=1):
    return call("/muster.v1.RankService/Heartbeat", token, rank_key(job, attempt, rank), stream)


def raise_own_limit():
    """How many descriptors this process may have now."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


class Crowd:
    """Many connections to one port, closed at the end."""

    def __init__(self, port):
        self.port = port
        self.sockets = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def add(self, count, says=b""):
        """Connections that say this at once, as clients do, and no more. One that the server does not take yet waits."""
        later = []
        for _ in range(count):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", self.port))
            self.sockets.append(one)
            if says and not self.said(one, says):
                later.append(one)
        deadline = time.monotonic() + 60
        for one in later:
            while not select_for_write(one, 1.0):
                assert time.monotonic() < deadline, "no connection"
            self.said(one, says)

    @staticmethod
    def said(one, words):
        """False: not connected yet."""
        if not select_for_write(one, 0):
            return False
        try:
            one.send(words)
        except OSError:  # turned away already
            pass
        return True

    def open(self):
        """How many the server has not closed. What it has said is read away."""
        return sum(1 for one in self.sockets if still_open(one))

    def close(self):
        for one in self.sockets:
            one.close()
        self.sockets = []


def select_for_write(one, seconds):
    poll = select.poll()
    poll.register(one, select.POLLOUT)
    return bool(poll.poll(seconds * 1000))


def still_open(one):
    while True:
        try:
            got = one.recv(65536)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not got:
            return False


class Callers:
    """Connections as gRPC's clients have them: a thread says what is to be said as soon as one is open, answers the server's
    pings, counts answers, and connects anew where the server has cut a connection before its first answer. `cut` counts those
    that were cut after it, which no rank's may be.
    """

    AGAIN_S = 0.2

    def __init__(self, port):
        self.port = port
        self.says = {}  # socket -> what it says first; gone when it is said
        self.buffers = {}  # file number -> socket, what is not parsed yet
        self.served = set()  # sockets that have had an answer
        self.answers = {}  # stream -> how many connections have got theirs
        self.cut = 0
        self.again = 0  # connected anew
        self.waiting = []  # (when, what to say)
        self.poll = select.epoll()
        self.lock = threading.Lock()
        self.ending = False
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ending = True
        self.thread.join()
        for one, _ in self.buffers.values():
            one.close()
        self.poll.close()

    def add(self, count, says):
        for _ in range(count):
            self.connect(says)

    def connect(self, says):
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex(("127.0.0.1", self.port))
        with self.lock:
            self.says[one] = says
            self.buffers[one.fileno()] = (one, bytearray())
            self.poll.register(one, select.EPOLLIN | select.EPOLLOUT)

    def say(self, after):
        """Whoever has been served says what comes after its first words."""
        for one in list(self.served):
            one.send(after[self.says[one]])

    def run(self):
        while not self.ending:
            for number, events in self.poll.poll(0.05, 256):
                with self.lock:
                    one, buffer = self.buffers[number]
                    alive = self.greet(one, events) and self.read(one, buffer)
                    if not alive:
                        self.lose(number, one)
            now = time.monotonic()
            due, self.waiting = ([w for w in self.waiting if w[0] <= now], [w for w in self.waiting if w[0] > now])
            for _, says in due:
                self.connect(says)

    def greet(self, one, events):
        if not events & select.EPOLLOUT or one not in self.says:
            return True
        self.poll.modify(one, select.EPOLLIN)
        try:
            one.send(self.says[one])
        except OSError:
            return False
        return True

    def lose(self, number, one):
        self.poll.unregister(one)
        one.close()
        del self.buffers[number]
        if one in self.served:
            self.cut += 1
            self.served.discard(one)
        else:
            self.again += 1
            self.waiting.append((time.monotonic() + self.AGAIN_S, self.says[one]))
        del self.says[one]

    def read(self, one, buffer):
        """False: the server has closed it."""
        try:
            got = one.recv(65536)
        except BlockingIOError:
            return True
        except OSError:
            return False
        buffer += got
        while len(buffer) >= 9 and len(buffer) >= 9 + int.from_bytes(buffer[:3], "big"):
            end = 9 + int.from_bytes(buffer[:3], "big")
            kind, flags, stream = buffer[3], buffer[4], int.from_bytes(buffer[5:9], "big")
            if kind == PING and flags & ACK == 0:
                one.send(frame(PING, ACK, 0, bytes(buffer[9:end])))
            if kind == HEADERS and flags & END_STREAM:
                self.answers[stream] = self.answers.get(stream, 0) + 1
                self.served.add(one)
            del buffer[:end]
        return bool(got)
