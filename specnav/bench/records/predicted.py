# SPDX-License-Identifier: Apache-2.0
"""Predictions of the papers' latency formulas for a run, computed with the run's own times and acceptance.

A prediction takes a formula's inputs from the run (tokens per round, times of drafting and verification, bytes) and
adds up a round as the paper does. Compared with the measurement, it shows how much of a difference comes from
acceptance, the link, or our own overhead. Needs no model; times are milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from specdec.methods import get_method
from specdec.options import DecodingOptions
from specnav.bench.data import latency
from specnav.bench.data.names import ORACLES
from specnav.bench.records.bench import AnswerRecord, BenchResults, BenchRow
from specnav.bench.records.summary import REFERENCE
from specnav.results.demo import mean, number_of

AHEAD = "ahead"
"""Suffix of the names of drafting spans that ran while a verdict was awaited (see specdec.edge.recorder)."""


@dataclass(frozen=True)
class Parts:
    """A formula's inputs: means over the rounds of one method. Times are milliseconds.

    tau: tokens gained per round. alpha: probability that a draft token is accepted, estimated from accepted tokens and
    rejections. drafted: draft tokens per round. draft: the edge's time to draft them; for a split target, the time of
    the edge's layers. verify: the cloud's forwards. link: the round trip, plus the bytes of a round over the bandwidth.
    miss: share of the drafting done after the verdict (r). If the edge drafts on during verification, it is a share of
    the time. If the edge prepares for likely verdicts, it is a share of the draft tokens, and `draft` is the time that
    all of them would have taken. sync: from a verdict to sending a draft that was prepared (Tr).
    """

    tau: float
    alpha: float
    drafted: float
    draft: float
    verify: float
    link: float
    miss: float = 1.0
    sync: float = 0.0


@dataclass(frozen=True)
class Prediction:
    """Prediction for one method. *_token: milliseconds per token after the first. Speed-ups are over `ar`.

    with_paper_acceptance: the predicted speed-up with the paper's acceptance in place of ours.
    """

    method: str
    formula: Formula
    parts: Parts
    predicted_token: float
    measured_token: float
    predicted_speedup: float | None = None
    measured_speedup: float | None = None
    paper_speedup: float | None = None
    with_paper_acceptance: float | None = None

    @property
    def difference(self) -> float:
        """Relative error: measured over predicted time per token, minus one."""
        return self.measured_token / self.predicted_token - 1


def predictions_of(results: BenchResults, answers: Mapping[str, Sequence[AnswerRecord]]) -> list[Prediction]:
    """Predictions for every method of a run that has a formula and made rounds over the link.

    They use the run's own settings and the figures of its operating point. Raises EvaluationError for settings that
    are not numbers.
    """
    rtt_ms, bandwidth_mbps = (number_of(results.config, name) for name in ("rtt_ms", "bandwidth_mbps"))
    gamma = int(number_of(results.config, "gamma", DecodingOptions.gamma, 1))
    paper = {
        (f.method, f.quantity): f.value for f in results.printed if f.quantity != "speedup" or f.over == REFERENCE
    }
    timed = {row.method: _timed(answers.get(row.method, ())) for row in results.rows}
    parts = {name: parts_of(one.records, rtt_ms, bandwidth_mbps) for name, one in timed.items() if one.rest}
    reference = timed[REFERENCE].tokens_per_ms(AR.a_token(parts[REFERENCE])) if REFERENCE in parts else None
    found: list[Prediction] = []
    for row in results.rows:
        formula, one, of = formula_of(row.method), timed[row.method], parts.get(row.method)
        if formula is None or of is None:
            continue
        if formula is HINTED:
            of = _prepared(of, row, one.records)
        elif formula is PREDRAFTED:
            of = _drafted_on(of, one.records)
        instead = _with_acceptance(formula, of, gamma, paper, row.method)
        speed = one.tokens_per_ms(formula.a_token(of))
        other = None if instead is None else one.tokens_per_ms(formula.a_token(instead))
        found.append(
            Prediction(
                method=row.method,
                formula=formula,
                parts=of,
                predicted_token=formula.a_token(of),
                measured_token=one.after_first_ms / one.rest,
                predicted_speedup=speed / reference if reference else None,
                measured_speedup=row.speedup_vs_ar,
                paper_speedup=paper.get((row.method, "speedup")),
                with_paper_acceptance=other / reference if reference and other is not None else None,
            )
        )
    return found


@dataclass(frozen=True)
class _Timed:
    """Answers over the link. tokens: all tokens; rest: without the first of each answer. Times are sums."""

    records: tuple[AnswerRecord, ...]
    tokens: int
    rest: int
    first_ms: float
    after_first_ms: float

    def tokens_per_ms(self, a_token_ms: float) -> float:
        """Tokens per millisecond if the first tokens took their measured time and every other one `a_token_ms`."""
        return self.tokens / (self.first_ms + self.rest * a_token_ms)


def _timed(records: Sequence[AnswerRecord]) -> _Timed:
    counted = tuple(one for one in records if one.rounds and one.has_link and one.ids)
    tokens = sum(len(one.ids) for one in counted)
    first = sum(one.ttft_ms for one in counted)
    return _Timed(counted, tokens, tokens - len(counted), first, sum(one.wall_ms for one in counted) - first)


def parts_of(records: Sequence[AnswerRecord], rtt_ms: float, bandwidth_mbps: float) -> Parts:
    """Means over one method's rounds; `records` must hold at least one round."""
    rounds = [one for answer in records for one in answer.rounds]
    accepted = sum(one.accepted for one in rounds)
    rejections = sum(one.accepted < one.drafted for one in rounds)
    # The edge's part of a layer split is not a draft, so its time comes from the timeline.
    draft = mean([one.draft_ms for one in rounds]) or sum(
        span.end_ms - span.start_ms
        for answer in records
        for span in answer.timeline
        if span.lane == "edge" and span.name != "prefill"
    ) / len(rounds)
    bits = 8 * sum(one.uplink_bytes + one.downlink_bytes for one in rounds) / len(rounds)
    return Parts(
        tau=sum(one.gained for one in rounds) / len(rounds),
        alpha=accepted / (accepted + rejections) if accepted + rejections else 0.0,
        drafted=sum(one.drafted for one in rounds) / len(rounds),
        draft=draft,
        verify=mean([one.verify_ms for one in rounds]) or 0.0,
        link=rtt_ms + (bits / (bandwidth_mbps * 1e3) if bandwidth_mbps else 0.0),
        miss=1.0 - sum(answer.predraft_hits for answer in records) / len(rounds),
    )


def _prepared(parts: Parts, row: BenchRow, records: Sequence[AnswerRecord]) -> Parts:
    """The parts of a method that prepares for verdicts: its rounds' `draft_ms` covers only the tokens left to draft."""
    rounds = [one for answer in records for one in answer.rounds if one.drafted]
    left = sum(max(0, one.drafted - (one.ready or 0)) for one in rounds)
    drafted = sum(one.drafted for one in rounds)
    if not drafted:
        return parts
    a_token = sum(one.draft_ms for one in rounds) / left if left else 0.0
    return replace(
        parts,
        draft=a_token * parts.drafted,
        miss=left / drafted if row.redrafted is None else row.redrafted,
        sync=row.sync_ms or 0.0,
    )


def _drafted_on(parts: Parts, records: Sequence[AnswerRecord]) -> Parts:
    """The parts of a method that drafts on during verification: its drafting times include that drafting."""
    spans = [
        one for answer in records for one in answer.timeline if one.lane == "edge" and one.name != "prefill"
    ]
    total = sum(one.end_ms - one.start_ms for one in spans)
    behind = sum(one.end_ms - one.start_ms for one in spans if not one.name.endswith(AHEAD))
    return replace(parts, miss=behind / total) if total else parts


@dataclass(frozen=True)
class Formula:
    """A latency formula. text: time per token as printed for the reader. a_token: computes it, milliseconds."""

    name: str
    text: str
    a_token: Callable[[Parts], float]


def formula_of(name: str) -> Formula | None:
    """The formula for a method, chosen by its axes; None for an oracle or if a controller changes the axes."""
    if name in ORACLES:
        return None
    method = get_method(name)
    if method.controlled:
        return None
    if method.split:
        return SPLIT
    if not method.drafts:
        return CLOUD_SD if method.cloud_drafts else AR
    if method.predrafts:
        return HINTED
    return {"idle": SYNCHRONOUS, "continue": PREDRAFTED}.get(method.overlap, PIPELINED)


def _pipelined(parts: Parts) -> float:
    gamma = max(1, round(parts.drafted))
    return latency.picospec_round(parts.alpha, gamma, parts.draft, parts.verify, parts.link) / parts.tau


def _predrafted(parts: Parts) -> float:
    times = (parts.draft, parts.verify, parts.link / 2)
    return latency.fsd(1, parts.tau, 1, *times, parts.miss, parts.sync)


AR = Formula("cloud AR", "Tq", lambda parts: parts.verify)
# The cloud measures a round's drafting and verification together.
CLOUD_SD = Formula("cloud SD", "(γ·Tp + Tq) / τ", lambda parts: parts.verify / parts.tau)
SPLIT = Formula(
    "layer split",
    "2·Tc + Tedge + Tcloud",
    lambda parts: latency.split(1, parts.draft, parts.verify, parts.link / 2),
)
SYNCHRONOUS = Formula(
    "synchronous",
    "(2·Tc + γ·Tp + Tq) / τ",
    lambda parts: latency.edge_sd(1, parts.tau, 1, parts.draft, parts.verify, parts.link / 2),
)
PREDRAFTED = Formula("pre-drafted", "(2·Tc + r·γ·Tp + Tq) / τ", _predrafted)
HINTED = Formula("early exits", "(2·Tc + r·γ·Tp + (1 − r)·Tr + Tq) / τ", _predrafted)
PIPELINED = Formula("pipelined", "(α^γ·max(γ·Tp, 2·Tc + Tq) + (1 − α^γ)·(γ·Tp + 2·Tc + Tq)) / τ", _pipelined)


def _with_acceptance(
    formula: Formula, parts: Parts, gamma: int, paper: Mapping[tuple[str, str], float], method: str
) -> Parts | None:
    """`parts` with the paper's acceptance of a method; None if it prints none.

    A pipeline gains no bonus token after a fully accepted draft: the next draft contains it.
    """
    tau, accepted = paper.get((method, "tau")), paper.get((method, "accepted"))
    if tau is not None:
        alpha = latency.acceptance_for(tau, gamma)
    elif accepted is not None:
        alpha = latency.acceptance_for(accepted + 1, gamma)
        tau = accepted + (1 - alpha**gamma if formula is PIPELINED else 1)
    else:
        return None
    draft = parts.draft / parts.drafted * gamma if formula is PIPELINED and parts.drafted else parts.draft
    return replace(parts, tau=tau, alpha=alpha, draft=draft, drafted=float(gamma))
