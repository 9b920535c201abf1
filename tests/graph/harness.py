"""What the tests of processes share beside `specnav.supervise`, where graph, probe and stack are."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from specnav.paths import ROOT
from specnav.supervise.children import Parameter, ros_arguments
from specnav.supervise.probe import Probe, ProbedMessage
from specnav.supervise.robot_graph import Graph, Process
from specnav.supervise.waiting import wait_until

__all__ = ["ROOT", "Graph", "Probe", "ProbedMessage", "Process", "children_of", "ros_args", "wait_until"]


def children_of(pid: int) -> Iterator[int]:
    """Process ids in the group that a process leads, itself left out."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != pid:
            with contextlib.suppress(OSError):
                if os.getpgid(int(entry.name)) == pid:
                    yield int(entry.name)


def ros_args(remaps: dict[str, str] | None = None, **parameters: Parameter) -> list[str]:
    """`--ros-args` for a node."""
    return ros_arguments(parameters, (), remaps or {})
