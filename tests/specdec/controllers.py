"""Controllers that know a link's times."""

from __future__ import annotations

import random

from specdec.estimates.measured import Measured


def knowing(
    draft_s: float, verify_s: float, rtt_s: float, chain: float, tree: float, drafts: int = 200
) -> Measured:
    """Figures of a run; chain, tree: chance that a level of a draft is right if all before it were."""
    draw = random.Random(0)
    figures = Measured()
    for _ in range(40):
        figures.drafted(draft_s)
        figures.streamed(1, verify_s, 0)
        figures.pinged(rtt_s)
    for _ in range(drafts):
        for survival, chance in ((figures.chain, chain), (figures.tree, tree)):
            survival.add(8, next((depth for depth in range(8) if draw.random() >= chance), 8))
    return figures
