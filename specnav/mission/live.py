# SPDX-License-Identifier: Apache-2.0
"""A client of a running mission_node that carries out a mission. Needs rclpy."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rclpy.action import ActionClient
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from spec_vlm_nav_interfaces.action import RunMission
from spec_vlm_nav_interfaces.srv import ChangeMission

from specnav.errors import UsageError
from specnav.ros_node import checked_namespace, own_node

SERVER_S, ANSWER_S, SPIN_S = 8.0, 5.0, 0.05
STAND_S = 3.0
SILENT_S = 5.0  # longest silence about a mission; mission_node reports 10 times a second
LOST = (
    "mission_node does not report on the mission any more: see its log; "
    "one that was restarted goes on after specnav mission order resume"
)
START = "start it: ros2 run spec_vlm_nav mission_node (or mission:=true in the launch file)"


class MissionClient:
    """A client of one robot's mission_node."""

    def __init__(self, node: Node, executor: SingleThreadedExecutor) -> None:
        self._actions: Any = ActionClient(node, RunMission, "run_mission")
        self._change: Any = node.create_client(ChangeMission, "mission_node/change")
        self._executor = executor

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
        """Carry out a mission; returns its results. watch: called repeatedly, may raise.

        Whatever ends this early, such as Ctrl-C, cancels the mission, and the robot stops. Raises UsageError if there
        is no mission_node, or it refuses.
        """
        if not self._spin(self._actions.server_is_ready, wait_s):
            raise UsageError(f"no mission_node found; {START}")
        told, silent_s = "", 0.0

        def on_feedback(message: Any) -> None:
            nonlocal told, silent_s
            silent_s = 0.0
            f = message.feedback
            doing = f"step {f.step} ({f.steps_over + 1} of {f.steps}): {f.doing}" if f.step else ""
            words = doing if f.phase == "running" else ": ".join(p for p in (f.phase, f.why) if p)
            was, told = told, words
            if words != was:
                say(words)

        sent = self._actions.send_goal_async(RunMission.Goal(mission=text), feedback_callback=on_feedback)
        try:
            if not self._spin(sent.done, ANSWER_S):
                raise UsageError("mission_node does not respond; see its log")
            ended = sent.result().get_result_async()
            while not ended.done():
                began = time.monotonic()
                self._executor.spin_once(timeout_sec=SPIN_S)
                # Counted in turns: while this process was suspended, nobody listened.
                silent_s += min(time.monotonic() - began, 2 * SPIN_S)
                if silent_s > SILENT_S:
                    raise UsageError(LOST)
                watch()
        except BaseException:  # the robot must not carry on unattended
            if self._spin(sent.done, STAND_S):
                sent.result().cancel_goal_async()
                self._spin(sent.result().get_result_async().done, STAND_S)
            raise
        result = ended.result().result
        if not result.results:
            raise UsageError(result.error_msg.replace("\n", "; ") or LOST)
        return dict(json.loads(result.results))

    def order(self, order: str, **values: Any) -> tuple[bool, str, dict[str, Any] | None]:
        """Give an order; returns whether it was carried out, the reply, and the mission's results."""
        if not self._spin(self._change.service_is_ready, SERVER_S):
            raise UsageError(f"no mission_node found; {START}")
        asked = self._change.call_async(ChangeMission.Request(order=order, **values))
        if not self._spin(asked.done, ANSWER_S):
            raise UsageError("mission_node does not respond; see its log")
        answer: Any = asked.result()
        return answer.success, answer.message, json.loads(answer.results) if answer.results else None


@contextmanager
def mission_client(namespace: str = "", domain: int | None = None) -> Iterator[MissionClient]:
    """A client for the duration of the block. Raises UsageError for an invalid namespace."""
    name = checked_namespace(namespace, ())
    with own_node("specnav_mission", domain=domain, namespace=name) as (node, executor):
        yield MissionClient(node, executor)
