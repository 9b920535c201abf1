# SPDX-License-Identifier: Apache-2.0
"""The topics that `specnav record` records by default: camera, odometry, velocities, and those of our nodes."""

from __future__ import annotations

KINDS = frozenset(
    {
        "sensor_msgs/msg/CompressedImage",
        "nav_msgs/msg/Odometry",
        "geometry_msgs/msg/Twist",
        "geometry_msgs/msg/TwistStamped",
    }
)
OURS = "spec_vlm_nav_interfaces/msg/"
STRINGS = frozenset({"instruction", "action", "reasoning"})


def is_wanted(name: str, kind: str) -> bool:
    """Whether a topic is recorded by default. Raw images are not, because they would fill the disk."""
    last = name.rpartition("/")[2]
    return kind in KINDS or kind.startswith(OURS) or (kind == "std_msgs/msg/String" and last in STRINGS)
