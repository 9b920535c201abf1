"""What forwards of a draft model take by their rows: medians, measured by turns."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence

import torch

from specdec.models import LoadedModel, Prompt
from specnav.bench.serving.forwards import clock_of, plain_ids

LEAST_TIMES = 4


@torch.inference_mode()
def time_rows_of(
    model: LoadedModel, rows: Sequence[int], context: int, budget_s: float,
    clock: Callable[[], float] | None = None,
) -> list[tuple[int, float]]:
    """(rows, milliseconds) of forwards behind `context` tokens, or as many as the model takes, as a drafter asks for
    them: behind a session that is rolled back afterwards. clock: None: the one that suits the model.
    """  # fmt: skip
    some = plain_ids(model)
    context = min(context, model.context_limit - max(rows) - 2)
    ids = [some[(7919 * place) % len(some)] for place in range(context + max(rows))]
    session = model.new_session()
    session.prefill(model.encode(Prompt(tuple(ids[: max(context, 0)]))))
    timing, wall = clock or clock_of(model), clock or time.monotonic
    until = wall() + budget_s
    taken: defaultdict[int, list[float]] = defaultdict(list)
    while len(taken[rows[-1]]) <= LEAST_TIMES or wall() < until:
        for count in rows:
            began = timing()
            float(session.extend(ids[:count])[-1, 0])  # a device has done it once a number is there
            taken[count].append(timing() - began)
            session.rollback(context)
    return [(count, 1e3 * statistics.median(taken[count][1:])) for count in rows]  # the first one makes room
