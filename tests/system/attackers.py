"""Attackers of musterd's ports, each with connections and frames of its own, byte for byte. Loopback alone.

Usage: attackers.py ATTACK PORT SECONDS [TOKEN JOB ATTEMPT]
Runs one attack as a process of its own, for so many seconds at most, and prints what it did as JSON. Each attack has a bound of
connections, and MOST_NEW_A_S bounds how often one connects anew. TOKEN, JOB and ATTEMPT are of a rank, for the attacks of
somebody who has one.
"""

import json
import pathlib
import select
import socket
import struct
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from strangers import (DATA, END_HEADERS, END_STREAM, HELLO, HEADERS, PING, SETTINGS, call, frame, rank_key, text,  # noqa: E402
                       varint)

RESET, WINDOW_UPDATE, CONTINUATION = 3, 8, 9
LIST = "/muster.v1.JobService/List"
SUBMIT = "/muster.v1.JobService/Submit"
BEAT = "/muster.v1.RankService/Beat"
HEARTBEAT = "/muster.v1.RankService/Heartbeat"
RENDEZVOUS = "/muster.v1.RankService/Rendezvous"
MOST_NEW_A_S = 5000
MOST_WAITING = 256 * 1024  # bytes that one connection has for a server that does not read


def block(method, token=None):
    return (b"\x83\x86\x04" + text(method) + b"\x01" + text("muster") + b"\x0f\x10" + text("application/grpc") +
            b"\x00" + text("te") + text("trailers") + (b"\x0f\x08" + text("Bearer " + token) if token else b""))


def headers(stream, method, token=None, flags=END_HEADERS):
    return frame(HEADERS, flags, stream, block(method, token))


def update(stream=0):
    return frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", 1))


def begin_of(stream, size, body=b""):
    """The beginning of a message that claims `size` bytes, on a stream that stays open."""
    return frame(DATA, 0, stream, b"\x00" + struct.pack(">I", size) + body)


def message(stream, body):
    """A whole message on a stream that stays open."""
    return begin_of(stream, len(body), body)


def field(number, body):
    return bytes([number << 3 | 2]) + varint(len(body)) + body


class Attack:
    """`count` connections. Each says `first()`, then `more(n)` every `period_s`, and comes again `again` or not."""

    count = 1
    period_s = 0.01
    again = True
    dashboard = False

    def __init__(self, token="", job=0, attempt=0):
        self.token, self.job, self.attempt = token, job, attempt

    def first(self):
        return HELLO

    def more(self, n):
        return b""

    def more_of(self, connection):
        """What this connection says in its next turn."""
        return self.more(connection.turns)

    def heard(self, connection, said):
        """What the server says."""


class Talkers(Attack):
    """200 that send a frame each 10 ms."""
    count = 200

    def first(self):
        return HELLO + 20 * update()

    def more(self, n):
        return update()


class Silent(Attack):
    """150 that say 300 bytes, and come again when they are cut."""
    count = 150

    def first(self):
        return HELLO + 20 * update()


class Resets(Attack):
    """Three that open streams and reset them."""
    count = 3
    period_s = 0.004

    def more(self, n):
        first = 200 * n + 1
        return b"".join(headers(first + 2 * i, LIST) + frame(RESET, 0, first + 2 * i, b"\0\0\0\x08") for i in range(100))


class CrowdWithResets(Attack):
    """120, of which two reset streams."""
    count = 120

    def first(self):
        return HELLO + headers(1, LIST, flags=0)

    def more(self, n):
        return frame(CONTINUATION, 0, 1, b"") if n % 60 else frame(RESET, 0, 1, b"\0\0\0\x08")


class Unfinished(Attack):
    """60 streams whose message of 31 MB never ends."""
    count = 1
    period_s = 0.001

    def first(self):
        begin = b"\x00" + struct.pack(">I", 31 << 20)
        return HELLO + b"".join(headers(2 * i + 1, SUBMIT) + frame(DATA, 0, 2 * i + 1, begin) for i in range(60))

    def more(self, n):
        return b"".join(update(2 * i + 1) + frame(DATA, 0, 2 * i + 1, bytes(16384)) for i in range(0, 60, 6))


class Endless(Attack):
    """A header block that never ends."""
    count = 1
    period_s = 0.001

    def first(self):
        return HELLO + frame(HEADERS, 0, 1, b"")

    def more(self, n):
        return 4 * frame(CONTINUATION, 0, 1, b"\x00" + text("x" * 100) + text("y" * 100))


class Bombs(Attack):
    """Header blocks that grow: an entry of 3,900 bytes in the table, and references to it, a byte each."""
    count = 20

    def first(self):
        entry = b"\x40" + text("bomb") + b"\x7f" + bytes([(3900 - 127) & 127 | 128, (3900 - 127) >> 7]) + b"b" * 3900
        return HELLO + frame(HEADERS, 0, 1, entry) + frame(CONTINUATION, END_HEADERS, 1, b"\xbe" * 4000)


class Pings(Attack):
    """50 that ask and set, over and over."""
    count = 50

    def more(self, n):
        return 10 * (frame(PING, 0, 0, b"pingpong") + frame(SETTINGS, 0, 0))


class Churn(Attack):
    """As many as can: each connects, greets and leaves."""
    count = 100
    period_s = 0.0

    def more(self, n):
        return None


class WrongTokens(Attack):
    """Whole calls with a wrong token, over and over."""
    count = 100

    def first(self):
        return HELLO + call(LIST, "x" * 43, b"")


class Slow(Attack):
    """400 that send a byte each 50 ms."""
    count = 400
    period_s = 0.05

    def first(self):
        return b""

    def more(self, n):
        said = HELLO + headers(1, LIST)
        return said[n:n + 1]


class WrongRanks(Attack):
    """Streams of ranks that do not exist, whose first message never comes."""
    count = 150

    def first(self):
        return HELLO + b"".join(headers(2 * i + 1, BEAT, "0" * 64) for i in range(4))


class Dashboards(Attack):
    """300 half requests at the dashboard's port."""
    count = 300
    period_s = 0.1
    dashboard = True

    def first(self):
        return b"GET / HTTP/1.1\r\nHost: loc"

    def more(self, n):
        return b"a"


class LongHalves(Dashboards):
    """300 half requests of a kilobyte at the dashboard's port, which say no more, and come again when they are cut."""

    def first(self):
        return b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: " + 1000 * b"x"

    def more(self, n):
        return b""


class TricklingHalves(LongHalves):
    """The same, and each says a byte each 20 ms."""
    period_s = 0.02

    def more(self, n):
        return b"a"


class TricklingBodies(TricklingHalves):
    """300 whole heads of requests at the dashboard's port, whose bodies trickle."""

    def first(self):
        return b"POST /api/v1/login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n\r\n" + 500 * b" "


class ManyStreams(Attack):
    """With a token: one rank that opens 5,000 streams a second on one connection, and takes no answers: it never lets the
    server send more than the first 64 KiB."""
    count = 1
    period_s = 0.02

    def key(self):
        return rank_key(self.job, self.attempt, 0)

    def streams(self, first):
        return b"".join(headers(first + 2 * i, BEAT, self.token) + message(first + 2 * i, self.key()) for i in range(100))

    def first(self):
        return HELLO + self.streams(1)

    def more(self, n):
        return self.streams(201 + 200 * n)


class ManyConnections(ManyStreams):
    """With a token: 1,000 connections of one rank, which come again when they are cut."""
    count = 1000
    period_s = 0.1

    def first(self):
        return HELLO + headers(1, HEARTBEAT, self.token) + message(1, self.key())

    def more(self, n):
        return b""


class ManyRanks(ManyConnections):
    """With a token: 1,000 connections, each of which claims to be another rank."""
    rank = 0

    def key(self):
        self.rank += 1
        return rank_key(self.job, self.attempt, self.rank)


class LongWords(ManyStreams):
    """With a token: a rank whose status, section and stack have megabytes."""
    count = 8

    def more(self, n):
        return b""

    def first(self):
        program = field(1, b"s" * 100_000) + field(4, field(3, b"t" * 900_000))
        body = self.key() + field(17, b"n" * 200_000) + field(18, program)
        sent = b"\x00" + struct.pack(">I", len(body)) + body
        parts = [frame(DATA, 0, 1, sent[at:at + 16384]) for at in range(0, len(sent), 16384)]
        return HELLO + headers(1, BEAT, self.token) + b"".join(parts)


class UnfinishedOfARank(ManyStreams):
    """With a token: 60 connections with 15 messages of 4 MB each that never end, within the windows that the server grants."""
    count = 60
    period_s = 0.002
    streams_of_one = 15
    size = (4 << 20) - 1

    def first(self):
        begins = (headers(2 * i + 3, HEARTBEAT, self.token) + begin_of(2 * i + 3, self.size) for i in range(self.streams_of_one))
        return HELLO + headers(1, BEAT, self.token) + message(1, self.key()) + b"".join(begins)

    def more_of(self, connection):
        """Whole frames of 16 KB, as long as there is a window, and a byte less than ends a message."""
        out = b""
        for i in range(self.streams_of_one):
            stream = 2 * i + 3
            sent = connection.sent.get(stream, 0)
            room = connection.windows.get(stream, 0) + 65535 - 5 - sent
            room_of_all = connection.windows.get(0, 0) + 65000 - connection.sent.get(0, 0)
            most = min(16384, room, room_of_all, self.size - 1 - sent)
            if most < 1024 or len(out) > 65536:
                continue
            out += frame(DATA, 0, stream, bytes(most))
            for one in (0, stream):
                connection.sent[one] = connection.sent.get(one, 0) + most
        return out

    def heard(self, connection, said):
        """Counts the windows."""
        connection.said += said
        while len(connection.said) >= 9 and len(connection.said) >= 9 + (size := int.from_bytes(connection.said[:3], "big")):
            kind, stream = connection.said[3], int.from_bytes(connection.said[5:9], "big")
            if kind == WINDOW_UPDATE:
                grant = int.from_bytes(connection.said[9:13], "big")
                connection.windows[stream] = connection.windows.get(stream, 0) + grant
            connection.said = connection.said[9 + size:]


class EndlessOfARank(UnfinishedOfARank):
    """With a token: messages of 4 GB."""
    count = 8
    streams_of_one = 3
    size = 0xFFFFFFF0


class SilentCallsOfARank(ManyStreams):
    """With a token: 60 connections that make calls without a message, over and over, and acknowledge no settings."""
    count = 60

    def streams(self, first):
        return b"".join(headers(first + 2 * i, BEAT if i % 2 else HEARTBEAT, self.token) for i in range(50))

    def first(self):
        return HELLO + headers(1, BEAT, self.token) + message(1, self.key())

    def more(self, n):
        return self.streams(3 + 100 * n)


class PatientCallsOfARank(ManyStreams):
    """With a token: 60 connections with as many silent calls as are allowed, for as long as they are."""
    count = 60

    def first(self):
        calls = b"".join(headers(2 * i + 3, BEAT if i % 2 else HEARTBEAT, self.token) for i in range(15))
        return HELLO + headers(1, BEAT, self.token) + message(1, self.key()) + calls

    def more(self, n):
        return b""


class WaitingCallsOfARank(ManyStreams):
    """With a token: calls that wait at the rendezvous, thousands a second, and nobody takes the answers."""
    count = 8

    def streams(self, first):
        calls = (headers(first + 2 * i, RENDEZVOUS, self.token) + message(first + 2 * i, self.key()) for i in range(20))
        return b"".join(calls)

    def more(self, n):
        return self.streams(41 + 40 * n)


class StalledReaders(Attack):
    """With people's token: reads of logs, events, metrics and stacks, 400 on four connections, whose answers nobody takes."""
    count = 4
    calls = ("Logs", "Events", "Metrics", "SweepMetrics", "Stacks")

    def request(self, method):
        return field(1, b"s1") if method == "SweepMetrics" else b"\x08" + varint(self.job)

    def first(self):
        methods = (self.calls[i % len(self.calls)] for i in range(100))
        return HELLO + b"".join(call("/muster.v1.JobService/" + method, self.token, self.request(method), 2 * i + 1)
                                for i, method in enumerate(methods))


ATTACKS = {one.__name__: one for one in (Talkers, Silent, Resets, CrowdWithResets, Unfinished, Endless, Bombs, Pings, Churn,
                                         WrongTokens, Slow, WrongRanks, Dashboards, LongHalves, TricklingHalves, TricklingBodies, ManyStreams,
                                         ManyConnections, ManyRanks, LongWords, UnfinishedOfARank,
                                         EndlessOfARank, SilentCallsOfARank, PatientCallsOfARank, WaitingCallsOfARank,
                                         StalledReaders)}
AT_THE_DASHBOARD = tuple(name for name, one in ATTACKS.items() if one.dashboard)
WITH_A_TOKEN = ("ManyStreams", "ManyConnections", "ManyRanks", "LongWords", "UnfinishedOfARank", "EndlessOfARank",
                "SilentCallsOfARank", "PatientCallsOfARank", "WaitingCallsOfARank", "StalledReaders")
OF_PEOPLE = ("StalledReaders",)


class Connection:
    def __init__(self, socket_):
        self.socket = socket_
        self.waiting = b""
        self.turns = 0
        self.is_open = False
        self.said = b""
        self.windows = {}  # what the server has granted beyond the first 65,535 bytes, by stream; 0: of the connection
        self.sent = {}


class Attacker:
    """Runs one attack in one thread."""

    def __init__(self, attack, port):
        self.attack, self.port = attack, port
        self.poll = select.epoll()
        self.connections = {}
        self.did = {"connections": 0, "bytes": 0, "cut": 0}

    def connect(self):
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex(("127.0.0.1", self.port))
        self.connections[one.fileno()] = Connection(one)
        self.poll.register(one, select.EPOLLIN | select.EPOLLOUT)
        self.did["connections"] += 1

    def close(self, number):
        connection = self.connections.pop(number)
        self.poll.unregister(number)
        connection.socket.close()

    def send(self, number):
        connection = self.connections[number]
        try:
            sent = connection.socket.send(connection.waiting[:65536])
        except BlockingIOError:
            return True
        except OSError:
            return False
        self.did["bytes"] += sent
        connection.waiting = connection.waiting[sent:]
        self.poll.modify(number, select.EPOLLIN | (select.EPOLLOUT if connection.waiting else 0))
        return True

    def heard(self, number, events):
        """False: the connection is over."""
        connection = self.connections[number]
        if events & select.EPOLLOUT:
            if not connection.is_open:
                connection.is_open = True
                connection.waiting += self.attack.first()
            if not self.send(number):
                return False
        if events & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
            try:
                said = connection.socket.recv(65536)
                self.attack.heard(connection, said)
                return bool(said)
            except BlockingIOError:
                return True
            except OSError:
                return False
        return True

    def turn(self):
        """Everybody says more. False: one has nothing more to say and leaves."""
        for number, connection in list(self.connections.items()):
            if not connection.is_open or len(connection.waiting) > MOST_WAITING:
                continue
            more = self.attack.more_of(connection)
            connection.turns += 1
            if more is None:
                if not connection.waiting:
                    self.close(number)
            elif more:
                connection.waiting += more
                if not self.send(number):
                    self.did["cut"] += 1
                    self.close(number)

    def run(self, seconds):
        begun = time.monotonic()
        next_turn = begun
        while (now := time.monotonic()) < begun + seconds:
            most = self.attack.count + (now - begun) * MOST_NEW_A_S if self.attack.again else self.attack.count
            while len(self.connections) < self.attack.count and self.did["connections"] < most:
                self.connect()
            for number, events in self.poll.poll(max(0.001, min(0.01, next_turn - now)), 256):
                if number in self.connections and not self.heard(number, events):
                    self.did["cut"] += 1
                    self.close(number)
            if time.monotonic() >= next_turn:
                self.turn()
                next_turn = time.monotonic() + self.attack.period_s
        for number in list(self.connections):
            self.close(number)
        return self.did


def main():
    name, port, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    token, job, attempt = (sys.argv[4], int(sys.argv[5]), int(sys.argv[6])) if len(sys.argv) > 4 else ("", 0, 0)
    print(json.dumps(Attacker(ATTACKS[name](token, job, attempt), port).run(seconds)))


if __name__ == "__main__":
    main()
