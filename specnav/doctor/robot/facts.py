# SPDX-License-Identifier: Apache-2.0
"""Facts about a graph as plain records: gathered by `gather`, judged by `checks`. No ROS here.

Names of nodes and topics are complete (`/robot1/motion_node`), types are `package/msg/Name`, times are seconds.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from spec_vlm_nav.common.parameters import Value
from specnav.doctor.robot.roles import is_listener_only


@dataclass(frozen=True)
class Endpoint:
    """One publisher or subscription. `lasting`: durability transient local."""

    node: str
    kind: str
    reliable: bool = True
    lasting: bool = False

    @property
    def drives_nothing(self) -> bool:
        """Whether it belongs to a recorder, or to one of our tools that only listens."""
        return is_listener_only(self.node)


@dataclass(frozen=True)
class TopicTraffic:
    """Messages received on a topic while listening.

    longest_gap_s: between two messages, or from the last one to the end. offset_s: median of stamps minus clock; None
    if stamps are empty. stuck: messages whose stamp did not advance. frames: pairs of frame_id and child_frame_id.
    fastest: highest velocity, m/s or rad/s.
    """

    count: int = 0
    rate_hz: float = 0.0
    longest_gap_s: float = math.inf
    offset_s: float | None = None
    stuck: int = 0
    frames: tuple[tuple[str, str], ...] = ()
    fastest: float = 0.0


@dataclass(frozen=True)
class TopicFacts:
    """A topic by its role. wanted: fitting types. heard: None if it was not listened to."""

    role: str
    name: str
    wanted: tuple[str, ...]
    publishers: tuple[Endpoint, ...] = ()
    subscribers: tuple[Endpoint, ...] = ()
    heard: TopicTraffic | None = None
    others: tuple[str, ...] = ()  # other topics of a fitting type that have a publisher

    @property
    def fitting(self) -> tuple[Endpoint, ...]:
        """Publishers of a fitting type."""
        return tuple(end for end in self.publishers if end.kind in self.wanted)


@dataclass(frozen=True)
class OurNode:
    """One of our nodes. count: nodes with its full name; values: its parameters, None if it did not respond."""

    name: str
    count: int = 1
    values: Mapping[str, Value] | None = None

    def value(self, name: str, default: Value) -> Value:
        """A parameter's value, or the default."""
        return (self.values or {}).get(name, default)


@dataclass(frozen=True)
class Middleware:
    """discovery: value of ROS_AUTOMATIC_DISCOVERY_RANGE, "" if it is not set."""

    rmw: str
    domain: int
    distro: str = ""
    discovery: str = ""


@dataclass(frozen=True)
class MotionFacts:
    """The last motion_status. moved: whether the robot was moving at any time while listening."""

    state: str
    reason: str = ""
    estopped: bool = False
    held_by: str = ""
    moved: bool = False


@dataclass(frozen=True)
class Diagnostic:
    """The newest row of a name on /diagnostics. level as in DiagnosticStatus: 0 ok, 1 warn, 2 error, 3 stale."""

    name: str
    level: int
    message: str


@dataclass(frozen=True)
class VerifierFacts:
    """The cloud verifier as seen from this machine. error: "" if it responded."""

    address: str
    error: str = ""
    model: str = ""
    rtt_ms: float = 0.0
    worst_ms: float = 0.0


@dataclass(frozen=True)
class Disk:
    """Free disk space where the black box writes, on this machine."""

    folder: str
    free_mb: float
    needed_mb: float = 0.0

    @classmethod
    def at(cls, folder: str, needed_mb: float) -> Disk | None:
        """The disk of a folder, which may not exist yet; None if it cannot be determined."""
        place = Path(os.path.expanduser(folder)).absolute()
        while not place.exists() and place != place.parent:
            place = place.parent
        try:
            return cls(str(place), shutil.disk_usage(place).free / 1e6, needed_mb)
        except OSError:
            return None


@dataclass(frozen=True)
class Facts:
    """All facts. nodes: our nodes in the namespace, by name without the namespace."""

    middleware: Middleware
    namespace: str = "/"
    seconds: float = 4.0
    nodes: Mapping[str, OurNode] = field(default_factory=dict)
    elsewhere: tuple[str, ...] = ()  # our nodes in other namespaces
    other_nodes: tuple[str, ...] = ()
    topics: Mapping[str, TopicFacts] = field(default_factory=dict)
    clocks: tuple[str, ...] = ()  # publishers of /clock
    motion: MotionFacts | None = None
    diagnostics: tuple[Diagnostic, ...] = ()
    actions: tuple[str, ...] = ()  # action servers in the namespace
    verifier: VerifierFacts | None = None
    disk: Disk | None = None
    has_interfaces: bool = True  # whether our message types are installed here

    def value(self, node: str, name: str, default: Value) -> Value:
        """A parameter of one of our nodes; the default if the node is absent."""
        return self.nodes[node].value(name, default) if node in self.nodes else default

    @property
    def our_names(self) -> frozenset[str]:
        """Full names of our nodes."""
        return frozenset(node.name for node in self.nodes.values())
