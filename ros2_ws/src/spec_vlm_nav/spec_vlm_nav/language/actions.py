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
The action language: ten English sentences, the only text that may ever move the robot.

A sentence counts only if it matches exactly, from the start of a sentence to its full stop. Numbers
are never extracted from prose, and units are never guessed. Text that does not match is no action,
and without an action the robot stops. (Sentences: NaVILA, arXiv 2412.04453.)
"""

from __future__ import annotations

from dataclasses import dataclass
import enum
import math


class ActionKind(enum.Enum):
    """Kind of an action; none drives where the camera does not look."""

    STOP = "stop"
    FORWARD = "forward"
    TURN_LEFT = "turn left"
    TURN_RIGHT = "turn right"


_TURNS = (ActionKind.TURN_LEFT, ActionKind.TURN_RIGHT)


@dataclass(frozen=True)
class Action:
    """One motion. `amount` is in centimetres for FORWARD, in degrees for turns, 0 for STOP."""

    kind: ActionKind
    amount: float = 0.0

    def __post_init__(self) -> None:
        if not math.isfinite(self.amount) or self.amount < 0:
            raise ValueError(f"amount of an action must be finite and >= 0, got {self.amount}")

    @property
    def is_turn(self) -> bool:
        """Whether this is a turn on the spot."""
        return self.kind in _TURNS

    @property
    def is_stop(self) -> bool:
        """Whether this says that the instruction is finished."""
        return self.kind is ActionKind.STOP

    @property
    def distance_m(self) -> float:
        """Distance along the robot's x axis, metres; 0 for turns and STOP."""
        return self.amount / 100.0 if self.kind is ActionKind.FORWARD else 0.0

    @property
    def angle_rad(self) -> float:
        """Signed rotation, radians, left positive (REP-103); 0 for moves and STOP."""
        sign = {ActionKind.TURN_LEFT: 1.0, ActionKind.TURN_RIGHT: -1.0}.get(self.kind, 0.0)
        return sign * math.radians(self.amount)

    @property
    def short(self) -> str:
        """Return a short form such as "turn left 30", for prompts and displays."""
        return self.kind.value if self.is_stop else f"{self.kind.value} {self.amount:.0f}"

    @property
    def sentence(self) -> str:
        """
        Return the action's sentence, or "" if it has none.

        Halved turns and other motions of the exploration policy have none.
        """
        return _SENTENCE_OF.get(self, "")


STOP = Action(ActionKind.STOP)
STOP_SENTENCE = "I think I should stop because I have finished the instruction."

# The whole language: sentence -> action.
ACTION_SENTENCES: dict[str, Action] = {
    **{f"The next action is move forward {cm} cm.": Action(ActionKind.FORWARD, cm) for cm in (25, 50, 75)},
    **{
        f"The next action is turn left {deg} degree.": Action(ActionKind.TURN_LEFT, deg)
        for deg in (15, 30, 45)
    },
    **{
        f"The next action is turn right {deg} degree.": Action(ActionKind.TURN_RIGHT, deg)
        for deg in (15, 30, 45)
    },
    STOP_SENTENCE: STOP,
}
_SENTENCE_OF = {action: sentence for sentence, action in ACTION_SENTENCES.items()}

_SENTENCE_ENDS = ".!?"
_BLANKS = " \t\r\n"


def _starts_a_sentence(text: str, at: int) -> bool:
    """
    Return whether a sentence starts at position `at`.

    That is the start of the text, the start of a line, or after a full stop and a blank.
    """
    before = text[:at]
    said = before.rstrip(_BLANKS)
    gap = before.removeprefix(said)
    if not said:
        return True
    return bool(gap) and ("\n" in gap or said[-1] in _SENTENCE_ENDS)


def _first_action(text: str) -> tuple[int, int, Action] | None:
    """Return start, end and action of the first complete action sentence, or None."""
    found: tuple[int, int, Action] | None = None
    for sentence, action in ACTION_SENTENCES.items():
        at = text.find(sentence)
        while at != -1 and not _starts_a_sentence(text, at):
            at = text.find(sentence, at + 1)
        # The earliest END wins: in a stream it is complete first.
        if at != -1 and (found is None or at + len(sentence) < found[1]):
            found = (at, at + len(sentence), action)
    return found


def find_action(text: str) -> Action | None:
    """
    Return the action of the first complete action sentence in a growing text, or None.

    The action is found as soon as its full stop arrives, and more text does not change it.
    Sentences quoted inside another one do not count. The reasoning may precede or follow it.
    """
    found = _first_action(text)
    return found[2] if found else None


def reasoning_of(text: str) -> str:
    """
    Return the text before the first action sentence, stripped.

    If there is none, return the text after it, up to the next action sentence. Without an action
    sentence, return all of the text.
    """
    found = _first_action(text)
    if found is None:
        return text.strip()
    start, end, _ = found
    if before := text[:start].strip():
        return before
    after = text[end:]
    another = _first_action(after)
    return (after if another is None else after[: another[0]]).strip()


def sees_target(text: str) -> bool | None:
    """
    Return whether the reasoning says that the model sees the target; None if it does not say.

    It must say "I see …" or "I do not see …" at the start of a sentence; the first such sentence
    decides.
    """
    for chunk in text.replace("!", ".").replace("\n", ".").split("."):
        sentence = chunk.strip(_BLANKS)
        if sentence.startswith(("I do not see ", "I don't see ", "I cannot see ")):
            return False
        if sentence.startswith("I see "):
            return True
    return None


def ahead_clear(text: str) -> bool | None:
    """
    Return whether the reasoning calls the way ahead clear; False: blocked; None: neither.

    It must end with "…, clear." or "…, blocked.".
    """
    said = reasoning_of(text).rstrip(_BLANKS).rstrip(".")
    if said.endswith(", clear"):
        return True
    return False if said.endswith(", blocked") else None
