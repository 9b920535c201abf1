"""The stack of the whole-graph tests; it lives in `specnav.drill`."""

from __future__ import annotations

from specnav.drill.stack import METRICS, STATE, Pair, Stack, free_port, speed

__all__ = ["METRICS", "STATE", "Pair", "Stack", "free_port", "speed"]
