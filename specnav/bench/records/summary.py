# SPDX-License-Identifier: Apache-2.0
"""Makes the table from the answers: one row per contestant, over the questions that every contestant answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from specdec.edge.stats import RoundStats
from specnav.bench.data.names import is_lossy
from specnav.bench.data.points import PaperFigure
from specnav.bench.records.bench import AnswerRecord, BenchRow, Flip
from specnav.bench.records.floor import busy_ms
from specnav.bench.settings import LEAST_TIME_SCALE
from specnav.results.demo import Setting, mean, number_of, percentile

REFERENCE = "ar"


def common_answers(answers: Sequence[AnswerRecord], methods: Sequence[str]) -> dict[str, list[AnswerRecord]]:
    """Answers by contestant, limited to the questions that all of them answered, in one order for all."""
    by_method: dict[str, dict[tuple[str, str, int], AnswerRecord]] = {method: {} for method in methods}
    for record in answers:
        if record.method in by_method:
            by_method[record.method][record.key] = record
    questions = [{key[:2] for key in found} for found in by_method.values()]
    common = set.intersection(*questions) if questions else set()
    # The first contestant's order is used for all; contestants may have answered in different orders.
    keys = [key for key in next(iter(by_method.values()), {}) if key[:2] in common]
    return {m: [found[key] for key in keys if key in found] for m, found in by_method.items()}


def make_rows(
    answers: Sequence[AnswerRecord],
    methods: Sequence[str],
    comparable: frozenset[str],
    flips: Sequence[Flip] = (),
    noise: float = 0.0,
) -> list[BenchRow]:
    """One row per contestant, in the given order.

    Args:
        answers: of all contestants.
        methods: the contestants.
        comparable: contestants whose ids must equal those of `ar`.
        flips: replayed deviations from `ar`; one with a margin of at most twice `noise` is a near-tie.
        noise: numeric noise of a logit.
    """
    common = common_answers(answers, methods)
    reference = common.get(REFERENCE, [])
    speed = _tokens_per_s(reference)
    rows = [
        make_row(method, common[method], reference if method in comparable else [], speed)
        for method in methods
    ]
    return [_with_flips(row, [flip.margin for flip in flips if flip.method == row.method], noise) for row in rows]


def is_near_tie(margin: float, noise: float) -> bool:
    """Whether rounding may swap two tokens; each of the two logits may move by `noise`."""
    return margin <= 2 * noise


def _with_flips(row: BenchRow, margins: Sequence[float], noise: float) -> BenchRow:
    if not margins:
        return row
    near = sum(is_near_tie(margin, noise) for margin in margins)
    return replace(row, near_ties=near, errors=len(margins) - near, largest_margin=max(margins))


def make_row(
    method: str, answers: Sequence[AnswerRecord], reference: Sequence[AnswerRecord], ar_speed: float | None
) -> BenchRow:
    """The figures of one contestant. reference: answers of `ar` to compare ids with; empty for no comparison."""
    rounds = [one for answer in answers for one in answer.rounds]
    drafted = sum(one.drafted for one in rounds)
    accepted = sum(one.accepted for one in rounds)
    speed = _tokens_per_s(answers)
    linked = [answer for answer in answers if answer.has_link]
    linked_rounds = sum(len(answer.rounds) for answer in linked)
    floors = [answer for answer in linked if answer.floor_ms]
    floor = sum(answer.floor_ms or 0.0 for answer in floors)
    wall = sum(answer.wall_ms for answer in floors)
    drafts = [answer.draft_forwards for answer in answers if answer.draft_forwards is not None]
    ids = {answer.key: answer.ids for answer in reference}
    different = sum(answer.ids != ids[answer.key] for answer in answers if answer.key in ids)
    timed = [answer for answer in answers if answer.timeline]
    predrafts = sum(answer.predrafts for answer in answers)
    return BenchRow(
        method=method,
        questions=len({answer.key[:2] for answer in answers}),
        tokens=sum(len(answer.ids) for answer in answers),
        tokens_per_s=speed,
        speedup_vs_ar=speed / ar_speed if speed and ar_speed else None,
        ttft_ms=percentile([answer.ttft_ms for answer in answers], 50),
        tpot_ms=percentile(
            [
                (answer.wall_ms - answer.ttft_ms) / (len(answer.ids) - 1)
                for answer in answers
                if len(answer.ids) > 1
            ],
            50,
        ),
        tau=sum(one.gained for one in rounds) / len(rounds) if rounds else None,
        acceptance=accepted / drafted if drafted else None,
        rounds=len(rounds),
        uplink_bytes_per_round=_bytes_a_round(linked, "uplink_bytes"),
        downlink_bytes_per_round=_bytes_a_round(linked, "downlink_bytes"),
        draft_forwards=sum(drafts) if drafts else None,
        verify_forwards=sum(answer.verify_forwards for answer in answers),
        predraft_hit_rate=sum(answer.predraft_hits for answer in answers) / predrafts if predrafts else None,
        identical_to_ar=different == 0 if ids and answers else None,
        overhead_over_floor=wall / floor if floor else None,
        answers=len(answers),
        different_answers=different,
        prompt_bytes=mean([answer.prompt_bytes for answer in linked]),
        overhead_ms_per_round=(wall - floor) / linked_rounds if floor and linked_rounds else None,
        edge_busy=_busy(timed, "edge"),
        cloud_busy=_busy(timed, "cloud"),
        resumes=sum(answer.resumes for answer in answers),
        accepted=accepted / len(rounds) if drafted else None,
        lossy=is_lossy(method),
        whole=mean([float(one.accepted == one.drafted) for one in rounds if one.drafted]),
        comm_ms=mean([one.wait_ms - one.verify_ms - one.queue_ms for one in rounds if one.drafted and one.wait_ms]),
        **_preparation(rounds, predrafts, sum(answer.predraft_hits for answer in answers)),
        modes=dict(Counter(one.mode for one in rounds if one.mode)),
        joules_per_answer=mean([answer.joules for answer in answers if answer.joules is not None]),
    )


def ours_for(figure: PaperFigure, rows: Sequence[BenchRow], time_scale: float = 1.0) -> float | None:
    """This run's value of a paper's figure; None if the run did not measure it.

    time_scale: the factor on the times of the run.
    """
    by_method = {row.method: row for row in rows}
    row = by_method.get(figure.method)
    if row is None:
        return None
    if figure.quantity != "speedup":
        return unscaled(getattr(row, figure.quantity), figure.quantity, time_scale)
    other = by_method.get(figure.over)
    if other is None or not row.tokens_per_s or not other.tokens_per_s:
        return None
    return row.tokens_per_s / other.tokens_per_s


def time_scale_of(config: Mapping[str, Setting]) -> float:
    """The factor on every time of a run. Raises EvaluationError for a value that no run can have."""
    return number_of(config, "time_scale", 1.0, LEAST_TIME_SCALE)


def unscaled(value: float | None, quantity: str, time_scale: float) -> float | None:
    """Convert a figure to the operating point's own times."""
    if value is None or quantity not in ("tpot_ms", "tokens_per_s"):
        return value
    return value / time_scale if quantity == "tpot_ms" else value * time_scale


def _tokens_per_s(answers: Sequence[AnswerRecord]) -> float | None:
    """All tokens over the total wall time, including prefill and the time to the first token."""
    wall_s = sum(answer.wall_ms for answer in answers) / 1e3
    return sum(len(answer.ids) for answer in answers) / wall_s if wall_s else None


def _bytes_a_round(answers: Sequence[AnswerRecord], name: str) -> float | None:
    return mean([float(getattr(one, name)) for answer in answers for one in answer.rounds])


def _preparation(rounds: Sequence[RoundStats], prepared: int, hits: int) -> dict[str, Any]:
    """Figures of drafts that were prepared for verdicts; empty if none were."""
    drafts = [one for one in rounds if one.ready is not None and one.drafted]
    if not drafts or not prepared:
        return {}
    missing = [max(0, one.drafted - (one.ready or 0)) / one.drafted for one in drafts]
    synced = [one.sync_ms for one in drafts if one.draft_ms == 0.0 and one.sync_ms is not None]
    return {
        "miss_rate": 1 - hits / prepared,
        "redrafted": mean(missing),
        "sync_ms": percentile(synced, 50),
        "hints_per_round": sum(one.hints for one in rounds) / len(rounds),
    }


def _busy(answers: Sequence[AnswerRecord], lane: str) -> float | None:
    """Share of the wall time in which a lane was busy."""
    wall = sum(answer.wall_ms for answer in answers)
    return sum(busy_ms(answer.timeline, lane) for answer in answers) / wall if wall else None
