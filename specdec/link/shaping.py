# SPDX-License-Identifier: Apache-2.0
"""A seeded model of how a network delays messages: delay, jitter, bandwidth with queueing, loss, outages.

The transport is TCP: no message is lost for good, and none overtakes another. A lost packet costs a retransmission
delay, and everything after it waits.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from specdec.errors import OptionsError
from specdec.settings import Setting, check_settings, setting

PACKET_BYTES = 1448
"""Payload of one Ethernet packet of TCP."""
PACKET_OVERHEAD_BYTES = 66
"""Ethernet, IP and TCP headers of one packet."""
MIN_RETRANSMISSION_S = 0.2
"""Linux's smallest retransmission time-out."""
_MAX_RETRANSMISSIONS = 6
_START = Setting("", 0, 1e9, unit="s", name="the start of an outage", kind=float)
_DURATION = Setting("", 0, 1e6, unit="s", name="the duration of an outage", kind=float)


@dataclass(frozen=True)
class LinkProfile:
    """Properties of a link. jitter_ms: largest deviation of a round trip, either way. outages: (start, duration) in
    seconds since the emulator's start; nothing passes during an outage.
    """

    rtt_ms: float = setting(
        0.0, "Emulated round-trip time of the link.", 0, 60_000, unit="ms", flags=("--rtt",)
    )
    jitter_ms: float = setting(0.0, "Emulated jitter.", 0, 60_000, unit="ms", flags=("--jitter",))
    bandwidth_mbps: float = setting(
        0.0,
        "Emulated bandwidth each way; 0: no limit.",
        0,
        1_000_000,
        unit="Mb/s",
        metavar="MBIT/S",  # the unit in capitals would be another one
        flags=("--bandwidth",),
    )
    loss: float = setting(0.0, "Emulated share of packets that TCP must resend.", 0, 0.9, metavar="SHARE")
    outages: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        check_settings(self)
        for start, duration in self.outages:
            _START.check(start)
            _DURATION.check(duration)


class Direction:
    """One direction of a link: computes arrival times. Not thread-safe."""

    def __init__(self, profile: LinkProfile, seed: int) -> None:
        self._profile = profile
        self._random = random.Random(seed)
        self._line_free_s = 0.0
        self._last_arrival_s = 0.0

    def arrival(self, now_s: float, size: int) -> float:
        """When a message of `size` bytes, sent at `now_s`, arrives. Times are seconds since the emulator's start."""
        profile = self._profile
        packets = max(1, -(-size // PACKET_BYTES))
        leaves = max(now_s, self._line_free_s)
        if profile.bandwidth_mbps > 0:
            leaves += (size + packets * PACKET_OVERHEAD_BYTES) * 8 / (profile.bandwidth_mbps * 1e6)
            self._line_free_s = leaves
        jitter = self._random.uniform(-0.5, 0.5) * profile.jitter_ms
        arrives = leaves + max(0.0, profile.rtt_ms / 2 + jitter) / 1e3
        arrives += self._retransmissions(packets)
        arrives = self._after_outages(leaves, arrives)
        self._last_arrival_s = max(self._last_arrival_s, arrives)
        return self._last_arrival_s

    def _retransmissions(self, packets: int) -> float:
        if self._profile.loss <= 0:
            return 0.0
        timeout = max(MIN_RETRANSMISSION_S, (self._profile.rtt_ms + 2 * self._profile.jitter_ms) / 1e3)
        delay = 0.0
        chance = 1 - (1 - self._profile.loss) ** packets
        for _ in range(_MAX_RETRANSMISSIONS):
            if self._random.random() >= chance:
                break
            delay += timeout
            timeout *= 2
            chance = self._profile.loss  # a retransmission is one packet
        return delay

    def _after_outages(self, leaves: float, arrives: float) -> float:
        for start, duration in sorted(self._profile.outages):
            if leaves < start + duration and arrives > start:
                arrives = max(arrives, start + duration + self._profile.rtt_ms / 2e3)
        return arrives


def parse_outages(texts: Sequence[str]) -> tuple[tuple[float, float], ...]:
    """Parse ["3:1.5", ...] to ((3.0, 1.5), ...): start and duration in seconds. Raises OptionsError."""
    outages = []
    for text in texts:
        try:
            start, duration = (float(part) for part in text.split(":"))
        except ValueError:
            raise OptionsError(f"outage {text!r} is not START:DURATION in seconds, like 3:1.5") from None
        outages.append((start, duration))
    return tuple(outages)
