"""Figures of decisions, two runs side by side, and the report, over made-up decisions."""

from __future__ import annotations

import os

import pytest

from specnav.bags.records import (
    BagRecord,
    DecisionRecord,
    ReplayResults,
    TopicRecord,
    append_decisions,
    load_decisions,
)
from specnav.bags.scoring import all_identical, compare_runs, confusion_of, make_rows
from specnav.replay.plan import ACTIONS
from specnav.report.replay import write_replay_report
from specnav.results.errors import EvaluationError


def decision(number, method="fsd", action="stop", reference="", ids=(1, 2), ms=10.0, **more):
    return DecisionRecord(
        frame=number,
        stamp_ns=(number + 1) * 10**9,
        method=method,
        instruction="find <the> lamp",
        reference=reference,
        action=action,
        decision_ms=None if action == "no action" or more.get("error") else ms,
        total_ms=ms + 1,
        ids=list(ids),
        drafted=[4, 4],
        accepted=[4, 1],
        gained=[5, 2],
        uplink_bytes=[17, 17],
        downlink_bytes=[13, 13],
        prompt_bytes=5000,
        **more,
    )


def test_agreement_stops_and_failures_are_counted_by_hand():
    rows = make_rows(
        [
            decision(0, action="stop", reference="stop"),
            decision(1, action="stop", reference="forward 50"),
            decision(2, action="forward 25", reference="stop"),
            decision(3, action="forward 50", reference="forward 50", ms=30.0),
            decision(4, action="no action", reference="turn left 15"),
            decision(5, action="stop"),
            decision(6, action="", reference="stop", error="corrupt camera frame"),
        ],
        ["fsd"],
        ACTIONS,
    )
    (row,) = rows
    assert (row.decisions, row.scored, row.agreed, row.failures) == (6, 5, 2, 1)
    assert row.agreement == pytest.approx(0.4)
    assert row.parse_failures == 1
    assert (row.stops_said, row.stops_in_reference) == (2, 2)
    assert row.stop_precision == row.stop_recall == 0.5
    assert (row.decision_ms_p50, row.decision_ms_p95) == (10.0, pytest.approx(26.0))
    assert row.tau == 3.5 and row.acceptance == pytest.approx(5 / 8)
    assert (row.uplink_bytes, row.downlink_bytes, row.tokens) == (6 * 34, 6 * 26, 12)
    assert row.frames_per_s == pytest.approx(1e3 * 6 / (5 * 11 + 31))
    table, place = row.confusion, ACTIONS.index
    assert table[place("forward 50")][place("stop")] == 1
    assert table[place("turn left 15")][place("no action")] == 1
    assert sum(map(sum, table)) == 5


def test_figures_without_a_reference_are_none_and_not_zero():
    (row,) = make_rows([decision(0)], ["fsd"], ACTIONS)
    assert row.agreement is row.stop_precision is row.stop_recall is row.identical is None
    assert all_identical([row]) is None
    assert confusion_of([decision(0)], ACTIONS)[0] == [0] * len(ACTIONS)


def test_tokens_are_compared_with_ar_or_else_the_first_method():
    decisions = [decision(0, "fsd"), decision(0, "ar"), decision(1, "fsd", ids=(1, 3)), decision(1, "ar")]
    fsd, ar = make_rows(decisions, ["fsd", "ar"], ACTIONS)
    assert (fsd.identical, fsd.identical_to, fsd.different_answers, fsd.compared_answers) == (
        False,
        "ar",
        1,
        2,
    )
    assert ar.identical is None and all_identical([fsd, ar]) is False
    first, second = make_rows([decision(0, "sd"), decision(0, "fsd")], ["sd", "fsd"], ACTIONS)
    assert first.identical is None and (second.identical, second.identical_to) == (True, "sd")


def test_methods_that_draw_other_tokens_are_not_compared():
    decisions = [decision(0, "dssd", ids=(9,)), decision(0, "sd"), decision(0, "ar")]
    dssd, sd, ar = make_rows(decisions, ["dssd", "sd", "ar"], ACTIONS, comparable={"sd", "ar"})
    assert dssd.identical is None and sd.identical is True and ar.identical is None
    assert all_identical([dssd, sd, ar]) is True


def test_two_runs_side_by_side():
    here = [decision(n, action="stop", reference="stop", ms=20.0) for n in range(4)]
    there = [decision(n, action="stop" if n else "forward 25", ms=10.0, ids=(n,)) for n in range(1, 6)]
    there.append(decision(0, action="forward 25", ms=10.0))
    compared = compare_runs(here, there, "runs/before")
    (pair,) = compared.pairs
    assert (pair.frames, pair.same_action, pair.same_tokens) == (4, 3, 1)
    assert pair.changed == [(10**9, "stop", "forward 25", "stop")]
    assert (pair.agreement, pair.earlier_agreement) == (1.0, 0.75)
    assert pair.p50_change == pytest.approx(1.0)
    assert (compared.only_here, compared.only_there) == (0, 2)


def test_runs_of_one_method_each_are_compared_whatever_their_names():
    (pair,) = compare_runs([decision(0, "fsd")], [decision(0, "sd")], "x").pairs
    assert (pair.method, pair.earlier_method) == ("fsd", "sd")


def test_runs_of_different_bags_are_refused():
    with pytest.raises(EvaluationError, match="no frame of this bag was decided in runs/other"):
        compare_runs([decision(0)], [decision(9)], "runs/other")


def results_of(decisions, methods=("fsd", "ar"), **more):
    rows = make_rows(decisions, methods, ACTIONS)
    bag = BagRecord(
        path="walk.mcap",
        topics=[TopicRecord("/camera", "sensor_msgs/msg/CompressedImage", 4)],
        image_topic="/camera",
        frames=4,
        selected=4,
        duration_s=3.0,
        references="metrics",
        referenced=4,
        warnings=["walk.mcap: cut off"],
    )
    return ReplayResults(
        schema=1,
        config={"draft_model": "d", "target_model": "t", "rate": "frames"},
        machine={"cores": 2},
        bag=bag,
        actions=list(ACTIONS),
        rows=rows,
        identical_tokens=all_identical(rows),
        frames_per_s=12.5,
        **more,
    )


@pytest.mark.slow
def test_the_report_shows_every_part_and_loads_nothing(tmp_path):
    decisions = [
        decision(n, m, "stop", "stop" if n else "forward 50") for n in range(4) for m in ("fsd", "ar")
    ]
    compared = compare_runs(decisions, [decision(n, "fsd", "forward 25") for n in range(4)], "runs/before")
    append_decisions(tmp_path, decisions)
    results_of(decisions, comparison=compared).save(tmp_path)
    assert ReplayResults.load(tmp_path).rows[0].scored == 4 and len(load_decisions(tmp_path)) == 8
    page = write_replay_report(tmp_path).read_text()
    for words in (
        "specnav replay", "Notes on the bag", "walk.mcap: cut off", "Comparison with an earlier run",
        "Confusion matrix", "Stop<br>precision", "75.0 %", "as ar", "forward 25", "Decision time", "/camera",
    ):  # fmt: skip
        assert words in page, words
    assert "<script" not in page and "http://" not in page.replace("http://www.w3.org", "")
    assert "<the>" not in page


def test_a_report_of_nothing_but_failures_can_be_drawn(tmp_path):
    decisions = [decision(0, action="", error="corrupt <frame>")]
    append_decisions(tmp_path, decisions)
    results_of(decisions, ("fsd",), interrupted=True).save(tmp_path)
    assert "Interrupted" in write_replay_report(tmp_path).read_text()


def test_a_killed_run_loses_only_its_last_line(tmp_path):
    append_decisions(tmp_path, [decision(0), decision(1)])
    path = tmp_path / "decisions.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    assert [one.frame for one in load_decisions(tmp_path)] == [0]
    path.write_bytes(b"{}\n")
    with pytest.raises(EvaluationError, match="line 1"):
        load_decisions(tmp_path)


def test_decisions_that_are_a_pipe_are_refused_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "decisions.jsonl")
    with pytest.raises(EvaluationError, match="not a regular file"):
        load_decisions(tmp_path)
