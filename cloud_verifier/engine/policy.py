# SPDX-License-Identifier: Apache-2.0
"""How sessions share forward passes, in numbers that an operator may set."""

from __future__ import annotations

from dataclasses import dataclass

from specdec.settings import setting


@dataclass(frozen=True)
class Policy:
    """How sessions share forward passes. groups: SpecEdge (section 4.2) uses two, so that the drafts of one group are
    on their way while those of the other are verified.
    """

    # Beyond 256 rows a forward pass of a small model slows down so much that nothing is gained.
    rows: int = setting(256, "Most rows of all sessions in one forward pass.", 1, 1_000_000)
    chunk: int = setting(
        64,
        "Rows of prompts in a forward pass while other sessions are open; long prompts are split into chunks.",
        1,
        1_000_000,
    )
    groups: int = setting(
        1,
        "Groups of sessions whose forward passes alternate (SpecEdge's interleaving: 2); 1: all share every pass.",
        1,
        16,
    )
    latency_ms: float = setting(
        0.0,
        "A forward pass takes only rows that fit into this time, estimated from earlier passes; 0: no bound.",
        0,
        60_000,
        unit="ms",
    )
