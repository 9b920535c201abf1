# SPDX-License-Identifier: Apache-2.0
"""Selects the exits worth their time: early ones leave more time to act on a hint, late ones are right more often."""

from __future__ import annotations

from collections.abc import Sequence

from specdec.errors import OptionsError
from specdec.verifying.exits.exits import Exits
from specdec.verifying.exits.layers import choose_layers

MOST = 4
"""Most exits that `auto` selects."""

LEAST_GAIN = 0.01
"""Least relative gain for which `auto` adds one more exit."""

LATEST = 0.75
"""Latest position of an exit, as a share of the layers: a later hint leaves no time to draft before the verdict."""

FIRST_HINT = 0.5
"""Latest position of the first exit, as a share of the layers, so that its hint is sent before 60 % of the pass."""


def use_exits(exits: Exits, spec: str, most: int = MOST) -> tuple[int, ...]:
    """The layers of the exits to use. spec: "auto" (the few worth it, at most `most`), "all", "every:K" or "1,3,5".

    Raises OptionsError for anything else, and for layers without an exit.
    """
    if spec == "all":
        return exits.layers
    count = exits.model.runner.layer_count
    if spec == "auto":
        return _few(exits, count, most)
    chosen = choose_layers(spec, count)
    missing = [layer for layer in chosen if layer not in exits.layers]
    if missing:
        there = ", ".join(map(str, exits.layers))
        raise OptionsError(
            f"exit layers {spec!r} name layer {missing[0]}, which has no exit: there are {there}"
        )
    return chosen


def _few(exits: Exits, layer_count: int, most: int) -> tuple[int, ...]:
    """A good set of at most `most` exits, chosen greedily.

    The worth of a set is the integral, over the time from its first hint to the verdict, of the latest exit's agreement
    to the third power: an outcome consists of about two tokens of the draft and one after them.
    """
    shares = {
        layer: exits.agreement.get(layer, (layer + 1) / layer_count) ** 3
        for layer in exits.layers
        if layer + 1 <= LATEST * layer_count or layer == exits.layers[0]
    }
    early = [layer for layer in shares if layer + 1 <= FIRST_HINT * layer_count] or [exits.layers[0]]

    def worth(layers: Sequence[int]) -> float:
        ends = [*layers[1:], layer_count - 1]
        return sum(shares[layer] * (end - layer) for layer, end in zip(layers, ends, strict=True))

    chosen = [max(early, key=lambda layer: worth([layer]))]
    while len(chosen) < most:
        others = [sorted([*chosen, layer]) for layer in shares if layer not in chosen]
        best = max(others, key=worth, default=chosen)
        if worth(best) < worth(chosen) * (1 + LEAST_GAIN):
            break
        chosen = best
    return tuple(chosen)
