"""What an operator does to vlm_nav_node: goals, cancels, lifecycle transitions, parameters; with times."""

from __future__ import annotations

import threading
import time
from typing import Any

from action_msgs.msg import GoalStatus
from builtin_interfaces.msg import Duration
from lifecycle_msgs.msg import State, Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rcl_interfaces.srv import SetParameters
from rclpy.action import ActionClient
from rclpy.parameter import Parameter
from spec_vlm_nav_interfaces.action import NavigateInstruction

from tests.graph.harness import Graph, wait_until

STATES = {
    State.PRIMARY_STATE_UNCONFIGURED: "unconfigured",
    State.PRIMARY_STATE_INACTIVE: "inactive",
    State.PRIMARY_STATE_ACTIVE: "active",
    State.PRIMARY_STATE_FINALIZED: "finalized",
}
TRANSITIONS = {
    "configure": Transition.TRANSITION_CONFIGURE,
    "activate": Transition.TRANSITION_ACTIVATE,
    "deactivate": Transition.TRANSITION_DEACTIVATE,
    "cleanup": Transition.TRANSITION_CLEANUP,
    "shutdown": Transition.TRANSITION_ACTIVE_SHUTDOWN,
}


class _Client(ActionClient):
    """rclpy makes the lock only after the node knows the client, and the probe's thread may use it before."""

    _lock = threading.Lock()


class Goal:
    """One goal from sending to result."""

    def __init__(self, client: ActionClient, instruction: str, allowance_s: float, hint: str) -> None:
        self.feedback: list[NavigateInstruction.Feedback] = []
        goal = NavigateInstruction.Goal(instruction=instruction, success_hint=hint)
        goal.time_allowance = Duration(sec=int(allowance_s), nanosec=int(allowance_s % 1 * 1e9))
        sent = client.send_goal_async(goal, feedback_callback=lambda m: self.feedback.append(m.feedback))
        wait_until(sent.done, 5, "the goal's acceptance")
        self.handle = sent.result()
        assert self.handle.accepted
        self._result = self.handle.get_result_async()

    def cancel(self) -> float:
        """Cancel; returns when that was acknowledged."""
        canceling = self.handle.cancel_goal_async()
        wait_until(canceling.done, 5, "the cancel's acknowledgement")
        at = time.monotonic()
        assert len(canceling.result().goals_canceling) == 1
        return at

    def result(self, timeout_s: float = 10) -> tuple[str, NavigateInstruction.Result]:
        """Wait for the end; returns the goal's status in words and the result."""
        wait_until(self._result.done, timeout_s, "the result")
        status = {
            GoalStatus.STATUS_SUCCEEDED: "succeeded",
            GoalStatus.STATUS_ABORTED: "aborted",
            GoalStatus.STATUS_CANCELED: "canceled",
        }[self._result.result().status]
        return status, self._result.result().result


class Operator:
    """Clients of one vlm_nav_node."""

    def __init__(self, graph: Graph) -> None:
        node = graph.probe.node
        self._actions = _Client(node, NavigateInstruction, "navigate_instruction")
        self._change = node.create_client(ChangeState, "vlm_nav_node/change_state")
        self._get = node.create_client(GetState, "vlm_nav_node/get_state")
        self._set = node.create_client(SetParameters, "vlm_nav_node/set_parameters")

    def send(self, instruction: str, allowance_s: float = 0.0, hint: str = "") -> Goal:
        """Send a goal."""
        assert self._actions.wait_for_server(10)
        return Goal(self._actions, instruction, allowance_s, hint)

    def transition(self, name: str) -> bool:
        """Ask for a lifecycle transition (shutdown: from active); whether it succeeded."""
        request = ChangeState.Request()
        request.transition.id = TRANSITIONS[name]
        return bool(self._call(self._change, request).success)

    def state(self) -> str:
        """The node's lifecycle state."""
        return STATES[self._call(self._get, GetState.Request()).current_state.id]

    def set(self, **values: Any) -> str:
        """Set a parameter; returns the reason of a refusal, or ""."""
        request = SetParameters.Request()
        request.parameters = [Parameter(name, value=v).to_parameter_msg() for name, v in values.items()]
        results = self._call(self._set, request).results
        return "" if all(r.successful for r in results) else results[0].reason

    @staticmethod
    def _call(client: Any, request: Any) -> Any:
        assert client.wait_for_service(10)
        future = client.call_async(request)
        wait_until(future.done, 15, f"an answer of {client.srv_name}")
        return future.result()
