# SPDX-License-Identifier: Apache-2.0
"""Which topics of a bag were latched: published TRANSIENT_LOCAL, so that late subscribers get the last messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml
from rosbags.interfaces import Qos, QosDurability, QosHistory, QosLiveliness, QosReliability, QosTime

from specdec.settings_files import load_yaml
from specnav.bags.source import Bag

MOST = 1000
"""Most messages of a topic that are kept for late subscribers."""
_LATCHED = (QosDurability.TRANSIENT_LOCAL.value, QosDurability.TRANSIENT_LOCAL.name.lower())
"""The durability in a profile: a number, or a word since version 9 of rosbag2."""


def latched_topics(bag: Bag) -> dict[str, int]:
    """How many last messages of each latched topic are kept: the depths of all its publishers together.

    Topics whose profiles are missing or unreadable count as not latched.
    """
    found: dict[str, int] = {}
    for topic in bag.topics:
        depths = [max(1, depth) for text in set(bag.offered(topic.name)) for depth in _latched_depths(text)]
        if depths:
            found[topic.name] = min(sum(depths), MOST)
    return found


def latched_profile(depth: int) -> Qos:
    """The QoS profile that a recording stores for a latched topic."""
    never = QosTime(9223372036, 854775807)
    return Qos(
        QosHistory.KEEP_LAST,
        depth,
        QosReliability.RELIABLE,
        QosDurability.TRANSIENT_LOCAL,
        never,
        never,
        QosLiveliness.AUTOMATIC,
        never,
        False,
    )


def _latched_depths(text: str) -> Iterator[int]:
    try:
        profiles: Any = load_yaml(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return
    for profile in profiles if isinstance(profiles, list) else ():
        depth = profile.get("depth") if isinstance(profile, dict) else None
        if isinstance(depth, int) and profile.get("durability") in _LATCHED:
            yield depth
