"""Whether forwards kept the times that they were paced to: if not, a run tells of this machine, not of the devices."""

from __future__ import annotations

from collections.abc import Sequence

from specdec.methods import get_method
from specdec.models.timing.pacing import LATE
from specdec.row_ms import RowMs
from specnav.bench.core.records import AnswerRecord
from specnav.results.demo import percentile

FEW = 0.05
"""Of the forwards may be late: a machine has its moods."""
MEAN_LATE = 1.02
VERIFIED_LATE = 1.05
PLAIN = ("ar", "sd")
"""Methods whose rows in a forward are known: the token before and the draft."""


def draft_pace(forwards: int, late: int, mean: float, worst: float) -> str:
    """What became of the edge's forwards. late: of them took longer than LATE times their paced time; mean, worst: what
    they took over that.
    """
    within = f"{100 * (1 - late / forwards):.0f} % within {LATE:g} times, on average {mean:.3f} times"
    if late <= FEW * forwards and mean <= MEAN_LATE:
        return f"{forwards} draft forwards kept their paced times ({within})"
    return (
        f"draft forwards did NOT keep their paced times: of {forwards} {within}, the longest {worst:.1f} times: the "
        "machine is too slow or too busy for these times"
    )


def verify_pace(answers: Sequence[AnswerRecord], paced_ms: float) -> str:
    """What became of the cloud's forwards, as the verdicts of PLAIN methods tell; "" where none was made."""
    ratios = []
    for answer in answers:
        if answer.method in PLAIN and get_method(answer.method).name == answer.method:
            for one in answer.rounds[1:]:
                ratios.append(one.verify_ms / _at(paced_ms, 1 + one.drafted))
    median = percentile(ratios, 50)
    if median is None:
        return ""
    late = sum(ratio > LATE for ratio in ratios) / len(ratios)
    if median <= VERIFIED_LATE and late <= FEW:
        return f"{len(ratios)} forwards of the target kept their paced times (median {median:.3f} times)"
    return (
        f"forwards of the target did NOT keep their paced times: the median took {median:.2f} times as long, "
        f"{100 * late:.0f} % over {LATE:g} times: the machine is too slow or too busy for these times"
    )


def _at(paced_ms: float, rows: int) -> float:
    return paced_ms.at(rows) if isinstance(paced_ms, RowMs) else paced_ms
