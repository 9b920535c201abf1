"""What a late decision costs: the stand around it, read off the path."""

from __future__ import annotations

import pytest

from specnav.results.standing import LATE_MS, is_late, stood_s
from specnav.results.trace import PathPoint


def driven(*times: float) -> list[PathPoint]:
    return [PathPoint(t, 0.1 * number, 0.0, 0.0) for number, t in enumerate(times)]


PATH = driven(0.0, 2.0, 2.1, 2.2, 5.0, 5.1, 6.0, 6.1)
"""Stands of 2.0, 2.8 and 0.9 s."""


def test_a_stand_lasts_from_the_last_place_driven_through_to_the_next() -> None:
    assert stood_s(PATH, [4.5]) == pytest.approx(2.8)
    assert stood_s(PATH, [1.0, 5.5]) == pytest.approx(2.9)


def test_two_commands_in_one_stand_count_it_once() -> None:
    assert stood_s(PATH, [3.0, 4.5]) == pytest.approx(2.8)


def test_a_decision_that_came_while_the_robot_moved_made_it_stand_for_nothing() -> None:
    assert stood_s(PATH, [2.05, 5.05]) == 0.0


def test_what_nothing_follows_is_not_counted() -> None:
    assert stood_s(PATH, [7.0]) == stood_s([], [1.0]) == stood_s(PATH, []) == 0.0


def test_late_is_longer_than_the_bound_and_a_decision_without_a_motion_is_not_late() -> None:
    assert is_late(LATE_MS + 1) and not is_late(LATE_MS) and not is_late(None)
