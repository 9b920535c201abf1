"""What forwards of a draft model take by their rows: medians, measured by turns."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict

import torch

from evaluation.studies.drafts import ROWS
from specdec.models import LoadedModel, Prompt
from specnav.bench.serving.forwards import clock_of, plain_ids

CONTEXT = 113
"""Tokens in the cache."""
LEAST_TIMES = 7


@torch.inference_mode()
def time_rows_of(model: LoadedModel, budget_s: float) -> list[tuple[int, float]]:
    """(rows, milliseconds) of forwards behind CONTEXT tokens."""
    some = plain_ids(model)
    ids = [some[(7919 * place) % len(some)] for place in range(CONTEXT + max(ROWS))]
    session = model.new_session()
    session.prefill(model.encode(Prompt(tuple(ids[:CONTEXT]))))
    clock, until = clock_of(model), time.monotonic() + budget_s
    taken: defaultdict[int, list[float]] = defaultdict(list)
    while len(taken[ROWS[-1]]) <= LEAST_TIMES or time.monotonic() < until:
        for rows in ROWS:
            began = clock()
            session.extend(ids[:rows])
            if model.device.type == "cuda":
                torch.cuda.synchronize(model.device)
            taken[rows].append(clock() - began)
            session.rollback(CONTEXT)
    return [(rows, 1e3 * statistics.median(taken[rows][1:])) for rows in ROWS]  # the first one makes room
