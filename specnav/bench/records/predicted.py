# SPDX-License-Identifier: Apache-2.0
"""What the papers' latency formulas say of a run: their arithmetic with this run's own times and acceptance.

A prediction takes from the run what a formula takes as given (tokens a round, a draft, a verification, bytes) and adds
up a round as the paper does. Beside the measurement it says how much of a difference is acceptance, how much the
link, how much our own overhead. Needs no model; every time is milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from specdec.methods import get_method
from specdec.options import DecodingOptions
from specnav.bench.data import latency
from specnav.bench.data.names import ORACLES
from specnav.bench.records.bench import AnswerRecord, BenchResults, BenchRow
from specnav.results.demo import mean, number_of

REFERENCE = "ar"
AHEAD = "ahead"
"""How names of drafting end that was done while a verdict was out (see specdec.edge.recorder)."""


@dataclass(frozen=True)
class Parts:
    """What a formula takes as given, means over the rounds of one method.

    tau: tokens gained a round. alpha: chance that a draft token is accepted, estimated from accepted tokens and
    rejections. drafted: tokens a round. draft: the edge's time for them (of its layers, where the target is split);
    verify: the cloud's forwards. link: the round trip with the bytes of a round over the bandwidth. miss: share of
    the drafting that followed the verdict (r): of its time, where the edge drafts on while one is out; of the draft
    tokens, where it prepares for likely ones, and `draft` is then what all of them would have taken. sync: from a
    verdict to the departure of a draft that stood ready (Tr).
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
    """One method. *_token: milliseconds a token after the first; speed-ups are over `ar`, null without it.

    acceptance: what the paper prints of it, in words; with_paper_acceptance: the formula with that in place of ours.
    """

    method: str
    formula: Formula
    parts: Parts
    predicted_token: float
    measured_token: float
    predicted_speedup: float | None = None
    measured_speedup: float | None = None
    paper_speedup: float | None = None
    acceptance: str = ""
    with_paper_acceptance: float | None = None

    @property
    def difference(self) -> float:
        """Measured over predicted time of a token, less one."""
        return self.measured_token / self.predicted_token - 1


def predictions_of(results: BenchResults, answers: Mapping[str, Sequence[AnswerRecord]]) -> list[Prediction]:
    """Every method of a run that one of the papers' formulas is about and that made rounds over the link, by the run's
    own settings and its point's figures. Raises EvaluationError for settings that are no numbers.
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
        words, instead = _with_acceptance(formula, of, gamma, paper, row.method)
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
                acceptance=words,
                with_paper_acceptance=other / reference if reference and other is not None else None,
            )
        )
    return found


@dataclass(frozen=True)
class _Timed:
    """Answers over the link. tokens, rest: all, and those after each answer's first; times are sums."""

    records: tuple[AnswerRecord, ...]
    tokens: int
    rest: int
    first_ms: float
    after_first_ms: float

    def tokens_per_ms(self, a_token_ms: float) -> float:
        """The speed if the first tokens took what they took and each of the others `a_token_ms`."""
        return self.tokens / (self.first_ms + self.rest * a_token_ms)


def _timed(records: Sequence[AnswerRecord]) -> _Timed:
    counted = tuple(one for one in records if one.rounds and one.has_link and one.ids)
    tokens = sum(len(one.ids) for one in counted)
    first = sum(one.ttft_ms for one in counted)
    return _Timed(counted, tokens, tokens - len(counted), first, sum(one.wall_ms for one in counted) - first)


def parts_of(records: Sequence[AnswerRecord], rtt_ms: float, bandwidth_mbps: float) -> Parts:
    """The means of one method's rounds; `records` hold at least one round."""
    rounds = [one for answer in records for one in answer.rounds]
    accepted = sum(one.accepted for one in rounds)
    rejections = sum(one.accepted < one.drafted for one in rounds)
    # The edge's part of a layer split is not a draft: it is read from the timeline.
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
    """The parts of a method that prepares for verdicts: its rounds' drafting times are of what was left to draft."""
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
    """The parts of a method that drafts on while a verdict is out: its drafting times hold what that took, too."""
    spans = [
        one for answer in records for one in answer.timeline if one.lane == "edge" and one.name != "prefill"
    ]
    total = sum(one.end_ms - one.start_ms for one in spans)
    behind = sum(one.end_ms - one.start_ms for one in spans if not one.name.endswith(AHEAD))
    return replace(parts, miss=behind / total) if total else parts


@dataclass(frozen=True)
class Formula:
    """text: a token's time as the reader sees it. a_token: the same in milliseconds, from the parts of a round."""

    name: str
    text: str
    a_token: Callable[[Parts], float]


def formula_of(name: str) -> Formula | None:
    """The formula about a method, by its axes; None for an oracle, and where a controller changes them."""
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
# The cloud times a round's drafting and verification as one.
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
) -> tuple[str, Parts | None]:
    """(what the paper prints of a method's acceptance, the same run with it); ("", None) where it prints nothing.

    A pipeline gains no token of its own after a draft that was accepted whole: the next draft brings it.
    """
    tau, accepted = paper.get((method, "tau")), paper.get((method, "accepted"))
    if tau is not None:
        words, alpha = f"τ of {tau:.2f}", latency.acceptance_for(tau, gamma)
    elif accepted is not None:
        words = f"{accepted:.2f} accepted tokens a round"
        alpha = latency.acceptance_for(accepted + 1, gamma)
        tau = accepted + (1 - alpha**gamma if formula is PIPELINED else 1)
    else:
        return "", None
    draft = parts.draft / parts.drafted * gamma if formula is PIPELINED and parts.drafted else parts.draft
    return words, replace(parts, tau=tau, alpha=alpha, draft=draft, drafted=float(gamma))
