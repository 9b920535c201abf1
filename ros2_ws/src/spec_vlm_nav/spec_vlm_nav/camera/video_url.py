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
Reads H.264 from the network (RTP by UDP or multicast) in a background thread. Free of ROS.

A Go2 sends RTP to the multicast group 230.1.1.1:1720. The reader waits for a network that is
missing or temporarily down. It sends nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
import ipaddress
import socket
import threading
import time
from urllib.parse import urlsplit

from spec_vlm_nav.camera.rtp import Depacketizer, RtpCounts
from spec_vlm_nav.common.errors import CameraError

WAIT_S = 0.2  # longest delay until a close is noticed
AGAIN_S = 1.0
# silence after which the group is joined again: an interface may have been restarted
REJOIN_S = 5.0
RECEIVE_BUFFER = 4 << 20
LARGEST_PACKET = 65536


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
