# SPDX-License-Identifier: Apache-2.0
"""Detects repetition loops in token ids; used to measure answers and to train against loops.

A *copy* is a piece of up to LONGEST_PERIOD tokens repeated directly after itself. Code naturally repeats a little, so a
text *loops* only if a piece occurs three times in a row and its copies have at least SHORTEST_LOOP tokens.
"""

from __future__ import annotations

import numpy as np

LONGEST_PERIOD = 48
SHORTEST_LOOP = 12
SHORTEST_COPY = 6


def copied(ids: np.ndarray, period: int) -> np.ndarray:
    """int64 [n]: the length of the unbroken run, up to each token, of tokens equal to the one `period` before."""
    run = np.zeros(len(ids), np.int64)
    if period < len(ids):
        same = ids[period:] == ids[:-period]
        places = np.arange(1, len(same) + 1)
        run[period:] = places - np.maximum.accumulate(np.where(same, 0, places))
    return run


def loops(ids: np.ndarray) -> bool:
    """Whether an answer's ids int64 [n] loop anywhere."""
    longest = min(LONGEST_PERIOD, len(ids) // 3)
    return any(
        copied(ids, period).max() >= max(2 * period, SHORTEST_LOOP) for period in range(1, longest + 1)
    )


def tokens_to_avoid(ids: np.ndarray) -> np.ndarray:
    """bool [n]: tokens that extend a complete copy; training against loops makes these unlikely."""
    found = np.zeros(len(ids), bool)
    for period in range(1, min(LONGEST_PERIOD, len(ids) // 2) + 1):
        found |= copied(ids, period) > max(period, SHORTEST_COPY)
    return found
