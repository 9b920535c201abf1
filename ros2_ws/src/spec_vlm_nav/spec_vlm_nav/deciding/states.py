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
The navigator's transition table: state x event -> handler and possible next states.

`react` is the only place where events are handled. An event without a cell for the current state
is ignored. `python -m spec_vlm_nav.deciding.states` prints docs/navigator.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
import enum
from typing import Any

from spec_vlm_nav.deciding.handlers import decisions, inputs, instructions
from spec_vlm_nav.deciding.parts.interfaces import NavigatorPhase
from spec_vlm_nav.deciding.parts.situation import Situation

IDLE, LOOKING, THINKING, MOVING = NavigatorPhase
MEANINGS = {
    IDLE: "no instruction, or it is over",
    LOOKING: "waits for a frame newer than the last motion, or for a missing input",
    THINKING: "the model decides",
    MOVING: "motion_node carries out a motion; the answer may still be streaming",
}


class NavigatorEvent(enum.Enum):
    """Events of the navigator; the value is their description."""

    INSTRUCTION = "an instruction arrived"
    REFUSAL = "an instruction arrived that must not begin"
    CANCEL = "cancel, or a stop word as an instruction"
    OPERATOR_STOP = "the operator stopped the robot at motion_node"
    ESTOP = "the emergency stop is latched"
    RESET = "the emergency stop was reset"
    LINK_LOST = "the verifier is not heard"
    LINK_BACK = "the verifier is heard again"
    CAMERA_STALE = "no trusted frame for too long"
    FRAME = "a new frame arrived; also the newest frame again at each tick"
    ACTION_FOUND = "the action sentence is complete"
    ANSWERED = "the answer is complete"
    FAILED = "the decision failed"
    DECISION_LATE = "the decision takes too long"
    CONFIRMED = "the target confirms the draft model's action"
    REFUTED = "the target decides otherwise"
    MOTION_GOES_ON = "motion_node reports the motion under way"
    MOTION_ENDED = "motion_node reports the motion's end"
    MOTION_SILENT = "a report of motion_node is overdue"
    STALLED = "this process itself stalled"
    TICK = "time passes"


Handler = Callable[[Situation, Any, float], None]
"""Takes the situation, the event's payload, and the time (steady clock, s)."""


@dataclass(frozen=True)
class Reaction:
    """One cell of the table: the handler, and the states it may lead to."""

    handler: Handler
    leads_to: tuple[NavigatorPhase, ...]

    @property
    def name(self) -> str:
        """Return the handler's name."""
        return self.handler.__name__


def _in_all(handler: Handler, leads_to: NavigatorPhase) -> dict[NavigatorPhase, Reaction]:
    return {phase: Reaction(handler, (leads_to,)) for phase in NavigatorPhase}


def _busy(handler: Handler, *leads_to: NavigatorPhase) -> dict[NavigatorPhase, Reaction]:
    """Return the cells of all states but IDLE; without `leads_to`: the state itself, or IDLE."""
    busy = (LOOKING, THINKING, MOVING)
    return {phase: Reaction(handler, leads_to or (phase, IDLE)) for phase in busy}


def _same(handler: Handler, *phases: NavigatorPhase) -> dict[NavigatorPhase, Reaction]:
    return {phase: Reaction(handler, (phase,)) for phase in phases}


TABLE: Mapping[NavigatorEvent, Mapping[NavigatorPhase, Reaction]] = {
    NavigatorEvent.INSTRUCTION: _in_all(instructions.begin, LOOKING),
    NavigatorEvent.REFUSAL: _in_all(instructions.turn_down, IDLE),
    NavigatorEvent.CANCEL: _in_all(instructions.cancel, IDLE),
    NavigatorEvent.OPERATOR_STOP: _busy(instructions.cancel, IDLE),
    NavigatorEvent.ESTOP: _busy(instructions.end_estopped, IDLE),
    NavigatorEvent.RESET: _same(instructions.note_reset, IDLE),
    NavigatorEvent.LINK_LOST: {
        **_same(inputs.report_link_lost, LOOKING, THINKING),
        MOVING: Reaction(inputs.hold_without_link, (LOOKING, MOVING)),
    },
    NavigatorEvent.LINK_BACK: _same(inputs.note_link_back, *NavigatorPhase),
    NavigatorEvent.CAMERA_STALE: {
        **_same(inputs.report_no_frames, LOOKING, THINKING),
        MOVING: Reaction(inputs.hold_without_frames, (LOOKING,)),
    },
    NavigatorEvent.FRAME: {
        LOOKING: Reaction(inputs.decide, (LOOKING, THINKING, MOVING, IDLE)),
        MOVING: Reaction(inputs.prefetch, (MOVING,)),
    },
    NavigatorEvent.ACTION_FOUND: {
        **_same(decisions.take_action, LOOKING, MOVING),
        THINKING: Reaction(decisions.take_action, (THINKING, MOVING, LOOKING, IDLE)),
    },
    NavigatorEvent.ANSWERED: {
        **_same(decisions.take_answer, IDLE, LOOKING, MOVING),
        THINKING: Reaction(decisions.take_answer, (MOVING, LOOKING, IDLE)),
    },
    NavigatorEvent.FAILED: {
        IDLE: Reaction(decisions.note_failure, (IDLE,)),
        LOOKING: Reaction(decisions.take_failure, (LOOKING, IDLE)),
        THINKING: Reaction(decisions.take_failure, (LOOKING, THINKING, IDLE)),
        MOVING: Reaction(decisions.take_failure, (LOOKING, MOVING, IDLE)),
    },
    NavigatorEvent.DECISION_LATE: {
        LOOKING: Reaction(decisions.time_out, (LOOKING, IDLE)),
        THINKING: Reaction(decisions.time_out, (LOOKING, IDLE)),
        MOVING: Reaction(decisions.time_out, (LOOKING, MOVING, IDLE)),
    },
    NavigatorEvent.CONFIRMED: {
        # Until the draft model's STOP is confirmed, no decision is made.
        LOOKING: Reaction(decisions.confirm, (LOOKING, IDLE)),
        **_same(decisions.confirm, THINKING, MOVING),
    },
    NavigatorEvent.REFUTED: _busy(decisions.roll_back, LOOKING),
    NavigatorEvent.MOTION_GOES_ON: _same(inputs.follow, MOVING),
    NavigatorEvent.MOTION_ENDED: {MOVING: Reaction(inputs.look_again, (LOOKING, IDLE))},
    NavigatorEvent.MOTION_SILENT: {MOVING: Reaction(inputs.hold_silent, (LOOKING, IDLE))},
    NavigatorEvent.STALLED: _busy(instructions.mind_stall, LOOKING, IDLE),
    NavigatorEvent.TICK: _busy(instructions.mind_bounds),
}


def react(situation: Situation, event: NavigatorEvent, what: Any, now: float) -> None:
    """Call the handler that the table has for this event in the current state."""
    reaction = TABLE[event].get(situation.phase)
    if reaction is not None:
        reaction.handler(situation, what, now)


# -- the page


def page() -> str:
    """Return docs/navigator.md."""
    return "\n\n".join((INTRODUCTION, _states(), _diagram(), _table(), _handlers())) + "\n"


INTRODUCTION = """\
# The navigator's states

Made by `python -m spec_vlm_nav.deciding.states`; do not edit it by hand.

The navigator (`deciding/navigator.py`) turns every input into one of the events below and looks up
the handler in this table. There is no other way from one state to another. An empty cell means that
the event is ignored in that state."""


def _states() -> str:
    rows = [f"| {phase.name} | {meaning} |" for phase, meaning in MEANINGS.items()]
    return "\n".join(("| state | meaning |", "|---|---|", *rows))


def _diagram() -> str:
    """Return the state diagram: all transitions with their events."""
    causes: dict[tuple[NavigatorPhase, NavigatorPhase], list[str]] = {}
    for event, phase, reaction in _cells():
        for after in reaction.leads_to:
            if after is not phase:
                causes.setdefault((phase, after), []).append(event.name)
    arrows = [f"    {a.name} --> {b.name}: {', '.join(by)}" for (a, b), by in causes.items()]
    return "\n".join(("```mermaid", "stateDiagram-v2", "    [*] --> IDLE", *arrows, "```"))


def _table() -> str:
    rows = [f"| event | {' | '.join(phase.name for phase in NavigatorPhase)} |", "|---" * 5 + "|"]
    for event, cells in TABLE.items():
        shown = " | ".join(_shown(cells.get(phase)) for phase in NavigatorPhase)
        rows.append(f"| **{event.name}**: {event.value} | {shown} |")
    return "\n".join(("`handler` → possible next states", "", *rows))


def _shown(reaction: Reaction | None) -> str:
    if reaction is None:
        return ""
    return f"`{reaction.name}` → {', '.join(phase.name for phase in reaction.leads_to)}"


def _handlers() -> str:
    handlers = {reaction.name: reaction.handler for _, _, reaction in _cells()}
    rows = ["| handler | in `deciding/handlers/` |", "|---|---|"]
    for name, handler in handlers.items():
        said = (handler.__doc__ or "").strip().splitlines()[0]
        rows.append(f"| `{name}`: {said} | {handler.__module__.rpartition('.')[2]}.py |")
    return "\n".join(rows)


def _cells() -> Iterator[tuple[NavigatorEvent, NavigatorPhase, Reaction]]:
    for event, cells in TABLE.items():
        for phase, reaction in cells.items():
            yield event, phase, reaction


if __name__ == "__main__":
    import sys

    sys.stdout.write(page())
