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
Changes of safety limits at run time: anyone may tighten them, only an operator may loosen them.

The service `~/loosen_limits` is the only way to loosen a limit. It needs a reason and a standing
robot; with `safety_locked` it always refuses. Each change is published with its reason on
`safety_changes`, which the black box records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
import json
import time

from rclpy.node import Node
from rclpy.parameter import Parameter as RosParameter
from spec_vlm_nav.common.errors import one_line, ParameterError
from spec_vlm_nav.common.parameters import Parameter, Value
from spec_vlm_nav.ros.basics import qos, RELIABLE
from spec_vlm_nav.ros.declare import unreadable
from spec_vlm_nav_interfaces.msg import MotionStatus
from spec_vlm_nav_interfaces.srv import LoosenLimits
from std_msgs.msg import String

CHANGES = "safety_changes"
HEARD_S = 1.5  # longest silence of motion_node, which reports its state twice a second
LONGEST_REASON = 500


class StandstillWatch:
    """Tracks from motion_node's reports whether the robot stands."""

    def __init__(self, node: Node) -> None:
        self._standing, self._heard_at = False, -1e9
        node.create_subscription(MotionStatus, "motion_status", self._on_status, RELIABLE)

    def _on_status(self, message: MotionStatus) -> None:
        self._standing, self._heard_at = message.standing, time.monotonic()

    def why_not(self) -> str:
        """Return why the robot does not certainly stand, or ""."""
        if time.monotonic() - self._heard_at > HEARD_S:
            return "motion_node does not report whether the robot stands"
        return "" if self._standing else "the robot does not stand"


class LimitLoosening:
    """The service of one node; table: its parameters; values: their present values."""

    def __init__(
        self,
        node: Node,
        table: Sequence[Parameter],
        values: Mapping[str, Value],
        moves: Callable[[], str],
    ) -> None:
        """Serve `~/loosen_limits`; moves: returns why the robot may not be standing, or ""."""
        self._node, self._table, self._values = node, {p.name: p for p in table}, values
        self._moves, self._is_open = moves, False
        self._said = node.create_publisher(String, CHANGES, qos("reliable", 20, latched=True))
        node.create_service(LoosenLimits, "~/loosen_limits", self._on_request)

    def check(self, changes: Mapping[str, Value]) -> None:
        """Raise ParameterError if a change loosens a limit outside of `~/loosen_limits`."""
        loose = self._loosened(changes)
        if not loose or self._is_open:
            return
        name = loose[0]
        how = (
            "safety_locked is true: only the parameter file can"
            if self._values["safety_locked"]
            else f"call {self._node.get_fully_qualified_name()}/loosen_limits with a reason while "
            "the robot stands"
        )
        raise ParameterError(
            f"parameter {name} = {changes[name]} refused: {self._values[name]} may only change to "
            f"safer values ({self._table[name].tighter.value}); {how}"
        )

    def _loosened(self, changes: Mapping[str, Value]) -> list[str]:
        return [n for n, new in changes.items() if self._table[n].loosens(self._values[n], new)]

    def _on_request(
        self, request: LoosenLimits.Request, response: LoosenLimits.Response
    ) -> LoosenLimits.Response:
        response.success = False
        response.message = self._objection(request) or self._change(request)
        response.success = response.message.startswith("changed")
        return response

    def _objection(self, request: LoosenLimits.Request) -> str:
        if self._values["safety_locked"]:
            return "safety_locked is true: limits can only be loosened in the parameter file"
        if not 0 < len(request.reason.strip()) <= LONGEST_REASON:
            return f"a reason of 1 to {LONGEST_REASON} characters is needed"
        if not request.parameters:
            return "no parameters are named"
        if unknown := [p.name for p in request.parameters if p.name not in self._table]:
            return f"no parameter '{unknown[0]}' here"
        if why := unreadable(request.parameters):
            return why
        if why := self._moves():
            return f"{why}: limits are loosened only while it stands"
        return ""

    def _change(self, request: LoosenLimits.Request) -> str:
        before = dict(self._values)
        self._is_open = True
        try:
            changes = [RosParameter.from_parameter_msg(p) for p in request.parameters]
            result = self._node.set_parameters_atomically(changes)
        finally:
            self._is_open = False
        if not result.successful:
            return str(result.reason)
        changed = {c.name: [before[c.name], c.value] for c in changes if before[c.name] != c.value}
        reason = one_line(request.reason, LONGEST_REASON)
        said = {"node": self._node.get_fully_qualified_name(), "at": time.time()}
        self._said.publish(String(data=json.dumps({**said, "changed": changed, "reason": reason})))
        words = ", ".join(f"{name} {old} to {new}" for name, (old, new) in changed.items())
        self._node.get_logger().warning(f"limits loosened by an operator: {words} ({reason})")
        return f"changed {words or 'nothing'}"
