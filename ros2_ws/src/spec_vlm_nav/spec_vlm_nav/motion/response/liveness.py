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
Detects stuck odometry: a noisy source never repeats a pose exactly, even at rest.

A source whose pose changed with every message while the robot stood, and which then repeats one
pose bit for bit, is stuck, whatever its stamps say. Sources that repeat poses at rest (wheel
encoders, ideal simulators) are recognised and never judged as stuck.
"""

from __future__ import annotations

from collections import deque

from spec_vlm_nav.common.geometry import Pose, wrap

JUDGED_OVER = 30  # messages of a standing robot
CHANGED = 0.9  # least share of messages that differ from their predecessor, for a noisy source
JITTERS = 0.4  # least share of steps that reverse: noise does, a robot that creeps does not
REST_S = 1.5  # time after the last command from which the robot counts as standing
REPEATS_S = 0.5

_Step = tuple[float, float, float]
_NONE: _Step = (0.0, 0.0, 0.0)


class Liveness:
    """Judges one odometry source from every valid pose."""

    def __init__(self) -> None:
        self._last: Pose | None = None
        self._step = _NONE
        self._changes: deque[tuple[bool, bool]] = deque(maxlen=JUDGED_OVER)  # changed, went back
        self._is_lively = False
        self._repeats_s = 0.0
        self._changed_at = 0.0

    def hear(self, pose: Pose, now: float, rested_s: float) -> None:
        """Record a pose received now; rested_s: how long no motion has been commanded, s."""
        step = _NONE if self._last is None else _between(self._last, pose)
        changed = self._last is None or step != _NONE
        back = any(one * other < 0 for one, other in zip(step, self._step, strict=True))
        self._last, self._step = pose, step
        if changed:
            self._changed_at = now
        self._repeats_s = now - self._changed_at
        if rested_s > REST_S and not self.is_dead:
            self._changes.append((changed, back))
            if len(self._changes) == JUDGED_OVER and not self._is_lively:
                self._is_lively = self._looks_lively()

    def _looks_lively(self) -> bool:
        changed = sum(changed for changed, _ in self._changes)
        back = sum(back for _, back in self._changes)
        return changed >= CHANGED * JUDGED_OVER and back >= JITTERS * JUDGED_OVER

    def forgive(self) -> None:
        """Judge a stuck source anew: an operator has reset it."""
        if self.is_dead:
            self._is_lively = False
            self._changes.clear()

    @property
    def is_alive(self) -> bool:
        """Return whether the source is certainly alive: it never repeats, and does not repeat now."""
        return self._is_lively and self._repeats_s <= REPEATS_S

    @property
    def is_dead(self) -> bool:
        """Whether the source is certainly stuck."""
        return self._is_lively and self._repeats_s > REPEATS_S

    @property
    def reason(self) -> str:
        """Why the source counts as stuck."""
        return (
            f"odometry has repeated one pose for {self._repeats_s:.1f} s, "
            "which it never did before: is its driver stuck?"
        )


def _between(one: Pose, other: Pose) -> _Step:
    return other.x - one.x, other.y - one.y, wrap(other.yaw - one.yaw)
