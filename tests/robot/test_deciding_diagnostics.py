"""What the deciding side says of itself on /diagnostics."""

from __future__ import annotations

import pytest

from spec_vlm_nav.camera.images import Frame
from spec_vlm_nav.camera.watch import CameraWatch
from spec_vlm_nav.common.codes import ErrorCode, LinkState
from spec_vlm_nav.common.diagnostics import Level
from spec_vlm_nav.deciding.diagnostics import DecidingDiagnostics, percentile
from spec_vlm_nav.deciding.parts.interfaces import DecisionReport
from spec_vlm_nav.model.course import RoundHistory, course_of
from spec_vlm_nav.model.decider import LinkReport
from specdec.edge.stats import RoundStats


def rows(diagnostics, camera, link=None, now=10.0):
    said = diagnostics.rows(camera, 1.0, link or LinkReport(), {"answers": 3}, "looking", now)
    return {row.name: row for row in said}


def test_the_camera_row_tells_rate_and_age_and_is_an_error_when_frames_stop():
    camera, diagnostics = CameraWatch(), DecidingDiagnostics()
    rows(diagnostics, camera, now=9.0)
    for count in range(10):
        camera.take(Frame(bytes([count]), (count + 1, 0), 9.0 + count / 10))
    camera.take(Frame(b"again", (10, 0), 10.0))  # a repeated stamp
    row = rows(diagnostics, camera, now=10.0)["camera"]
    assert row.level is Level.OK and row.values["rate Hz"] == pytest.approx(11)
    assert row.values["age s"] == pytest.approx(0.1) and row.values["repeated frames"] == 1
    row = rows(diagnostics, camera, now=12.0)["camera"]
    assert row.level is Level.ERROR and row.message == "no fresh frames" and row.values["rate Hz"] == 0


@pytest.mark.parametrize(
    ("report", "level", "said"),
    [
        (LinkReport(LinkState.UP, 12.0, 9.5), Level.OK, "up"),
        (LinkReport(LinkState.LOST, 12.0, 5.0, "speaks version 2"), Level.ERROR, "speaks version 2"),
        (LinkReport(), Level.STALE, "unknown"),
    ],
)
def test_the_verifier_row_is_the_links(report, level, said):
    row = rows(DecidingDiagnostics(), CameraWatch(), report)["verifier"]
    assert (row.level, row.message) == (level, said)
    assert row.values["heard s ago"] == (float("inf") if report.heard_at is None else 10.0 - report.heard_at)


def test_why_auto_chose_and_the_verifiers_load_are_told_in_words():
    def diagnostics_of(course):
        found = DecidingDiagnostics().rows(CameraWatch(), 1.0, LinkReport(), {}, "looking", 10.0, course)
        return {row.name: row for row in found}

    rounds = [
        RoundStats(
            4, 3, 0, 0, 1.0, 9.0, 40.0, 4, mode=f"chain {n}", why=f"reason {n}", queue_ms=2.0, batch=1 + n % 2
        )
        for n in range(30)
    ]
    found = diagnostics_of(course_of("auto", rounds))
    assert found["method"].message == "auto: chain 29" and found["method"].values["why"] == "reason 29"
    assert found["method"].values["tokens a round"] == 4
    load = found["verifier"].values["load"]
    assert load == "a forward pass takes 40 ms, shared by 1.5 answers, rounds wait 2 ms for it"
    assert (
        diagnostics_of(RoundHistory("fsd"))["method"].message == "fsd"
        and "load" not in diagnostics_of(RoundHistory("fsd"))["verifier"].values
    )
    assert "method" not in diagnostics_of(RoundHistory())
    waits = course_of("sd", [RoundStats(1, 1, 0, 0, 0.0, 0.0, 5.0, 2, queue_ms=80.0)])
    assert waits.load.startswith("busy: ") and "shared" not in waits.load


def test_the_decisions_row_counts_what_went_wrong_and_how_long_decisions_took():
    diagnostics = DecidingDiagnostics()
    for ms in range(1, 101):
        diagnostics.count(DecisionReport(decision_ms=float(ms)))
    diagnostics.count(DecisionReport(code=ErrorCode.PARSE_FAILED, error="no action"))
    row = rows(diagnostics, CameraWatch())["decisions"]
    assert row.level is Level.WARN and row.message == "no action"
    assert row.values["decision ms p50"] == 50 and row.values["decision ms p95"] == 95
    assert row.values["parse failures"] == 1 and row.values["answers"] == 3


def test_the_percentile_of_nothing_is_no_number():
    assert percentile([], 0.5) != percentile([], 0.5) and percentile([3.0], 0.95) == 3.0
