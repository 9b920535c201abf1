# SPDX-License-Identifier: Apache-2.0
"""Communication time of DSSD's rounds by acceptance and draft length, as in its Table 1.

The emulated link's bandwidth is chosen so that our row takes as long as the paper's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specnav.bench.data.latency import dssd_comm
from specnav.bench.data.papers import figures
from specnav.bench.records.study import SettingRecord, StudyResults
from specnav.bench.studies.figures import percent, signed
from specnav.bench.studies.plan import Study, StudyFindings, StudyRequest, StudySetting, table_of
from specnav.report.charts import ChartLine, LineChart
from specnav.report.page import shown

ALPHAS = (0.5, 0.7, 0.9)
GAMMAS = (2, 4, 8)
METHOD = "dssd"
ROW_MS, TRIP_MS = 8.0, 20.0
"""From the paper's Table 1: |V| b / R_down, and T_NTT."""
ROW_BYTES = 4 * 3072
"""Size of a row of the shipped target."""
BANDWIDTH_MBPS = 8 * ROW_BYTES / (ROW_MS * 1e3)


def _settings(asked: StudyRequest) -> Sequence[StudySetting]:
    link = {"rtt_ms": TRIP_MS, "bandwidth_mbps": BANDWIDTH_MBPS, "top_k": 0}
    return [
        StudySetting(
            f"gamma-{gamma}-alpha-{alpha:g}",
            f"γ = {gamma}, α = {alpha:g}",
            ("ar", METHOD),
            alpha,
            {**link, "gamma": gamma, "acceptance": f"alpha:{alpha:g}"},
        )
        for gamma in GAMMAS
        for alpha in ALPHAS
    ]


def _read(results: StudyResults) -> StudyFindings:
    done = [one for one in results.settings if one.row(METHOD)]
    by_gamma = {gamma: [one for one in done if one.folder.startswith(f"gamma-{gamma}-")] for gamma in GAMMAS}
    paper = figures()["dssd_003"]["comm_time"]
    lines = []
    for gamma, settings in by_gamma.items():
        points = tuple((one.x, ms) for one in settings if (ms := _comm_ms(one, results)) is not None)
        printed = tuple(
            (float(alpha), ms) for alpha, (_, ms) in paper[gamma].items() if float(alpha) <= ALPHAS[-1]
        )
        lines += [
            ChartLine(f"γ = {gamma}", points, METHOD),
            ChartLine(f"γ = {gamma}, paper", printed, "paper", paper=True),
        ]
    words = "α, probability that a draft token is accepted"
    chart = LineChart("Communication of a round", words, "ms", tuple(lines), ALPHAS)
    columns: list[tuple[str, Callable[[tuple[int, SettingRecord]], str]]] = [
        ("γ", lambda at: str(at[0])),
        ("α", lambda at: f"{at[1].x:g}"),
        ("Rounds with\na rejection", lambda at: percent(_refused(at[1]))),
        ("Paper,\n1 − α^γ", lambda at: percent(100 * (1 - at[1].x ** at[0]))),
        ("Bytes up\na round", lambda at: shown(at[1].value(METHOD, "uplink_bytes_per_round"))),
        ("Bytes down\na round", lambda at: shown(at[1].value(METHOD, "downlink_bytes_per_round"))),
        ("Tcomm,\nms", lambda at: shown(_comm_ms(at[1], results), 2)),
        ("Paper,\nms", lambda at: shown(_printed_ms(*at), 2)),
        ("Measured\nover paper", lambda at: signed(_off(*at, results))),
    ]
    caption = (
        f"A row of the target has {ROW_BYTES} bytes here. The emulated link has {BANDWIDTH_MBPS:.1f} Mb/s, at "
        f"which a row takes the paper's {ROW_MS:g} ms, and a round trip of {TRIP_MS:g} ms. Tcomm: time waiting for the "
        "verdict minus the forward and its queue."
    )
    places = [(gamma, one) for gamma, settings in by_gamma.items() for one in settings]
    return StudyFindings([chart] * bool(places), [table_of("Beside DSSD's Table 1", places, columns, caption)])


def _comm_ms(one: SettingRecord, results: StudyResults) -> float | None:
    return one.value(METHOD, "comm_ms", 1 / results.time_scale)


def _printed_ms(gamma: int, one: SettingRecord) -> float:
    return dssd_comm(one.x, gamma, ROW_MS, TRIP_MS)


def _off(gamma: int, one: SettingRecord, results: StudyResults) -> float | None:
    measured = _comm_ms(one, results)
    return None if measured is None else 100 * (measured / _printed_ms(gamma, one) - 1)


def _refused(one: SettingRecord) -> float | None:
    whole = one.value(METHOD, "whole")
    return None if whole is None else 100 * (1 - whole)


STUDY = Study(
    name="comm",
    title="Communication of a round",
    question="What does a rejection cost on the link?",
    sets=frozenset({"rtt_ms", "bandwidth_mbps", "top_k", "gamma", "acceptance"}),
    settings=_settings,
    read=_read,
    limit=3,
    max_new_tokens=32,
    point="dssd-opt6.7b",
)
