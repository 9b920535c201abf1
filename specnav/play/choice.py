# SPDX-License-Identifier: Apache-2.0
"""Chooses the topics to play: the named ones, otherwise the inputs of a robot's nodes, but never commands to move."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specnav.bags.source import Bag
from specnav.bags.storage import BagTopic
from specnav.bags.types import fields_of
from specnav.errors import UsageError

ODOMETRY = frozenset({"nav_msgs/msg/Odometry", "tf2_msgs/msg/TFMessage"})
SENSORS, STRING = "sensor_msgs/msg/", "std_msgs/msg/String"
# Types that a robot, motion_node or a joystick's teleoperation obeys.
COMMANDS = frozenset(
    {
        "geometry_msgs/msg/Twist",
        "geometry_msgs/msg/TwistStamped",
        "sensor_msgs/msg/Joy",
        "spec_vlm_nav_interfaces/msg/MotionCommand",
        "unitree_api/msg/Request",
    }
)
CLOCK = "/clock"


@dataclass(frozen=True)
class PlayedTopic:
    """A topic to play, and the name under which it is published."""

    topic: BagTopic
    name: str


def is_heard(topic: BagTopic) -> bool:
    """Whether a topic is played if no topics are named."""
    is_input = topic.kind in ODOMETRY or topic.kind.startswith(SENSORS)
    return _is_instruction(topic) or (is_input and topic.kind not in COMMANDS)


def may_move(topic: BagTopic) -> bool:
    """Whether a robot that hears a topic may move."""
    return _is_instruction(topic) or topic.kind in COMMANDS


def _is_instruction(topic: BagTopic) -> bool:
    return topic.kind == STRING and topic.name.rpartition("/")[2] == "instruction"


def parse_remaps(given: Sequence[str]) -> dict[str, str]:
    """`FROM:=TO` by FROM, both with a leading slash. Raises UsageError."""
    remaps = {}
    for text in given:
        old, sign, new = text.partition(":=")
        if not (sign and old.strip("/") and new.strip("/")):
            raise UsageError(f"--remap {text}: write it as /recorded:=/published")
        remaps[_slashed(old)] = _slashed(new)
    return remaps


def choose(bag: Bag, names: Sequence[str], remaps: dict[str, str], with_clock: bool) -> list[PlayedTopic]:
    """The topics to play. Raises UsageError that lists the bag's topics."""
    there = ", ".join(str(topic) for topic in bag.topics)
    if unknown := [name for name in [*names, *remaps] if bag.topic(name) is None]:
        raise UsageError(f"{bag.path} has no topic {', '.join(unknown)}; topics: {there}")
    wanted = {_slashed(name) for name in names}
    chosen = [t for t in bag.topics if t.count and (_slashed(t.name) in wanted if wanted else is_heard(t))]
    if with_clock:  # one clock is enough
        chosen = [topic for topic in chosen if _slashed(topic.name) != CLOCK]
    if not chosen and names:
        raise UsageError(f"{bag.path} has nothing to play on {', '.join(names)}; topics: {there}")
    if not chosen:
        raise UsageError(
            f"{bag.path} holds no camera, sensor, odometry or instruction topic; name some of {there}"
        )
    return [PlayedTopic(topic, remaps.get(_slashed(topic.name), topic.name)) for topic in chosen]


def left_out(bag: Bag, played: Sequence[PlayedTopic]) -> str:
    """One line about topics that are not played; "" if all are."""
    names = {one.topic.name for one in played}
    others = [topic for topic in bag.topics if topic.name not in names]
    return f"not played, name them to play them: {', '.join(map(str, others))}" if others else ""


def check_definition(topic: BagTopic, installed: Callable[[str], str | None]) -> None:
    """Raise UsageError if the type was defined differently when it was recorded, so that its bytes would be
    misread.
    """
    if topic.encoding != "ros2msg":
        return
    now = installed(topic.kind)
    if now is not None and fields_of(topic.kind, topic.definition) != fields_of(topic.kind, now):
        raise UsageError(
            f"{topic.name} cannot be played: {topic.kind} had another definition when it was recorded"
        )


def _slashed(name: str) -> str:
    return f"/{name.strip('/')}"
