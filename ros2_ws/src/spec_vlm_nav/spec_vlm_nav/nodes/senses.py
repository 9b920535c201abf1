"""What motion_node hears besides commands: the deciding side's sign of life and the sensor that looks ahead."""

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
    """A sign of life as a record; an unknown link state counts as lost."""
    try:
        link = LinkHealth(message.link)
    except ValueError:
        link = LinkHealth.LOST
    return Supervision(
        message.session, message.camera_age_s, message.verifier_age_s, link, message.link_rtt_ms
    )


def scan_of(message: LaserScan) -> Scan:
    """A laser scan as a record."""
    return Scan(
        np.asarray(message.ranges, np.float32),
        message.angle_min,
        message.angle_increment,
        message.range_min,
    )


def depth_of(message: Image) -> DepthImage:
    """A depth image as a record."""
    return DepthImage(
        message.encoding,
        message.width,
        message.height,
        message.step,
        bytes(message.data),
        bool(message.is_bigendian),
    )


class Lookout:
    """Subscribes to the sensor that looks ahead and hands on what it shows, with the time of receipt."""

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
