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
The collision sensor, evaluated in a thread beside the executor.

Its messages are large. They are received as bytes and evaluated in a worker thread, so that neither
a tick nor a stop waits for them. If messages arrive faster than they are evaluated, only the newest
counts. Its age counts from the receive time.
"""

from __future__ import annotations

from collections.abc import Callable
import time
from typing import Any

import numpy as np
from rclpy.node import Node
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import Image, LaserScan, PointCloud2
from spec_vlm_nav.common.newest import NewestWorker
from spec_vlm_nav.motion.ahead.cloud import clearance_of_cloud, Field, PointCloud
from spec_vlm_nav.motion.ahead.collision import Clearance
from spec_vlm_nav.motion.ahead.corridor import CorridorConfig
from spec_vlm_nav.motion.ahead.ranges import clearance_of_depth, clearance_of_scan, DepthImage, Scan
from spec_vlm_nav.ros.basics import qos

_KINDS: dict[str, type] = {"scan": LaserScan, "depth": Image, "cloud": PointCloud2}


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


def cloud_of(message: PointCloud2) -> PointCloud:
    """Return a point cloud as a record."""
    return PointCloud(
        tuple(Field(f.name, f.offset, f.datatype, f.count) for f in message.fields),
        message.width,
        message.height,
        message.point_step,
        message.row_step,
        message.data,
        bool(message.is_bigendian),
        message.header.frame_id,
    )


def clearance_of(source: str, message: Any, config: CorridorConfig) -> Clearance:
    """Return the clearance that a message shows; source: scan, depth or cloud."""
    if source == "scan":
        return clearance_of_scan(scan_of(message), config)
    if source == "depth":
        return clearance_of_depth(depth_of(message), config)
    return clearance_of_cloud(cloud_of(message), config)


def clearance_of_bytes(source: str, data: bytes, config: CorridorConfig) -> Clearance:
    """Return the clearance of a serialised message; invalid bytes give a blind Clearance."""
    try:
        return clearance_of(source, deserialize_message(data, _KINDS[source]), config)
    except Exception as error:  # any sender may publish invalid bytes
        return Clearance(blind=f"{source} cannot be read: {type(error).__name__}: {error}"[:200])


class CollisionSensor:
    """Subscribes to the sensor and passes on each clearance with its receive time."""

    def __init__(
        self,
        node: Node,
        source: str,
        reliability: str,
        config: CorridorConfig,
        on_clearance: Callable[[Clearance, float], None],
    ) -> None:
        """source: scan, depth, cloud or none. on_clearance: called in the executor's thread."""
        self.config = config
        self._on_clearance = on_clearance
        self._worker: NewestWorker[bytes, Clearance] | None = None
        if source not in _KINDS:
            return
        wake = node.create_guard_condition(self._hand_on)
        worker: NewestWorker[bytes, Clearance] = NewestWorker(
            lambda data: clearance_of_bytes(source, data, self.config),
            wake.trigger,
            f"read {source}",
        )
        self._worker = worker
        node.create_subscription(
            _KINDS[source],
            source,
            lambda data: worker.put(data, time.monotonic()),
            qos(reliability, 1),
            raw=True,
        )

    def _hand_on(self) -> None:
        if self._worker is not None and (made := self._worker.take()) is not None:
            self._on_clearance(*made)

    def close(self) -> None:
        """End the thread."""
        if self._worker is not None:
            self._worker.close()
