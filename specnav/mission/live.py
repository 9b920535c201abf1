# SPDX-License-Identifier: Apache-2.0
"""A mission carried out by a running mission_node, as its client. Needs rclpy."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import rclpy
from rclpy.action import ActionClient
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from spec_vlm_nav_interfaces.action import RunMission
from spec_vlm_nav_interfaces.srv import ChangeMission

from spec_vlm_nav.ros.run import destroy
from specnav.errors import UsageError
from specnav.ros_names import checked_namespace

SERVER_S, ANSWER_S, SPIN_S = 8.0, 5.0, 0.05
STAND_S = 3.0
START = "start it: ros2 run spec_vlm_nav mission_node (or mission:=true in the launch file)"


class MissionClient:
    """A client of one robot's mission_node; use it as a context manager."""

    def __init__(self, namespace: str = "", domain: int | None = None) -> None:
        name = checked_namespace(namespace, ())
        self._context = Context()
        rclpy.init(context=self._context, args=[], domain_id=domain)
        self._node = rclpy.create_node("specnav_mission", namespace=name, context=self._context)
        self._actions: Any = ActionClient(self._node, RunMission, "run_mission")
        self._change: Any = self._node.create_client(ChangeMission, "mission_node/change")
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)

    def __enter__(self) -> MissionClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._executor.shutdown()
        destroy(self._node)
        rclpy.try_shutdown(context=self._context)

    def _spin(self, done: Callable[[], bool], timeout_s: float) -> bool:
        until = time.monotonic() + timeout_s
        while not done() and time.monotonic() < until:
            self._executor.spin_once(timeout_sec=SPIN_S)
        return done()

    def run(
        self,
        text: str,
        say: Callable[[str], None],
        watch: Callable[[], None] = lambda: None,
        wait_s: float = SERVER_S,
    ) -> dict[str, Any]:
        """Carry out a mission; returns its results. watch: called all the time, may raise.

        Ctrl-C cancels: the robot stands. Raises UsageError when no node takes missions, or this one.
        """
        if not self._spin(self._actions.server_is_ready, wait_s):
            raise UsageError(f"no mission_node is heard; {START}")
        told = ""

        def on_feedback(message: Any) -> None:
            nonlocal told
            f = message.feedback
            doing = f"step {f.step} ({f.steps_over + 1} of {f.steps}): {f.doing}" if f.step else ""
            words = doing if f.phase == "running" else ": ".join(p for p in (f.phase, f.why) if p)
            if words != told:
                say(words)
            told = words

        sent = self._actions.send_goal_async(RunMission.Goal(mission=text), feedback_callback=on_feedback)
        if not self._spin(sent.done, ANSWER_S):
            raise UsageError("mission_node does not answer; look at its log")
        handle = sent.result()
        ended = handle.get_result_async()
        try:
            while not ended.done():
                self._executor.spin_once(timeout_sec=SPIN_S)
                watch()
        except KeyboardInterrupt:
            handle.cancel_goal_async()
            self._spin(ended.done, STAND_S)
            raise
        result = ended.result().result
        if not result.results:
            raise UsageError(result.error_msg.replace("\n", "; "))
        return dict(json.loads(result.results))

    def order(self, order: str, **values: Any) -> tuple[bool, str, dict[str, Any] | None]:
        """Give an order; returns whether it was carried out, what was said, and the mission's results."""
        if not self._spin(self._change.service_is_ready, SERVER_S):
            raise UsageError(f"no mission_node is heard; {START}")
        asked = self._change.call_async(ChangeMission.Request(order=order, **values))
        if not self._spin(asked.done, ANSWER_S):
            raise UsageError("mission_node does not answer; look at its log")
        answer: Any = asked.result()
        return answer.success, answer.message, json.loads(answer.results) if answer.results else None
