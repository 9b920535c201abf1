"""What a node says of its health, without ROS; `nodes/diagnostics.py` publishes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
import enum


class Level(enum.Enum):
    """Numbers of diagnostic_msgs/DiagnosticStatus."""

    OK = 0
    WARN = 1
    ERROR = 2
    STALE = 3


@dataclass(frozen=True)
class Health:
    """One line of /diagnostics: what of the node, how it is, in words, and in figures."""

    name: str
    level: Level
    message: str
    values: Mapping[str, object] = field(default_factory=dict)
