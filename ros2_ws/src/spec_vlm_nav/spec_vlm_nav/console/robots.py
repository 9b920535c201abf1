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

"""What the pages need of the robots, whatever speaks to them: ROS, a bag, a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

Answer = Callable[[bool, str], None]


class ConsoleRobot(Protocol):
    """One robot. Called by the web server's thread; nothing in here may wait."""

    @property
    def is_heard(self) -> bool:
        """Return whether it speaks."""
        ...

    def poll(self, watched: bool) -> tuple[str, ...]:
        """Take in what does not announce that it is there; returns what is new: frame."""
        ...

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
    def change_mission(
        self, order: str, step: int, place: int, steps: str, answer: Answer
    ) -> None: ...
    def set_parameter(self, node: str, name: str, value: Any, answer: Answer) -> None: ...
    def inject(self, fault: dict[str, Any], answer: Answer) -> None: ...
    def enter_room(self, seed: int) -> None: ...


class Robots(Protocol):
    """All that are there."""

    def names(self) -> list[str]:
        """Return their namespaces, "" for the root; sorted."""
        ...

    def all_names(self) -> list[str]:
        """Return the namespaces that may hold a robot, silent ones included."""
        ...

    def get(self, name: str) -> ConsoleRobot | None:
        """Return one of them."""
        ...

    def health(self) -> list[dict[str, Any]]:
        """Return the newest rows of /diagnostics."""
        ...


SHORT = (
    "state",
    "standing",
    "estopped",
    "instruction",
    "action",
    "link",
    "camera_age_s",
    "battery",
)


def in_short(robots: Robots, controller: Callable[[str], str]) -> list[dict[str, Any]]:
    """Return all robots in short, for the tiles of a page that has more than one."""
    found = []
    for name in robots.names():
        if (robot := robots.get(name)) is not None:
            told = robot.state()
            short = {key: told.get(key) for key in SHORT}
            found.append({"name": name, "control": controller(name), **short})
    return found
