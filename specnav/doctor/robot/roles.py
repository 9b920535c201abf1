# SPDX-License-Identifier: Apache-2.0
"""Roles of topics: default names, fitting types and owners. No ROS here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from spec_vlm_nav.common.parameters import Value

DECIDER, MOVER, BLACKBOX = "vlm_nav_node", "motion_node", "blackbox_node"
OPTIONAL = ("camera_decode_node", BLACKBOX, "go2_state_node")
OURS = (DECIDER, MOVER, *OPTIONAL)
OWN_NAME = "specnav_doctor"
_LISTENERS = ("blackbox_node", "rosbag2_recorder", "specnav_")
BARE = ("_CREATED_BY_BARE_DDS_APP_", "_NODE_NAME_UNKNOWN_")  # rmw's names for programs that are not ROS nodes

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
    """owner: our node whose subscriptions (or publishers) tell the topic's name; "": use the default name."""

    name: str
    topic: str
    wanted: tuple[str, ...]
    owner: str = ""
    published_by_owner: bool = False
    is_heard: bool = False


def is_listener_only(node: str) -> bool:
    """Whether a node (full name) is a recorder, or one of our tools that only listens."""
    return node.rpartition("/")[2].startswith(_LISTENERS)


def said_name(node: str) -> str:
    """A node's name for display."""
    return "a program without a ROS node" if node.rpartition("/")[2] in BARE else node


def roles(values: Values) -> tuple[TopicRole, ...]:
    """The topics to check. values: known parameters of our nodes, by node."""
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
    """The topic on which motion_node moves a Go2 without a driver. published: its topics and their types."""
    topics = sorted(name for name, kinds in published.items() if REQUEST in kinds)
    # With obstacle avoidance there are two such topics; the first by name is its own, which gets the velocities.
    return TopicRole("cmd_vel", topics[0], (REQUEST,)) if topics else None


def topic_of(
    role: TopicRole, given: str, found: Mapping[str, list[str]], resolve: Callable[[str], str]
) -> str:
    """Name of a role's topic: the given one, otherwise its owner's, otherwise the default.

    found: topics of the owner, and their types; resolve: makes a relative name complete.
    """
    if given:
        return resolve(given)
    own = [name for name, kinds in found.items() if set(kinds) & set(role.wanted)]
    default = resolve(role.topic)
    return own[0] if own and default not in own else default
