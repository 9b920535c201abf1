"""Which sessions share a forward, in numbers that an operator may set."""

from __future__ import annotations

from dataclasses import dataclass

ROWS = 256
"""Of a forward, at most: beyond that a forward of a small model takes so much longer that nobody gains."""
CHUNK = 64
"""Rows of prompts in a forward while other sessions are there."""


@dataclass(frozen=True)
class Policy:
    """rows: of a forward, at most; latency_ms: and no more than end within this, by how long forwards have taken so
    far, 0: no bound. chunk: of prompts in a forward while other sessions are there.

    groups: sessions are dealt into so many groups that take turns, so that one's drafts are on their way while
    another's are verified (SpecEdge, section 4.2, has two); 1: all share every forward.
    """

    rows: int = ROWS
    chunk: int = CHUNK
    groups: int = 1
    latency_ms: float = 0.0
