"""Pacing: a forward takes at least so long, to stand in for a slower device or a larger model.

The minimum may depend on the rows that share the forward. It is spread evenly over the layers, so that what happens
inside a forward (a layer's output, a pre-verify) happens at its proportionate time. Pacing changes when things happen,
never what is computed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from specdec.errors import OptionsError

if TYPE_CHECKING:
    from torch import Tensor

    from specdec.models.loaded import LoadedModel
    from specdec.models.runner import LayerObserver

MAX_MS = 60_000.0
_BY_ROWS = re.compile(r"[\d.]+:\d+(,[\d.]+:\d+)*")


class RowMs(float):
    """Milliseconds of a forward by the rows that share it: straight lines between what is given, level beyond.

    As a number: of the fewest rows given. points: (rows, milliseconds), rows rising.
    """

    points: tuple[tuple[int, float], ...]

    def __new__(cls, points: tuple[tuple[int, float], ...]) -> RowMs:
        """Raises OptionsError unless rows are at least 1 and rise, and no time is longer than MAX_MS."""
        rows = [count for count, _ in points]
        if not rows or rows[0] < 1 or sorted(set(rows)) != rows:
            raise OptionsError("rows begin at 1 or above and rise, like 72:1,90:4,160:8")
        if not all(0 <= ms <= MAX_MS for _, ms in points):
            raise OptionsError(f"a forward takes 0 to {MAX_MS:g} ms")
        made = super().__new__(cls, points[0][1])
        made.points = points
        return made

    def at(self, rows: int) -> float:
        """Milliseconds of a forward of so many rows."""
        before = self.points[0]
        for point in self.points:
            if rows <= point[0]:
                if point[0] == before[0]:
                    return point[1]
                return before[1] + (point[1] - before[1]) * (rows - before[0]) / (point[0] - before[0])
            before = point
        return before[1]

    def __mul__(self, factor: float) -> RowMs:
        return RowMs(tuple((rows, ms * factor) for rows, ms in self.points))

    def __str__(self) -> str:
        return ",".join(f"{ms:g}:{rows}" for rows, ms in self.points)

    __repr__ = __str__

    def __getnewargs__(self) -> tuple[tuple[tuple[int, float], ...]]:  # type: ignore[override]
        return (self.points,)


def read_ms(text: str) -> float:
    """ "40", or "72:1,90:4,160:8": milliseconds of a forward, by its rows. Raises OptionsError for anything else."""
    try:
        if ":" not in text:
            return float(text)
        if not _BY_ROWS.fullmatch(text):
            raise ValueError
        pairs = [part.split(":") for part in text.split(",")]
        return RowMs(tuple((int(rows), float(ms)) for ms, rows in pairs))
    except ValueError:
        raise OptionsError(
            f"{text!r} is no time of a forward: give milliseconds, like 40, or by rows 72:1,90:4"
        ) from None


class Pacer:
    """Delays the layers of a forward so that the whole of it takes at least `minimum_ms`, by its rows where it says so.

    A pass over some of the layers takes their share of it.
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

    def begin(self, rows: int, observer: LayerObserver | None = None) -> LayerObserver:
        """The observer of a forward of so many rows that starts now; `observer` sees each layer when its time comes."""
        started = self._clock()
        minimum_ms = self._minimum_ms
        share_s = (minimum_ms.at(rows) if isinstance(minimum_ms, RowMs) else minimum_ms) / 1e3 / self._layers
        layers_done = 0

        def after_layer(index: int, hidden: Tensor) -> None:
            nonlocal layers_done
            layers_done += 1
            wait = started + layers_done * share_s - self._clock()
            if wait > 0:
                self._sleep(wait)
            if observer is not None:
                observer(index, hidden)

        return after_layer


def pace(model: LoadedModel, minimum_ms: float) -> None:
    """Let every forward of `model`, prefills included, take at least so many milliseconds; 0 ends pacing.

    minimum_ms: the same for all, or a RowMs. Raises OptionsError for a time below 0 or above a minute.
    """
    if isinstance(minimum_ms, bool) or not 0 <= minimum_ms <= MAX_MS:
        raise OptionsError(f"pacing of {minimum_ms!r} ms is out of range: choose 0 to {MAX_MS:g}")
    runner = model.runner
    runner.pacer = Pacer(minimum_ms, runner.layer_count) if minimum_ms else None
