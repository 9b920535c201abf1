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
The active part of vlm_nav_node: it exists from activation to deactivation.

It feeds camera frames and motion reports to the navigator, runs its worker, and sends heartbeats.
Callbacks never wait for a model: decisions are made in the worker's thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
import math
import time

from rclpy.node import Node
from rclpy.task import Future
from sensor_msgs.msg import CompressedImage, Image
from spec_vlm_nav.common.codes import MotionState
from spec_vlm_nav.common.parameters import Value
from spec_vlm_nav.common.status import GOING_ON, UNDER_WAY
from spec_vlm_nav.deciding.diagnostics import DecidingDiagnostics
from spec_vlm_nav.deciding.navigator import LOADING, Navigator
from spec_vlm_nav.deciding.parts.interfaces import (
    DecisionReport,
    MotionRequest,
    NavigationResult,
    NavigatorConfig,
    NavigatorPhase,
    SUPERVISOR,
)
from spec_vlm_nav.exploring.policy import ExplorationPolicy
from spec_vlm_nav.model.decider import DecoderSettings, LinkReport
from spec_vlm_nav.model.deferred import DeferredDecider
from spec_vlm_nav.model.worker import DecisionWorker, Event
from spec_vlm_nav.motion.command import CommandKind, OPERATOR_STOP
from spec_vlm_nav.ros.basics import qos, RELIABLE, steady_timer
from spec_vlm_nav.ros.deciding.publishers import Publishers
from spec_vlm_nav.ros.messages import frame_of, status_of
from spec_vlm_nav_interfaces.msg import MotionStatus

TICK_S = 0.05
SUPERVISION_TICKS = 2
STANDING_S = 0.25  # longest wait for motion_node to report that the robot stands
POLL_S = 0.005
DISCOVERY_S = 5.0  # longest time that an instruction waits for motion_node to be found
UNHEARD = "motion_node has not been found yet"
_UNDER_WAY = tuple(state.value for state in UNDER_WAY)


class ActiveNavigator:
    """
    ROS shell around Navigator; it also implements NavigatorOutputs.

    The action server sets `on_tick` and `on_result`.
    """

    def __init__(
        self,
        node: Node,
        publishers: Publishers,
        decider: DeferredDecider,
        settings: DecoderSettings,
        config: NavigatorConfig,
        exploration: str,
        values: dict[str, Value],
    ) -> None:
        self._node = node
        self._publishers = publishers
        self._decider = decider
        self._settings = settings
        self._begin_session()
        publishers.silent = config.dry_run
        self.diagnostics = DecidingDiagnostics()
        self.on_tick: Callable[[], None] = lambda: None
        self.on_result: Callable[[NavigationResult], None] = lambda result: None
        self.send, self.spoke, self.log = publishers.send, publishers.spoke, publishers.log
        self.navigator = Navigator(self, config, ExplorationPolicy(exploration))
        self._standing: list[tuple[int, float, Future[bool]]] = []
        self._is_answered = False  # motion_node was heard since the activation
        self._is_connected = config.dry_run
        self._connected_by = math.inf
        self.navigator.waits_for = self._waits_for(time.monotonic())
        self._ticks = 0
        self._events: deque[Event] = deque()
        self._wake = node.create_guard_condition(self._take_events)
        self.worker = DecisionWorker(decider, self._post)
        self.begin, self.cancel = self.worker.begin, self.worker.cancel
        camera = qos(values["image_reliability"], 1)
        kind = CompressedImage if values["image_transport"] == "compressed" else Image
        self._subscriptions = (
            node.create_subscription(MotionStatus, "motion_status", self._on_status, RELIABLE),
            node.create_subscription(kind, "image", self._on_image, camera),
        )
        self._timer = steady_timer(node, TICK_S, self._tick)

    def _begin_session(self) -> None:
        """Begin a new session: for motion_node it ends everything of the old one."""
        self._publishers.session.begin()
        self._is_replaced = False  # True: another session took over, e.g. for a mission's turn

    # -- operator commands

    def instruct(self, text: str, allowance_s: float = 0.0, hint: str = "", sent: float = math.inf) -> int:
        """
        Begin an instruction; returns its number.

        sent: when it was sent, s, by its sender's clock; it may have waited for this node.
        """
        if self._is_replaced or self._publishers.session.is_nearly_used_up:
            self._begin_session()
            self._give_sign_of_life()  # motion_node refuses commands of an unknown session
        self._connected_by = time.monotonic() + DISCOVERY_S
        self.navigator.wake(time.monotonic())
        stamp = min(sent, self._node.get_clock().now().nanoseconds * 1e-9)
        return self.navigator.on_instruction(text, time.monotonic(), allowance_s, hint, stamp)

    def stop(self, why: str) -> Future[bool]:
        """
        Stop; the future completes when motion_node reports that the robot stands.

        Its result is False if there is no report within STANDING_S.
        """
        self.navigator.on_cancel(time.monotonic(), why)
        standing: Future[bool] = Future()
        if self.navigator.config.dry_run:
            standing.set_result(True)
        else:
            self._standing.append(
                (self._publishers.session.sequence, time.monotonic() + STANDING_S, standing)
            )
        return standing

    @property
    def is_busy(self) -> bool:
        """Whether an instruction is under way."""
        return self.navigator.phase is not NavigatorPhase.IDLE

    @property
    def link(self) -> LinkReport:
        """Return the state of the link."""
        return self._decider.link()

    @property
    def text_so_far(self) -> str:
        """Return the answer so far of the decision under way."""
        return self.worker.text if self.navigator.phase is NavigatorPhase.THINKING else ""

    def use(self, settings: DecoderSettings, config: NavigatorConfig, exploration: str) -> None:
        """Apply changed parameters."""
        self._settings, self.navigator.config = settings, config
        if self.navigator.policy.name != exploration:
            self.navigator.policy = ExplorationPolicy(exploration)

    # -- inputs

    def _on_status(self, message: MotionStatus) -> None:
        status = status_of(message)
        if status is None:
            return
        self._is_answered = True
        self.navigator.wake(time.monotonic())
        ours = message.session == self._publishers.session.number
        if not ours and message.session and status.state is not MotionState.REFUSED:
            self._is_replaced = True
        if ours and status.state not in GOING_ON:
            self._told_standing(status.sequence)
        self.navigator.on_estop(status.held_by if status.estopped else "", time.monotonic())
        if ours or status.reason.startswith(OPERATOR_STOP):
            self.navigator.on_status(status, time.monotonic())

    def _stands(self) -> bool:
        """
        Wait until motion_node reports that the robot stands; returns whether it did.

        Messages are taken directly: the executor is busy with a lifecycle transition.
        """
        if self._publishers.silent:
            return True
        last, status = self._publishers.session.sequence, self._subscriptions[0]
        deadline = time.monotonic() + STANDING_S
        while time.monotonic() < deadline:
            with status.handle:
                taken = status.handle.take_message(MotionStatus, False)
            if taken is None:
                time.sleep(POLL_S)
                continue
            message: MotionStatus = taken[0]
            ours = message.session == self._publishers.session.number and message.sequence >= last
            if ours and message.state not in _UNDER_WAY:
                self._told_standing(message.sequence)
                return True
        return False

    def _told_standing(self, sequence: int) -> None:
        for entry in [e for e in self._standing if e[0] <= sequence]:
            self._standing.remove(entry)
            entry[2].set_result(True)

    def _on_image(self, message: CompressedImage | Image) -> None:
        self.navigator.wake(time.monotonic())
        self.navigator.on_frame(frame_of(message, time.monotonic()))

    def _tick(self) -> None:
        now = time.monotonic()
        self.navigator.wake(now)
        link = self._decider.link()
        self.navigator.waits_for = self._waits_for(now)
        self.navigator.on_link(link.state, now, link.reason)
        self._take_events()
        self.navigator.tick(now)
        for entry in [e for e in self._standing if e[1] <= now]:
            self._standing.remove(entry)
            self.log("warn", f"motion_node did not report within {STANDING_S:g} s that the robot stands")
            entry[2].set_result(False)
        self._ticks += 1
        if self._ticks % SUPERVISION_TICKS == 0:
            self._give_sign_of_life()
        self._publishers.growing(self.text_so_far, self._decider.so_far)
        self.on_tick()

    def _waits_for(self, now: float) -> str:
        """
        Return why no decision may begin yet, or "".

        A command sent before the two nodes have discovered each other is lost. After DISCOVERY_S
        decisions begin anyway, and the navigator reports what is wrong.
        """
        if not self._is_connected:
            found = self._is_answered and self._publishers.reach_all
            self._is_connected = found or now >= self._connected_by
            if found:
                self._give_sign_of_life()  # motion_node refuses commands of an unknown session
        if not self._decider.is_ready:
            return LOADING
        return "" if self._is_connected else UNHEARD

    def _give_sign_of_life(self) -> None:
        camera = self.navigator.camera
        age = -1.0 if camera.frame is None else min(camera.age(time.monotonic()), 1e6)
        self._publishers.supervise(age, self._decider.link())

    def _post(self, event: Event) -> None:
        """Queue an event; called by the worker's thread."""
        self._events.append(event)
        self._wake.trigger()

    def _take_events(self) -> None:
        self.navigator.wake(time.monotonic())
        while self._events:
            self.navigator.on_event(self._events.popleft(), time.monotonic())

    # -- outputs of the navigator

    def report(self, report: DecisionReport) -> None:
        """Publish the measurements of a decision."""
        self.diagnostics.count(report)
        self._publishers.report(report, self._settings)

    def concluded(self, result: NavigationResult) -> None:
        """Publish the result of an instruction."""
        self.diagnostics.last_outcome = f"{result.code.name} {result.message}".strip()
        self._publishers.concluded(result)
        self.on_result(result)

    # -- shutdown

    def close(self, why: str) -> None:
        """Stop the robot, wait until motion_node has heard it, then release everything."""
        busy = self.is_busy
        if busy:
            self.navigator.on_cancel(time.monotonic(), why)
        else:
            self.send(MotionRequest(CommandKind.STOP, self.navigator.instruction.number, SUPERVISOR, why))
        if not self._stands() and busy:
            self.log(
                "warn",
                f"motion_node did not report within {STANDING_S:g} s that the robot stands: is it running?",
            )
        for _, _, standing in self._standing:
            standing.set_result(False)
        self._standing.clear()
        self._node.destroy_timer(self._timer)
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)
        if not self.worker.close():
            # Its decider must not be used again, and it may still trigger the guard condition.
            raise RuntimeError("the decision thread did not end in time")
        self._node.destroy_guard_condition(self._wake)
