# SPDX-License-Identifier: Apache-2.0
"""The static decode path: a complete forward pass over a fixed number of rows, recorded once and replayed.

Vocabulary
    bucket: row count of a recorded forward pass; a batch is padded up to the next one.
    tile: up to `TILE` consecutive rows of one session, which attend to that session's KV cache together.
    batch: the integers of one pass (token ids, positions, cache slots, cache addresses, lengths). They are copied to
        the device in one transfer, masks of trees in a second. No shape depends on a length.
    graph: a recorded pass. A CUDA graph on a GPU; on a CPU the same code run eagerly, for tests.

`batch` lays out the integers, `forward` records and replays, `operations` computes with torch (the reference),
`kernels` computes with Triton, `recording` holds the two kinds of graphs.
"""

from specdec.models.static.batch import BUCKETS, MAX_ROWS
from specdec.models.static.forward import MOST_IN_A_RUN, ChainRun, StaticForward, make_static

__all__ = ["BUCKETS", "MAX_ROWS", "MOST_IN_A_RUN", "ChainRun", "StaticForward", "make_static"]
