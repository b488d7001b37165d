"""Another reader of TensorBoard's event files, for comparison with what muster's hook writes.

event_file_judge.py FOLDER prints a line of JSON for each record of each event file of the folder, file by file in the order of
their names' last part: {"file": name, "version": text}, or {"file": name, "step": n, "time": s, "values": {tag: number}}.
A record is length (8 bytes), its masked CRC-32C, tensorflow.Event as protobuf has it, its masked CRC-32C (TFRecord). The program
ends with an error at a wrong checksum, at a field that it does not know, and at bytes that are left over.
"""

import json
import pathlib
import struct
import sys


def crc32c(data):
    """Bit by bit (RFC 3720, appendix B.4)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


assert crc32c(b"123456789") == 0xE3069283


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(data):
    while data:
        length, of_length = struct.unpack("<QI", data[:12])
        assert masked(data[:8]) == of_length, "checksum of a length"
        record, of_record = data[12:12 + length], struct.unpack("<I", data[12 + length:16 + length])[0]
        assert masked(record) == of_record, "checksum of a record"
        yield record
        data = data[16 + length:]


def varint(data):
    number = shift = 0
    while True:
        byte, data = data[0], data[1:]
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number, data


def fields(message):
    """Pairs of a field's number and its value."""
    while message:
        tag, message = varint(message)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, message = varint(message)
        elif wire == 1:
            value, message = struct.unpack("<d", message[:8])[0], message[8:]
        elif wire == 2:
            length, message = varint(message)
            assert length <= len(message), "a field that is cut off"
            value, message = message[:length], message[length:]
        elif wire == 5:
            value, message = struct.unpack("<f", message[:4])[0], message[4:]
        else:
            raise AssertionError(f"wire type {wire}")
        yield number, value


def only(message, names):
    out = {}
    for number, value in fields(message):
        name = names[number]
        assert name not in out, f"{name} stands twice"
        out[name] = value
    return out


def event(message):
    # Event{wall_time = 1, step = 2, file_version = 3, summary = 5}, Summary{value = 1}, Value{tag = 1, simple_value = 2}
    out = only(message, {1: "time", 2: "step", 3: "version", 5: "summary"})
    if "version" in out:
        return {"version": out["version"].decode(), "time": out["time"]}
    values = {}
    for number, value in fields(out.pop("summary")):
        assert number == 1
        scalar = only(value, {1: "tag", 2: "number"})
        values[scalar["tag"].decode()] = scalar["number"]
    return {**out, "values": values}


for path in sorted(pathlib.Path(sys.argv[1]).glob("events.out.tfevents.*"), key=lambda path: path.name.split(".")[-1]):
    for record in records(path.read_bytes()):
        print(json.dumps({"file": path.name, **event(record)}))
