"""Answers and results made up for tests of the figures and of the report."""

from __future__ import annotations

import msgspec

from specdec.edge.stats import RoundStats
from specdec.link.shaping import LinkProfile
from specnav.bench.data.points import PaperFigure, PointRecord
from specnav.bench.records.bench import AnswerRecord, BenchResults, Skipped
from specnav.bench.records.floor import floor_ms
from specnav.bench.records.summary import make_rows
from specnav.results.trace import Span

LINK = LinkProfile(rtt_ms=40.0)
DRAFT_MS, VERIFY_MS, TRIP_MS, EXTRA_MS = 12.0, 30.0, 20.0, 1.0


def ar_answer(question: str, tokens: int = 12, first: int = 0) -> AnswerRecord:
    """Cloud AR over a 40 ms link, 30 ms a token."""
    now = TRIP_MS
    spans = [Span("uplink", "prompt", 0.0, now), Span("cloud", "prefill", now, now + VERIFY_MS)]
    now += VERIFY_MS
    ttft = now + TRIP_MS
    spans.append(Span("downlink", "first token", now, ttft))
    for place in range(1, tokens):
        spans.append(
            Span("cloud", "decode", ttft + VERIFY_MS * (place - 1), ttft + VERIFY_MS * place - EXTRA_MS)
        )
        spans.append(Span("downlink", "token", ttft + VERIFY_MS * place, ttft + VERIFY_MS * place))
    rounds = [RoundStats(0, 0, 0, 11, 0.0, VERIFY_MS, VERIFY_MS - EXTRA_MS, 1)] * (tokens - 1)
    return finished("ar", question, tokens, first, ttft, ttft + VERIFY_MS * (tokens - 1), rounds, spans)


def sd_answer(
    question: str, accepted: tuple[int, ...] = (4, 2, 0, 1), method: str = "sd", first: int = 0
) -> AnswerRecord:
    """Synchronous speculative decoding over the same link, gamma 4; each round costs EXTRA_MS beyond its parts."""
    now = 2 * TRIP_MS + VERIFY_MS
    spans = [
        Span("uplink", "prompt", 0.0, TRIP_MS),
        Span("cloud", "prefill", TRIP_MS, TRIP_MS + VERIFY_MS),
        Span("downlink", "first token", TRIP_MS + VERIFY_MS, now),
    ]
    ttft, rounds = now, []
    for count in accepted:
        sent = now + DRAFT_MS
        half = TRIP_MS + EXTRA_MS / 2
        spans.append(Span("edge", "draft", now, sent))
        spans.append(Span("uplink", "draft", sent, sent + half))
        spans.append(Span("cloud", "verify", sent + half, sent + half + VERIFY_MS))
        now = sent + 2 * half + VERIFY_MS
        spans.append(Span("downlink", "verdict", now - half, now))
        rounds.append(RoundStats(4, count, 13, 11, DRAFT_MS, now - sent, VERIFY_MS, count + 1))
    return finished(
        method, question, 1 + sum(accepted) + len(accepted), first, ttft, now, rounds, spans, 4 * len(rounds)
    )


def finished(
    method: str,
    question: str,
    tokens: int,
    first: int,
    ttft: float,
    wall: float,
    rounds: list[RoundStats],
    spans: list[Span],
    draft_forwards: int | None = None,
) -> AnswerRecord:
    """An answer whose ids count up from `first`."""
    return AnswerRecord(
        method=method,
        source="made_up",
        question_id=question,
        turn=0,
        ids=list(range(first, first + tokens)),
        finish="length",
        prompt_tokens=9,
        wall_ms=wall,
        ttft_ms=ttft,
        rounds=rounds,
        timeline=spans,
        draft_forwards=draft_forwards,
        verify_forwards=len(rounds),
        floor_ms=floor_ms(spans, LINK),
        prompt_bytes=80,
    )


def oracle_answer(question: str, tokens: int = 12) -> AnswerRecord:
    """The library's own generate: no link, nothing to see inside."""
    rounds = [RoundStats(0, 0, 0, 0, 0.0, 0.0, 0.0, 1)] * (tokens - 1)
    answer = finished("hf-generate", question, tokens, 0, VERIFY_MS, VERIFY_MS * tokens, rounds, [])
    return msgspec.structs.replace(answer, floor_ms=None, prompt_bytes=0, has_link=False)


def made_up_results() -> tuple[BenchResults, list[AnswerRecord]]:
    """Three methods, two questions, one operating point."""
    answers = []
    for question in ("1", "2"):
        answers += [ar_answer(question), sd_answer(question), oracle_answer(question)]
    methods = ["ar", "sd", "hf-generate"]
    point = PointRecord(
        name="made-up",
        title="A made-up device",
        source="Nowhere, Table 0",
        models="a small one and a large one",
        assumed=["bandwidth: <not> printed"],
        figures=[
            PaperFigure(method="sd", quantity="speedup", value=1.5, where="nowhere.sd"),
            PaperFigure(method="fsd", quantity="speedup", over="sd", value=1.3, where="nowhere.fsd"),
            PaperFigure(method="sd", quantity="tau", value=2.5, where="nowhere.tau"),
        ],
    )
    results = BenchResults(
        schema=1,
        config={"rtt_ms": 40.0, "verify_ms": 30.0, "temperature": 0.0, "target_model": "big", "draft_model": "small"},
        machine={"processor": "made up"},
        rows=make_rows(answers, methods, frozenset(methods)),
        point=point,
        skipped=[Skipped("made_up", "9", "too long")],
        asked=2,
        started_at="2026-01-02T03:04:05Z",
    )  # fmt: skip
    return results, answers
