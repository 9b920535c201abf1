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
Detects triggers (motion faults, e-stops, failed instructions, silence) and schedules the files.

Each trigger is reported once, when it begins. Faults from before the black box started are not
reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
from spec_vlm_nav.common.codes import ErrorCode, MotionState
from spec_vlm_nav.common.errors import one_line
from spec_vlm_nav.common.status import Status, WATCHDOG_STATES

FAULTS = WATCHDOG_STATES | {MotionState.GEOFENCE}
NOT_FAILED = frozenset({ErrorCode.NONE.name, ErrorCode.CANCELED.name})
MOST_TRIGGERS = 100  # stored in one file; further ones are only counted
ESTOP, SILENT, ASKED = "ESTOP", "MOTION_NODE_SILENT", "ASKED"


@dataclass(frozen=True)
class Trigger:
    """Why a file is written: the time (steady clock, s), one word, and a detail."""

    at: float
    word: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.word}: {self.detail}" if self.detail else self.word


class Ended(msgspec.Struct, frozen=True):
    """How an instruction ended: an ErrorCode's name or number, the text, and a message."""

    code: str | int
    instruction: Any = ""  # a report that names no text still calls for a file
    message: Any = ""


def ended_of(text: str) -> Ended:
    """Parse vlm_nav_node's report of the end of an instruction. Raises ValueError."""
    try:
        said = msgspec.json.decode(text, type=Ended)
    except msgspec.ValidationError as error:
        raise ValueError(f"not an outcome ({one_line(str(error))})") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"not JSON ({one_line(str(error))})") from error
    code = said.code
    if isinstance(code, int):
        names = {one.value: one.name for one in ErrorCode}
        code = names.get(code, f"CODE_{code}")  # of a newer vlm_nav_node
    instruction = said.instruction if isinstance(said.instruction, str) else ""
    return Ended(*map(one_line, (code, instruction, str(said.message))))


class TriggerWatch:
    """
    Detects the beginning of each trigger.

    silence_s: silence of motion_node that is a fault, s (it reports twice a second); 0: not
    watched.
    """

    def __init__(self, silence_s: float) -> None:
        self.silence_s = silence_s
        self.status: Status | None = None
        self._heard_at = 0.0
        self._silent = False
        self._pressed = False

    def on_status(self, status: Status, at: float) -> list[Trigger]:
        """Handle a status report of motion_node."""
        before, self.status = self.status, status
        self._heard_at, self._silent = at, False
        if before is None:
            return []
        found = []
        if status.estopped and not before.estopped:
            found.append(Trigger(at, ESTOP, one_line(status.held_by or status.reason)))
        elif not status.estopped and before.estopped:
            self._pressed = False  # a button may publish only presses, never releases
        if status.state in FAULTS and _event(status) != _event(before):
            found.append(Trigger(at, status.state.name, one_line(status.reason)))
        return found

    def on_button(self, pressed: bool, at: float) -> list[Trigger]:
        """Handle a message on `e_stop`; it counts even if motion_node does not receive it."""
        before, self._pressed = self._pressed, pressed
        return [Trigger(at, ESTOP, "topic e_stop")] if pressed and not before else []

    def on_ended(self, ended: Ended, at: float) -> list[Trigger]:
        """Handle the end of an instruction."""
        return [Trigger(at, f"FAILED_{ended.code}", ended.message)] if ended.code not in NOT_FAILED else []

    def tick(self, now: float) -> list[Trigger]:
        """Check whether motion_node has fallen silent."""
        quiet_s = now - self._heard_at
        if self.status is None or self._silent or not 0 < self.silence_s < quiet_s:
            return []
        self._silent = True
        return [Trigger(now, SILENT, f"no motion_status for {quiet_s:.1f} s")]


def _event(status: Status) -> tuple[MotionState, int, int]:
    return status.state, status.session, status.sequence


class Schedule:
    """
    Groups triggers into files.

    A file is due after_s after its first trigger, and at least gap_s after the previous file. No
    trigger is lost: triggers before the due time go into the same file, and those too soon after a
    file go into the next one; the ring is long enough for both.

    after_s: delay from a trigger to its file, s. gap_s: least time between two files, s.
    """

    def __init__(self, after_s: float, gap_s: float) -> None:
        self.after_s, self.gap_s = after_s, gap_s
        self._triggers: list[Trigger] = []
        self._more = 0
        self._due_at = 0.0
        self._last_at = -1e18

    @property
    def waiting(self) -> bool:
        """Whether a file is due or scheduled."""
        return bool(self._triggers)

    def due_in_s(self, now: float) -> float:
        """Return the time until the file is due, s."""
        return max(0.0, self._due_at - now)

    def fire(self, trigger: Trigger) -> None:
        """Add a trigger. Only the first sets the due time: a storm must not delay the file."""
        if not self._triggers:
            self._due_at = max(trigger.at + self.after_s, self._last_at + self.gap_s)
        if len(self._triggers) < MOST_TRIGGERS:
            self._triggers.append(trigger)
        else:
            self._more += 1

    def take(self, now: float, at_once: bool = False) -> tuple[tuple[Trigger, ...], int]:
        """
        Return the triggers of the file to write now, and the number of further ones.

        Returns () if no file is due. at_once: do not wait, because the node is about to end.
        """
        if not self._triggers or (now < self._due_at and not at_once):
            return (), 0
        taken = tuple(self._triggers), self._more
        self._triggers, self._more, self._last_at = [], 0, now
        return taken
