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

"""Converts between ROS messages and the records of the ROS-free modules, without any logic."""

from __future__ import annotations

import math

from builtin_interfaces.msg import Duration, Time
from nav_msgs.msg import Odometry
from sensor_msgs.msg import CompressedImage, Image
from spec_vlm_nav.camera.images import Frame, RawImage
from spec_vlm_nav.common.codes import LinkState, MotionState
from spec_vlm_nav.common.errors import one_line
from spec_vlm_nav.common.geometry import Motion, Pose
from spec_vlm_nav.common.status import Status
from spec_vlm_nav.deciding.parts.interfaces import DecisionReport, MotionRequest
from spec_vlm_nav.model.decider import LinkReport
from spec_vlm_nav.motion.command import Command, CommandKind
from spec_vlm_nav.motion.watchdogs import OdometryReading
from spec_vlm_nav.motion.watchdogs import Supervision as SignOfLife
from spec_vlm_nav_interfaces.msg import DecisionMetrics, MotionCommand, MotionStatus, Supervision

NO_SENSOR = -1.0  # value of DecisionMetrics.joules without an energy sensor
# Fields of DecisionMetrics that are named as in the record they are copied from.
_OF_REPORT = (
    "instruction", "sequence", "instruction_text", "reasoning", "model_action", "action", "rule",
    "prefetched", "error", "decision_ms", "camera_to_action_ms",
)  # fmt: skip
_OF_ANSWER = ("text", "prefill_ms", "cloud_prefill_ms", "ttft_ms", "total_ms", "prompt_bytes")
_OF_ROUNDS = ("drafted", "accepted", "uplink_bytes", "downlink_bytes", "draft_ms", "wait_ms", "verify_ms")


def frame_of(message: CompressedImage | Image, received: float) -> Frame:
    """Return a camera message as a frame; its pixels are not decoded yet."""
    stamp = (message.header.stamp.sec, message.header.stamp.nanosec)
    if isinstance(message, CompressedImage):
        return Frame(bytes(message.data), stamp, received)
    return Frame(raw_of(message), stamp, received)


def raw_of(message: Image) -> RawImage:
    """Return an uncompressed picture as a record."""
    return RawImage(message.encoding, message.width, message.height, message.step, bytes(message.data))


def pose_of(message: Odometry) -> Pose:
    """Return the planar pose of an odometry message; yaw is NaN if the quaternion is invalid."""
    position, q = message.pose.pose.position, message.pose.pose.orientation
    norm = q.x * q.x + q.y * q.y + q.z * q.z + q.w * q.w
    if not 0.5 < norm < 2.0:
        return Pose(position.x, position.y, math.nan)
    # This formula is independent of the quaternion's length: some drivers do not normalise.
    yaw = math.atan2(2 * (q.w * q.z + q.x * q.y), q.w**2 + q.x**2 - q.y**2 - q.z**2)
    return Pose(position.x, position.y, yaw)


def reading_of(message: Odometry) -> OdometryReading:
    """Return an odometry message as a record."""
    header = message.header
    return OdometryReading(
        pose_of(message), seconds_of(header.stamp), header.frame_id, message.child_frame_id
    )


def seconds_of(span: Time | Duration) -> float:
    """Return a stamp or a duration in seconds."""
    return span.sec + span.nanosec * 1e-9


def duration_of(seconds: float) -> Duration:
    """Return a duration as a message."""
    return Duration(sec=int(seconds), nanosec=int(seconds % 1 * 1e9))


def command_of(message: MotionCommand) -> Command:
    """Return a motion command; one of an unknown kind counts as HOLD."""
    text = one_line(message.text)
    try:
        kind = CommandKind(message.kind)
    except ValueError:
        kind, text = CommandKind.HOLD, f"a command of unknown kind {message.kind}"
    return Command(
        kind=kind,
        session=message.session,
        instruction=message.instruction,
        sequence=message.sequence,
        motion=Motion(message.distance_m, message.angle_rad),
        deadline_s=seconds_of(message.deadline),
        frame_age_s=message.frame_age_s,
        text=text,
        unverified=message.unverified,
    )


def command_message(request: MotionRequest, now: float, stamp: Time) -> MotionCommand:
    """Return a request as a message without signature; now: on the clock of frame receive times."""
    message = MotionCommand(instruction=request.instruction)
    message.header.stamp = stamp
    message.kind = request.kind.value
    message.source = request.source.value
    message.distance_m, message.angle_rad = request.motion.distance_m, request.motion.angle_rad
    message.deadline = duration_of(request.deadline_s)
    message.text, message.unverified = request.text, request.unverified
    if request.frame is not None:
        message.frame_stamp = Time(sec=request.frame.stamp[0], nanosec=request.frame.stamp[1])
        message.frame_age_s = now - request.frame.received
    return message


def supervision_message(camera_age_s: float, link: LinkReport, now: float, stamp: Time) -> Supervision:
    """Return a heartbeat without session; now: on the clock of link.heard_at."""
    message = Supervision(camera_age_s=camera_age_s, link=link.state.value)
    message.header.stamp = stamp
    message.verifier_age_s = -1.0 if link.heard_at is None else now - link.heard_at
    message.link_rtt_ms = link.rtt_ms
    return message


def supervision_of(message: Supervision) -> SignOfLife:
    """Return a heartbeat as a record; an unknown link state counts as lost."""
    try:
        link = LinkState(message.link)
    except ValueError:
        link = LinkState.LOST
    return SignOfLife(
        message.session,
        message.camera_age_s,
        message.verifier_age_s,
        link,
        message.link_rtt_ms,
        bytes(message.commitment),
    )


def status_of(message: MotionStatus) -> Status | None:
    """Return a status report, or None if its state is unknown."""
    try:
        state = MotionState(message.state)
    except ValueError:
        return None
    done = Motion(message.done_distance_m, message.done_angle_rad)
    left = Motion(message.left_distance_m, message.left_angle_rad)
    return Status(
        state,
        message.session,
        message.sequence,
        message.reason,
        done,
        left,
        message.unverified,
        message.standing,
        message.estopped,
        message.held_by,
        message.rear_free_m,
        seconds_of(message.since),
    )


def status_message(status: Status, stamp: Time, since: Time) -> MotionStatus:
    """Return a status report as a message; since: the stamp at which its state began."""
    message = MotionStatus(session=status.session, sequence=status.sequence, state=status.state.value)
    message.header.stamp, message.since = stamp, since
    message.done_distance_m, message.done_angle_rad = status.done.distance_m, status.done.angle_rad
    message.left_distance_m, message.left_angle_rad = status.left.distance_m, status.left.angle_rad
    for name in ("reason", "unverified", "standing", "estopped", "held_by", "rear_free_m"):
        setattr(message, name, getattr(status, name))
    return message


def metrics_message(
    report: DecisionReport, session: int, method: str, gamma: int, stamp: Time
) -> DecisionMetrics:
    """Return the measurements of a decision as a message."""
    answer = report.answer
    message = DecisionMetrics(session=session, method=method, gamma=gamma)
    message.header.stamp = stamp
    if report.frame is not None:
        message.frame_stamp = Time(sec=report.frame.stamp[0], nanosec=report.frame.stamp[1])
    for name in _OF_REPORT:
        setattr(message, name, getattr(report, name))
    for name in _OF_ANSWER:
        setattr(message, name, getattr(answer, name))
    for name in _OF_ROUNDS:
        setattr(message, name, [getattr(one, name) for one in answer.rounds])
    message.source, message.verification = report.source.value, report.verification.value
    message.error_code = report.code.value
    message.joules = NO_SENSOR if answer.joules is None else answer.joules
    message.tokens, message.rounds = len(answer.token_ids), len(answer.rounds)
    message.prompt_ids, message.token_ids = list(answer.prompt_ids), list(answer.token_ids)
    message.token_texts, message.token_origins = list(answer.pieces), list(answer.origins)
    message.span_lane = [s.lane for s in answer.timeline]
    message.span_name = [s.name for s in answer.timeline]
    message.span_start_ms = [s.start_s * 1e3 for s in answer.timeline]
    message.span_end_ms = [s.end_s * 1e3 for s in answer.timeline]
    return message
