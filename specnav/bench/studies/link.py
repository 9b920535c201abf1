# SPDX-License-Identifier: Apache-2.0
"""The study of the round trip: how far away the cloud may be, for which method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from specnav.bench.data.latency import fsd_speedup_over_sd
from specnav.bench.data.papers import figures
from specnav.bench.records.study import SettingRecord, StudyResults
from specnav.bench.studies.figures import OFF_WORDS, Points, crossings, signed
from specnav.bench.studies.plan import Study, StudyFindings, StudyRequest, StudySetting, Table
from specnav.report.charts import ChartLine, LineChart, Mark
from specnav.report.page import shown

RTTS = (0, 5, 15, 40, 80, 150, 250)
MOST_RINGS = 9
"""If there are more crossovers than this, only those with `ar` are drawn; the table has all."""
SPECEDGE_POINT = "specedge-32b"


def _settings(asked: StudyRequest) -> Sequence[StudySetting]:
    methods = asked.choose("ar", "cloud-sd", "sd", "fsd", "specedge", "auto")
    return [StudySetting(f"rtt-{one}", f"RTT {one} ms", methods, one, {"rtt_ms": one}) for one in RTTS]


def _read(results: StudyResults) -> StudyFindings:
    # Milliseconds per token by round trip, scaled back to the operating point's own times.
    lines = {name: results.series(name, "tpot_ms", 1 / results.time_scale) for name in results.methods()}
    lines = {name: points for name, points in lines.items() if points}
    if not lines:
        return StudyFindings()
    found = crossings(lines)
    if len(found) > MOST_RINGS:
        found = [one for one in found if "ar" in (one.before, one.after)]
    chart = LineChart(
        "Time per token by round trip",
        "emulated round trip, ms",
        "ms per token after the first",
        (*(ChartLine(name, points, name) for name, points in lines.items()), *_paper_lines(results, lines)),
        RTTS,
        tuple(
            Mark(one.x, f"{one.before} faster below {one.x:.0f} ms, {one.after} above", one.y)
            for one in found
        ),
    )
    tables = [_crossing_table(lines), _time_table(results, lines), *_eq_9(results)]
    return StudyFindings([chart], [table for table in tables if table.rows])


def _paper_lines(results: StudyResults, lines: Mapping[str, Points]) -> list[ChartLine]:
    """Lines of SpecEdge's paper, the only one that prints time per token by round trip, at its own operating point."""
    if results.point is None or results.point.name != SPECEDGE_POINT:
        return []
    paper = figures()["specedge_001"]["itl_by_rtt_32b"]
    printed = {
        "specedge": tuple((float(rtt), ms) for rtt, ms in paper["specedge"].items()),
        "split": tuple((float(rtt), ms) for rtt, ms in paper["layer_split"].items()),
        "cloud-sd": ((RTTS[0], paper["server_only"]), (RTTS[-1], paper["server_only"])),
    }
    return [
        ChartLine(f"paper, {name}", points, name, paper=True)
        for name, points in printed.items()
        if name in lines
    ]


def _crossing_table(lines: Mapping[str, Points]) -> Table:
    rows = tuple((f"{one.x:.0f} ms", one.before, one.after, f"{one.y:.0f}") for one in crossings(lines))
    head = ("Round trip", "Faster below", "Faster above", "ms per token")
    return Table("Every crossover", head, rows, "Interpolated linearly between the measured round trips.")


def _time_table(results: StudyResults, lines: Mapping[str, Points]) -> Table:
    head = ["RTT, ms"]
    formulas = results.with_formula()
    for name in lines:
        head += [f"{name}\nms per token"] + ["off its\nformula"] * (name in formulas)
    rows = []
    for one in results.settings:
        cells = [f"{one.x:g}"]
        for name, points in lines.items():
            cells += [shown(dict(points).get(one.x), 1)] + [signed(one.off(name))] * (name in formulas)
        if one.rows:
            rows.append(tuple(cells))
    return Table("Milliseconds per token after the first", tuple(head), tuple(rows), OFF_WORDS)


def _eq_9(results: StudyResults) -> list[Table]:
    """The comparison with Eq. 9, which assumes no link, at a round trip of 0."""
    here: SettingRecord | None = next((one for one in results.settings if one.x == 0 and one.rows), None)
    sd, fsd = (here.formula("sd"), here.formula("fsd")) if here else (None, None)
    if sd is None or fsd is None:
        return []
    drafting = sd.draft / sd.verify
    measured = sd.measured_token / fsd.measured_token
    formula = fsd_speedup_over_sd(1, drafting, fsd.redrafted)
    row = (
        f"{drafting:.2f}",
        f"{fsd.redrafted:.2f}",
        f"{measured:.2f}×",
        f"{formula:.2f}×",
        signed(100 * (measured / formula - 1)),
    )
    head = ("γ·c", "r", "fsd over sd,\nmeasured", "Eq. 9", "Measured\nover Eq. 9")
    return [
        Table(
            "Eq. 9 of the early-exit paper, at a round trip of 0",
            head,
            (row,),
            "(γc + 1) / (rγc + 1), with γc = drafting over verification and r as measured here.",
        )
    ]


STUDY = Study(
    name="link",
    title="Round trip",
    question="How far away may the cloud be, and for which method?",
    sets=frozenset({"rtt_ms"}),
    settings=_settings,
    read=_read,
    takes_methods=True,
)
