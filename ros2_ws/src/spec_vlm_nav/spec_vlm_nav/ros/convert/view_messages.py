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
Between ROS messages and the records of `viewing/`.

Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Sequence
import math

from builtin_interfaces.msg import Time
from geometry_msgs.msg import Point, PoseStamped
from nav_msgs.msg import Path
from spec_vlm_nav.common.codes import LinkState, SOURCES, Verification
from spec_vlm_nav.motion.command import CommandKind
from spec_vlm_nav.ros.convert.messages import command_of, duration_of
from spec_vlm_nav.viewing.board import Decided, Told
from spec_vlm_nav.viewing.track import Point as Place
from spec_vlm_nav.viewing.track import Trail
from spec_vlm_nav_interfaces.msg import DecisionMetrics, MotionCommand, Supervision
from std_msgs.msg import ColorRGBA
from visualization_msgs.msg import Marker, MarkerArray

NAMESPACE = 'action'
LINE, HEAD, TEXT = range(3)
SHAFT_M, HEIGHT_M, LETTERS_M = 0.04, 0.05, 0.12
_SOURCES = {number: name for name, number in SOURCES.items()}
_LINKS = {LinkState.UNKNOWN.value: 'not heard yet', LinkState.LOST.value: 'LOST'}


def told_of(message: MotionCommand) -> Told | None:
    """Return a motion command as it is shown, or None when its kind is unknown."""
    command = command_of(message)
    if command is None:
        return None
    return Told(
        session=command.session,
        sequence=command.sequence,
        moves=command.kind is CommandKind.MOVE,
        motion=command.motion,
        text=command.text or command.kind.name.lower(),
        source=_SOURCES.get(message.source, 'SUPERVISOR'),
        unverified=command.unverified,
        deadline_s=command.deadline_s,
    )


def decided_of(message: DecisionMetrics) -> Decided:
    """Return a measured decision as it is shown."""
    return Decided(
        session=message.session,
        sequence=message.sequence,
        instruction=message.instruction_text,
        reasoning=message.reasoning,
        rule=message.rule,
        error=message.error,
        decision_ms=message.decision_ms,
        rolled_back=message.verification == Verification.ROLLED_BACK.value,
    )


def link_words(message: Supervision) -> str:
    """Return the link in words."""
    if message.link != LinkState.UP.value:
        return _LINKS.get(message.link, '?')
    return f'up {message.link_rtt_ms:.0f} ms' if message.link_rtt_ms > 0 else 'up'


def path_message(trail: Trail, frame: str) -> Path:
    """Return the path in the frame of the odometry."""
    message = Path()
    message.header.frame_id = frame
    for stop in trail:
        place = PoseStamped()
        place.header.frame_id = frame
        place.header.stamp = Time(sec=stop.stamp[0], nanosec=stop.stamp[1])
        place.pose.position.x, place.pose.position.y = stop.pose.x, stop.pose.y
        place.pose.orientation.z = math.sin(stop.pose.yaw / 2)
        place.pose.orientation.w = math.cos(stop.pose.yaw / 2)
        message.poses.append(place)
        message.header.stamp = place.header.stamp
    return message


def motion_markers(
    told: Told, points: Sequence[Place], colour: tuple[int, int, int], frame: str, stamp: Time
) -> MarkerArray:
    """
    Return a line with an arrow head and the action in words.

    They vanish by themselves at the command's deadline.
    """
    line, head, text = (
        _marker(number, frame, stamp, told.deadline_s) for number in (LINE, HEAD, TEXT)
    )
    ground = [Point(x=x, y=y, z=HEIGHT_M) for x, y in points]
    line.type, line.points, line.scale.x = Marker.LINE_STRIP, ground, SHAFT_M
    head.type, head.points = Marker.ARROW, ground[-2:]
    head.scale.x, head.scale.y, head.scale.z = SHAFT_M, 3 * SHAFT_M, 3 * SHAFT_M
    text.type, text.scale.z = Marker.TEXT_VIEW_FACING, LETTERS_M
    text.pose.position = Point(x=ground[-1].x, y=ground[-1].y, z=HEIGHT_M + 2 * LETTERS_M)
    text.text = f'{told.text} ({told.source.lower()})' + (' UNVERIFIED' if told.unverified else '')
    for marker in (line, head, text):
        marker.color = ColorRGBA(r=colour[0] / 255, g=colour[1] / 255, b=colour[2] / 255, a=1.0)
    return MarkerArray(markers=[line, head, text])


def no_markers(frame: str) -> MarkerArray:
    """Return the message that takes the motion's markers away."""
    markers = [_marker(number, frame, Time(), 0.0) for number in (LINE, HEAD, TEXT)]
    for marker in markers:
        marker.action = Marker.DELETE
    return MarkerArray(markers=markers)


def _marker(number: int, frame: str, stamp: Time, lifetime_s: float) -> Marker:
    marker = Marker(ns=NAMESPACE, id=number, action=Marker.ADD)
    marker.header.frame_id, marker.header.stamp = frame, stamp
    marker.lifetime = duration_of(lifetime_s)
    marker.pose.orientation.w = 1.0
    return marker
