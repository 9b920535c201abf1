"""Verdicts on made-up runs: each thing that can be wrong is noticed."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from specnav.drill.definitions import (
    Drill,
    ExpectedReaction,
    ExpectedRecovery,
    HeardReason,
    Reason,
    Term,
    TimeBound,
    Trace,
)
from specnav.drill.judging import judge, oldest_frame, row_of

WHY = Reason("motion_status", "STALE_ODOM", "old")
TICK = 1 / 30


def drill(**more: Any) -> Drill:
    values = {"reasons": (WHY,), "lasts_s": 2.0, **more}
    return Drill("odometry", "odometry stops", nullcontext, TimeBound(), **values)


def speeds(*parts: tuple[float, float, float]) -> list[tuple[float, float]]:
    """(from, to, speed) parts, sampled at 30 Hz."""
    return [
        (begin + n * TICK, value) for begin, end, value in parts for n in range(round((end - begin) / TICK))
    ]


def trace(*parts: tuple[float, float, float], said: tuple[HeardReason, ...] = (), **more: Any) -> Trace:
    return Trace(10.0, 12.0, speeds(*parts), list(said), **more)


TOLD = HeardReason(10.5, "motion_status", "STALE_ODOM", "odometry is 0.51 s old")
GOOD = ((9.0, 10.4, 0.3), (10.4, 12.1, 0.0), (12.1, 13.0, 0.3))


def test_a_robot_that_stops_in_time_says_why_and_goes_on_passes():
    run = judge(drill(), 3, trace(*GOOD, said=(TOLD,)), 0.5)
    assert run.passed and run.moving and run.run == 3
    assert run.stop_ms == pytest.approx(400, abs=35) and run.reason_ms == pytest.approx(500)
    assert run.recovered_ms == pytest.approx(100, abs=35) and run.reason == "motion_status STALE_ODOM"


@pytest.mark.parametrize(
    ("parts", "said", "problem"),
    [
        (((9.0, 10.7, 0.3), (10.7, 12.1, 0.0), (12.1, 13.0, 0.3)), (TOLD,), "stopped later than the bound"),
        (((9.0, 13.0, 0.3),), (TOLD,), "did not stop"),
        ((*GOOD[:1], (10.4, 11.0, 0.0), (11.0, 13.0, 0.3)), (TOLD,), "moved before the fault was over"),
        (GOOD, (), "no reason was published"),
        (GOOD, (HeardReason(10.5, "motion_status", "STALE_ODOM", "jumped"),), "no reason was published"),
        (GOOD, (HeardReason(9.9, "motion_status", "STALE_ODOM", "old"),), "no reason was published"),
        (((9.0, 10.4, 0.3), (10.4, 40.0, 0.0)), (TOLD,), "did not move again"),
    ],
)
def test_what_is_wrong_is_noticed(parts, said, problem):
    assert judge(drill(), 0, trace(*parts, said=said), 0.5).problems == [problem]


def test_a_gap_of_one_message_is_no_stop():
    run = judge(drill(), 0, trace((9.0, 10.2, 0.3), (10.2, 10.2 + TICK, 0.0), (10.24, 10.7, 0.3), (10.7, 12.1, 0), (12.1, 13, 0.3), said=(TOLD,)), 0.5)  # fmt: skip  # noqa: E501
    assert run.problems == ["stopped later than the bound"] and run.stop_ms == pytest.approx(700, abs=35)


def test_a_robot_that_stood_has_no_stop_to_be_measured_but_must_not_move():
    standing = trace((9.0, 12.2, 0.0), (12.2, 13.0, 0.3), said=(TOLD,))
    run = judge(drill(), 0, standing, 0.5)
    assert run.passed and not run.moving and run.stop_ms == 0
    assert row_of(drill(), 0.5, [run]).stop_ms == []
    moved = judge(drill(), 0, trace((9.0, 11.0, 0.0), (11.0, 13.0, 0.3), said=(TOLD,)), 0.5)
    assert moved.problems == ["moved before the fault was over"]


def test_a_prompt_reason_counts_against_the_bound():
    assert judge(drill(prompt=True), 0, trace(*GOOD, said=(TOLD,)), 0.45).problems == [
        "the reason was published later than the bound"
    ]


def test_after_an_order_the_next_instruction_must_move_it():
    order = drill(recovery=ExpectedRecovery.NEXT_INSTRUCTION, within_s=1.0)
    late = trace((9.0, 10.1, 0.3), (10.1, 15.0, 0.0), (15.0, 16.0, 0.3), said=(TOLD,), instructed=14.5)
    assert judge(order, 0, late, 0.3).passed
    assert judge(order, 0, trace(*GOOD[:1], (10.4, 40, 0), said=(TOLD,), instructed=14.5), 0.5).problems == [
        "did not move again"
    ]


def test_a_robot_that_halts_may_go_on_at_once_but_must_have_stood():
    halts = drill(reaction=ExpectedReaction.HALTS, reasons=())
    assert judge(halts, 0, trace((9.0, 10.1, 0.3), (10.1, 10.4, 0.0), (10.4, 13.0, 0.3)), 0.3).passed
    assert judge(halts, 0, trace((9.0, 13.0, 0.3)), 0.3).problems == ["did not stop"]


def test_a_robot_that_must_go_on_is_asked_to_move_while_the_fault_lasts():
    on = drill(reaction=ExpectedReaction.GOES_ON, reasons=(), within_s=1.5)
    assert judge(on, 0, trace((9.0, 13.0, 0.3)), 0.0).passed
    assert judge(on, 0, trace((9.0, 10.2, 0.3), (10.2, 14.0, 0.0), (14.0, 15, 0.3)), 0.0).problems == [
        "did not continue"
    ]


def test_the_age_of_the_frames_that_it_moves_on_is_measured_while_it_moves_only():
    frames = [8.9, 9.9, 10.9, 11.9]
    seen = trace((9.0, 10.5, 0.3), (10.5, 10.95, 0.0), (10.95, 13.0, 0.3), frames=frames)
    assert oldest_frame(seen) == pytest.approx(1.0, abs=0.05)
    fresh = trace((9.0, 10.5, 0.3), (10.5, 10.95, 0.0), (10.95, 11.2, 0.3), (11.2, 12.0, 0), frames=frames)
    assert oldest_frame(fresh) == pytest.approx(0.6, abs=0.05)
    keeps = drill(reaction=ExpectedReaction.KEEPS_FRESH, reasons=())
    assert judge(keeps, 0, seen, 0.9).problems == ["moved on a frame older than the bound"]


def test_a_row_holds_the_percentiles_of_the_stops_and_counts_what_was_wrong():
    runs = [judge(drill(), n, trace(*GOOD, said=(TOLD,)), bound) for n, bound in enumerate((0.5, 0.5, 0.3))]
    row = row_of(drill(), 0.5, runs)
    assert (row.runs, row.passed, row.moving, len(row.stop_ms)) == (3, 2, 3, 3)
    assert row.stop_ms_p50 == row.stop_ms_p99 == row.stop_ms_max
    assert row.problems == {"stopped later than the bound": 1}
    assert row.reasons == {"motion_status STALE_ODOM": 3}


def test_a_bound_says_what_it_is_made_of():
    assert (
        TimeBound((Term("motion_node", "odom_timeout_s"),)).words == "odom_timeout_s (motion_node) + 100 ms"
    )
    assert TimeBound(seconds=0.3).words == "300 ms"
