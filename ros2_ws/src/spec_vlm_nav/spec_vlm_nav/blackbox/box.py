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

"""The black box itself: it takes messages, detects triggers, and returns recordings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
import json
from typing import Any

from spec_vlm_nav.blackbox.folder import Usage
from spec_vlm_nav.blackbox.ring import Ring, RingContents, Stamp
from spec_vlm_nav.blackbox.triggers import ASKED, ended_of, Schedule, Trigger, TriggerWatch
from spec_vlm_nav.common.diagnostics import DiagnosticRow, Level
from spec_vlm_nav.common.errors import one_line
from spec_vlm_nav.common.status import Status

MB = 1_000_000
METADATA = "spec_vlm_nav.blackbox"
SCHEMA = 1


@dataclass(frozen=True)
class Recording:
    """
    The content of one file.

    taken_at (steady clock, s) and taken_ns (wall clock, ns) are the same moment. Receive times are
    converted to wall time by it, so that a jump of the wall clock does not reorder them.
    facts: further metadata, serialisable as JSON.
    """

    triggers: tuple[Trigger, ...]
    more_triggers: int
    contents: RingContents
    taken_at: float
    taken_ns: int
    facts: Mapping[str, Any]

    def time_ns(self, at: float) -> int:
        """Convert a receive time to the wall clock, ns."""
        return self.taken_ns - round((self.taken_at - at) * 1e9)

    @property
    def length_s(self) -> float:
        """Return the time from the first entry to the end of the recording, s."""
        entries = self.contents.entries
        return self.taken_at - entries[0].at if entries else 0.0

    def metadata(self) -> dict[str, str]:
        """Return the triggers and facts as mcap metadata: texts by name."""
        told = [{"time_ns": self.time_ns(t.at), "word": t.word, "detail": t.detail} for t in self.triggers]
        first = self.triggers[0]
        return {
            "schema": str(SCHEMA),
            "reason": first.word,
            "detail": first.detail,
            "time_ns": str(self.time_ns(first.at)),
            "triggers": json.dumps(told),
            "more_triggers": str(self.more_triggers),
            **{k: v if isinstance(v, str) else json.dumps(v) for k, v in self.facts.items()},
        }


@dataclass(frozen=True)
class BoxConfig:
    """
    The bounds of the black box.

    keep_s, memory_bytes: bounds of the ring. after_s: delay from a trigger to its file.
    min_gap_s: shortest time between two files. silence_s: silence of motion_node that is a fault;
    0: it is not watched.
    """

    keep_s: float = 60.0
    memory_bytes: int = 64 << 20
    after_s: float = 5.0
    min_gap_s: float = 30.0
    silence_s: float = 2.0


class BlackBox:
    """
    Combines ring, trigger watch and schedule. Times are of a steady clock, s.

    pictures: topics that are thinned out when memory is short. lasting: topics whose newest message
    stays valid. on_trigger: called with every trigger. Pictures may be added to `ring` from another
    thread.
    """

    def __init__(
        self,
        config: BoxConfig,
        pictures: Collection[str],
        lasting: Collection[str],
        on_trigger: Callable[[Trigger], None],
    ) -> None:
        self.ring = Ring(config.keep_s, config.memory_bytes, pictures, lasting)
        self._watch = TriggerWatch(config.silence_s)
        self.schedule = Schedule(config.after_s, config.min_gap_s)
        self._on_trigger = on_trigger
        self._instruction = ""
        self._then: dict[str, str] = {}
        self.last_word = ""

    def configure(self, config: BoxConfig) -> None:
        """Apply new bounds."""
        self.ring.keep_s, self.ring.max_bytes = config.keep_s, config.memory_bytes
        self.schedule.after_s, self.schedule.gap_s = config.after_s, config.min_gap_s
        self._watch.silence_s = config.silence_s

    def on_instruction(self, text: str) -> None:
        """Record the instruction."""
        self._instruction = one_line(text)

    def on_decided(self, stamp: Stamp, instruction: str, now: float) -> None:
        """Record a decision: its picture and its instruction."""
        self.ring.decided_from(stamp, now)
        if instruction:
            self.on_instruction(instruction)

    def on_status(self, status: Status, now: float) -> None:
        """Handle a status report of motion_node."""
        self._fire(self._watch.on_status(status, now))

    def on_button(self, pressed: bool, now: float) -> None:
        """Handle a message on `e_stop`."""
        self._fire(self._watch.on_button(pressed, now))

    def on_ended(self, text: str, now: float) -> None:
        """Handle vlm_nav_node's report of the end of an instruction. Raises ValueError."""
        ended = ended_of(text)
        if ended.instruction:
            self._instruction = ended.instruction
        self._fire(self._watch.on_ended(ended, now))

    def ask(self, now: float) -> None:
        """Request a file without a fault."""
        self._fire([Trigger(now, ASKED, "service write")])

    def take(
        self, now: float, now_ns: int, facts: Mapping[str, Any], at_once: bool = False
    ) -> Recording | None:
        """
        Return the recording that is to be written now, if any.

        now_ns: the same moment by the wall clock. facts: further metadata of the file. at_once: do
        not wait for the delay after a trigger.
        """
        self._fire(self._watch.tick(now))
        triggers, more = self.schedule.take(now, at_once)
        if not triggers:
            return None
        contents = self.ring.contents(now)
        own: dict[str, Any] = {
            **self._then,
            "dropped_pictures": self.ring.dropped_pictures,
            "oversized_messages": self.ring.oversized,
        }
        return Recording(triggers, more, contents, now, now_ns, {**own, **facts})

    def row(self, usage: Usage, max_bytes: int, failed: int, trouble: str, now: float) -> DiagnosticRow:
        """
        Return the row of /diagnostics.

        max_bytes: bound of all files. failed: number of files that could not be written. trouble:
        why the last one could not be written, or "".
        """
        ring = self.ring
        values: dict[str, object] = {
            "buffer s": ring.span_s(now),
            "buffer MB": ring.size / MB,
            "buffer bound MB": ring.max_bytes / MB,
            "messages": ring.count,
            "dropped pictures": ring.dropped_pictures,
            "oversized messages": ring.oversized,
            "files": usage.files,
            "files MB": usage.size / MB,
            "files bound MB": max_bytes / MB,
            "failed files": failed,
            "last reason": self.last_word or "none",
        }
        said = f"{ring.count} messages"
        if self.schedule.waiting:
            said = f"{self.last_word}: written in {self.schedule.due_in_s(now):.0f} s"
        level = Level.ERROR if trouble else Level.OK
        return DiagnosticRow("black box", level, trouble or said, values)

    def _fire(self, triggers: list[Trigger]) -> None:
        for trigger in triggers:
            if not self.schedule.waiting:
                self._then = {"instruction": self._instruction, "state": self._state()}
            self.last_word = trigger.word
            self.schedule.fire(trigger)
            self._on_trigger(trigger)

    def _state(self) -> str:
        status = self._watch.status
        if status is None:
            return "motion_node was not heard"
        words = [f"{status.state.name} (command {status.sequence})", one_line(status.reason)]
        if status.held_by:
            words.append(f"held by {one_line(status.held_by)}")
        return ", ".join(word for word in words if word)
