"""The study of forwards: what many sessions cost together, and what a long prompt does to the others."""

from __future__ import annotations

from specnav.bench.capacity import BatchCurve
from specnav.bench.studies.figures import percent, times
from specnav.bench.studies.plan import Findings, Line, LineChart, Study, Table
from specnav.bench.studies.records import StudyResults
from specnav.report.page import shown

SESSIONS = (1, 2, 4, 8, 16, 32)
ROWS = (1, 5, 9, 33)
"""Of a session: a token, chains of 4 and 8, a tree of 32; the session's own last token included."""


def _read(results: StudyResults) -> Findings:
    curve = results.curve
    if curve is None:
        return Findings()
    counts = tuple(sorted({one.sessions for one in curve.points}))
    kinds = sorted({one.rows for one in curve.points})

    def lines(value: str) -> tuple[Line, ...]:
        return tuple(
            Line(
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
        LineChart("One after the other, over shared", "sessions", "times as long", lines("times"), counts, level=1.0),
    ]
    return Findings(charts, [_table(curve), _prompt_table(curve)], _words(curve))


def _table(curve: BatchCurve) -> Table:
    rows = tuple(
        (
            f"{one.sessions} × {one.rows}",
            shown(one.together_ms, 2),
            shown(one.apart_ms, 2),
            times(one.apart_ms / one.together_ms),
            shown(1e3 * one.together_ms / (one.sessions * one.rows), 0),
        )
        for one in sorted(curve.points, key=lambda one: (one.rows, one.sessions))
    )
    head = ("Sessions × rows", "Shared,\nms", "One after the\nother, ms", "Gain", "µs a row,\nshared")
    return Table("Forwards", head, rows, f"Medians. Each session holds {curve.context} tokens.")


def _prompt_table(curve: BatchCurve) -> Table:
    head = (
        "A prompt comes in", "Sessions\nbeside it", "Rows a\nforward", "Verdict\nwithout, ms", "With,\nmedian",
        "With,\nlongest", "Median over\nwithout", "Longest over\nwithout", "Prompt in\nafter, ms",
    )  # fmt: skip
    rows = tuple(
        (
            one.label, str(one.sessions), str(one.chunk), shown(one.alone_ms, 2), shown(one.during_ms, 2),
            shown(one.worst_ms, 2), times(one.during_ms / one.alone_ms), times(one.worst_ms / one.alone_ms),
            shown(one.opened_ms, 0),
        )
        for one in curve.prompts
    )  # fmt: skip
    return Table("What a long prompt does to the verdicts of others", head, rows, "Through the engine, without a link.")


def _words(curve: BatchCurve) -> list[str]:
    words = []
    largest = max(one.sessions for one in curve.points)
    for rows in sorted({one.rows for one in curve.points}):
        point = next((one for one in curve.points if (one.sessions, one.rows) == (largest, rows)), None)
        if point is not None and largest > 1:
            alone = curve.latency_ms(1, rows)
            words.append(
                f"{largest} sessions with {rows} row{'s' * (rows > 1)} each: one shared forward takes "
                f"{point.together_ms:.1f} ms, {point.together_ms / alone:.1f} times that of one session; one after the "
                f"other they take {point.apart_ms / point.together_ms:.1f} times as long as shared."
            )
    for one in curve.prompts:
        words.append(
            f"{one.label} beside {one.sessions} sessions, {one.chunk} rows of it a forward: their verdicts take "
            f"{one.during_ms / one.alone_ms:.1f} times as long (the longest {one.worst_ms / one.alone_ms:.1f} times)."
        )
    return words


def _how(results: StudyResults) -> list[str]:
    curve = results.curve
    if curve is None:
        return []
    words = [
        f"One process, the verifier's own forward, nothing paced: {curve.model} on {curve.device}, {curve.threads} CPU "
        f"thread{'s' * (curve.threads > 1)} a forward. Every figure is the median of forwards that were measured in "
        "turns, so that a busy moment touches all of them."
    ]
    if curve.clock == "processor":
        words.append(
            "Forwards are in milliseconds of the processor: what they take on a free core, whatever else the machine "
            "does. The verdicts beside a prompt are in milliseconds of the clock."
        )
    if curve.cores_busy is not None:
        words.append(f"The machine's cores were busy for {percent(100 * curve.cores_busy)} of the time.")
    return [*words, f"{results.wall_s:.0f} s in all.", *results.notes]


STUDY = Study(
    name="batch",
    title="What a shared forward costs",
    question="How much longer does a forward take for many sessions than for one?",
    sets=frozenset(),
    settings=lambda asked: (),
    read=_read,
    kind="batch",
    how=_how,
)
