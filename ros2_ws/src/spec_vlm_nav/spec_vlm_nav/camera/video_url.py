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
Reads H.264 from the network (RTP by UDP or multicast; RFC 3550, RFC 6184). Free of ROS.

A Go2 sends RTP to the multicast group 230.1.1.1:1720. The reader works in a background thread, waits
for a network that is missing or temporarily down, and sends nothing.

The depacketizer knows no sockets, and no input makes it raise. An access unit with a missing packet is
dropped whole. A unit is complete with its last packet (the marker bit), without waiting for the next.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
import ipaddress
import socket
import struct
import threading
import time
from urllib.parse import urlsplit

from spec_vlm_nav.camera.h264 import START_CODE
from spec_vlm_nav.common.errors import CameraError

WAIT_S = 0.2  # longest delay until a close is noticed
AGAIN_S = 1.0
# silence after which the group is joined again: an interface may have been restarted
REJOIN_S = 5.0
RECEIVE_BUFFER = 4 << 20
LARGEST_PACKET = 65536
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


@dataclass(frozen=True)
class VideoUrl:
    """Address and port to listen on."""

    host: ipaddress.IPv4Address
    port: int


def parse_url(url: str) -> VideoUrl:
    """Parse a URL: udp://ADDRESS:PORT or rtp://ADDRESS:PORT. Raises CameraError."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise CameraError(f"url '{url}' refused: {error}") from error
    if parts.scheme not in ("udp", "rtp"):
        raise CameraError(f"url '{url}' refused: it must begin with udp:// or rtp://")
    try:
        host = ipaddress.IPv4Address(parts.hostname or "")
    except ValueError:
        raise CameraError(
            f"url '{url}' refused: it needs an IPv4 address, as in udp://230.1.1.1:1720"
        ) from None
    if not port:
        raise CameraError(f"url '{url}' refused: it needs a port, as in udp://230.1.1.1:1720")
    return VideoUrl(host, port)


def parse_interface(address: str) -> ipaddress.IPv4Address:
    """Parse the address of a local interface; empty: any. Raises CameraError."""
    try:
        return ipaddress.IPv4Address(address or "0.0.0.0")
    except ValueError:
        raise CameraError(
            f"interface '{address}' refused: it must be this machine's IPv4 address on the camera's "
            "network, as in 192.168.123.99, or empty"
        ) from None


class UrlReader:
    """
    Reads until closed; both callbacks are called from its thread.

    on_unit: called with an access unit and the receive time of its last packet, steady clock, s.
    on_problem: called with an error message.
    """

    def __init__(
        self,
        where: VideoUrl,
        interface: ipaddress.IPv4Address,
        on_unit: Callable[[bytes, float], None],
        on_problem: Callable[[str], None],
    ) -> None:
        self._where, self._interface = where, interface
        self._on_unit, self._on_problem = on_unit, on_problem
        self._depacketizer = Depacketizer()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="video_url", daemon=True)
        self._thread.start()

    @property
    def counts(self) -> RtpCounts:
        """Return the packet counts so far."""
        return self._depacketizer.counts

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        self._thread.join(2 * WAIT_S + AGAIN_S)

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                with self._listen() as listening:
                    self._read(listening)
            except OSError as error:
                self._on_problem(f"cannot listen at {self._where.host}:{self._where.port} ({error})")
                self._closed.wait(AGAIN_S)

    def _listen(self) -> socket.socket:
        listening = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # The system may grant less; a small buffer loses packets but not the stream.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
            listening.bind((str(self._where.host), self._where.port))
            if self._where.host.is_multicast:
                membership = self._where.host.packed + self._interface.packed
                listening.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
            listening.settimeout(WAIT_S)
        except OSError:
            listening.close()
            raise
        return listening

    def _read(self, listening: socket.socket) -> None:
        heard = time.monotonic()
        while not self._closed.is_set() and time.monotonic() - heard < REJOIN_S:
            try:
                packet = listening.recv(LARGEST_PACKET)
            except TimeoutError:
                continue
            heard = time.monotonic()
            for unit in self._depacketizer.feed(packet):
                self._on_unit(unit, heard)
