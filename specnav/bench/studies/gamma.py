# SPDX-License-Identifier: Apache-2.0
"""The study of draft lengths: how long a draft should be, with and without pre-drafting."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from specnav.bench.data.papers import figure, figures
from specnav.bench.records.study import SettingRecord, StudyResults
from specnav.bench.studies.figures import (
    FSD_PAPER,
    OFF_WORDS,
    SPEEDUP,
    percent,
    printed_speedups,
    signed,
    times,
)
from specnav.bench.studies.plan import Study, StudyFindings, StudyRequest, StudySetting, Table
from specnav.report.charts import ChartLine, LineChart, Mark
from specnav.report.page import shown

GAMMAS = tuple(range(1, 11))
PICOSPEC_PAIR = "qwen_gsm8k"


def _settings(asked: StudyRequest) -> Sequence[StudySetting]:
    methods = asked.choose("ar", "sd", "fsd", "auto")
    return [StudySetting(f"gamma-{one}", f"γ = {one}", methods, one, {"gamma": one}) for one in GAMMAS]


def _read(results: StudyResults) -> StudyFindings:
    methods = [name for name in results.methods() if name != "ar"]
    pays_to = figure(f"{FSD_PAPER}.ablations.sd_pays_up_to_gamma")
    lines = [ChartLine(name, results.series(name, SPEEDUP), name) for name in methods]
    charts = [
        LineChart(
            "Speed-up over cloud AR",
            "γ, draft tokens per round",
            "times ar",
            (*lines, *_paper_lines(results)),
            GAMMAS,
            (Mark(pays_to, "paper: beyond this, sd is slower than ar"),),
            level=1.0,
            caption="The paper's mark is for an RTX client on GSM8K, its single diamonds are for this operating point; "
            "picospec's curve is for its own pair, link and method.",
        )
    ]
    if {"sd", "fsd"} <= set(methods):
        charts.append(
            LineChart(
                "Gain from pre-drafting: fsd over sd",
                "γ, draft tokens per round",
                "times sd",
                (
                    ChartLine("measured", _ratios(results, "measured_token"), "fsd"),
                    ChartLine(
                        "by the formulas",
                        _ratios(results, "predicted_token"),
                        "formula",
                    ),
                ),
                GAMMAS,
                level=1.0,
            )
        )
    return StudyFindings(charts, [_table(results, methods)])


def _paper_lines(results: StudyResults) -> list[ChartLine]:
    """The point's printed figures at its own γ, and PicoSpec's curve."""
    gamma = 4.0  # γ of all operating points whose paper prints `sd` or `fsd` over AR
    found = [
        ChartLine(f"paper, {name}", ((gamma, value),), name, paper=True, joined=False)
        for name, value in printed_speedups(results.point).items()
        if name in ("sd", "fsd") and name in results.methods()
    ]
    paper = figures()["picospec_002"]
    alone = paper["speedup"][PICOSPEC_PAIR]["ar"]
    curve = tuple((float(one), speed / alone) for one, (speed, _) in paper["draft_length"].items())
    return [*found, ChartLine("picospec's paper", curve, "paper", paper=True)]


def _ratios(results: StudyResults, name: str) -> tuple[tuple[float, float], ...]:
    pairs = [(one.x, one.formula("sd"), one.formula("fsd")) for one in results.settings]
    return tuple((x, getattr(sd, name) / getattr(fsd, name)) for x, sd, fsd in pairs if sd and fsd)


def _table(results: StudyResults, methods: Sequence[str]) -> Table:
    head = ["γ", "τ of sd", "r of fsd"]
    printed = figures()["picospec_002"]["draft_length"] if _is_picospec(results) else {}
    head[2:2] = ["accepted\nof sd", "paper's"] * bool(printed)
    formulas = results.with_formula()
    for name in methods:
        head += [f"{name}\nover ar"] + ["off its\nformula"] * (name in formulas)
    lines = tuple(_line(one, methods, formulas, printed) for one in results.settings if one.rows)
    return Table("By draft length", tuple(head), lines, OFF_WORDS)


def _is_picospec(results: StudyResults) -> bool:
    """Whether the point belongs to PicoSpec's table of draft lengths."""
    return results.point is not None and any(PICOSPEC_PAIR in one.where for one in results.point.figures)


def _line(
    one: SettingRecord, methods: Sequence[str], formulas: Collection[str], printed: Mapping[int, Sequence[float]]
) -> tuple[str, ...]:
    cells = [f"{one.x:g}", shown(one.value("sd", "tau"), 2), percent(one.late("fsd"))]
    if printed:
        theirs = f"{printed[int(one.x)][1]:.2f}" if int(one.x) in printed else "–"
        cells[2:2] = [shown(one.value("sd", "accepted"), 2), theirs]
    for name in methods:
        cells += [times(one.value(name, SPEEDUP))] + [signed(one.off(name))] * (name in formulas)
    return tuple(cells)


STUDY = Study(
    name="gamma",
    title="Draft length",
    question="How many tokens should a draft have?",
    sets=frozenset({"gamma"}),
    settings=_settings,
    read=_read,
    takes_methods=True,
)
