# SPDX-License-Identifier: Apache-2.0
"""Which sessions share a forward, in numbers that an operator may set."""

from __future__ import annotations

from dataclasses import dataclass

from specdec.settings import setting


@dataclass(frozen=True)
class Policy:
    """Which sessions share a forward. groups: SpecEdge, section 4.2, has two, so that one's drafts are on their way
    while another's are verified.
    """

    # Beyond 256 rows a forward of a small model takes so much longer that nothing is gained.
    rows: int = setting(256, "Rows of all sessions in one forward, at most.", 1, 1_000_000)
    chunk: int = setting(
        64,
        "Rows of prompts in a forward while other sessions are open; a long prompt comes in chunks beside drafts.",
        1,
        1_000_000,
    )
    groups: int = setting(
        1,
        "Groups of sessions whose forwards take turns (SpecEdge's interleaving: 2); 1: all share every forward.",
        1,
        16,
    )
    latency_ms: float = setting(
        0.0,
        "A forward pass takes only rows that end within this time, by earlier passes; 0: no bound.",
        0,
        60_000,
        unit="ms",
    )
