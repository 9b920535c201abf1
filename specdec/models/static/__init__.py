# SPDX-License-Identifier: Apache-2.0
"""The static decode path: a whole forward pass over a fixed number of rows, recorded once and replayed.

Vocabulary
    bucket: number of rows that a recorded forward has; a batch is padded up to the next one.
    tile: up to `TILE` consecutive rows of one session, which attend to that session's KV cache together.
    batch: the integers of one forward (token ids, positions, cache slots, cache addresses, lengths). They travel to the
        device in one copy; nothing else changes between two replays, and no shape depends on a length.
    graph: a recorded forward. A CUDA graph on a GPU; on a CPU the same code run eagerly, for tests.

`batch` lays the integers out, `forward` records and replays, `operations` computes with torch (the reference),
`kernels` computes with Triton, `recording` holds the two kinds of graphs.
"""

from specdec.models.static.batch import BUCKETS, MAX_ROWS
from specdec.models.static.forward import MOST_IN_A_RUN, ChainRun, StaticForward, make_reference, make_static

__all__ = ["BUCKETS", "MAX_ROWS", "MOST_IN_A_RUN", "ChainRun", "StaticForward", "make_reference", "make_static"]
