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
The navigator's states as data: state x event -> what is done, and the states that may follow.

`react` is the only way in which an event leads to anything. An event that a state has no cell for
is of no interest there. `python -m spec_vlm_nav.deciding.states` prints docs/navigator.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
import enum
from typing import Any

from spec_vlm_nav.deciding.handlers import clocks, decisions, motions, operator, sensors
from spec_vlm_nav.deciding.parts.interfaces import NavigatorPhase
from spec_vlm_nav.deciding.parts.situation import Situation

IDLE, LOOKING, THINKING, MOVING = NavigatorPhase
MEANINGS = {
    IDLE: "no instruction, or it is over",
    LOOKING: "waits for a frame newer than the last motion, or for what is missing",
    THINKING: "the model decides",
    MOVING: "motion_node carries a motion out; the answer may still be streaming",
}


class NavigatorEvent(enum.Enum):
    """What can happen to the navigator; the value says it in words."""

    INSTRUCTION = "an instruction came"
    REFUSAL = "an instruction came that may not begin"
    CANCEL = "cancel, or a stop word as an instruction"
    OPERATOR_STOP = "the operator stopped the robot at motion_node"
    ESTOP = "the emergency stop is latched"
    RESET = "the emergency stop was reset"
    LINK_LOST = "the verifier is not heard"
    LINK_BACK = "the verifier is heard again"
    CAMERA_STALE = "no frame that can be trusted for too long"
    FRAME = "there is a frame: a new one, or still at a tick"
    ACTION_FOUND = "the action sentence is complete"
    ANSWERED = "the answer is complete"
    FAILED = "the decision failed"
    DECISION_LATE = "the decision takes too long"
    CONFIRMED = "the target says what the draft model said alone"
    REFUTED = "the target says something else"
    MOTION_GOES_ON = "motion_node reports the motion under way"
    MOTION_ENDED = "motion_node reports its end"
    MOTION_SILENT = "motion_node should have reported by now"
    STALLED = "this process itself stood still"
    TICK = "time passes"


Handler = Callable[[Situation, Any, float], None]


@dataclass(frozen=True)
class Reaction:
    """One cell: what is done, and the states that the navigator may be in afterwards."""

    handler: Handler
    leads_to: tuple[NavigatorPhase, ...]

    @property
    def name(self) -> str:
        """Return the handler's name."""
        return self.handler.__name__


def _in_all(handler: Handler, leads_to: NavigatorPhase) -> dict[NavigatorPhase, Reaction]:
    return {phase: Reaction(handler, (leads_to,)) for phase in NavigatorPhase}


def _busy(handler: Handler, *leads_to: NavigatorPhase) -> dict[NavigatorPhase, Reaction]:
    """Whatever is done about the instruction; without `leads_to` the state stays or is IDLE."""
    busy = (LOOKING, THINKING, MOVING)
    return {phase: Reaction(handler, leads_to or (phase, IDLE)) for phase in busy}


def _same(handler: Handler, *phases: NavigatorPhase) -> dict[NavigatorPhase, Reaction]:
    return {phase: Reaction(handler, (phase,)) for phase in phases}


TABLE: Mapping[NavigatorEvent, Mapping[NavigatorPhase, Reaction]] = {
    NavigatorEvent.INSTRUCTION: _in_all(operator.begin, LOOKING),
    NavigatorEvent.REFUSAL: _in_all(operator.turn_down, IDLE),
    NavigatorEvent.CANCEL: _in_all(operator.cancel, IDLE),
    NavigatorEvent.OPERATOR_STOP: _busy(operator.cancel, IDLE),
    NavigatorEvent.ESTOP: _busy(operator.end_estopped, IDLE),
    NavigatorEvent.RESET: _same(operator.note_reset, IDLE),
    NavigatorEvent.LINK_LOST: {
        **_same(sensors.report_link_lost, LOOKING, THINKING),
        MOVING: Reaction(sensors.hold_without_link, (LOOKING, MOVING)),
    },
    NavigatorEvent.LINK_BACK: _same(sensors.note_link_back, *NavigatorPhase),
    NavigatorEvent.CAMERA_STALE: {
        **_same(sensors.report_no_frames, LOOKING, THINKING),
        MOVING: Reaction(sensors.hold_without_frames, (LOOKING,)),
    },
    NavigatorEvent.FRAME: {
        LOOKING: Reaction(sensors.decide, (LOOKING, THINKING, MOVING, IDLE)),
        MOVING: Reaction(sensors.prefetch, (MOVING,)),
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
        # While the draft model's STOP is not confirmed nothing is decided.
        LOOKING: Reaction(decisions.confirm, (LOOKING, IDLE)),
        **_same(decisions.confirm, THINKING, MOVING),
    },
    NavigatorEvent.REFUTED: _busy(decisions.roll_back, LOOKING),
    NavigatorEvent.MOTION_GOES_ON: _same(motions.follow, MOVING),
    NavigatorEvent.MOTION_ENDED: {MOVING: Reaction(motions.look_again, (LOOKING, IDLE))},
    NavigatorEvent.MOTION_SILENT: {MOVING: Reaction(motions.hold_silent, (LOOKING, IDLE))},
    NavigatorEvent.STALLED: _busy(clocks.mind_stall, LOOKING, IDLE),
    NavigatorEvent.TICK: _busy(clocks.mind_bounds),
}


def react(situation: Situation, event: NavigatorEvent, what: Any, now: float) -> None:
    """Do what the table says about an event in the state the navigator is in."""
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

The navigator (`deciding/navigator.py`) turns whatever comes in into one of the events below and
looks up in this table what to do about it. There is no other way from one state to another. An
empty cell: the event is of no interest in that state."""


def _states() -> str:
    rows = [f"| {phase.name} | {meaning} |" for phase, meaning in MEANINGS.items()]
    return "\n".join(("| state | meaning |", "|---|---|", *rows))


def _diagram() -> str:
    """Return all changes of state, with the events that may bring them about."""
    causes: dict[tuple[NavigatorPhase, NavigatorPhase], list[str]] = {}
    for event, phase, reaction in _cells():
        for after in reaction.leads_to:
            if after is not phase:
                causes.setdefault((phase, after), []).append(event.name)
    arrows = [f'    {a.name} --> {b.name}: {", ".join(by)}' for (a, b), by in causes.items()]
    return "\n".join(("```mermaid", "stateDiagram-v2", "    [*] --> IDLE", *arrows, "```"))


def _table() -> str:
    rows = [f'| event | {" | ".join(phase.name for phase in NavigatorPhase)} |', "|---" * 5 + "|"]
    for event, cells in TABLE.items():
        shown = " | ".join(_shown(cells.get(phase)) for phase in NavigatorPhase)
        rows.append(f"| **{event.name}**: {event.value} | {shown} |")
    return "\n".join(("`what is done` → the state afterwards", "", *rows))


def _shown(reaction: Reaction | None) -> str:
    if reaction is None:
        return ""
    return f'`{reaction.name}` → {", ".join(phase.name for phase in reaction.leads_to)}'


def _handlers() -> str:
    handlers = {reaction.name: reaction.handler for _, _, reaction in _cells()}
    rows = ["| what is done | in `deciding/handlers/` |", "|---|---|"]
    for name, handler in handlers.items():
        said = (handler.__doc__ or "").strip().splitlines()[0]
        rows.append(f'| `{name}`: {said} | {handler.__module__.rpartition(".")[2]}.py |')
    return "\n".join(rows)


def _cells() -> Iterator[tuple[NavigatorEvent, NavigatorPhase, Reaction]]:
    for event, cells in TABLE.items():
        for phase, reaction in cells.items():
            yield event, phase, reaction


if __name__ == "__main__":
    import sys

    sys.stdout.write(page())
