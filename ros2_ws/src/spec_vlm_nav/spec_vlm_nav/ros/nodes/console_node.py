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
The operator's console: a web page for all robots of the ROS graph.

It shows their topics and forwards an operator's commands to `stop`, `instruction` and the nodes'
actions. It never sends a motion command, and the usual gates apply to everything it requests. With
`require_operator`, motion_node stops the robot if this process is killed while an operator holds
control (dead man's switch).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
import sys
import threading
from typing import Any, NoReturn

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.node import Node
from spec_vlm_nav.blackbox.folder import default_folder
from spec_vlm_nav.common.errors import ConsoleError, ParameterError
from spec_vlm_nav.common.kept_file import given_path, home
from spec_vlm_nav.console.access import AccessRole, AccessTokens, add_token, check_binding, make_token
from spec_vlm_nav.console.aside import read_aside
from spec_vlm_nav.console.audit import Audit
from spec_vlm_nav.console.pages import Pages
from spec_vlm_nav.console.parameters import CONSOLE
from spec_vlm_nav.console.robot_files import RobotFiles
from spec_vlm_nav.ros.basics import steady_timer
from spec_vlm_nav.ros.console.robot import RosRobot
from spec_vlm_nav.ros.declare import declare
from spec_vlm_nav.ros.run import leave, run

LOOK_S = 1.0
MARK = "spec_vlm_nav_interfaces/msg/MotionStatus"
MOST_ROBOTS = 32
MOST_ROWS = 1000  # of /diagnostics, the newest
TEMPLATES = ("find the door", "turn around", "go straight ahead")
LEVELS = ("ok", "warn", "error", "stale")


class ConsoleNode:
    """ROS shell around the web server; it finds the robots."""

    def __init__(self, arguments: Sequence[str] = ()) -> None:
        try:
            from spec_vlm_nav.console.web import Web, WebConfig
        except ImportError as error:
            raise ConsoleError(
                f"the console needs {error.name}: pip install starlette uvicorn websockets "
                "(the extra console)"
            ) from error
        self.node = node = Node("console_node")
        self._values = values = declare(node, CONSOLE)
        self._lock = threading.Lock()
        self._robots: dict[str, RosRobot] = {}
        self._health: dict[str, dict[str, Any]] = {}
        given = str(values["tokens_file"])
        tokens = AccessTokens(given, Path() if given else tokens_file(""))
        host, certificate = str(values["host"]), str(values["certificate"])
        published = bool(values["published_on_loopback"])
        check_binding(host, tokens.known, certificate, bool(values["insecure"]), published)
        file = given_path("audit_file", str(values["audit_file"]), lambda: home() / "console_audit.jsonl")
        boxes = given_path("blackbox_folder", str(values["blackbox_folder"]), default_folder)
        offered = [" ".join(words.split()) for words in str(values["templates"]).split("|")]
        self.pages = Pages(
            self,
            Audit(file, self._warn, float(values["audit_mb"])),
            bool(values["require_operator"]),
            float(values["page_timeout_s"]),
            RobotFiles(boxes),
            tuple(words for words in offered if words) or TEMPLATES,
            float(values["page_busy_s"]),
            read_aside,
        )
        self._meet(node.get_namespace().strip("/"))
        self._look()
        node.create_subscription(DiagnosticArray, "/diagnostics", self._on_diagnostics, 20)
        steady_timer(node, LOOK_S, self._look)
        config = WebConfig(
            host=host,
            port=int(values["port"]),
            certificate=certificate,
            key=str(values["key"]),
            max_pages=int(values["max_pages"]),
            arguments=(f"{node.get_name()}_front", *arguments),
            published_on_loopback=published,
        )
        self._web = Web(config, self.pages, tokens, self._warn)
        node.get_logger().info(f"console_node ready: {self._web.url}")

    @property
    def failure(self) -> ConsoleError | None:
        """Return why the console cannot go on, or None."""
        return self._web.failure

    def _warn(self, words: str) -> None:
        self.node.get_logger().warning(words)

    def _meet(self, name: str) -> None:
        if name in self._robots or len(self._robots) >= MOST_ROBOTS:
            return
        robot = RosRobot(self.node, name, self._values, self.pages.wake)
        with self._lock:
            self._robots[name] = robot
        if name:
            self.node.get_logger().info(f"robot found: {name}")

    def _look(self) -> None:
        """Find robots by the topic that each motion_node publishes."""
        for topic, kinds in self.node.get_topic_names_and_types():
            if MARK in kinds and topic.endswith("/motion_status"):
                self._meet(topic[: -len("/motion_status")].strip("/"))

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        rows = {
            status.name: {
                "name": status.name,
                "level": LEVELS[min(status.level[0], 3)],
                "message": status.message,
                "values": {v.key: v.value for v in status.values},
            }
            for status in message.status
        }
        with self._lock:
            for name, row in rows.items():  # the newest last
                self._health.pop(name, None)
                self._health[name] = row
            while len(self._health) > MOST_ROWS:
                del self._health[next(iter(self._health))]

    # -- for the pages

    def names(self) -> list[str]:
        """Return the robots' namespaces."""
        with self._lock:
            names = sorted(self._robots)
        # The console's own namespace may contain no robot.
        heard = [n for n in names if self._robots[n].is_heard]
        return heard or names

    def all_names(self) -> list[str]:
        """Return all namespaces that may contain a robot."""
        with self._lock:
            return list(self._robots)

    def get(self, name: str) -> RosRobot | None:
        """Return the robot of a namespace, or None."""
        with self._lock:
            return self._robots.get(name)

    def health(self) -> list[dict[str, Any]]:
        """Return the newest rows of /diagnostics."""
        with self._lock:
            return sorted(self._health.values(), key=lambda row: row["name"])

    def close(self) -> None:
        """End the server."""
        self._web.close()


def tokens_file(given: str) -> Path:
    """Return the path of the file with the tokens' hashes."""
    return given_path("tokens_file", given, lambda: home() / "console_tokens.json")


def new_token(asked: str, given_file: str) -> int:
    """Make a token ROLE:NAME, print it once, keep its hash; returns the exit code."""
    role, _, name = asked.partition(":")
    if role not in ("viewer", "operator") or not name:
        sys.stderr.write(f"error: --new-token {asked}: must be operator:NAME or viewer:NAME\n")
        return 2
    clear, token = make_token(name, AccessRole(role))
    try:
        file = tokens_file(given_file)
        add_token(file, token)
    except (ConsoleError, ParameterError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write(f"{clear}\n")
    sys.stderr.write(
        f"token of {role} {name}, shown only once; its hash is in {file}. "
        "Open the page with #token=… appended to its address.\n"
    )
    return 0


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Entry point; `--new-token ROLE:NAME [FILE]` makes a token and ends."""
    given = list(args if args is not None else sys.argv[1:])
    if "--new-token" in given:
        place = given.index("--new-token")
        rest = [*given[place + 1 : place + 3], "", ""]
        leave(new_token(rest[0], "" if rest[1].startswith("-") else rest[1]))
    arguments = given[given.index("--ros-args") :] if "--ros-args" in given else []
    make: Callable[[], ConsoleNode] = partial(ConsoleNode, arguments)
    leave(run(make, args))


if __name__ == "__main__":
    main()
