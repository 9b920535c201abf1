# SPDX-License-Identifier: Apache-2.0
"""The kinds of recovery from a rejection, as named by methods and sent on the wire. Implemented in `recovery`."""

from __future__ import annotations

from enum import IntEnum


class Recovery(IntEnum):
    """What happens after a rejection.

    NOISE: nothing is rejected at random; both sides use shared noise and ids suffice.
    CLOUD: the cloud has the draft's rows and draws the token.
    ROW: the edge draws, from the target's full row.
    SAMPLES: the edge draws, from samples of the target's row.
    SPARSE: the edge draws, from the row's largest entries and samples of the others.
    TRUNCATED: the edge draws, from the row's largest entries only. LOSSY.
    """

    NOISE = 0
    CLOUD = 1
    ROW = 2
    SAMPLES = 3
    SPARSE = 4
    TRUNCATED = 5
