# SPDX-License-Identifier: Apache-2.0
"""Times of a model's forward passes by their rows, measured once when the model is loaded."""

from __future__ import annotations

import time
from collections.abc import Callable

from specdec.models.loaded import LoadedModel, RowTime
from specdec.models.prompt import Prompt
from specdec.row_ms import RowMs

ROWS_TRIED = (1, 2, 4, 8, 16, 32)
TIMES_TRIED = 3
TRYING_S = 1.0


def time_rows(model: LoadedModel, paced: float = 0.0, clock: Callable[[], float] = time.perf_counter) -> list[RowTime]:
    """Time forward passes by their rows: the fastest of a few each, on a warm model, within about a second in total.

    paced: minimum duration in ms that passes will have later; the results are raised to it without waiting. Edges
    choose their drafts by these times.
    """
    session = model.new_session()
    session.prefill(model.encode(Prompt((0, 1, 2))))
    held, began = session.length, clock()
    found: list[RowTime] = []
    for rows in ROWS_TRIED:
        taken = []
        for _ in range(TIMES_TRIED):
            started = clock()
            float(session.extend([0] * rows)[-1, 0])  # waits for the device
            taken.append(clock() - started)
            session.rollback(held)
        least_ms = paced.for_rows(rows) if isinstance(paced, RowMs) else paced
        found.append((rows, round(1e3 * max(1e3 * min(taken), least_ms))))
        if clock() - began > TRYING_S:
            break
    return found


def paced_row_times(model: LoadedModel) -> list[RowTime]:
    """A model's times measured at load, raised to its present pacing."""
    pacer = model.runner.pacer if model.row_us else None
    if pacer is None:
        return list(model.row_us)
    return [(rows, max(us, round(1e3 * pacer.minimum_at(rows)))) for rows, us in model.row_us]
