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

"""The interface between pages and robots, whether they come from ROS, a bag or a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

Answer = Callable[[bool, str], None]


class ConsoleRobot(Protocol):
    """One robot. Called from the web server's thread; no method may block."""

    @property
    def is_heard(self) -> bool:
        """Return whether the robot has been heard lately."""

    def poll(self, watched: bool) -> tuple[str, ...]:
        """Read inputs that wake no thread; returns the kinds of news ("frame" or nothing)."""

    def frame(self) -> tuple[int, float, bytes] | None: ...
    def state(self) -> dict[str, Any]: ...
    def map(self) -> dict[str, Any]: ...
    def thought(self) -> dict[str, Any]: ...
    def decisions(self) -> list[dict[str, Any]]: ...
    def parameters(self) -> list[dict[str, Any]]: ...
    def ask_parameters(self) -> None: ...
    def stop(self) -> None: ...
    def estop(self) -> None: ...
    def reset(self) -> None: ...
    def cancel(self) -> None: ...
    def instruct(self, words: str) -> None: ...
    def hold(self, holder: str, holds: bool) -> None: ...
    def run_mission(self, text: str, answer: Answer) -> None: ...
    def change_mission(self, order: str, step: int, place: int, steps: str, answer: Answer) -> None: ...
    def set_parameter(self, node: str, name: str, value: Any, answer: Answer) -> None: ...
    def inject(self, fault: dict[str, Any], answer: Answer) -> None: ...
    def enter_room(self, seed: int) -> None: ...


class Robots(Protocol):
    """All robots."""

    def names(self) -> list[str]:
        """Return the robots' namespaces, "" for the root; sorted."""

    def all_names(self) -> list[str]:
        """Return the namespaces that may contain a robot, including silent ones."""

    def get(self, name: str) -> ConsoleRobot | None:
        """Return the robot of a namespace, or None."""

    def health(self) -> list[dict[str, Any]]:
        """Return the newest rows of /diagnostics."""


SHORT = ("state", "standing", "estopped", "instruction", "action", "link", "camera_age_s", "battery")


def in_short(robots: Robots, controller: Callable[[str], str]) -> list[dict[str, Any]]:
    """Return a summary of all robots, for the tiles of a page."""
    found = []
    for name in robots.names():
        if (robot := robots.get(name)) is not None:
            told = robot.state()
            short = {key: told.get(key) for key in SHORT}
            found.append({"name": name, "control": controller(name), **short})
    return found
