# SPDX-License-Identifier: Apache-2.0
"""Message types of recordings: their definitions, of a ROS release and ours, and which are recorded by default."""

from __future__ import annotations

from specnav.bags.types import NEWEST, Types
from specnav.paths import INTERFACES

KINDS = frozenset(
    {
        "sensor_msgs/msg/CompressedImage",
        "nav_msgs/msg/Odometry",
        "geometry_msgs/msg/Twist",
        "geometry_msgs/msg/TwistStamped",
        "diagnostic_msgs/msg/DiagnosticArray",
    }
)
OURS = "spec_vlm_nav_interfaces/msg/"
NAMED = {  # of these types other programs publish, too: by the end of the name
    "std_msgs/msg/String": ("instruction", "action", "reasoning", "outcome", "safety_changes"),
    "std_msgs/msg/Empty": ("stop", "e_stop_reset"),
    "std_msgs/msg/Bool": ("e_stop",),
}


def own_definitions() -> dict[str, str]:
    """Our message definitions by type name, from our interface package; empty without it."""
    return {
        f"{INTERFACES.name}/msg/{path.stem}": path.read_text(encoding="utf-8")
        for path in sorted((INTERFACES / "msg").glob("*.msg"))
    }


def own_types(distro: str = NEWEST) -> Types:
    """The types of a ROS release and ours."""
    return Types(own_definitions(), distro)


def is_wanted(name: str, kind: str) -> bool:
    """Whether a topic is recorded by default. Raw images are not, because they would fill the disk."""
    last = name.rpartition("/")[2]
    return kind in KINDS or kind.startswith(OURS) or last in NAMED.get(kind, ())
