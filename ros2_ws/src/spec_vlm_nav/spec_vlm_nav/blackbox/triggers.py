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
What calls for a file: faults of the motion side, e-stops, failed instructions, and silence; and when.

Each is reported once, when it begins. What had begun before the black box listened is not reported.
"""

from __future__ import annotations

from dataclasses import dataclass
import json

from spec_vlm_nav.common.codes import ErrorCode, MotionState
from spec_vlm_nav.common.foreign_words import one_line
from spec_vlm_nav.common.status import Status, WATCHDOG_STATES

FAULTS = WATCHDOG_STATES | {MotionState.GEOFENCE}
NOT_FAILED = frozenset({ErrorCode.NONE.name, ErrorCode.CANCELED.name})
MOST_TRIGGERS = 100  # of one file; the rest are only counted
ESTOP, SILENT, ASKED = "ESTOP", "MOTION_NODE_SILENT", "ASKED"


@dataclass(frozen=True)
class Trigger:
    """Why a file is written: when (steady clock, s), one word, and what was said about it."""

    at: float
    word: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.word}: {self.detail}" if self.detail else self.word


@dataclass(frozen=True)
class Ended:
    """How an instruction ended: its text if it is said, a name of ErrorCode, why in one line."""

    instruction: str
    code: str
    message: str

    @property
    def failed(self) -> bool:
        """Whether it neither succeeded nor was called off."""
        return self.code not in NOT_FAILED


def ended_of(text: str) -> Ended:
    """Read vlm_nav_node's word on the end of an instruction. Raises ValueError."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no JSON ({one_line(str(error))})") from error
    if not isinstance(said, dict) or not isinstance(said.get("code"), (str, int)):
        raise ValueError("it has no code")
    code = said["code"]
    if not isinstance(code, str):
        try:
            code = ErrorCode(code).name
        except ValueError:
            code = f"CODE_{int(code)}"  # a newer vlm_nav_node's
    instruction = said.get("instruction")
    return Ended(
        one_line(instruction) if isinstance(instruction, str) else "",
        one_line(code) or "UNKNOWN",
        one_line(str(said.get("message", ""))),
    )


class TriggerWatch:
    """
    Tells when something begins that calls for a file.

    silence_s: motion_node says something twice a second; no word for so long is a fault, s; 0: it
    is not watched.
    """

    def __init__(self, silence_s: float) -> None:
        self.silence_s = silence_s
        self.status: Status | None = None
        self._heard_at = 0.0
        self._silent = False
        self._pressed = False

    def on_status(self, status: Status, at: float) -> list[Trigger]:
        """Take motion_node's word."""
        before, self.status = self.status, status
        self._heard_at, self._silent = at, False
        if before is None:
            return []
        found = []
        if status.estopped and not before.estopped:
            found.append(Trigger(at, ESTOP, one_line(status.held_by or status.reason)))
        elif not status.estopped and before.estopped:
            self._pressed = False  # a button may say only that it was pressed
        if status.state in FAULTS and _event(status) != _event(before):
            found.append(Trigger(at, status.state.name, one_line(status.reason)))
        return found

    def on_button(self, pressed: bool, at: float) -> list[Trigger]:
        """Take a word on `e_stop`: it counts although motion_node may not hear it."""
        before, self._pressed = self._pressed, pressed
        return [Trigger(at, ESTOP, "topic e_stop")] if pressed and not before else []

    def on_ended(self, ended: Ended, at: float) -> list[Trigger]:
        """Take the end of an instruction."""
        return [Trigger(at, f"FAILED_{ended.code}", ended.message)] if ended.failed else []

    def tick(self, now: float) -> list[Trigger]:
        """Look whether motion_node has gone silent."""
        quiet_s = now - self._heard_at
        if self.status is None or self._silent or not 0 < self.silence_s < quiet_s:
            return []
        self._silent = True
        return [Trigger(now, SILENT, f"no motion_status for {quiet_s:.1f} s")]


def _event(status: Status) -> tuple[MotionState, int, int]:
    return status.state, status.session, status.sequence


class Schedule:
    """
    Gathers triggers into files: each is due a while after a trigger, and no two too close together.

    No trigger is lost: those that come while a file is due go into it, and those that come too soon
    after a file wait for the next one, which the ring is long enough for.

    after_s: from a trigger to its file; gap_s: between the times that two files are due, s.
    """

    def __init__(self, after_s: float, gap_s: float) -> None:
        self.after_s, self.gap_s = after_s, gap_s
        self._triggers: list[Trigger] = []
        self._more = 0
        self._due_at = 0.0
        self._last_at = -1e18

    @property
    def waiting(self) -> bool:
        """Whether a file is to be written."""
        return bool(self._triggers)

    def due_in_s(self, now: float) -> float:
        """Return when the file is to be written, from now, s."""
        return max(0.0, self._due_at - now)

    def fire(self, trigger: Trigger) -> None:
        """Take a trigger. The first one sets the time: a storm must not put the file off."""
        if not self._triggers:
            self._due_at = max(trigger.at + self.after_s, self._last_at + self.gap_s)
        if len(self._triggers) < MOST_TRIGGERS:
            self._triggers.append(trigger)
        else:
            self._more += 1

    def take(self, now: float, at_once: bool = False) -> tuple[tuple[Trigger, ...], int]:
        """
        Return the triggers of the file to write now, and how many more there were.

        () when there is none. at_once: do not wait, the node is about to end.
        """
        if not self._triggers or (now < self._due_at and not at_once):
            return (), 0
        taken = tuple(self._triggers), self._more
        self._triggers, self._more, self._last_at = [], 0, now
        return taken
