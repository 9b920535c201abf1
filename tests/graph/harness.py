"""What the tests of processes share beside `specnav.supervise`, where graph, probe and stack are."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from specnav.paths import ROOT
from specnav.supervise.children import Parameter, ros_arguments
from specnav.supervise.probe import Probe, ProbedMessage
from specnav.supervise.robot_graph import Graph, Process
from specnav.supervise.surroundings import segments_of
from specnav.supervise.waiting import wait_until

__all__ = ["ROOT", "Graph", "Probe", "ProbedMessage", "Process", "children_of", "ros_args", "wait_until"]


def children_of(pid: int) -> Iterator[int]:
    """Process ids in the group that a process leads, itself left out."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != pid:
            with contextlib.suppress(OSError):
                if os.getpgid(int(entry.name)) == pid:
                    yield int(entry.name)


def left_in_memory(segments: set[Path]) -> set[Path]:
    """Those of ended processes' shared files that are still there.

    What they shared with this process is still its own; ports under 7400 are shared by all domains, whose other
    processes may leave them behind.
    """
    there = {s for s in segments if s.exists() and not re.fullmatch(r"fastdds_port7[0-3]\d\d", s.name)}
    return there - segments_of([os.getpid()])


def ros_args(remaps: dict[str, str] | None = None, **parameters: Parameter) -> list[str]:
    """`--ros-args` for a node."""
    return ros_arguments(parameters, (), remaps or {})
