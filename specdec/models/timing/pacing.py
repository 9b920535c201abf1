# SPDX-License-Identifier: Apache-2.0
"""Pacing: a forward takes at least this long, to stand in for a slower device or a larger model.

The minimum may depend on the rows that share the forward. It is spread evenly over the layers, so that what happens
inside a forward (a layer's output, a pre-verify) happens at its proportionate time. Pacing changes when things happen,
never what is computed.
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
"""A forward that takes longer than its time by this factor is late: the machine is slower than it is paced."""


class Pacer:
    """Delays the layers of a forward so that the whole of it takes at least `minimum_ms`, by its rows where it says so.

    A pass over some of the layers takes their share of it. forwards, late: how many came to their end, and how many of
    those took longer than LATE times what they should; worst: the most that one took, over what it should; mean: what
    all of them took together, over that.
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
        """What all forwards took, over what they should."""
        return self._took_s / self._should_s if self._should_s else 1.0

    def minimum_at(self, rows: int) -> float:
        """Milliseconds that a forward of this many rows takes at least."""
        minimum_ms = self._minimum_ms
        return minimum_ms.for_rows(rows) if isinstance(minimum_ms, RowMs) else minimum_ms

    def begin(
        self, rows: int, observer: LayerObserver | None = None, layers: int | None = None
    ) -> LayerObserver:
        """The observer of a forward of this many rows that starts now; `observer` sees each layer when its time comes.

        layers: how many the pass has. Where that is known and nothing looks, it waits once, behind the last: who is
        woken seldom is seldom woken late.
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
    """Let every forward of `model`, prefills included, take at least this many milliseconds; 0 ends pacing.

    minimum_ms: the same for all, or a RowMs. Raises OptionsError for a time below 0 or above a minute.
    """
    if isinstance(minimum_ms, bool) or not 0 <= minimum_ms <= MAX_MS:
        raise OptionsError(f"pacing of {minimum_ms!r} ms is out of range: choose 0 to {MAX_MS:g}")
    runner = model.runner
    runner.pacer = Pacer(minimum_ms, runner.layer_count) if minimum_ms else None
