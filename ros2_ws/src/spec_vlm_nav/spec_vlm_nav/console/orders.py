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
The commands of an operator in control, and how they are carried out.

A command returns why it was refused, or ""; results that arrive later are sent to the page.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from spec_vlm_nav.common.errors import MissionError, ParameterError
from spec_vlm_nav.console.open_page import Page
from spec_vlm_nav.console.parameters import checked
from spec_vlm_nav.console.robots import Answer, ConsoleRobot
from spec_vlm_nav.console.words import LONGEST_WORDS
from spec_vlm_nav.language.stop_words import is_stop
from spec_vlm_nav.missions.reading import from_sentence, read
from spec_vlm_nav.missions.sentences import split

MOVING = ("say", "cancel", "mission", "order", "reset", "param", "fault", "room")
LONGEST_MISSION = 200_000
HEALTHY = {
    "camera_fault": "none",
    "odom_fault": "none",
    "base_fault": "none",
    "command_delay_s": 0.0,
    "drops_zeros": False,
}
# Values of the simulator's parameters; each fault replaces the previous one.
FAULTS: dict[str, dict[str, Any]] = {
    "none": HEALTHY,
    "camera stops": {**HEALTHY, "camera_fault": "stopped"},
    "camera freezes": {**HEALTHY, "camera_fault": "frozen_restamped"},
    "odometry stops": {**HEALTHY, "odom_fault": "stopped"},
    "odometry jumps": {**HEALTHY, "odom_fault": "jumping"},
    "base stuck": {**HEALTHY, "base_fault": "stuck"},
    "pushed aside": {**HEALTHY, "base_fault": "pushed"},
    "late base": {**HEALTHY, "command_delay_s": 1.0},
    "driver drops zeros": {**HEALTHY, "drops_zeros": True},
}


class OrderSink(Protocol):
    """What the commands need of the pages."""

    def stop(self, page: Page, kind: str, number: str, how: str) -> None: ...
    def log(self, robot: str, level: str, words: str) -> None: ...
    def call(self, act: Callable[[], None]) -> None: ...
    def answered(self, page: Page, kind: str, good: bool, words: str) -> None: ...
    def has_control(self, page: Page) -> bool: ...
    def done(self, page: Page, message: dict[str, Any], wrong: str) -> None: ...


# Parses a text and calls back with the number of steps and the error, or "".
ReadMission = Callable[[str, Callable[[int, str], None]], None]


def read_at_once(text: str, told: Callable[[int, str], None]) -> None:
    """Parse a mission in this process."""
    try:
        steps, wrong = len(read(text).steps), ""
    except MissionError as error:
        steps, wrong = 0, str(error)
    told(steps, wrong)


def _number(message: dict[str, Any], key: str) -> int | None:
    """Return an integer of at least 0; 0 if it is missing, None if it is invalid."""
    try:
        number = int(message.get(key, 0))
    except (TypeError, ValueError, OverflowError):
        return None
    return number if 0 <= number < 2**31 else None


class Orders:
    """Carries out commands; the caller has checked role and control."""

    def __init__(self, sink: OrderSink, read_mission: ReadMission) -> None:
        self._sink, self._read_mission = sink, read_mission

    def carry_out(self, page: Page, robot: ConsoleRobot, kind: str, message: dict[str, Any]) -> str | None:
        """Carry out a command; returns why it is refused, "", or None: the result follows later."""

        def answer(good: bool, words: str) -> None:
            self._sink.call(lambda: self._sink.answered(page, kind, good, words))

        if kind == "say":
            return self._say(page, robot, str(message.get("text", ""))[:LONGEST_WORDS], message)
        if kind == "cancel":
            robot.cancel()
        elif kind == "reset":
            robot.reset()
            self._sink.log(page.robot, "warn", f"{page.name} reset the emergency stop")
        elif kind in ("fault", "room"):
            return self._simulate(page, robot, kind, message, answer)
        elif kind == "mission":
            self._run_mission(page, robot, message, answer)
            return None
        elif kind == "order":
            order, steps = str(message.get("order", ""))[:20], str(message.get("steps", ""))
            number, place = _number(message, "step"), _number(message, "place")
            if number is None or place is None:
                return "step and place must be integers of at least 0"
            robot.change_mission(order, number, place, steps[:LONGEST_MISSION], answer)
        else:
            return self._set_parameter(page, robot, message)
        return ""

    def _run_mission(self, page: Page, robot: ConsoleRobot, message: dict[str, Any], answer: Answer) -> None:
        text = str(message.get("text", ""))[:LONGEST_MISSION]

        def when_read(steps: int, wrong: str) -> None:
            if not wrong and not self._sink.has_control(page):
                wrong = "control was lost while the mission was read"
            self._sink.done(page, message, wrong)
            if not wrong:
                self._sink.log(page.robot, "info", f"{page.name}: mission of {steps} steps")
                robot.run_mission(text, answer)

        self._read_mission(text, when_read)

    def _say(self, page: Page, robot: ConsoleRobot, words: str, message: dict[str, Any]) -> str | None:
        words = " ".join(words.split())
        if not words:
            return 'say where to go: "find the silver bottle"'
        if is_stop(words):
            self._sink.stop(page, "stop", "", f"“{words[:30]}”")
            return ""
        parts = split(words)
        if len(parts) > 1 and not message.get("one"):
            if not message.get("confirmed"):
                page.tell("steps", text=words, steps=parts)  # shown before they start
                return ""
            try:
                from_sentence(words)
            except MissionError as error:
                return str(error)
            return self.carry_out(page, robot, "mission", {"text": words})
        robot.instruct(words)
        self._sink.log(page.robot, "info", f"{page.name}: “{words[:120]}”")
        return ""

    def _simulate(
        self, page: Page, robot: ConsoleRobot, kind: str, message: dict[str, Any], answer: Answer
    ) -> str:
        if not robot.state().get("simulator"):
            return "this robot is not simulated: only the simulator has faults and rooms"
        if kind == "room":
            if (seed := _number(message, "seed")) is None:
                return "seed must be an integer of at least 0"
            robot.cancel()
            robot.enter_room(seed)
            self._sink.log(page.robot, "info", f"{page.name}: room {seed}")
            return ""
        name = str(message.get("name", ""))
        if name not in FAULTS:
            return f"there is no fault {name[:40]!r}; there are {', '.join(FAULTS)}"
        robot.inject(FAULTS[name], answer)
        self._sink.log(page.robot, "warn", f"{page.name}: simulated fault: {name}")
        return ""

    def _set_parameter(self, page: Page, robot: ConsoleRobot, message: dict[str, Any]) -> str:
        node, name = str(message.get("node", "")), str(message.get("name", ""))
        try:
            value = checked(node, name, message.get("value"))
        except KeyError:
            return f"{node} {name} is not a live parameter"
        except ParameterError as error:
            return str(error)

        def answer(good: bool, words: str) -> None:
            said = f"{page.name}: {node} {name} = {value}" + ("" if good else f" refused: {words}")
            self._sink.call(lambda: self._sink.answered(page, "param", good, said))
            self._sink.call(lambda: self._sink.log(page.robot, "info" if good else "warn", said))

        robot.set_parameter(node, name, value, answer)
        return ""
