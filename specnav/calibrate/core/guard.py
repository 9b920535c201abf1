# SPDX-License-Identifier: Apache-2.0
"""Aborts a calibration at once: on unreliable odometry, on motion other than commanded, or at the end of the room.

It uses motion_node's own watchdogs, with bounds wide enough for a base that has not been measured yet.
"""

from __future__ import annotations

import math
from dataclasses import replace

from spec_vlm_nav.common.geometry import Pose, Velocity, wrap
from spec_vlm_nav.motion.response.monitor import (
    DeviationKind,
    ResponseConfig,
    ResponseMonitor,
    compare,
    expected,
)
from spec_vlm_nav.motion.stopping import RestDetector
from spec_vlm_nav.motion.watchdogs import OdometryReading, OdometryWatch, WatchdogConfig
from specnav.calibrate.core.measuring import Noise
from specnav.calibrate.core.steps import CalibrationStep

LONGEST_DELAY_S = 1.2  # from command to odometry; a slower base cannot be calibrated
LEAST_SCALE, MOST_SCALE = 0.2, 3.0  # the parameters' own range
HALF_WIDTH_M, BACK_M = 0.4, 0.25  # turning may move it this far beside and behind the line's start
BEYOND_M = 0.05  # beyond the room; farther is a fault
STOP_S = 3.5  # a base that still moves this long after a stop is a fault
COASTS_S = 2.0  # it may coast this long after a stop: delay, plus holding the last velocity
ROOM_RAD = 0.3  # allowance of a turn beyond the commanded angle
LATER_S = 0.4  # a base with a known delay may be this much later

_WATCHED = ResponseConfig(
    response_timeout_s=LONGEST_DELAY_S, response_low=LEAST_SCALE, response_high=MOST_SCALE
)
WINDOWS_S, SHORTEST_S = (0.6, 1.2, 2.4), 0.25  # windows in which commanded and measured motion are compared
STALL_S = 0.5  # a step without measured motion for this long ...
DELAY_PARTS = 7  # number of delays to try
STALL_M, STALL_RAD = 0.03, 0.06  # ... although at least this much is due ...
STALL_SHARE = 0.5 * LEAST_SCALE  # ... or less than this share of it, is a fault


class SafetyGuard:
    """Watches the robot's odometry and position. Times are receive times on a steady clock, s."""

    def __init__(self, room_m: float) -> None:
        self.room_m = room_m
        self.noise = Noise(0.0, 0.0, 0.0)
        self.delay_s = 0.0  # of the base, as far as known
        self._latest_s = LONGEST_DELAY_S  # no motion this long after a command is a fault
        self._config = WatchdogConfig(odom_timeout_s=0.5)
        self._watch, self._monitor = OdometryWatch(), ResponseMonitor(_WATCHED)
        self._origin: Pose | None = None
        self._step: CalibrationStep | None = None
        self._began_at, self._began_with = math.inf, 0.0
        self._heard_at = -math.inf

    # -- events

    def hear(self, reading: OdometryReading, now: float) -> bool:
        """Record odometry; returns whether it is sound."""
        if not self._watch.hear(reading, now, self._config):
            return False
        self._monitor.hear(reading.pose, now)
        self._heard_at = now
        if self._origin is None:
            self._origin = reading.pose
        return True

    def learn(self, delay_s: float) -> None:
        """Use a measured delay of the base (s): a missing response is then noticed sooner."""
        self.delay_s, self._latest_s = delay_s, min(LONGEST_DELAY_S, delay_s + LATER_S)

    def begin(self, step: CalibrationStep, now: float) -> None:
        """A step begins."""
        self._step = step
        self._began_at = now
        self._monitor.config = replace(_WATCHED, actuation_delay_s=self.delay_s)
        self._began_with = step.progress(self._monitor.measured.total)

    def sent(self, velocity: Velocity, now: float) -> None:
        """A velocity was sent."""
        self._monitor.sent(velocity, now)

    def stopping(self) -> None:
        """The stop of a step was sent: from now on the motion is measured but not judged."""
        self._began_at = math.inf

    def end(self) -> None:
        """A step is over and the robot is at rest."""
        self._step = None

    # -- queries

    @property
    def is_ready(self) -> bool:
        """Whether a pose was received."""
        return self._origin is not None

    @property
    def pose(self) -> Pose:
        """The last sound pose."""
        pose = self._watch.pose
        assert pose is not None  # callers check `is_ready` first
        return pose

    @property
    def along_m(self) -> float:
        """Distance along the line, m."""
        return self._place()[0]

    @property
    def heading(self) -> float:
        """Heading relative to the line, rad."""
        assert self._origin is not None
        return wrap(self.pose.yaw - self._origin.yaw)

    def _place(self) -> tuple[float, float]:
        """Distance along the line, and sideways from it (left positive), m."""
        pose, origin = self.pose, self._origin
        assert origin is not None
        dx, dy = pose.x - origin.x, pose.y - origin.y
        cos, sin = math.cos(origin.yaw), math.sin(origin.yaw)
        return dx * cos + dy * sin, dy * cos - dx * sin

    def rest(self, now: float) -> RestDetector:
        """What odometry shows while the robot is commanded to stand."""
        if self._monitor.resists(now):
            return RestDetector.RESISTS
        return RestDetector.STANDS if self._monitor.stands(now) else RestDetector.UNKNOWN

    def fault(self, now: float) -> str:
        """Why the robot must not move now, or ""."""
        if reason := self._watch.fault(now, self._config):
            return reason
        if self._monitor.liveness.is_dead:
            return self._monitor.liveness.reason
        return self._out_of_room() or self._wrong_motion(now)

    def _out_of_room(self) -> str:
        along, aside = self._place()
        if not -BACK_M <= along <= self.room_m + BEYOND_M or abs(aside) > HALF_WIDTH_M:
            return (
                f"the robot is {along:.2f} m ahead and {aside:+.2f} m to the left of where it began, "
                f"which is beyond the room it was given ({self.room_m:g} m ahead)"
            )
        return ""

    def _wrong_motion(self, now: float) -> str:
        step = self._step
        if step is None:
            moved = self._monitor.uncommanded(now)
            return "" if moved is None else moved.reason
        if not step.amount:
            return ""
        if reason := self._stall(step) or self._discrepancy(step, now):
            return reason
        done = step.progress(self._monitor.measured.total) - self._began_with
        if step.turns and done > MOST_SCALE * abs(step.amount) + step.speed * COASTS_S + ROOM_RAD:
            return f"turned {math.degrees(done):.0f} degrees in the step: {step.words}"
        return ""

    def _stall(self, step: CalibrationStep) -> str:
        """The fault of a step that should be moving but shows no motion in odometry, or "".

        This check is faster than `_discrepancy`, which allows for every delay and scale. Whether the base stands, or
        odometry has frozen while the base moves, the robot must be stopped.
        """
        # A search starts below the speed at which the base moves, and stopping is not judged.
        if step.is_search or self._began_at == math.inf:
            return ""
        end = self._heard_at
        delays = [self._latest_s * part / DELAY_PARTS for part in range(DELAY_PARTS + 1)]
        due = min(step.progress(self._monitor.commands.between(end - STALL_S - d, end - d)) for d in delays)
        seen = step.progress(self._monitor.measured.since(end - STALL_S))
        if due < (STALL_RAD if step.turns else STALL_M) or abs(seen) >= STALL_SHARE * due:
            return ""
        what = f"{math.degrees(due):.0f} degrees" if step.turns else f"{due * 100:.0f} cm"
        return f"the base does not respond: {what} were due within {STALL_S:g} s, odometry shows none; is it at rest?"

    def _discrepancy(self, step: CalibrationStep, now: float) -> str:
        """How the odometry of a step contradicts what was commanded, or ""."""
        for window in WINDOWS_S:
            begin = max(self._began_at, now - window)
            if now - begin < SHORTEST_S:
                return ""
            along, turned = expected(self._monitor.commands, begin, now, _WATCHED)
            found = compare(along, turned, self._monitor.measured.since(begin), _WATCHED)
            # A search starts below the speed at which the base moves, so too little motion is no fault.
            if found is not None and not (step.is_search and _is_too_little(found.kind, found.reason)):
                return found.reason
            if begin == self._began_at:
                return ""
        return ""


def _is_too_little(kind: DeviationKind, reason: str) -> bool:
    return kind is DeviationKind.NONE or "not far enough" in reason
