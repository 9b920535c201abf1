"""The node that decides: camera frames and an instruction in, motion commands, reasoning and measurements out.

A thin shell around Navigator (what to do when) and DecisionWorker (the model, in its own thread), so that callbacks
never wait for a model. It never publishes a velocity.
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NoReturn

from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import CompressedImage, Image
from spec_vlm_nav_interfaces.msg import DecisionMetrics, MotionCommand, MotionStatus
from std_msgs.msg import Empty, String

from spec_vlm_nav.decider import Decider, DecoderSettings
from spec_vlm_nav.decider_parameters import VLM_NAV
from spec_vlm_nav.decision import Job, Report
from spec_vlm_nav.exploration import ExplorationPolicy
from spec_vlm_nav.images import PictureOptions
from spec_vlm_nav.navigator import Navigator, NavigatorConfig, Order
from spec_vlm_nav.nodes.declare import declare, follow_changes
from spec_vlm_nav.nodes.messages import command_message, frame_of, metrics_message, status_of
from spec_vlm_nav.nodes.run import leave, run
from spec_vlm_nav.parameters import Value
from spec_vlm_nav.safety import CommandKind
from spec_vlm_nav.worker import DecisionWorker, Event
from specdec.errors import SpecdecError

TICK_S = 0.05


def decoder_settings(values: dict[str, Value]) -> DecoderSettings:
    """The decider's part of the parameters."""
    return DecoderSettings(
        verifier=str(values["verifier"]),
        draft_model=str(values["draft_model"]),
        method=str(values["method"]),
        gamma=int(values["gamma"]),
        max_new_tokens=int(values["max_new_tokens"]),
        temperature=float(values["temperature"]),
        seed=int(values["seed"]),
        device=str(values["device"]),
        dtype=str(values["dtype"]),
        quantize=str(values["quantize"]),
        threads=int(values["threads"]),
        connect_timeout_s=float(values["connect_timeout_s"]),
        reply_timeout_s=float(values["reply_timeout_s"]),
        link_timeout_s=float(values["link_timeout_s"]),
        resume_timeout_s=float(values["resume_timeout_s"]),
        on_link_loss=str(values["on_link_loss"]),
        prompt=str(values["prompt"]),
        answer_order=str(values["answer_order"]),
        picture=PictureOptions(
            int(values["image_width"]), int(values["image_height"]), int(values["jpeg_quality"])
        ),
    )


def navigator_config(values: dict[str, Value]) -> NavigatorConfig:
    """The navigator's part of the parameters."""
    return NavigatorConfig(
        camera_timeout_s=float(values["camera_timeout_s"]),
        decision_timeout_s=float(values["decision_timeout_s"]),
        motion_deadline_s=float(values["motion_deadline_s"]),
        settle_s=float(values["settle_s"]),
        parse_failure_limit=int(values["parse_failure_limit"]),
        max_decisions=int(values["max_decisions"]),
        max_instruction_chars=int(values["max_instruction_chars"]),
    )


class VlmNavNode:
    """Shell around Navigator; also its Outputs. `make_decider` builds the decider from the settings."""

    def __init__(self, make_decider: Callable[[DecoderSettings], Decider]) -> None:
        self.node = node = Node("vlm_nav_node")
        self._values = values = declare(node, VLM_NAV)
        self._settings = decoder_settings(values)
        # A fresh session tells motion_node that an earlier run of this node is over.
        self._session = secrets.randbits(63) | 1
        self._sequence = 0
        reliable = QoSProfile(depth=20, reliability=ReliabilityPolicy.RELIABLE)
        self._commands = node.create_publisher(MotionCommand, "motion_command", reliable)
        self._reasoning = node.create_publisher(String, "~/reasoning", reliable)
        self._actions = node.create_publisher(String, "~/action", reliable)
        self._metrics = node.create_publisher(DecisionMetrics, "~/metrics", reliable)
        self._decider = make_decider(self._settings)
        self._navigator = Navigator(
            self, navigator_config(values), ExplorationPolicy(str(values["exploration"]))
        )
        self._events: deque[Event] = deque()
        self._wake = node.create_guard_condition(self._take_events)
        self._worker = DecisionWorker(self._decider, self._post)
        follow_changes(node, VLM_NAV, values, self._apply)
        node.create_subscription(String, "instruction", self._on_instruction, reliable)
        node.create_subscription(Empty, "~/cancel", self._on_cancel, reliable)
        node.create_subscription(MotionStatus, "motion_status", self._on_status, reliable)
        camera = QoSProfile(depth=1, reliability=ReliabilityPolicy[str(values["image_reliability"]).upper()])
        kind = CompressedImage if values["image_transport"] == "compressed" else Image
        node.create_subscription(kind, "image", self._on_image, camera)
        node.create_timer(TICK_S, self._tick, clock=Clock(clock_type=ClockType.STEADY_TIME))
        node.get_logger().info(
            f"vlm_nav_node ready: {self._settings.method} with {self._settings.draft_model}, "
            f"verifier {self._settings.verifier}"
        )

    # -- inputs

    def _on_instruction(self, message: String) -> None:
        self._navigator.on_instruction(message.data, time.monotonic())

    def _on_cancel(self, message: Empty) -> None:
        self._navigator.on_cancel(time.monotonic())

    def _on_status(self, message: MotionStatus) -> None:
        status = status_of(message)
        if status is not None and status.session == self._session:
            self._navigator.on_status(status, time.monotonic())

    def _on_image(self, message: CompressedImage | Image) -> None:
        self._navigator.on_frame(frame_of(message, time.monotonic()))

    def _tick(self) -> None:
        self._take_events()
        self._navigator.tick(time.monotonic())

    def _post(self, event: Event) -> None:
        """Called by the worker's thread."""
        self._events.append(event)
        self._wake.trigger()

    def _take_events(self) -> None:
        while self._events:
            self._navigator.on_event(self._events.popleft(), time.monotonic())

    def _apply(self, values: dict[str, Value]) -> None:
        self._navigator.config = navigator_config(values)
        if self._navigator.policy.name != values["exploration"]:
            self._navigator.policy = ExplorationPolicy(str(values["exploration"]))
        self._settings = decoder_settings(values)
        self._decider.use(self._settings)

    # -- outputs

    def send(self, order: Order) -> int:
        """Send a motion command; returns its sequence number."""
        self._sequence += 1
        stamp = self.node.get_clock().now().to_msg()
        message = command_message(order, self._session, self._sequence, time.monotonic(), stamp)
        self._commands.publish(message)
        return self._sequence

    def begin(self, job: Job) -> None:
        """Have a job decided."""
        self._worker.begin(job)

    def cancel(self) -> None:
        """Give up the job under way."""
        self._worker.cancel()

    def spoke(self, text: str, action: str) -> None:
        """Publish reasoning and action."""
        self._reasoning.publish(String(data=text))
        self._actions.publish(String(data=action))

    def report(self, report: Report) -> None:
        """Publish the measurements of a decision."""
        stamp = self.node.get_clock().now().to_msg()
        s = self._settings
        self._metrics.publish(metrics_message(report, self._session, s.method, s.gamma, stamp))

    def log(self, level: str, text: str) -> None:
        """Say something to the operator."""
        logger = self.node.get_logger()
        # rclpy binds a severity to the calling line: each needs a line of its own.
        if level == "info":
            logger.info(text)
        elif level == "warn":
            logger.warning(text)
        else:
            logger.error(text)

    def close(self) -> None:
        """Tell motion_node to stand still, end the worker."""
        self.send(Order(CommandKind.HOLD, self._navigator.number, "SUPERVISOR", "vlm_nav_node ends"))
        self._worker.close()


def make_decider(settings: DecoderSettings) -> Decider:
    """The real decider; imported only now, so that a wrong parameter is refused before torch is loaded."""
    from spec_vlm_nav.speculative import SpeculativeDecider

    return SpeculativeDecider(settings)


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Entry point."""
    leave(run(lambda: VlmNavNode(make_decider), args, (SpecdecError,)))


if __name__ == "__main__":
    main()
