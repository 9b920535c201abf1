"""RTP packets to access units: whole ones only, each when it is complete, whatever the network does."""

import random
import struct

import pytest

from spec_vlm_nav.camera.h264 import split_nals
from spec_vlm_nav.camera.video_url import MAX_UNIT_BYTES, Depacketizer

START = b"\x00\x00\x00\x01"
UNIT_BYTES = [
    b"\x67set" + START + b"\x65" + bytes(range(200)) * 20,
    b"\x41" + b"p" * 900,
    b"\x41" + b"q" * 3000,
]
UNITS = [START + data for data in UNIT_BYTES]


def packet(sequence, timestamp, payload, marker=False, source=9):
    return struct.pack("!BBHII", 0x80, 96 | marker << 7, sequence & 0xFFFF, timestamp, source) + payload


def payloads(nal, size=1000):
    """A NAL unit as one packet, or as fragments (FU-A)."""
    if len(nal) <= size:
        return [nal]
    head, body = nal[0], nal[1:]
    parts = [body[i : i + size] for i in range(0, len(body), size)]
    flags = [0x80, *[0] * (len(parts) - 2), 0x40]
    return [
        bytes([(head & 0xE0) | 28, flag | (head & 0x1F)]) + part
        for flag, part in zip(flags, parts, strict=True)
    ]


def packets(units, sequence=65530, source=9):
    """All packets of a stream; sequence numbers run over."""
    out = []
    for number, unit in enumerate(units):
        parts = [part for nal in split_nals(unit) for part in payloads(nal)]
        for i, part in enumerate(parts):
            out.append(packet(sequence, 6000 * number, part, i == len(parts) - 1, source))
            sequence += 1
    return out


def feed(depacketizer, stream):
    return [unit for data in stream for unit in depacketizer.feed(data)]


def test_units_come_out_whole_with_their_last_packet():
    depacketizer = Depacketizer()
    stream = packets(UNITS)
    assert len(stream) == (1 + 4) + 1 + 3
    done = [len(depacketizer.feed(data)) for data in stream]
    assert [i for i, count in enumerate(done) if count] == [4, 5, 8]
    assert feed(Depacketizer(), stream) == UNITS
    assert depacketizer.counts.missing == depacketizer.counts.late == depacketizer.counts.spoiled == 0


@pytest.mark.parametrize("lost", range(9))
def test_a_missing_packet_costs_its_unit_at_most_with_the_next(lost):
    depacketizer = Depacketizer()
    got = feed(depacketizer, [data for i, data in enumerate(packets(UNITS)) if i != lost])
    assert all(unit in UNITS for unit in got) or (
        lost == 0 and UNITS[0].partition(START + b"\x65")[2] in got[0]
    )
    owner = 0 if lost <= 4 else 1 if lost == 5 else 2
    assert lost == 0 or UNITS[owner] not in got
    assert depacketizer.counts.missing == (1 if 0 < lost < 8 else 0)


def test_without_markers_a_unit_is_complete_when_the_next_begins():
    stream = [bytes([data[0], data[1] & 0x7F]) + data[2:] for data in packets(UNITS)]
    assert feed(Depacketizer(), stream) == UNITS[:2]


def test_late_and_doubled_packets_are_dropped():
    depacketizer = Depacketizer()
    stream = packets(UNITS)
    assert feed(depacketizer, [data for data in stream for _ in range(2)]) == UNITS
    assert depacketizer.counts.late == len(stream)
    assert feed(depacketizer, stream) == []


def test_another_sender_is_taken_up_at_once():
    depacketizer = Depacketizer()
    feed(depacketizer, packets(UNITS)[:3])
    assert feed(depacketizer, packets(UNITS, sequence=7, source=10)) == UNITS


def test_aggregates_extensions_and_padding():
    first, second = b"\x67abc", b"\x68de"
    payload = b"\x18" + b"\x00\x04" + first + b"\x00\x03" + second
    plain = packet(1, 0, payload, marker=True)
    assert Depacketizer().feed(plain) == [START + first + START + second]
    dressed = bytes([0x80 | 0x20 | 0x10 | 2]) + plain[1:12] + b"c" * 8 + b"\xbe\xde\x00\x01extn" + payload
    assert Depacketizer().feed(dressed + b"\x00\x00\x03") == [START + first + START + second]


def test_noise_never_raises_and_does_not_grow():
    rng = random.Random(3)
    depacketizer = Depacketizer()
    for i in range(3000):
        noise = rng.randbytes(rng.randrange(60))
        depacketizer.feed(noise)
        depacketizer.feed(packet(i, i // 50, noise or b"\x00", source=rng.randrange(3)))
    endless = Depacketizer()
    for i in range(0, 3 * MAX_UNIT_BYTES, 60000):
        assert endless.feed(packet(i // 60000, 0, b"\x41" + bytes(60000))) == []
    assert len(endless._unit) <= MAX_UNIT_BYTES
    assert feed(depacketizer, packets(UNITS, source=77)) == UNITS
