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
Parses mission files: YAML to a plan, or a list of problems with line numbers and allowed values.

It reads YAML nodes instead of values, because nodes have line numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
import difflib
import math
import re
from typing import Any, TypeVar

from spec_vlm_nav.common.errors import InstructionError, MissionError
from spec_vlm_nav.language.prompting import clean_instruction
from spec_vlm_nav.language.stop_words import is_stop
from spec_vlm_nav.missions.record import (
    MissionPlan,
    MissionStep,
    MOST_STEPS,
    OnFailure,
    PREVIOUS,
    Start,
    StartWhen,
    StepKind,
)
from spec_vlm_nav.missions.sentences import split
from specdec.settings_files import compose_yaml
import yaml

LONGEST_FILE = 200_000  # characters
DEEPEST = 5
LEAST_TURN_DEG = 4.0  # a smaller turn counts as done at once (driving.TURNED_RAD)
MOST_PROBLEMS = 20
MISSION_KEYS = ("name", "steps", "start_when", "max_s", "max_m", "defaults")
BOUNDS = {"max_s": (0.1, 86_400), "max_m": (0.1, 10_000), "retries": (0, 20)}
BOUND_KEYS = (*BOUNDS, "on_failure")
FAILURES = tuple(each.value for each in OnFailure)
KINDS = tuple(kind.value for kind in StepKind)
_NUMBER = re.compile(r"[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?")
TEXT, NOTHING = "tag:yaml.org,2002:str", "tag:yaml.org,2002:null"  # YAML's types of a value
Node = yaml.Node
DEEPEST_YAML = 2 * DEEPEST + 10
MOST_VALUES = 15 * MOST_STEPS
T = TypeVar("T")


def read(text: str, where: str = "mission") -> MissionPlan:
    """
    Return the mission in a text: YAML, or a plain sentence.

    where: the file's name, for messages. Raises MissionError with one line per problem.
    """
    reader = _Reader(where)
    plan = reader.plan(text)
    if reader.problems or plan is None:
        found = sorted(reader.problems, key=lambda problem: problem[0])[:MOST_PROBLEMS]
        raise MissionError("\n".join(words for _, words in found))
    return plan


def from_sentence(text: str) -> MissionPlan:
    """Return a mission from the instructions in a sentence. Raises MissionError."""
    return read(yaml.safe_dump({"steps": [text]}), "the sentence")


class _Reader:
    def __init__(self, where: str) -> None:
        self.problems: list[tuple[int, str]] = []  # line and message
        self._where = where
        self._steps = 0

    def bad(self, node: Node | int, what: str, allowed: str = "") -> None:
        """Record a problem at a node's line."""
        line = node if isinstance(node, int) else node.start_mark.line + 1
        words = f"{self._where}:{line}: {what}" + (f"; allowed: {allowed}" if allowed else "")
        self.problems.append((line, words))

    def plan(self, text: str) -> MissionPlan | None:
        if len(text) > LONGEST_FILE:
            self.bad(1, f"a mission of {len(text)} characters is too long", f"at most {LONGEST_FILE}")
            return None
        try:
            root = compose_yaml(text, DEEPEST_YAML, MOST_VALUES)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            said = " ".join(str(getattr(error, "problem", None) or error).split())
            line = min(mark.line, text.count("\n")) + 1 if mark else 1
            self.bad(line, f"not YAML: {said}")
            return None
        if root is None:
            self.bad(1, "the mission is empty", "steps: and a list of steps")
            return None
        if isinstance(root, yaml.ScalarNode):  # a sentence
            if is_stop(text):  # the original text: YAML joins lines and drops comments
                self.bad(root, "this text means stop: it is not a mission")
                return None
            return self._made("", self._instructions(root, root.value, {}), Start(), {})
        if not isinstance(root, yaml.MappingNode):
            self.bad(root, "a mission must be a mapping", ", ".join(MISSION_KEYS))
            return None
        parts = self.mapping(root, MISSION_KEYS)
        defaults = self._bounds(parts.get("defaults"))
        bounds: dict[str, float] = {
            key: self.number(parts[key], key, 0.1, 1e6) for key in ("max_s", "max_m") if key in parts
        }
        name = self.text(parts["name"], "name", 80) if "name" in parts else ""
        start = self._start(parts["start_when"]) if "start_when" in parts else Start()
        if "steps" not in parts:
            self.bad(root, "steps is missing", "steps: and a list of steps")
            return None
        steps = tuple(self._list(parts["steps"], defaults, 0))
        return self._made(name, steps, start, bounds)

    def _made(self, name: str, steps: Any, start: Start, bounds: dict[str, float]) -> MissionPlan | None:
        steps = tuple(steps)
        if not steps and not self.problems:
            self.bad(1, "a mission without steps does nothing")
        return MissionPlan(name, steps, start, **bounds)

    # -- steps

    def _list(self, node: Node, defaults: dict[str, Any], depth: int) -> Iterator[MissionStep]:
        if not isinstance(node, yaml.SequenceNode):
            self.bad(node, "steps must be a list", "- instruction: ..., - wait_s: 5, ...")
            return
        if depth > DEEPEST:
            self.bad(node, "repeat is nested too deeply", f"{DEEPEST} deep")
            return
        if not node.value:
            self.bad(node, "the list of steps is empty")
        for item in node.value:
            counts = not _repeats(item)  # repeated steps are counted in the inner call
            for step in self._step(item, defaults, depth):
                self._steps += counts
                if self._steps > MOST_STEPS:
                    if counts:
                        self.bad(item, "too many steps", f"{MOST_STEPS}, repetitions included")
                    return
                yield step

    def _step(self, node: Node, defaults: dict[str, Any], depth: int) -> Iterator[MissionStep]:
        if isinstance(node, yaml.ScalarNode):
            yield from self._instructions(node, node.value, defaults)
            return
        if not isinstance(node, yaml.MappingNode):
            self.bad(node, "a step must be a mapping or a sentence", ", ".join((*KINDS, "repeat")))
            return
        keys = [str(key.value) for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        kinds = [key for key in keys if key in (*KINDS, "repeat")]
        if len(kinds) != 1:
            what = f"a step that is {' and '.join(kinds)}" if kinds else "a step of no known kind"
            guess = [] if kinds else self._guesses(keys, (*KINDS, "repeat"))
            hint = f" (did you mean {guess[0]}?)" if guess else ""
            self.bad(node, what + hint, f"exactly one of {', '.join((*KINDS, 'repeat'))}")
            return
        kind = kinds[0]
        if kind == "repeat":
            parts = self.mapping(node, ("repeat", "steps"))
            times = self.number(parts["repeat"], "repeat", 1, MOST_STEPS, whole=True)
            if "steps" not in parts:
                self.bad(node, "repeat without steps", "repeat: N and steps: a list")
                return
            before = len(self.problems)
            for _ in range(int(times)):
                yield from self._list(parts["steps"], defaults, depth + 1)
                if len(self.problems) > before or self._steps > MOST_STEPS:
                    return  # report each problem once
            return
        extra = ("hint",) if kind == "instruction" else ()
        parts = self.mapping(node, (kind, *extra, *BOUND_KEYS))
        bounds = {**defaults, **self._bounds_of(parts)}
        value = parts[kind]
        if kind == "instruction":
            hint = self.text(parts["hint"], "hint", 200) if "hint" in parts else ""
            yield from self._instructions(value, self.text(value, kind, 2000), bounds, hint)
        elif kind == "wait_s":
            yield MissionStep(StepKind.WAIT, number=self.number(value, kind, 0, 86_400), **bounds)
        elif kind == "turn_deg":
            turn = self.number(value, kind, -360, 360)
            if abs(turn) < LEAST_TURN_DEG and not self.problems:
                some = f"-360 to 360 (left positive), {LEAST_TURN_DEG:g} at least"
                self.bad(value, f"a turn of {turn:g} degrees", some)
            yield MissionStep(StepKind.TURN, number=turn, **bounds)
        else:
            yield MissionStep(StepKind.RETURN, number=self._return(value), **bounds)

    def _return(self, node: Node) -> float:
        said = str(node.value) if isinstance(node, yaml.ScalarNode) else ""
        if said in ("start", "previous"):
            return PREVIOUS if said == "previous" else 0.0
        allowed = "start, previous (where the step before began), or 0.1 to 1000 (metres)"
        metres = _number(said)
        if not 0.1 <= metres <= 1000:
            self.bad(node, f"return: {said or 'this'}", allowed)
            return 0.0
        return metres

    def _instructions(
        self, node: Node, text: str, bounds: dict[str, Any], hint: str = ""
    ) -> Iterator[MissionStep]:
        if isinstance(node, yaml.ScalarNode) and node.tag != TEXT:
            self.bad(node, f"an instruction that is no text: {_shown(node) or None}", "a sentence")
            return
        if is_stop(text):
            self.bad(
                node,
                f'"{text}" means stop: it would end the mission',
                "an instruction; a mission that is over stops by itself",
            )
            return
        parts = split(text)
        for i, part in enumerate(parts):
            try:
                words = clean_instruction(part)
            except InstructionError as error:
                self.bad(node, str(error))
                return
            given = hint if i == len(parts) - 1 else ""
            yield MissionStep(StepKind.INSTRUCTION, words, hint=given, **bounds)

    def _bounds(self, node: Node | None) -> dict[str, Any]:
        return {} if node is None else self._bounds_of(self.mapping(node, BOUND_KEYS))

    def _bounds_of(self, parts: dict[str, Node]) -> dict[str, Any]:
        found: dict[str, Any] = {
            key: self.number(parts[key], key, *limits, whole=key == "retries")
            for key, limits in BOUNDS.items()
            if key in parts
        }
        if (node := parts.get("on_failure")) is not None:
            if not isinstance(node, yaml.ScalarNode) or node.value not in FAILURES:
                self.bad(node, f"on_failure: {getattr(node, 'value', '?')}", ", ".join(FAILURES))
            else:
                found["on_failure"] = OnFailure(node.value)
        return found

    def _start(self, node: Node) -> Start:
        words = ("now", "ready", "signal")
        allowed = f'{", ".join(words)}, {{after_s: 60}} or {{at: "08:30"}}'
        if isinstance(node, yaml.ScalarNode):
            if node.value not in words:
                self.bad(node, f"start_when: {node.value}", allowed)
                return Start()
            return Start(StartWhen(node.value))
        parts = self.mapping(node, ("after_s", "at"))
        if len(parts) != 1:
            self.bad(node, "start_when", allowed)
            return Start()
        if "after_s" in parts:
            return Start(StartWhen.AFTER, self.number(parts["after_s"], "after_s", 0, 86_400))
        clock = re.fullmatch(r"([01]?\d|2[0-3]):([0-5]\d)", str(parts["at"].value))
        if clock is None:
            self.bad(parts["at"], f"at: {parts['at'].value}", '"00:00" to "23:59", local time')
            return Start()
        return Start(StartWhen.AT, at_minute=60 * int(clock[1]) + int(clock[2]))

    # -- values

    def mapping(self, node: Node, allowed: tuple[str, ...]) -> dict[str, Node]:
        """Return the values of a mapping by key, without keys that are not allowed."""
        if not isinstance(node, yaml.MappingNode):
            self.bad(node, "this must be a mapping", ", ".join(allowed))
            return {}
        found: dict[str, Node] = {}
        for key, value in node.value:
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else "?"
            if name in found:
                self.bad(key, f"{name} is given twice")
            elif name not in allowed:
                guess = self._guesses([name], allowed)
                hint = f" (did you mean {guess[0]}?)" if guess else ""
                self.bad(key, f"{name} is unknown here{hint}", ", ".join(allowed))
            else:
                found[name] = value
        return found

    @staticmethod
    def _guesses(names: list[str], allowed: tuple[str, ...]) -> list[str]:
        return [g for name in names for g in difflib.get_close_matches(name, allowed, 1)]

    def text(self, node: Node, name: str, longest: int) -> str:
        """Return a text."""
        is_text = isinstance(node, yaml.ScalarNode) and node.tag != NOTHING
        if not is_text or not str(node.value).strip():
            self.bad(node, f"{name} must be a non-empty string", "a sentence")
            return "x"
        if len(node.value) > longest:
            self.bad(node, f"{name} of {len(node.value)} characters", f"at most {longest}")
        return str(node.value).strip()

    def number(self, node: Node, name: str, low: float, high: float, whole: bool = False) -> float:
        """Return a number within its bounds; `low` if it is invalid."""
        said = str(node.value) if isinstance(node, yaml.ScalarNode) else ""
        value = _number(said, int if whole else float)
        if not low <= value <= high:
            kind = "whole numbers, " if whole else ""
            self.bad(node, f"{name}: {_shown(node)}", f"{kind}{low:g} to {high:g}")
            return low
        return value


def _number(said: str, read_as: Callable[[str], float] = float) -> float:
    """Return a number in a text, NaN if it is none; Python also accepts other digits, and 1_0."""
    try:
        return float(read_as(said)) if _NUMBER.fullmatch(said) else math.nan
    except (ValueError, OverflowError):
        return math.nan


def _repeats(node: Node) -> bool:
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return any(isinstance(key, yaml.ScalarNode) and key.value == "repeat" for key, _ in pairs)


def _shown(node: Node) -> str:
    return str(node.value)[:40] if isinstance(node, yaml.ScalarNode) else "not a number"
