# SPDX-License-Identifier: Apache-2.0
"""Choice of the layers with an exit, and of the adapters' width."""

from __future__ import annotations

from collections.abc import Iterable

from specdec.errors import ModelError, OptionsError

WIDEST = 400


PUBLISHED_WIDTHS = {4096: 400, 5120: 396, 3584: 456}
"""By hidden size. Fast edge-cloud decoding with early exits, Table 2 (papers.yaml: fsd_000.exits), states only the
numbers of parameters; these widths are the multiples of 4 that give them, with two matrices per exit.
"""


def usual_width(hidden_size: int) -> int:
    """The published width for models of this hidden size; otherwise half the hidden size, at most WIDEST."""
    return PUBLISHED_WIDTHS.get(hidden_size) or max(1, min(hidden_size // 2, WIDEST))


def choose_layers(spec: str, layer_count: int) -> tuple[int, ...]:
    """Layers named by "all", "every:K" (after every K layers) or "1,3,5", sorted.

    Raises OptionsError for anything else, and for layers that can have no exit (see check_layers).
    """
    last = layer_count - 1
    kind, _, step = spec.partition(":")
    try:
        if spec == "all":
            chosen = list(range(last))
        elif kind == "every" and int(step) >= 1:
            chosen = list(range(int(step) - 1, last, int(step)))
        else:
            chosen = sorted({int(part) for part in spec.split(",")})
    except ValueError:
        raise OptionsError(
            f"layers {spec!r} cannot be read: give all, every:K or numbers like 1,3,5"
        ) from None
    try:
        return check_layers(chosen, layer_count)
    except ModelError as error:
        raise OptionsError(str(error)) from error


def check_layers(layers: Iterable[int], layer_count: int) -> tuple[int, ...]:
    """The layers as a tuple. Raises ModelError unless they ascend and none of them is the last layer."""
    chosen = tuple(layers)
    if not chosen:
        raise ModelError(f"no layer of {layer_count} was chosen for an exit: choose at least one")
    if list(chosen) != sorted(set(chosen)):
        raise ModelError(
            f"exit layers {list(chosen)} are not in ascending order: name each layer once, in order"
        )
    if chosen[0] < 0 or chosen[-1] > layer_count - 2:
        raise ModelError(
            f"exit layers {list(chosen)} are out of range: a model of {layer_count} layers takes 0 to "
            f"{layer_count - 2} (the last layer is its own exit)"
        )
    return chosen
