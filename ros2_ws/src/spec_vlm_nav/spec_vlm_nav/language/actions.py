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

A sentence counts when it stands there letter by letter, from the start of a sentence to its full
stop; numbers are never picked out of prose, units are never guessed. What does not parse is no
action, and no action means stop. (Sentences: NaVILA, arXiv 2412.04453.)
"""

from __future__ import annotations

from dataclasses import dataclass
import enum
import math


class ActionKind(enum.Enum):
    """What a motion does; there is none that goes where the robot does not look."""

    STOP = "stop"
    FORWARD = "forward"
    TURN_LEFT = "turn left"
    TURN_RIGHT = "turn right"


_TURNS = (ActionKind.TURN_LEFT, ActionKind.TURN_RIGHT)


@dataclass(frozen=True)
class Action:
    """
    One motion.

    `amount` is in centimetres for FORWARD, in degrees for turns, 0 for STOP.
    """

    kind: ActionKind
    amount: float = 0.0

    def __post_init__(self) -> None:
        if not math.isfinite(self.amount) or self.amount < 0:
            raise ValueError(f"amount of an action must be finite and >= 0, got {self.amount}")

    @property
    def is_turn(self) -> bool:
        """Whether this turns on the spot."""
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
        """Return a few words, such as "turn left 30": for prompts and displays."""
        return self.kind.value if self.is_stop else f"{self.kind.value} {self.amount:.0f}"

    @property
    def sentence(self) -> str:
        """
        Return the sentence of the language, or "" for a motion that has none.

        Halved turns and backing off have none.
        """
        return _SENTENCE_OF.get(self, "")


STOP = Action(ActionKind.STOP)
STOP_SENTENCE = "I think I should stop because I have finished the instruction."

# The whole language: sentence -> action.
ACTION_SENTENCES: dict[str, Action] = {
    **{
        f"The next action is move forward {cm} cm.": Action(ActionKind.FORWARD, cm)
        for cm in (25, 50, 75)
    },
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
    Whether position `at` is where a sentence starts.

    That is the start of the text, the start of a line, or behind a full stop and a blank.
    """
    before = text[:at]
    said = before.rstrip(_BLANKS)
    gap = before.removeprefix(said)
    if not said:
        return True
    return bool(gap) and ("\n" in gap or said[-1] in _SENTENCE_ENDS)


def _first_action(text: str) -> tuple[int, int, Action] | None:
    """Where the first complete action sentence begins and ends, and what it says."""
    found: tuple[int, int, Action] | None = None
    for sentence, action in ACTION_SENTENCES.items():
        at = text.find(sentence)
        while at != -1 and not _starts_a_sentence(text, at):
            at = text.find(sentence, at + 1)
        # The earliest END wins: that is the one a reader of the stream saw first.
        if at != -1 and (found is None or at + len(sentence) < found[1]):
            found = (at, at + len(sentence), action)
    return found


def find_action(text: str) -> Action | None:
    """
    Return the first complete action sentence of a text that may still be growing, or None.

    The action is there the moment its full stop is, and does not change when more text follows.
    Sentences quoted in the middle of another one do not count. The reasoning may stand before it
    or after it.
    """
    found = _first_action(text)
    return found[2] if found else None


def reasoning_of(text: str) -> str:
    """
    Return what stands before the first action sentence.

    Where nothing does, return what follows it (up to the next one). All of the text when there is
    no action sentence. Stripped.
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
    Whether the reasoning says that the model sees the target; None: it says neither.

    It says so with "I see …" or "I do not see …". Only the beginning of a sentence counts, and the
    first sentence that says either decides.
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
    Whether the reasoning ends by calling the way ahead clear or blocked; None: it says neither.

    Such an end is "…, blocked.".
    """
    said = reasoning_of(text).rstrip(_BLANKS).rstrip(".")
    if said.endswith(", clear"):
        return True
    return False if said.endswith(", blocked") else None
