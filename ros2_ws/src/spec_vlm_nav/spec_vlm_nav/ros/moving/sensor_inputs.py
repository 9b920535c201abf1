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
What motion_node hears besides commands, from ROS messages to records.

The deciding side's sign of life, and the messages of the sensor that looks ahead.
"""

from __future__ import annotations

import numpy as np
from sensor_msgs.msg import Image, LaserScan, PointCloud2
from spec_vlm_nav.common.codes import LinkState
from spec_vlm_nav.motion.ahead.cloud import Field, PointCloud
from spec_vlm_nav.motion.ahead.depth import DepthImage
from spec_vlm_nav.motion.ahead.scan import Scan
from spec_vlm_nav.motion.watchdogs import Supervision
from spec_vlm_nav_interfaces.msg import Supervision as SupervisionMessage


def supervision_of(message: SupervisionMessage) -> Supervision:
    """Return a sign of life as a record; an unknown link state counts as lost."""
    try:
        link = LinkState(message.link)
    except ValueError:
        link = LinkState.LOST
    return Supervision(
        message.session,
        message.camera_age_s,
        message.verifier_age_s,
        link,
        message.link_rtt_ms,
        bytes(message.commitment),
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


def cloud_of(message: PointCloud2) -> PointCloud:
    """Return a cloud of points as a record."""
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
