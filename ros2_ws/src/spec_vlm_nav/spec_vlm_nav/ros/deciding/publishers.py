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

"""The publishers of vlm_nav_node; they build messages from the navigator's records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
import json
import time
from typing import Any

from rclpy.node import Node
from spec_vlm_nav.common.codes import UNVERIFIED
from spec_vlm_nav.common.errors import LONGEST_LINE, one_line
from spec_vlm_nav.deciding.parts.interfaces import DecisionReport, MotionRequest, NavigationResult
from spec_vlm_nav.model.decider import DecoderSettings, LinkReport
from spec_vlm_nav.ros.basics import RELIABLE
from spec_vlm_nav.ros.messages import command_message, metrics_message, supervision_message
from spec_vlm_nav.ros.session import CommandSession
from spec_vlm_nav_interfaces.msg import DecisionMetrics, MotionCommand, Supervision
from std_msgs.msg import String


class Publishers:
    """
    The publishers of one configured node.

    `silent`: motion commands are built and counted but not sent (dry run).
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self.session = CommandSession()
        self.silent = False
        self._text = ""
        self._all: list[Any] = []

        def publisher(kind: type, topic: str) -> Any:
            self._all.append(node.create_publisher(kind, topic, RELIABLE))
            return self._all[-1]

        self._commands = publisher(MotionCommand, "motion_command")
        self._supervision = publisher(Supervision, "supervision")
        self._reasoning = publisher(String, "~/reasoning")
        self._actions = publisher(String, "~/action")
        self._texts = publisher(String, "~/text")
        self._tokens = publisher(String, "~/tokens")
        self._outcomes = publisher(String, "~/outcome")
        self._metrics = publisher(DecisionMetrics, "~/metrics")

    @property
    def reach_all(self) -> bool:
        """Whether commands and heartbeats are matched with all known subscribers, at least one."""
        count = self._node.count_subscribers
        return all(
            0 < count(publisher.topic_name) <= publisher.get_subscription_count()
            for publisher in (self._commands, self._supervision)
        )

    def send(self, request: MotionRequest) -> int:
        """Send a motion command; returns its sequence number."""
        stamp = self._node.get_clock().now().to_msg()
        message = self.session.sign(command_message(request, time.monotonic(), stamp))
        if not self.silent:
            self._commands.publish(message)
        return self.session.sequence

    def supervise(self, camera_age_s: float, link: LinkReport) -> None:
        """Publish a heartbeat; camera_age_s: negative before the first frame."""
        now, stamp = time.monotonic(), self._node.get_clock().now().to_msg()
        self._supervision.publish(self.session.introduce(supervision_message(camera_age_s, link, now, stamp)))

    def spoke(self, text: str, action: str, unverified: bool) -> None:
        """Publish the reasoning and the action, each unless it is ""."""
        mark = UNVERIFIED if unverified else ""
        if text:
            self._reasoning.publish(String(data=mark + text))
        if action:
            self._actions.publish(String(data=mark + action))

    def growing(self, text: str, tokens: Callable[[], Sequence[tuple[str, int]]]) -> None:
        """Publish a growing answer if it has subscribers; only then is `tokens` called."""
        if text and text != self._text:
            if self._texts.get_subscription_count():
                self._texts.publish(String(data=text))
            if self._tokens.get_subscription_count():
                self._tokens.publish(String(data=json.dumps(tokens())))
        self._text = text

    def report(self, report: DecisionReport, settings: DecoderSettings) -> None:
        """Publish the measurements of a decision."""
        stamp = self._node.get_clock().now().to_msg()
        self._metrics.publish(
            metrics_message(report, self.session.number, settings.method, settings.gamma, stamp)
        )

    def concluded(self, result: NavigationResult) -> None:
        """Publish how an instruction ended, as JSON, for programs without an action client."""
        said = {
            "instruction": result.words,
            "number": result.instruction,
            "code": result.code.name,
            "message": result.message,
            "decisions": result.decisions,
            "motions": result.motions,
            "distance_m": round(result.distance_m, 3),
            "elapsed_s": round(result.elapsed_s, 3),
        }
        self._outcomes.publish(String(data=json.dumps(said)))

    def log(self, level: str, text: str) -> None:
        """Log a message for the operator."""
        logger, text = self._node.get_logger(), one_line(text, LONGEST_LINE)  # it may repeat foreign words
        # rclpy binds a severity to the calling line: each severity needs its own line.
        if level == "info":
            logger.info(text)
        elif level == "warn":
            logger.warning(text)
        else:
            logger.error(text)

    def destroy(self) -> None:
        """Destroy the publishers."""
        for publisher in self._all:
            self._node.destroy_publisher(publisher)
