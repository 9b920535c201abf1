# SPDX-License-Identifier: Apache-2.0
"""Records the arrival times, stamps and frames of the messages on one topic. No ROS here."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from specnav.doctor.robot.facts import TopicTraffic


class TopicListener:
    """Listens to one topic. clock: the time that stamps are compared with, s."""

    def __init__(self, clock: Callable[[], float], steady: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._steady = clock, steady
        self._times: list[float] = []
        self._offsets: list[float] = []
        self._stamp = 0.0
        self._stuck = 0
        self._frames: dict[tuple[str, str], None] = {}
        self._fastest = 0.0

    def hear(self, message: Any) -> None:
        """Record a message."""
        self._times.append(self._steady())
        header = getattr(message, "header", None)
        if header is not None:
            stamp = header.stamp.sec + header.stamp.nanosec * 1e-9
            self._stuck += bool(stamp) and stamp <= self._stamp
            self._stamp = stamp
            if stamp:
                self._offsets.append(stamp - self._clock())
            self._frames[header.frame_id, getattr(message, "child_frame_id", "")] = None
        twist = message.twist if hasattr(message, "twist") else message
        if hasattr(twist, "angular") and hasattr(twist, "linear"):
            self._fastest = max(self._fastest, abs(twist.linear.x), abs(twist.linear.y), abs(twist.angular.z))

    def heard(self, began: float, ended: float) -> TopicTraffic:
        """The traffic during the listening time (steady clock, s)."""
        if not self._times:
            return TopicTraffic()
        edges = [*self._times, ended]
        gaps = [after - before for before, after in itertools.pairwise(edges)]
        return TopicTraffic(
            count=len(self._times),
            rate_hz=len(self._times) / max(1e-3, ended - min(began, self._times[0])),
            longest_gap_s=max(gaps),
            offset_s=median(self._offsets) if self._offsets else None,
            stuck=self._stuck,
            frames=tuple(self._frames),
            fastest=self._fastest,
        )
