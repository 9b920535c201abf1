# SPDX-License-Identifier: Apache-2.0
"""What topics are for: their names by default, the types that fit, and whose they are. No ROS here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from spec_vlm_nav.common.parameters import Value

DECIDER, MOVER, BLACKBOX = "vlm_nav_node", "motion_node", "blackbox_node"
OPTIONAL = ("camera_decode_node", BLACKBOX, "go2_state_node")
OURS = (DECIDER, MOVER, *OPTIONAL)
OWN_NAME = "specnav_doctor"
_LISTENERS = ("blackbox_node", "rosbag2_recorder", "specnav_")
BARE = ("_CREATED_BY_BARE_DDS_APP_", "_NODE_NAME_UNKNOWN_")  # how rmw names what is not a ROS node

TWIST, STAMPED = "geometry_msgs/msg/Twist", "geometry_msgs/msg/TwistStamped"
COMPRESSED, RAW = "sensor_msgs/msg/CompressedImage", "sensor_msgs/msg/Image"
ODOMETRY, REQUEST = "nav_msgs/msg/Odometry", "unitree_api/msg/Request"
STATUS, SUPERVISION = "spec_vlm_nav_interfaces/msg/MotionStatus", "spec_vlm_nav_interfaces/msg/Supervision"
COMMAND, STATE = "spec_vlm_nav_interfaces/msg/MotionCommand", "spec_vlm_nav_interfaces/msg/RobotState"
DIAGNOSTICS = "diagnostic_msgs/msg/DiagnosticArray"
STRING, EMPTY, BOOL = "std_msgs/msg/String", "std_msgs/msg/Empty", "std_msgs/msg/Bool"
LOOKS = {"scan": "sensor_msgs/msg/LaserScan", "depth": RAW, "cloud": "sensor_msgs/msg/PointCloud2"}

Values = Mapping[str, Mapping[str, Value]]


@dataclass(frozen=True)
class TopicRole:
    """owner: the node of ours by whose subscriptions (or publishers) the topic's name is found; "": by default only."""

    name: str
    topic: str
    wanted: tuple[str, ...]
    owner: str = ""
    published_by_owner: bool = False
    is_heard: bool = False


def is_listener_only(node: str) -> bool:
    """Whether a node (full name) is a recorder, or one of our tools that only listen."""
    return node.rpartition("/")[2].startswith(_LISTENERS)


def said_name(node: str) -> str:
    """A node's name for people."""
    return "a program without a ROS node" if node.rpartition("/")[2] in BARE else node


def roles(values: Values) -> tuple[TopicRole, ...]:
    """The topics to look at. values: parameters of our nodes, by node, as far as they are known."""
    mover, decider = values.get(MOVER, {}), values.get(DECIDER, {})
    transport = decider.get("image_transport")
    picture = {"compressed": (COMPRESSED,), "raw": (RAW,)}.get(str(transport), (COMPRESSED, RAW))
    stamped = mover.get("enable_stamped_cmd_vel")
    twist = (TWIST, STAMPED) if stamped is None else (STAMPED,) if stamped else (TWIST,)
    found = [
        TopicRole("image", "camera/image_raw/compressed", picture, DECIDER, is_heard=True),
        TopicRole("odom", "odom", (ODOMETRY,), MOVER, is_heard=True),
        TopicRole("cmd_vel", "cmd_vel", twist, MOVER, published_by_owner=True, is_heard=True),
        TopicRole("instruction", "instruction", (STRING,)),
        TopicRole("stop", "stop", (EMPTY,)),
        TopicRole("e_stop", "e_stop", (BOOL,)),
        TopicRole("e_stop_reset", "e_stop_reset", (EMPTY,)),
        TopicRole("motion_command", "motion_command", (COMMAND,)),
        TopicRole("motion_status", "motion_status", (STATUS,), is_heard=True),
        TopicRole("supervision", "supervision", (SUPERVISION,), is_heard=True),
        TopicRole("diagnostics", "/diagnostics", (DIAGNOSTICS,), is_heard=True),
    ]
    if float(mover.get("robot_state_timeout_s", 0.0)):
        found.append(TopicRole("robot_state", "robot_state", (STATE,), MOVER, is_heard=True))
    if (source := str(mover.get("collision_source", "none"))) in LOOKS:
        found.append(TopicRole("ahead", source, (LOOKS[source],), MOVER, is_heard=True))
    return tuple(found)


def sport_role(published: Mapping[str, list[str]]) -> TopicRole | None:
    """Where motion_node moves a Go2 without a driver. published: its topics and their types."""
    topics = sorted(name for name, kinds in published.items() if REQUEST in kinds)
    # With its obstacle avoidance both are there, and velocities go to that one.
    return TopicRole("cmd_vel", topics[0], (REQUEST,)) if topics else None


def topic_of(
    role: TopicRole, given: str, found: Mapping[str, list[str]], resolve: Callable[[str], str]
) -> str:
    """Name of a role's topic: as given, otherwise as its owner has it, otherwise by default.

    found: topics of the owner, and their types; resolve: makes a full name of a relative one.
    """
    if given:
        return resolve(given)
    own = [name for name, kinds in found.items() if set(kinds) & set(role.wanted)]
    default = resolve(role.topic)
    return own[0] if own and default not in own else default
