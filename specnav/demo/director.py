# SPDX-License-Identifier: Apache-2.0
"""The director: a ROS node that resets the simulator, publishes the instruction and records what follows.

It converts messages into plain records for the recorder, and never publishes a motion command. Message callbacks run in
its own thread; `lock` guards the recorder that they fill.
"""

from __future__ import annotations

import contextlib
import json
import math
import threading
import time
from collections import deque
from typing import Literal

import msgspec
from builtin_interfaces.msg import Time
from rclpy.qos import QoSProfile, ReliabilityPolicy, qos_profile_sensor_data
from sensor_msgs.msg import CompressedImage
from spec_vlm_nav_interfaces.msg import DecisionMetrics, MotionCommand, MotionStatus
from std_msgs.msg import Empty, String

from navsim.episodes import Episode
from spec_vlm_nav.common.codes import ActionSource, ErrorCode, MotionState
from specnav.demo.recorder import EpisodeRecorder, SimState
from specnav.results.trace import Decision, Span
from specnav.ros_node import spinning_node
from specnav.supervise.robot_stack import (
    CANCEL,
    COMMAND,
    IMAGE,
    INSTRUCTION,
    METRICS,
    RESET,
    STATE,
    STATUS,
)

AT_START_M = 0.05
FRAMES_BEFORE = 5
# Stale odometry is also reported by the deciding node, and counted there.
SAFETY_STATES = frozenset({MotionState.EXPIRED.value, MotionState.REFUSED.value})
CUT_SHORT = frozenset(
    {ErrorCode.CANCELED.value, ErrorCode.TIMEOUT.value, ErrorCode.LINK_LOST.value, ErrorCode.INTERNAL.value}
)
NOT_SAFETY = frozenset(
    {
        ErrorCode.NONE.value,
        ErrorCode.CANCELED.value,
        ErrorCode.PARSE_FAILED.value,
        ErrorCode.TOO_MANY_DECISIONS.value,
        ErrorCode.TOO_FAR.value,
    }
)


def stamp_of(time_message: Time) -> tuple[int, int]:
    """A header stamp as (seconds, nanoseconds)."""
    return time_message.sec, time_message.nanosec


def is_safety_stop(message: DecisionMetrics) -> bool:
    """Whether the deciding node stopped the robot because something failed."""
    if message.error_code == ErrorCode.TIMEOUT.value and stamp_of(message.frame_stamp) == (0, 0):
        return False  # the instruction timed out between decisions
    return message.error_code not in NOT_SAFETY


def decision_of(message: DecisionMetrics) -> Decision:
    """A decision's metrics as a record; the recorder sets number, time, pose and frame."""
    policy = message.source == ActionSource.EXPLORATION.value
    sent = message.sequence != 0 and message.source != ActionSource.SUPERVISOR.value
    spans = zip(
        message.span_lane, message.span_name, message.span_start_ms, message.span_end_ms, strict=False
    )
    return Decision(
        index=0,
        t_s=0.0,
        source="policy" if policy else "model",
        action="" if not sent else message.action if policy else message.model_action or message.action,
        model_action=message.model_action,
        reasoning=message.reasoning,
        text=message.text,
        parsed=message.error_code != ErrorCode.PARSE_FAILED.value,
        complete=message.error_code not in CUT_SHORT,
        note=message.rule if policy else message.error,
        decision_ms=message.decision_ms if sent else None,
        time_to_action_ms=message.camera_to_action_ms if sent else None,
        prefill_ms=message.prefill_ms,
        total_ms=message.total_ms,
        joules=message.joules if message.joules >= 0 else None,
        prompt_ids=list(message.prompt_ids),
        token_ids=list(message.token_ids),
        drafted=list(message.drafted),
        accepted=list(message.accepted),
        uplink_bytes=list(message.uplink_bytes),
        downlink_bytes=list(message.downlink_bytes),
        draft_ms=list(message.draft_ms),
        wait_ms=list(message.wait_ms),
        verify_ms=list(message.verify_ms),
        prompt_bytes=message.prompt_bytes,
        cloud_prefill_ms=message.cloud_prefill_ms,
        timeline=[Span(lane, name, start, end) for lane, name, start, end in spans],
    )


def state_of(text: str, now: float) -> SimState | None:
    """Parse the simulator's state message; None if it is invalid."""
    try:
        return msgspec.convert(msgspec.json.decode(text, type=dict) | {"t": now}, SimState)
    except msgspec.MsgspecError:
        return None


class Director:
    """Uses ROS on one domain, in its own context and thread; a context manager."""

    def __init__(self, domain: int) -> None:
        self.lock = threading.Lock()
        self._recorder: EpisodeRecorder | None = None
        self._fresh: list[Decision] = []
        # The robot may decide on a frame that arrived here before the instruction was published.
        self._last_frames: deque[tuple[float, tuple[int, int], bytes]] = deque(maxlen=FRAMES_BEFORE)
        self._heard: tuple[int, int] | None = None  # session and instruction of the newest message
        self._past: tuple[int, int] | None = (
            None  # that of the newest message when the instruction was published
        )
        self._motion_state: tuple[int, int] | None = None
        self._latest_state: SimState | None = None
        self._running = contextlib.ExitStack()
        self._node = self._running.enter_context(spinning_node("demo_director", domain))
        reliable = QoSProfile(depth=50, reliability=ReliabilityPolicy.RELIABLE)
        make = self._node.create_subscription
        make(CompressedImage, IMAGE, self._on_image, qos_profile_sensor_data)
        make(String, STATE, self._on_state, reliable)
        make(DecisionMetrics, METRICS, self._on_metrics, reliable)
        make(MotionCommand, COMMAND, self._on_command, reliable)
        make(MotionStatus, STATUS, self._on_status, reliable)
        self._instruct = self._node.create_publisher(String, INSTRUCTION, reliable)
        self._cancel = self._node.create_publisher(Empty, CANCEL, reliable)
        self._reset = self._node.create_publisher(String, RESET, reliable)

    def __enter__(self) -> Director:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    # -- subscriptions

    def _on_image(self, message: CompressedImage) -> None:
        frame = (time.monotonic(), stamp_of(message.header.stamp), bytes(message.data))
        with self.lock:
            self._last_frames.append(frame)
            if self._recorder is not None:
                self._recorder.on_frame(*frame)

    def _on_state(self, message: String) -> None:
        state = state_of(message.data, time.monotonic())
        if state is None:
            return
        with self.lock:
            self._latest_state = state
            if self._recorder is not None:
                self._recorder.on_state(state)

    def _on_command(self, message: MotionCommand) -> None:
        with self.lock:
            if not self._is_current(message.session, message.instruction) or self._recorder is None:
                return
            who: Literal["", "model", "node"] = ""
            if message.kind == MotionCommand.STOP:
                who = "model" if message.source == ActionSource.MODEL.value else "node"
            self._recorder.on_command(time.monotonic(), message.sequence, who)

    def _is_current(self, session: int, instruction: int) -> bool:
        """Whether a message belongs to the instruction being recorded, and not to an earlier one."""
        self._heard = (session, instruction)
        return self._past is None or session != self._past[0] or instruction > self._past[1]

    def _on_metrics(self, message: DecisionMetrics) -> None:
        with self.lock:
            if not self._is_current(message.session, message.instruction) or self._recorder is None:
                return
            if is_safety_stop(message):
                self._recorder.on_safety_stop(time.monotonic())
            if not message.text and not message.token_ids:
                return  # no decision: the node only reports why it stopped
            filled = self._recorder.on_decision(
                time.monotonic(), message.sequence, stamp_of(message.frame_stamp), decision_of(message)
            )
            self._fresh.append(filled)

    def _on_status(self, message: MotionStatus) -> None:
        with self.lock:
            state = (message.sequence, message.state)
            if self._recorder is not None and state != self._motion_state and message.state in SAFETY_STATES:
                self._recorder.on_safety_stop(time.monotonic())
            self._motion_state = state

    # -- requests of the demo

    def robot_is_connected(self) -> bool:
        """Whether the nodes of robot and simulator have discovered each other and this node."""
        count = self._node
        return (
            count.count_subscribers(INSTRUCTION) > 0
            and count.count_subscribers(IMAGE) > 1
            and count.count_subscribers(COMMAND) > 1
            and count.count_publishers(METRICS) > 0
            and count.count_publishers(STATUS) > 0
        )

    def simulator_is_connected(self) -> bool:
        """Whether the simulator is connected and publishes its state."""
        with self.lock:
            return self._latest_state is not None and self._node.count_subscribers(RESET) > 0

    def reset_simulator(self, seed: int, split: str, absent: bool) -> None:
        """Request an episode's room."""
        with self.lock:
            self._latest_state = None
            self._last_frames.clear()
        self._reset.publish(String(data=json.dumps({"seed": seed, "split": split, "absent": absent})))

    def simulator_shows(self, episode: Episode) -> bool:
        """Whether the simulator is in that episode, with the robot at its start."""
        with self.lock:
            state = self._latest_state
        if (
            state is None
            or not state.ready
            or (state.episode_seed, state.absent) != (episode.seed, episode.absent)
        ):
            return False
        return math.hypot(state.x - episode.start.x, state.y - episode.start.y) < AT_START_M

    def begin(self, seed: int, instruction: str) -> EpisodeRecorder:
        """Start recording and publish the instruction; returns the recorder (guarded by `lock`)."""
        with self.lock:
            self._past = self._heard
            self._fresh.clear()
            self._recorder = recorder = EpisodeRecorder(seed, time.monotonic())
            for frame in self._last_frames:
                recorder.on_frame(*frame)
            if self._latest_state is not None:
                recorder.on_state(self._latest_state)
        self._instruct.publish(String(data=instruction))
        return recorder

    def cancel(self) -> None:
        """Ask the robot to drop its instruction and stop."""
        self._cancel.publish(Empty())

    def end(self) -> None:
        """Stop recording."""
        with self.lock:
            self._recorder = None

    def take_decisions(self) -> list[Decision]:
        """Decisions that arrived since the last call."""
        with self.lock:
            fresh, self._fresh = self._fresh, []
        return fresh
