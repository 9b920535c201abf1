# SPDX-License-Identifier: Apache-2.0
"""Acceptance and next token of a sampled draft, computed on the target's device and read in one transfer.

On a GPU every read stalls the program. Reading the number of accepted tokens before drawing the next one would take two
reads, so the distribution to draw from is selected on the device. The arithmetic is that of
`specdec.sampling.rejection` in the same number types, so decisions equal those of a CPU for the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from specdec.sampling.rejection import draw_on_device, recovery_distribution


class Decided(NamedTuple):
    """accepted: number of accepted tokens. token: drawn after them; meaningless if the edge draws it. row: the target's
    row there, float32 [vocab] on the CPU, if requested.
    """

    accepted: int
    token: int
    row: Tensor | None


def decide(
    p: Tensor,
    ids: Sequence[int],
    q_x: Sequence[float],
    q: Tensor | None,
    uniforms: Sequence[float],
    draws: Sequence[float],
    with_row: bool,
) -> Decided:
    """Judge a sampled chain of k tokens.

    Args:
        p: The target's rows, float32 [k + 1, vocab].
        ids: The drafted ids [k].
        q_x: Their probabilities under q [k].
        q: The draft's rows, float32 [k or more, vocab] on p's device; None: the recovered token is not drawn here.
        uniforms: One number per token [k] for its acceptance; negative: accept in any case.
        draws: Numbers [k + 1]; number n draws the token after n accepted ones.
        with_row: Also return the target's row after the accepted tokens.
    """
    count, device = len(ids), p.device
    # p / inf is 0, and no number is below it: a token with q = 0 is never accepted.
    told = [[value if value > 0.0 else float("inf") for value in q_x], [*uniforms]]
    chances, numbers = torch.tensor(told, dtype=torch.float64, device=device).view(2, count)
    places = torch.tensor([*ids], dtype=torch.long, device=device)
    p_x = p[:count].gather(1, places[:, None])[:, 0].double()
    accepted = (numbers < p_x / chances).long().cumprod(0).sum()[None]
    row = p.index_select(0, accepted)[0]
    distribution = row
    if q is not None and count:
        rejected = recovery_distribution(row, q.index_select(0, accepted.clamp(max=count - 1))[0])
        distribution = torch.where(accepted == count, row.double(), rejected)
    number = torch.tensor([*draws], dtype=torch.float64, device=device).index_select(0, accepted)
    found = torch.cat([accepted, draw_on_device(distribution, number)]).int()
    if not with_row:
        kept, token = found.tolist()
        return Decided(kept, token, None)
    read = torch.cat([found.view(torch.float32), row]).cpu()  # integers as raw bits, so that one copy suffices
    kept, token = read[:2].view(torch.int32).tolist()
    return Decided(kept, token, read[2:])
