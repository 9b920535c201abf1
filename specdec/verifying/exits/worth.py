"""Which exits are worth their time: early ones leave more time to act on a hint, late ones are right more often."""

from __future__ import annotations

from collections.abc import Sequence

from specdec.errors import OptionsError
from specdec.verifying.exits.exits import Exits
from specdec.verifying.exits.layers import choose_layers

MOST = 4
"""Exits that `auto` takes at most."""

LEAST_GAIN = 0.01
"""One exit more must be worth so much more, as a share, to be taken."""

FIRST_HINT = 0.5
"""Of the layers: the first exit is worked out by then, so that its hint leaves before 60 % of the forward."""


def use_exits(exits: Exits, spec: str) -> tuple[int, ...]:
    """Layers of the exits to use, named by "auto" (the few worth it), "all", "every:K" or "1,3,5".

    Raises OptionsError for anything else, and for layers without an exit.
    """
    if spec == "all":
        return exits.layers
    count = exits.model.runner.layer_count
    if spec == "auto":
        return _few(exits, count)
    chosen = choose_layers(spec, count)
    missing = [layer for layer in chosen if layer not in exits.layers]
    if missing:
        there = ", ".join(map(str, exits.layers))
        raise OptionsError(
            f"exit layers {spec!r} name layer {missing[0]}, which has no exit: there are {there}"
        )
    return chosen


def in_stages(layers: Sequence[int], layer_count: int, together: bool) -> tuple[tuple[int, ...], ...]:
    """The layers in the groups that are worked out together.

    together: as few products as possible, for models whose layers take no longer than a product does: all exits of
    the first half at its end, all others at the last one. Else each exit has its turn at once.
    """
    if not together:
        return tuple((layer,) for layer in layers)
    early = tuple(layer for layer in layers if layer + 1 <= FIRST_HINT * layer_count)
    late = tuple(layer for layer in layers if layer not in early)
    return tuple(stage for stage in (early, late) if stage)


def _few(exits: Exits, layer_count: int) -> tuple[int, ...]:
    """The best set of at most MOST exits, built up one by one, each the one that adds most.

    A set is worth the agreement of the latest exit so far, over all the time from its first hint to the verdict.
    """
    shares = {layer: exits.agreement.get(layer, (layer + 1) / layer_count) for layer in exits.layers}
    early = [layer for layer in exits.layers if layer + 1 <= FIRST_HINT * layer_count] or [exits.layers[0]]

    def worth(layers: Sequence[int]) -> float:
        ends = [*layers[1:], layer_count - 1]
        return sum(shares[layer] * (end - layer) for layer, end in zip(layers, ends, strict=True))

    chosen = [max(early, key=lambda layer: worth([layer]))]
    while len(chosen) < MOST:
        others = [sorted([*chosen, layer]) for layer in exits.layers if layer not in chosen]
        best = max(others, key=worth, default=chosen)
        if worth(best) < worth(chosen) * (1 + LEAST_GAIN):
            break
        chosen = best
    return tuple(chosen)
