"""The stack of the whole-graph tests; it lives in `trials.drill`."""

from __future__ import annotations

from trials.graph.stack import METRICS, STATE, Pair, Stack, free_port, speed

__all__ = ["METRICS", "STATE", "Pair", "Stack", "free_port", "speed"]
