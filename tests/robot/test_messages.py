"""Records to ROS messages and back: nothing is lost, no unit changes, nonsense is not let in."""

import math
import threading
import tracemalloc
from dataclasses import replace
from types import SimpleNamespace

import pytest

pytest.importorskip("rclpy", reason="no ROS 2 here")
pytest.importorskip("spec_vlm_nav_interfaces.msg", reason="the interface package is not built")

from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from nav_msgs.msg import Odometry
from rclpy.subscription import Subscription
from sensor_msgs.msg import CompressedImage, Image
from spec_vlm_nav_interfaces.msg import MotionCommand, MotionStatus
from std_msgs.msg import String

from spec_vlm_nav.camera.images import Frame
from spec_vlm_nav.common.codes import ActionSource, ErrorCode, MotionState
from spec_vlm_nav.common.geometry import Motion
from spec_vlm_nav.common.status import Status
from spec_vlm_nav.deciding.parts.interfaces import DecisionReport, MotionRequest
from spec_vlm_nav.model.decider import ModelAnswer
from spec_vlm_nav.motion.command import CommandKind
from spec_vlm_nav.ros.messages import (
    command_message,
    command_of,
    frame_of,
    metrics_message,
    pose_of,
    status_message,
    status_of,
)
from spec_vlm_nav.ros.nodes import console_node
from spec_vlm_nav.ros.session import CommandSession
from spec_vlm_nav.ros.subscriptions import subscribe
from specdec.edge.stats import RoundStats, Span

STAMP = Time(sec=12, nanosec=500)


def test_an_order_arrives_as_the_command_it_was():
    frame = Frame(b"", (7, 8), received=100.0)
    request = MotionRequest(
        CommandKind.MOVE, 3, ActionSource.EXPLORATION, "back 12", Motion(-0.12, 0.0), frame, deadline_s=2.75
    )
    session = CommandSession()
    session.sequence = 40
    message = session.sign(command_message(request, now=100.4, stamp=STAMP))
    assert message.source == MotionCommand.EXPLORATION and message.frame_stamp == Time(sec=7, nanosec=8)
    command = command_of(message)
    assert (command.kind, command.session, command.instruction, command.sequence) == (
        CommandKind.MOVE,
        session.number,
        3,
        41,
    )
    assert command.motion == request.motion and command.deadline_s == pytest.approx(2.75)
    assert command.frame_age_s == pytest.approx(0.4)


def test_a_command_of_an_unknown_kind_stands_and_an_unknown_state_is_no_record():
    command = command_of(MotionCommand(kind=77, distance_m=0.5, text="forward"))
    assert (command.kind, command.text) == (CommandKind.HOLD, "a command of unknown kind 77")
    assert status_of(MotionStatus(state=77)) is None


def test_a_status_comes_back_as_it_went():
    status = Status(MotionState.BLOCKED, 5, 6, "a wall", Motion(0.1, -0.2), since=11.5)
    since = Time(sec=11, nanosec=500_000_000)
    assert status_of(status_message(status, STAMP, since)) == status


def test_yaw_is_read_from_the_quaternion_and_a_missing_one_is_not_a_number():
    message = Odometry()
    message.pose.pose.orientation.z, message.pose.pose.orientation.w = math.sin(1.0), math.cos(1.0)
    message.pose.pose.position.x = 3.0
    assert pose_of(message).yaw == pytest.approx(2.0) and pose_of(message).x == 3.0
    message.pose.pose.orientation.z = message.pose.pose.orientation.w = 0.0
    assert not pose_of(message).is_finite


@pytest.mark.parametrize("length", [0.8, 1.0, 1.35])
@pytest.mark.parametrize("degrees", [0, 30, 90, 170, -120])
def test_yaw_does_not_depend_on_the_quaternions_length(length, degrees):
    half = math.radians(degrees) / 2
    message = Odometry()
    message.pose.pose.orientation.z, message.pose.pose.orientation.w = (
        length * math.sin(half),
        length * math.cos(half),
    )
    assert math.degrees(pose_of(message).yaw) == pytest.approx(degrees)


def test_compressed_bytes_are_the_cameras_own():
    message = CompressedImage(format="jpeg", data=b"\xff\xd8 anything")
    message.header.stamp = STAMP
    frame = frame_of(message, 9.0)
    assert (frame.picture, frame.stamp, frame.received) == (b"\xff\xd8 anything", (12, 500), 9.0)
    raw = frame_of(Image(encoding="mono8", width=2, height=1, step=2, data=b"\x01\x02"), 9.0).picture
    assert (raw.encoding, raw.width, raw.height, raw.step, raw.data) == ("mono8", 2, 1, 2, b"\x01\x02")


def test_the_measurements_hold_all_of_an_answer():
    lost = metrics_message(DecisionReport(code=ErrorCode.LINK_LOST), 1, "sd", 4, STAMP)
    assert lost.error_code == lost.LINK_LOST
    answer = ModelAnswer(
        "I see it.",
        (1, 2, 3),
        (9, 9),
        (RoundStats(4, 3, 17, 12, 1.5, 2.5, 0.5, 4),),
        (Span("cloud", "verify", 0.001, 0.002),),
        4000,
    )
    report = DecisionReport(
        Frame(b"", (7, 8), 1.0), 2, "go", 5, answer, "I see it.", "", "turn left 8",
        ActionSource.EXPLORATION, "halved",
    )  # fmt: skip
    m = metrics_message(report, 11, "sd", 4, STAMP)
    assert m.joules < 0, "no sensor"
    measured = replace(report, answer=replace(answer, joules=2.5))
    assert metrics_message(measured, 11, "sd", 4, STAMP).joules == 2.5
    assert (list(m.token_ids), list(m.prompt_ids), m.tokens, m.rounds) == ([1, 2, 3], [9, 9], 3, 1)
    assert (list(m.drafted), list(m.accepted), list(m.uplink_bytes), list(m.downlink_bytes)) == (
        [4],
        [3],
        [17],
        [12],
    )
    assert (list(m.draft_ms), list(m.wait_ms), list(m.verify_ms), m.prompt_bytes) == (
        [1.5],
        [2.5],
        [0.5],
        4000,
    )
    assert (m.span_lane, m.span_name, list(m.span_start_ms), list(m.span_end_ms)) == (
        ["cloud"],
        ["verify"],
        [1.0],
        [2.0],
    )
    assert (m.source, m.rule, m.action, m.frame_stamp) == (
        m.EXPLORATION,
        "halved",
        "turn left 8",
        Time(sec=7, nanosec=8),
    )


@pytest.mark.parametrize("tells", [True, False])  # False: Humble reports no send times
def test_a_message_counts_once_and_the_same_words_again_count_again(tells, monkeypatch):
    if not tells:
        monkeypatch.delattr(Subscription, "CallbackType")
    heard, callbacks = [], []
    node = SimpleNamespace(create_subscription=lambda kind, topic, act, *_, **__: callbacks.append(act))
    subscribe(node, String, "stop", lambda message: heard.append(message.data))
    reliable, best_effort = callbacks
    sends = (
        (1, reliable),
        (2, reliable),
        (1, best_effort),
        (2, best_effort),
        (3, best_effort),
        (3, reliable),
    )
    for sent, callback in sends:
        callback(String(data="stop"), *([{"source_timestamp": sent}] if tells else []))
    assert heard == ["stop"] * 3


def test_large_messages_are_not_kept():
    callbacks = []
    node = SimpleNamespace(create_subscription=lambda kind, topic, act, *_, **__: callbacks.append(act))
    subscribe(node, String, "instruction", lambda message: None)
    tracemalloc.start()
    for sent in range(10):
        callbacks[0](String(data="x" * 1_000_000), {"source_timestamp": sent})
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 1_000_000


def test_of_diagnostics_the_console_keeps_a_bounded_number_of_rows_the_newest(monkeypatch):
    monkeypatch.setattr(console_node, "MOST_ROWS", 3)
    node = console_node.ConsoleNode.__new__(console_node.ConsoleNode)
    node._lock, node._health = threading.Lock(), {}
    for name in "abcdab":
        node._on_diagnostics(DiagnosticArray(status=[DiagnosticStatus(name=name, level=b"\0")]))
    assert [row["name"] for row in node.health()] == ["a", "b", "d"]
