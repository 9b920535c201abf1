# SPDX-License-Identifier: Apache-2.0
"""The ways to recover from a rejection, by name: what a method says and what travels. How each is done: `recovery`."""

from __future__ import annotations

from enum import IntEnum


class Recovery(IntEnum):
    """What happens after a rejection.

    NOISE: nothing is rejected by chance, both sides use shared noise and ids suffice. CLOUD: the cloud has
    the draft's rows and draws. ROW, SAMPLES, SPARSE, TRUNCATED: the edge draws, from the target's row, from
    samples of it, from its largest entries and samples of all others, or, LOSSY, from its largest entries as
    if there were no others.
    """

    NOISE = 0
    CLOUD = 1
    ROW = 2
    SAMPLES = 3
    SPARSE = 4
    TRUNCATED = 5
