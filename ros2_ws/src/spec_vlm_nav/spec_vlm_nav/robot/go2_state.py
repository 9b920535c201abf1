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
State of a Unitree Go2: its pose, and whether it can carry out motions now.

A Go2 reports its activity in one of two fields. Firmware before the MCF motion service uses `mode`
and leaves `error_code` at 0. Later firmware uses `error_code`, whose numbers are then states, not
errors, and `mode` is meaningless. The activity is read from `error_code` unless it is 0. Posture
and battery are checked in either case.
"""

from __future__ import annotations

from dataclasses import dataclass
import math
from typing import Any

from spec_vlm_nav.common.errors import ParameterError

# Meaning of the numbers; each text completes the sentence "it ...".
MODES = {
    0: "stands idle", 1: "stands balanced", 2: "holds a pose", 3: "walks", 5: "lies down",
    6: "stands with locked joints", 7: "is limp (damping)", 8: "is getting up", 10: "sits", 11: "does a flip",
    12: "jumps", 13: "pounces",
}  # fmt: skip
CODES = {
    100: "walks freely", 1001: "is limp (damping)", 1002: "stands with locked joints",
    1004: "lies or crouches", 1005: "walks", 1006: "does a trick", 1007: "sits", 1008: "jumps",
    1009: "pounces", 1013: "stands balanced", 1015: "walks", 1016: "runs", 1017: "walks economically",
    1091: "holds a pose", 2006: "lies or crouches", 2007: "walks around obstacles", 2008: "bounds",
    2009: "leaps", 2010: "walks the classic way", 2011: "stands on its hands", 2012: "does a flip",
    2013: "does a flip", 2014: "does a flip", 2016: "steps crosswise", 2017: "walks upright",
    2019: "is towed",
}  # fmt: skip
_STANDING_UP = "stand it up and let it balance (StandUp, then BalanceStand, or its remote control)"
HINTS = {
    "lies down": _STANDING_UP,
    "lies or crouches": _STANDING_UP,
    "is limp (damping)": _STANDING_UP,
    "sits": "let it rise and balance (RiseSit, then BalanceStand)",
    "stands with locked joints": "unlock them (BalanceStand)",
}
TILT_BACK = 0.8  # of the limit: hysteresis; below it the robot no longer counts as fallen
HEIGHT_BACK_M = 0.02
BATTERY_BACK = 0.05
UNIT_WITHIN = 0.1  # largest deviation of a valid quaternion's length from 1

Vector = tuple[float, float, float]
Quaternion = tuple[float, float, float, float]  # x, y, z, w, as ROS has it


@dataclass(frozen=True)
class SportState:
    """
    A SportModeState as received; metres and radians.

    `quaternion` is in ROS order (x, y, z, w); Unitree's messages begin with w.
    """

    mode: int = 0
    error_code: int = 0
    rpy: Vector = (0.0, 0.0, 0.0)
    body_height: float = 0.32
    position: Vector = (0.0, 0.0, 0.0)
    quaternion: Quaternion = (0.0, 0.0, 0.0, 1.0)

    @property
    def doing(self) -> str:
        """The activity in words, with its number."""
        if self.error_code:
            return f"{CODES.get(self.error_code, 'does something unknown')} " + (
                f"(error_code {self.error_code})"
            )
        return f"{MODES.get(self.mode, 'does something unknown')} (mode {self.mode})"


def sport_state_of(message: Any) -> SportState:
    """Return a unitree_go/SportModeState as a record."""
    w, x, y, z = map(float, message.imu_state.quaternion)
    roll, pitch, yaw = map(float, message.imu_state.rpy)
    ahead, left, up = map(float, message.position)
    return SportState(
        mode=int(message.mode),
        error_code=int(message.error_code),
        rpy=(roll, pitch, yaw),
        body_height=float(message.body_height),
        position=(ahead, left, up),
        quaternion=(x, y, z, w),
    )


@dataclass(frozen=True)
class Pose3:
    """Position in metres and a unit quaternion."""

    position: Vector
    quaternion: Quaternion


def pose_of(state: SportState) -> Pose3 | None:
    """Return the pose in a message; None if its values are not finite or not a rotation."""
    length = math.sqrt(sum(number * number for number in state.quaternion))
    if not all(math.isfinite(number) for number in (*state.position, length)):
        return None
    if abs(length - 1.0) > UNIT_WITHIN:
        return None
    x, y, z, w = state.quaternion
    return Pose3(state.position, (x / length, y / length, z / length, w / length))


@dataclass(frozen=True)
class Go2Config:
    """Conditions under which the robot can carry out motions; a limit of 0 is not checked."""

    ready_modes: frozenset[int] = frozenset({0, 1, 3})
    ready_codes: frozenset[int] = frozenset({100, 1005, 1013, 1015, 1016, 1017, 2007, 2010})
    state_timeout_s: float = 0.5
    battery_timeout_s: float = 5.0
    min_battery: float = 0.15
    max_tilt_rad: float = 0.6
    min_body_height_m: float = 0.16


@dataclass(frozen=True)
class Readiness:
    """
    Whether the robot can carry out motions, as published in RobotState.

    `kind` is a short constant reason; `reason` also contains the changing measurements.
    """

    ready: bool
    kind: str
    reason: str
    doing: str
    battery: float  # 0 to 1; NaN: not known


def numbers_of(text: str, name: str) -> frozenset[int]:
    """Return the numbers of "0, 1, 3". Raises ParameterError with the parameter's name."""
    try:
        return frozenset(int(word) for word in text.split(",") if word.strip())
    except ValueError as error:
        raise ParameterError(
            f"parameter {name} = {text!r} refused: it must be a comma-separated list of numbers"
        ) from error


class Go2Watch:
    """Judges from received states whether the robot can carry out motions. Receive times, s."""

    def __init__(self, config: Go2Config | None = None) -> None:
        self.config = config or Go2Config()
        self.state: SportState | None = None
        self._heard_at = 0.0
        self._battery, self._battery_at = math.nan, 0.0
        self._is_fallen = self._is_low = self._is_empty = False

    def hear_sport(self, state: SportState, now: float) -> None:
        """Record a SportModeState."""
        self.state, self._heard_at = state, now
        limit = self.config.max_tilt_rad
        tilt = max(abs(state.rpy[0]), abs(state.rpy[1]))
        self._is_fallen = bool(limit) and tilt > limit * (TILT_BACK if self._is_fallen else 1.0)
        lowest = self.config.min_body_height_m
        back = HEIGHT_BACK_M if self._is_low else 0.0
        self._is_low = bool(lowest) and state.body_height < lowest + back

    def hear_battery(self, percent: float, now: float) -> None:
        """Record the battery's state of charge; values outside 0 to 100 count as unknown."""
        self._battery = percent / 100 if 0 <= percent <= 100 else math.nan
        self._battery_at = now
        least = self.config.min_battery
        back = BATTERY_BACK if self._is_empty else 0.0
        # Capped at a full battery: with a high limit the flag could otherwise never clear.
        self._is_empty = bool(least) and self._battery < min(1.0, least + back)

    def battery_at(self, now: float) -> float:
        """Return the battery's charge, 0 to 1; NaN: unknown."""
        return math.nan if self._battery_age_s(now) > self._patience_s else self._battery

    @property
    def _patience_s(self) -> float:
        return self.config.battery_timeout_s or math.inf

    def _battery_age_s(self, now: float) -> float:
        return math.inf if math.isnan(self._battery) else now - self._battery_at

    def judge(self, now: float) -> Readiness:
        """Return whether the robot can carry out motions now, and if not, the gravest reason."""
        doing = self.state.doing if self.state is not None else ""
        kind, reason = self._silent(now) or self._unfit() or self._weak(now) or ("", "")
        return Readiness(not kind, kind, reason, doing, self.battery_at(now))

    def _silent(self, now: float) -> tuple[str, str] | None:
        if self.state is None:
            return "silent", "nothing heard yet of the Go2: is it on, and on this network?"
        silent_s, longest = now - self._heard_at, self.config.state_timeout_s
        if longest and silent_s > longest:
            return "silent", f"the Go2 has not reported its state for {silent_s:.1f} s"
        return None

    def _unfit(self) -> tuple[str, str] | None:
        """Return why posture or activity forbids motions."""
        state, config = self.state, self.config
        assert state is not None
        if not all(math.isfinite(number) for number in (*state.rpy, state.body_height)):
            return "no numbers", "the Go2 reports a NaN attitude or height"
        if self._is_fallen:
            roll, pitch = (math.degrees(angle) for angle in state.rpy[:2])
            limit = math.degrees(config.max_tilt_rad)
            return "fallen", (
                f"the Go2 has fallen or hangs: roll {roll:.0f}, pitch {pitch:.0f} degrees, "
                f"the limit is {limit:.0f}"
            )
        known = config.ready_codes if state.error_code else config.ready_modes
        if (state.error_code or state.mode) not in known:
            name = "ready_codes" if state.error_code else "ready_modes"
            what = state.doing.rsplit(" (", 1)[0]
            hint = HINTS.get(what, f"that is not one of {name}")
            return what, f"the Go2 {state.doing}: {hint}"
        if self._is_low:
            return "low", (
                f"the Go2 does not stand: its body is at {state.body_height:.2f} m, "
                f"at least {config.min_body_height_m:g} m are needed"
            )
        return None

    def _weak(self, now: float) -> tuple[str, str] | None:
        least = self.config.min_battery
        if not least:
            return None
        if math.isnan(self.battery_at(now)):
            return "battery unknown", (
                "the battery of the Go2 is not known: nothing sound heard on lowstate "
                "(min_battery 0 does without)"
            )
        if self._is_empty:
            return "battery", (
                f"the battery of the Go2 is at {100 * self._battery:.0f} %, "
                f"at least {100 * least:.0f} % are needed"
            )
        return None
