# SPDX-License-Identifier: Apache-2.0
"""Pacing: a minimum duration of forward passes, to emulate a slower device or a larger model.

The minimum may depend on the number of rows. It is spread evenly over the layers, so that events inside a pass (a
layer's output, a pre-verify) happen at their proportionate times. Pacing changes when things happen, never the results.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from specdec.errors import OptionsError
from specdec.row_ms import MAX_MS, RowMs

if TYPE_CHECKING:
    from torch import Tensor

    from specdec.models.loaded import LoadedModel
    from specdec.models.runner import LayerObserver

LATE = 1.1
"""A pass that exceeds its minimum duration by this factor is late: the machine is slower than the pacing."""


class Pacer:
    """Delays the layers of a pass so that it takes at least `minimum_ms`, which may depend on the rows.

    A pass over some of the layers takes their share of the minimum. forwards: complete passes. late: passes that took
    longer than LATE times the minimum. worst: largest ratio of a pass's duration to its minimum.
    """

    def __init__(
        self,
        minimum_ms: float,
        layers: int,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._minimum_ms = minimum_ms
        self._layers = layers
        self._clock = clock
        self._sleep = sleep
        self.forwards = 0
        self.late = 0
        self.worst = 1.0
        self._took_s = self._should_s = 0.0

    @property
    def mean(self) -> float:
        """Ratio of the total duration of all passes to their total minimum."""
        return self._took_s / self._should_s if self._should_s else 1.0

    def minimum_at(self, rows: int) -> float:
        """Minimum duration of a pass over n rows, in milliseconds."""
        minimum_ms = self._minimum_ms
        return minimum_ms.for_rows(rows) if isinstance(minimum_ms, RowMs) else minimum_ms

    def begin(
        self, rows: int, observer: LayerObserver | None = None, layers: int | None = None
    ) -> LayerObserver:
        """Start pacing a pass over this many rows; returns its observer, which calls `observer` at each layer's time.

        layers: number of layers in the pass. If it is given and there is no `observer`, the pacer waits only once,
        after the last layer: fewer wake-ups mean fewer late ones.
        """
        started = self._clock()
        share_s = self.minimum_at(rows) / 1e3 / self._layers
        layers_done = 0
        waits_from = layers if layers is not None and observer is None else 1

        def after_layer(index: int, hidden: Tensor) -> None:
            nonlocal layers_done
            layers_done += 1
            if layers_done < waits_from:
                return
            wait = started + layers_done * share_s - self._clock()
            if wait > 0:
                self._sleep(wait)
            if layers_done == self._layers and share_s:
                self._ended(self._clock() - started, share_s * self._layers)
            if observer is not None:
                observer(index, hidden)

        return after_layer

    def _ended(self, took_s: float, should_s: float) -> None:
        self.forwards += 1
        self.late += took_s > LATE * should_s
        self.worst = max(self.worst, took_s / should_s)
        self._took_s += took_s
        self._should_s += should_s


def pace(model: LoadedModel, minimum_ms: float) -> None:
    """Give every forward pass of `model`, prefills included, a minimum duration in milliseconds; 0 ends pacing.

    minimum_ms: a number, or a RowMs. Raises OptionsError for a time below 0 or above a minute.
    """
    if isinstance(minimum_ms, bool) or not 0 <= minimum_ms <= MAX_MS:
        raise OptionsError(f"pacing of {minimum_ms!r} ms is out of range: choose 0 to {MAX_MS:g}")
    runner = model.runner
    runner.pacer = Pacer(minimum_ms, runner.layer_count) if minimum_ms else None
