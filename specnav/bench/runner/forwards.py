# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of a forward that many sessions share: the verifier's own forward, in this process."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence

import torch

from specdec.models import LoadedModel, Prompt
from specdec.models.plans import extend_many
from specdec.models.session import ModelSession
from specnav.bench.records.capacity import CurvePoint

CONTEXT = 256
"""Tokens in each session's KV cache."""
LEAST_TIMES = 4


def clock_of(model: LoadedModel) -> Callable[[], float]:
    """The clock for a model's forwards: the thread's processor time if one thread does all the work, else wall time.

    Processor time is hardly affected by other programs.
    """
    alone = model.device.type == "cpu" and model.threads == 1
    return time.thread_time if alone else time.perf_counter


def measure_curve(
    model: LoadedModel, counts: Sequence[int], kinds: Sequence[int], budget_s: float
) -> list[CurvePoint]:
    """Measure the curve: medians over as many rounds as fit into the budget, at least `LEAST_TIMES`.

    Each round measures every point once. counts: numbers of sessions that share a forward. kinds: rows of each session.
    Raises ModelError if the context is too short.
    """
    context = min(CONTEXT, model.context_limit - max(kinds) - 1)
    ids = text_ids(model, context + max(kinds))
    sessions = [model.new_session() for _ in range(max(counts))]
    for session in sessions:
        session.prefill(model.encode(Prompt(tuple(ids[:context]))))
    grid = [(count, rows) for count in counts for rows in kinds]
    together: defaultdict[tuple[int, int], list[float]] = defaultdict(list)
    apart: defaultdict[tuple[int, int], list[float]] = defaultdict(list)
    clock = clock_of(model)
    until = time.monotonic() + budget_s
    times = 0
    while times < LEAST_TIMES + 1 or time.monotonic() < until:
        for count, rows in grid:
            some, draft = sessions[:count], ids[context : context + rows]
            shared = _timed(model, clock, some, draft)
            _roll_back(some, context)
            single = sum(_timed(model, clock, [one], draft) for one in some)
            _roll_back(some, context)
            if times:  # the first round allocates the caches and warms up
                together[count, rows].append(shared)
                apart[count, rows].append(single)
        times += 1
    return [
        CurvePoint(
            sessions=count, rows=rows, together_ms=1e3 * statistics.median(together[count, rows]),
            apart_ms=1e3 * statistics.median(apart[count, rows]),
        )
        for count, rows in grid
    ]  # fmt: skip


def plain_ids(model: LoadedModel) -> list[int]:
    """Token ids that stand for text."""
    return [one for one in range(model.vocab_size) if one not in model.never_drafted and one not in model.eos_token_ids]


def text_ids(model: LoadedModel, count: int) -> list[int]:
    """This many token ids that stand for text, spread over the vocabulary."""
    some = plain_ids(model)
    return [some[(7919 * place) % len(some)] for place in range(count)]


def settle(device: torch.device) -> None:
    """Wait until the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _roll_back(sessions: Sequence[ModelSession], length: int) -> None:
    for session in sessions:
        session.rollback(length)


def _timed(
    model: LoadedModel, clock: Callable[[], float], sessions: Sequence[ModelSession], ids: Sequence[int]
) -> float:
    """Seconds of one forward that extends each session by `ids`, including the device's work."""
    began = clock()
    extend_many([session.extension(ids) for session in sessions])
    settle(model.device)
    return clock() - began


@torch.inference_mode()
def time_rows_of(
    model: LoadedModel, rows: Sequence[int], context: int, budget_s: float,
    clock: Callable[[], float] | None = None,
) -> list[tuple[int, float]]:
    """(rows, median milliseconds) of forwards as a drafter makes them: extend a session, then roll it back.

    Args:
        model: a draft model.
        rows: numbers of rows to time.
        context: tokens in the KV cache; fewer if the model's context is shorter.
        budget_s: seconds to spend.
        clock: None: the one that suits the model.
    """  # fmt: skip
    context = min(context, model.context_limit - max(rows) - 2)
    ids = text_ids(model, context + max(rows))
    session = model.new_session()
    session.prefill(model.encode(Prompt(tuple(ids[: max(context, 0)]))))
    timing, wall = clock or clock_of(model), clock or time.monotonic
    until = wall() + budget_s
    taken: defaultdict[int, list[float]] = defaultdict(list)
    while len(taken[rows[-1]]) <= LEAST_TIMES or wall() < until:
        for count in rows:
            began = timing()
            float(session.extend(ids[:count])[-1, 0])  # reading a number waits for the device
            taken[count].append(timing() - began)
            session.rollback(context)
    return [(count, 1e3 * statistics.median(taken[count][1:])) for count in rows]  # the first one allocates
