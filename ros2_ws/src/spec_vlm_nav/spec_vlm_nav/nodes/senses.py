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
What motion_node hears besides commands.

The deciding side's sign of life and the sensor that looks ahead.
"""

from __future__ import annotations

from collections.abc import Callable
import time

import numpy as np
from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import Image, LaserScan
from spec_vlm_nav.collision import (
    CorridorConfig,
    DepthImage,
    Scan,
    View,
    view_of_depth,
    view_of_scan,
)
from spec_vlm_nav.decider import LinkHealth
from spec_vlm_nav.watchdogs import Supervision
from spec_vlm_nav_interfaces.msg import Supervision as SupervisionMessage


def supervision_of(message: SupervisionMessage) -> Supervision:
    """Return a sign of life as a record; an unknown link state counts as lost."""
    try:
        link = LinkHealth(message.link)
    except ValueError:
        link = LinkHealth.LOST
    return Supervision(
        message.session, message.camera_age_s, message.verifier_age_s, link, message.link_rtt_ms
    )


def scan_of(message: LaserScan) -> Scan:
    """Return a laser scan as a record."""
    return Scan(
        np.asarray(message.ranges, np.float32),
        message.angle_min,
        message.angle_increment,
        message.range_min,
    )


def depth_of(message: Image) -> DepthImage:
    """Return a depth image as a record."""
    return DepthImage(
        message.encoding,
        message.width,
        message.height,
        message.step,
        bytes(message.data),
        bool(message.is_bigendian),
    )


class Lookout:
    """
    Subscribes to the sensor that looks ahead.

    It hands on what the sensor shows, with the time of receipt.
    """

    def __init__(
        self,
        node: Node,
        source: str,
        reliability: str,
        config: CorridorConfig,
        on_view: Callable[[View, float], None],
    ) -> None:
        self.config = config
        self._on_view = on_view
        qos = QoSProfile(depth=1, reliability=ReliabilityPolicy[reliability.upper()])
        if source == 'scan':
            node.create_subscription(LaserScan, 'scan', self._on_scan, qos)
        elif source == 'depth':
            node.create_subscription(Image, 'depth', self._on_depth, qos)

    def _on_scan(self, message: LaserScan) -> None:
        self._on_view(view_of_scan(scan_of(message), self.config), time.monotonic())

    def _on_depth(self, message: Image) -> None:
        self._on_view(view_of_depth(depth_of(message), self.config), time.monotonic())
