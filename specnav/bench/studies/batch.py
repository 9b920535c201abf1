# SPDX-License-Identifier: Apache-2.0
"""The study of forwards: the cost of many sessions together, and how a long prompt delays other sessions."""

from __future__ import annotations

from collections.abc import Callable

from specnav.bench.records.capacity import BatchCurve, CurvePoint, PromptDelay
from specnav.bench.records.study import StudyResults
from specnav.bench.studies.figures import percent, times
from specnav.bench.studies.plan import Study, StudyFindings, Table, table_of
from specnav.report.charts import ChartLine, LineChart
from specnav.report.page import shown

SESSIONS = (1, 2, 4, 8, 16, 32)
ROWS = (1, 5, 9, 33)
"""Rows per session: one token, chains of 4 and 8, a tree of 32, each with the session's last token."""


def _read(results: StudyResults) -> StudyFindings:
    curve = results.curve
    if curve is None:
        return StudyFindings()
    counts = tuple(sorted({one.sessions for one in curve.points}))
    kinds = sorted({one.rows for one in curve.points})

    def lines(value: str) -> tuple[ChartLine, ...]:
        return tuple(
            ChartLine(
                f"{rows} row{'s' * (rows > 1)}",
                tuple(
                    (one.sessions, one.together_ms if value == "ms" else one.apart_ms / one.together_ms)
                    for one in sorted(curve.points, key=lambda one: one.sessions)
                    if one.rows == rows
                ),
                f"rows {rows}",
            )
            for rows in kinds
        )

    charts = [
        LineChart("One shared forward", "sessions in it", "ms", lines("ms"), counts),
        LineChart("One after another, over shared", "sessions", "times", lines("times"), counts, level=1.0),
    ]
    return StudyFindings(charts, [_table(curve), _prompt_table(curve)])


def _table(curve: BatchCurve) -> Table:
    columns: list[tuple[str, Callable[[CurvePoint], str]]] = [
        ("Sessions × rows", lambda one: f"{one.sessions} × {one.rows}"),
        ("Shared,\nms", lambda one: shown(one.together_ms, 2)),
        ("One after\nanother, ms", lambda one: shown(one.apart_ms, 2)),
        ("Gain", lambda one: times(one.apart_ms / one.together_ms)),
        ("µs per row,\nshared", lambda one: shown(1e3 * one.together_ms / (one.sessions * one.rows))),
    ]
    points = sorted(curve.points, key=lambda one: (one.rows, one.sessions))
    return table_of("Forwards", points, columns, f"Medians. Each session has {curve.context} tokens in its KV cache.")


def _prompt_table(curve: BatchCurve) -> Table:
    columns: list[tuple[str, Callable[[PromptDelay], str]]] = [
        ("Prompt", lambda one: one.label),
        ("Other\nsessions", lambda one: str(one.sessions)),
        ("Rows per\nforward", lambda one: str(one.chunk)),
        ("Verdict\nwithout, ms", lambda one: shown(one.alone_ms, 2)),
        ("With,\nmedian", lambda one: shown(one.during_ms, 2)),
        ("With,\nlongest", lambda one: shown(one.worst_ms, 2)),
        ("Median over\nwithout", lambda one: times(one.during_ms / one.alone_ms)),
        ("Longest over\nwithout", lambda one: times(one.worst_ms / one.alone_ms)),
        ("Prefill,\nms", lambda one: shown(one.opened_ms)),
    ]
    title = "How a long prompt delays other verdicts"
    return table_of(title, curve.prompts, columns, "Through the engine, without a link.")


def _how(results: StudyResults) -> list[tuple[str, str]]:
    curve = results.curve
    if curve is None:
        return []
    facts = [
        ("Model", f"{curve.model} on {curve.device}, the verifier's own forward, not paced"),
        ("CPU threads of a forward", str(curve.threads)),
        ("Times of forwards", f"{curve.clock} time"),
        ("Times of verdicts during a prompt", "wall time"),
    ]
    if curve.cores_busy is not None:
        facts.append(("Busy share of the machine's cores", percent(100 * curve.cores_busy)))
    return facts


STUDY = Study(
    name="batch",
    title="Cost of a shared forward",
    question="How much longer does a forward take for many sessions than for one?",
    read=_read,
    kind="batch",
    how=_how,
)
