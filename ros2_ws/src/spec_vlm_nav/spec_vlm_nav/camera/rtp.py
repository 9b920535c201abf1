# Copyright 2026 spec_vlm_nav maintainers
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

"""
Assembles RTP packets to H.264 access units (RFC 3550, RFC 6184).

Free of ROS and of sockets; no input raises.

An access unit with a missing packet is dropped whole. A unit is complete with its last packet (the
marker bit), without waiting for the next unit.
"""

from __future__ import annotations

from dataclasses import dataclass
import struct

from spec_vlm_nav.camera.h264 import START_CODE

MAX_UNIT_BYTES = 8 << 20
_HEADER = struct.Struct("!BBHII")
_STAP_A, _FU_A, _LAST_SINGLE = 24, 28, 23


@dataclass
class RtpCounts:
    """Counts of received and missing packets."""

    packets: int = 0
    not_rtp: int = 0
    missing: int = 0  # by gaps in the sequence numbers
    late: int = 0  # out of order or duplicate
    spoiled: int = 0  # access units dropped because a packet was missing


@dataclass(frozen=True)
class _Packet:
    sequence: int
    timestamp: int
    source: int
    marker: bool
    payload: bytes


class Depacketizer:
    """Follows one sender at a time; it switches at once to a new or restarted sender."""

    def __init__(self) -> None:
        self.counts = RtpCounts()
        self._source: int | None = None
        self._sequence = 0
        self._timestamp = 0
        self._unit = bytearray()
        self._fragment = False
        self._spoiled = False

    def feed(self, data: bytes) -> list[bytes]:
        """Add a packet; returns the completed access units as Annex B bytes."""
        self.counts.packets += 1
        packet = _parse(data)
        if packet is None:
            self.counts.not_rtp += 1
            return []
        out: list[bytes] = []
        if packet.source != self._source:
            self._source, self._timestamp = packet.source, packet.timestamp
            self._clear()
        else:
            ahead = (packet.sequence - self._sequence) & 0xFFFF
            if ahead == 0 or ahead >= 0x8000:
                self.counts.late += 1
                return []
            self.counts.missing += ahead - 1
            if ahead > 1:
                self._spoiled = True
            if packet.timestamp != self._timestamp:
                out += self._complete()
                # A missing packet may have been the start of this unit: only the decoder can tell.
                self._timestamp = packet.timestamp
        self._sequence = packet.sequence
        self._append(packet.payload)
        if packet.marker:
            out += self._complete()
        return out

    def _append(self, payload: bytes) -> None:
        number = payload[0] & 0x1F
        if 1 <= number <= _LAST_SINGLE:
            self._add(START_CODE + payload)
        elif number == _STAP_A:
            at = 1
            while (begin := at + 2) < len(payload):
                size = int.from_bytes(payload[at:begin], "big")
                end = begin + size
                if size == 0 or end > len(payload):
                    self._spoiled = True
                    return
                self._add(START_CODE + payload[begin:end])
                at = end
        elif number == _FU_A and len(payload) > 2:
            if payload[1] & 0x80:
                self._add(START_CODE + bytes([(payload[0] & 0xE0) | (payload[1] & 0x1F)]))
                self._fragment = True
            elif not self._fragment:
                self._spoiled = True  # its start is missing
            self._add(payload[2:])
            self._fragment = self._fragment and not payload[1] & 0x40
        else:
            self._spoiled = True

    def _add(self, data: bytes) -> None:
        if len(self._unit) + len(data) > MAX_UNIT_BYTES:
            self._spoiled = True
        if not self._spoiled:
            self._unit += data

    def _complete(self) -> list[bytes]:
        unit, spoiled = bytes(self._unit), self._spoiled or self._fragment
        self._clear()
        if unit and spoiled:
            self.counts.spoiled += 1
        return [unit] if unit and not spoiled else []

    def _clear(self) -> None:
        self._unit.clear()
        self._fragment = self._spoiled = False


def _parse(data: bytes) -> _Packet | None:
    if len(data) < _HEADER.size:
        return None
    first, second, sequence, timestamp, source = _HEADER.unpack_from(data)
    if first >> 6 != 2:
        return None
    begin, end = _HEADER.size + 4 * (first & 0x0F), len(data)
    if first & 0x10:
        if len(data) < begin + 4:
            return None
        extension = data[begin:]
        begin += 4 + 4 * int.from_bytes(extension[2:4], "big")
    if first & 0x20:
        end -= data[-1]
    if begin >= end:
        return None
    return _Packet(sequence, timestamp, source, bool(second & 0x80), data[begin:end])
