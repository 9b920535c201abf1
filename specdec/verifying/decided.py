# SPDX-License-Identifier: Apache-2.0
"""What becomes of a sampled draft, worked out where the target's rows are and read from there at once.

On a GPU every number that is read makes the program wait: how many tokens stay, and only then what is drawn, would be
two waits. So every draw's distribution is picked by the count on the device. The arithmetic is that of
`specdec.sampling.rejection`, in the same types: the decisions are those of a CPU for the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from specdec.sampling.rejection import draw_on_device, recovery_distribution


class Decided(NamedTuple):
    """accepted: tokens that stay. token: drawn behind them; of no use where the edge draws it. row: float32 [vocab] on
    the CPU, what the target says there, where it was asked for.
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
    """p: float32 [k + 1, vocab], on its device. ids [k]: drafted; q_x [k]: their probabilities under q; uniforms [k]:
    one an acceptance, negative for a token that stays anyway; draws [k + 1]: for the token behind this many accepted.

    q: float32 [k or more, vocab] on the same device; None: the token behind a rejection is not drawn here.
    """
    count, device = len(ids), p.device
    # p / inf is 0, and no number is below it: what q never says is never accepted.
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
    read = torch.cat([found.view(torch.float32), row]).cpu()  # bits of whole numbers beside numbers: one copy
    kept, token = read[:2].view(torch.int32).tolist()
    return Decided(kept, token, read[2:])
