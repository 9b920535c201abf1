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
Whether odometry lives: a real one is never twice the same, not even of a robot that stands.

A source that was seen to change with every message while the robot stood, and then repeats one
pose to the last bit, is stuck, whatever its stamps say. Sources that repeat themselves at rest
(wheel encoders, ideal simulators) are recognised as such, and nothing is concluded from them.
"""

from __future__ import annotations

from collections import deque

from spec_vlm_nav.common.geometry import Pose, wrap

JUDGED_OVER = 30  # messages of a standing robot
CHANGED = 0.9  # the share of them that differs from the one before in a source that never repeats
JITTERS = 0.4  # the share that goes back: noise does; a robot that is moved, or creeps, does not
REST_S = 1.5  # so long after the last command the robot stands
REPEATS_S = 0.5

_Step = tuple[float, float, float]
_NONE: _Step = (0.0, 0.0, 0.0)


class Liveness:
    """Hears every sound pose of one odometry."""

    def __init__(self) -> None:
        self._last: Pose | None = None
        self._step = _NONE
        self._changes: deque[tuple[bool, bool]] = deque(maxlen=JUDGED_OVER)  # changed, went back
        self._is_lively = False
        self._repeats_s = 0.0
        self._changed_at = 0.0

    def hear(self, pose: Pose, now: float, rested_s: float) -> None:
        """Take note of a pose received now; nothing has been commanded for `rested_s` seconds."""
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
        """Learn anew what a source is like that counts as stuck: an operator says it is not."""
        if self.is_dead:
            self._is_lively = False
            self._changes.clear()

    @property
    def is_alive(self) -> bool:
        """Return whether it certainly lives: it never repeats itself, and has not done so now."""
        return self._is_lively and self._repeats_s <= REPEATS_S

    @property
    def is_dead(self) -> bool:
        """Whether it certainly is stuck."""
        return self._is_lively and self._repeats_s > REPEATS_S

    @property
    def reason(self) -> str:
        """Why it counts as stuck."""
        return (
            f"odometry has repeated one pose for {self._repeats_s:.1f} s, "
            "which it never did before: is its driver stuck?"
        )


def _between(one: Pose, other: Pose) -> _Step:
    return other.x - one.x, other.y - one.y, wrap(other.yaw - one.yaw)
