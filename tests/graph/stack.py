"""The stack of the whole-graph tests; it lives in `specnav.supervise`."""

from __future__ import annotations

from specnav.supervise.robot_stack import METRICS, STATE, Pair, Stack, free_port, speed

__all__ = ["METRICS", "STATE", "Pair", "Stack", "free_port", "speed"]
