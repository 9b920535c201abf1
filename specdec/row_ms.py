# SPDX-License-Identifier: Apache-2.0
"""The duration of a forward pass as a function of its rows, as written in flags and files."""

from __future__ import annotations

import re

from specdec.errors import OptionsError

MAX_MS = 60_000.0
_BY_ROWS = re.compile(r"[\d.]+:\d+(,[\d.]+:\d+)*")


class RowMs(float):
    """Milliseconds of a forward pass by its rows: linear between the given points, constant outside them.

    Its value as a float is that of the first point. points: (rows, milliseconds), rows ascending.
    """

    points: tuple[tuple[int, float], ...]

    def __new__(cls, points: tuple[tuple[int, float], ...]) -> RowMs:
        """Raises OptionsError unless rows start at 1 or more and ascend, and every time is 0 to MAX_MS."""
        rows = [count for count, _ in points]
        if not rows or rows[0] < 1 or sorted(set(rows)) != rows:
            raise OptionsError("rows must start at 1 or more and ascend, like 72:1,90:4,160:8")
        if not all(0 <= ms <= MAX_MS for _, ms in points):
            raise OptionsError(f"a forward pass must take 0 to {MAX_MS:g} ms")
        made = super().__new__(cls, points[0][1])
        made.points = points
        return made

    def for_rows(self, rows: int) -> float:
        """Milliseconds of a forward pass over this many rows."""
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

    def __format__(self, spec: str) -> str:
        """The command-line form with all points; `spec` is ignored."""
        return str(self)

    def __getnewargs__(self) -> tuple[tuple[tuple[int, float], ...]]:  # type: ignore[override]
        return (self.points,)


def read_ms(text: str) -> float:
    """Parse "40" or "72:1,90:4,160:8": milliseconds of a forward pass, by its rows. Raises OptionsError otherwise."""
    try:
        if ":" not in text:
            return float(text)
        if not _BY_ROWS.fullmatch(text):
            raise ValueError
        pairs = [part.split(":") for part in text.split(",")]
        return RowMs(tuple((int(rows), float(ms)) for ms, rows in pairs))
    except ValueError:
        raise OptionsError(
            f"{text!r} must be milliseconds, like 40, or milliseconds by rows, like 72:1,90:4"
        ) from None
