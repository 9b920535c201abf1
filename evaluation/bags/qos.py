"""Which topics of a bag were latched: published TRANSIENT_LOCAL, so that who subscribes later hears the last words.

A bag has the QoS of its publishers in metadata.yaml, in the topics of a `.db3` or in the channels of an `.mcap`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from mcap.records import Channel
from mcap.stream_reader import StreamReader
from rosbags.interfaces import (
    ConnectionExtRosbag2,
    Qos,
    QosDurability,
    QosHistory,
    QosLiveliness,
    QosReliability,
    QosTime,
)
from rosbags.rosbag2 import Reader
from rosbags.rosbag2.metadata import parse_qos

MOST = 1000
"""Messages of a topic that are kept for those who subscribe later."""


def latched_topics(path: Path) -> dict[str, int]:
    """How many of the last messages of each latched topic are kept: as many as its publishers kept together.

    Whatever the bag does not tell, or tells in a way that cannot be read, is not latched.
    """
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    found: dict[str, int] = {}
    for one in [path, *files]:
        for topic, profiles in _offered(one):
            kept = sum(max(1, p.depth) for p in profiles if p.durability is QosDurability.TRANSIENT_LOCAL)
            if kept:
                found[topic] = max(found.get(topic, 0), min(kept, MOST))
        if found:
            break
    return found


def latched_profile(depth: int) -> Qos:
    """What a recording notes of a latched topic."""
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


def _offered(path: Path) -> list[tuple[str, Sequence[Qos]]]:
    with contextlib.suppress(Exception), Reader(path) as reader:
        return [
            (one.topic, one.ext.offered_qos_profiles)
            for one in reader.connections
            if isinstance(one.ext, ConnectionExtRosbag2)
        ]
    return list(_channels(path)) if path.suffix == ".mcap" else []


def _channels(file: Path) -> Iterator[tuple[str, Sequence[Qos]]]:
    """Of a file that was cut off: as far as it goes."""
    with contextlib.suppress(Exception), file.open("rb") as stream:
        for record in StreamReader(stream).records:
            if isinstance(record, Channel):
                with contextlib.suppress(Exception):
                    yield record.topic, parse_qos(record.metadata.get("offered_qos_profiles", ""))
