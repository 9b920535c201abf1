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
The node that shows what the robot sees, thinks and does.

It publishes the camera picture with what the robot thinks and does, its path, and a marker of its
motion.

A process of its own, so that nothing is drawn where decisions or motions are made; it only
listens, and draws only what somebody subscribes to. What is shown is put together in
`viewing/board` and drawn in `viewing/drawing`.
"""

from __future__ import annotations

import array
from collections.abc import Mapping, Sequence
import time
from typing import NoReturn

from nav_msgs.msg import Odometry, Path
from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import CompressedImage, Image
from spec_vlm_nav.camera.images import decode, from_raw, to_jpeg
from spec_vlm_nav.common.errors import FrameError
from spec_vlm_nav.common.geometry import Pose
from spec_vlm_nav.common.parameters import Value
from spec_vlm_nav.ros.convert.messages import frame_of, pose_of, status_of
from spec_vlm_nav.ros.convert.view_messages import (
    decided_of,
    link_words,
    motion_markers,
    no_markers,
    path_message,
    told_of,
)
from spec_vlm_nav.ros.declare import declare, follow_changes
from spec_vlm_nav.ros.run import leave, run
from spec_vlm_nav.viewing.board import Board, Told
from spec_vlm_nav.viewing.drawing import annotate, colour_of
from spec_vlm_nav.viewing.parameters import VIEW
from spec_vlm_nav.viewing.track import motion_points, Trail
from spec_vlm_nav_interfaces.msg import DecisionMetrics, MotionCommand, MotionStatus, Supervision
from visualization_msgs.msg import MarkerArray

TICK_S = 0.1
PATH_EVERY_S = 0.5  # a whole path is sent each time
COMPLAIN_S = 5.0


class ViewNode:
    """Shell around Board, Trail and annotate."""

    def __init__(self) -> None:
        self.node = node = Node('view_node')
        self._values = values = declare(node, VIEW)
        self._board = Board()
        self._trail = Trail(float(values['path_spacing_m']), int(values['path_length']))
        self._pose: Pose | None = None
        self._odom_frame = 'odom'
        self._path_changed, self._path_at = False, 0.0
        self._marked: Told | None = None
        self._drawn_at = self._complained_at = -1e9
        reliable = QoSProfile(depth=20, reliability=ReliabilityPolicy.RELIABLE)
        newest = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE)
        kept = QoSProfile(
            depth=1,
            reliability=ReliabilityPolicy.RELIABLE,
            durability=DurabilityPolicy.TRANSIENT_LOCAL,
        )
        self._pictures = node.create_publisher(
            CompressedImage, '~/image_annotated/compressed', newest
        )
        self._paths = node.create_publisher(Path, '~/path', kept)
        self._markers = node.create_publisher(MarkerArray, '~/action_marker', kept)
        node.create_subscription(MotionCommand, 'motion_command', self._on_command, reliable)
        node.create_subscription(MotionStatus, 'motion_status', self._on_status, reliable)
        node.create_subscription(Supervision, 'supervision', self._on_supervision, reliable)
        node.create_subscription(
            DecisionMetrics, 'vlm_nav_node/metrics', self._on_metrics, reliable
        )
        node.create_subscription(
            Odometry, 'odom', self._on_odometry, _newest(values, 'odom_reliability')
        )
        kind = CompressedImage if values['image_transport'] == 'compressed' else Image
        node.create_subscription(
            kind, 'image', self._on_image, _newest(values, 'image_reliability')
        )
        follow_changes(node, VIEW, values, lambda _: None)
        node.create_timer(TICK_S, self._tick, clock=Clock(clock_type=ClockType.STEADY_TIME))
        node.get_logger().info('view_node ready')

    def _on_command(self, message: MotionCommand) -> None:
        if (told := told_of(message)) is not None:
            self._board.on_command(told, time.monotonic())
            self._mark()

    def _on_status(self, message: MotionStatus) -> None:
        if (status := status_of(message)) is not None:
            self._board.on_status(status, time.monotonic())
            self._mark()

    def _on_metrics(self, message: DecisionMetrics) -> None:
        self._board.on_decision(decided_of(message))

    def _on_supervision(self, message: Supervision) -> None:
        self._board.on_supervision(link_words(message), time.monotonic())

    def _on_odometry(self, message: Odometry) -> None:
        pose, stamp = pose_of(message), message.header.stamp
        if not pose.is_finite:
            return
        self._pose = pose
        self._odom_frame = message.header.frame_id or 'odom'
        self._path_changed |= self._trail.add(pose, (stamp.sec, stamp.nanosec))

    def _on_image(self, message: CompressedImage | Image) -> None:
        now = time.monotonic()
        # A little early is right on time: a 10 Hz camera is not to lose every second picture to
        # jitter.
        if now - self._drawn_at < 0.9 / float(self._values['max_rate_hz']):
            return
        if self._pictures.get_subscription_count() == 0:
            return
        self._drawn_at = now
        source = frame_of(message, now).picture
        try:
            picture = decode(source) if isinstance(source, bytes) else from_raw(source)
        except FrameError as error:
            if now - self._complained_at > COMPLAIN_S:
                self._complained_at = now
                self.node.get_logger().warning(f'not drawn: {error}')
            return
        drawn = annotate(picture, self._board.scene(now), int(self._values['width']))
        out = CompressedImage(header=message.header, format='jpeg')
        out.data = array.array('B', to_jpeg(drawn, int(self._values['jpeg_quality'])))
        self._pictures.publish(out)

    def _tick(self) -> None:
        now = time.monotonic()
        self._mark()
        if self._path_changed and now - self._path_at >= PATH_EVERY_S:
            self._path_changed, self._path_at = False, now
            self._paths.publish(path_message(self._trail, self._odom_frame))

    def _mark(self) -> None:
        """
        Publish the marker of a motion, and its deletion.

        Each is published once: the marker when the motion begins, the deletion when it is over.
        """
        now = time.monotonic()
        told = self._board.under_way(now)
        if told == self._marked:
            return
        if self._marked is not None:
            self._markers.publish(no_markers(self._odom_frame))
            self._marked = None
        if told is None or self._pose is None:
            return
        self._marked = told
        points = motion_points(self._pose, told.motion)
        colour = colour_of(self._board.scene(now))
        self._markers.publish(
            motion_markers(
                told, points, colour, self._odom_frame, self.node.get_clock().now().to_msg()
            )
        )

    def close(self) -> None:
        """Take the marker away: nothing is to look like a motion that nobody watches."""
        self._markers.publish(no_markers(self._odom_frame))


def _newest(values: Mapping[str, Value], reliability: str) -> QoSProfile:
    return QoSProfile(depth=1, reliability=ReliabilityPolicy[str(values[reliability]).upper()])


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Entry point."""
    leave(run(ViewNode, args))


if __name__ == '__main__':
    main()
