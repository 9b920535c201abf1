"""Scores: only the right object, near and faced, counts; an absent target must be reported."""

import math

import pytest

from navsim.episodes import Episode
from navsim.geometry import Pose2D
from navsim.rooms import Area, Room, RoomAppearance, SceneObject, Wall
from navsim.scoring import score_episode

TARGET = SceneObject("bottle", "silver", 6.0, 2.0, 0.0)
LOOK_ALIKE = SceneObject("bottle", "red", 3.0, 3.0, 0.0)


def episode(*objects: SceneObject, target: SceneObject | None = TARGET) -> Episode:
    corners = ((0.0, 0.0), (8.0, 0.0), (8.0, 4.0), (0.0, 4.0))
    walls = tuple(Wall(*corners[i], *corners[(i + 1) % 4]) for i in range(4))
    room = Room(0, "train", (Area(0.0, 0.0, 8.0, 4.0),), walls, (), objects, (), RoomAppearance())
    return Episode(0, "train", room, Pose2D(1.0, 2.0, 0.0), target, "silver bottle", "find the silver bottle")


PRESENT = episode(TARGET, LOOK_ALIKE)
ABSENT = episode(LOOK_ALIKE, target=None)
AT_TARGET = Pose2D(5.3, 2.0, 0.0)


def test_stopping_near_and_facing_the_target_is_success_with_full_spl_on_the_shortest_way():
    score = score_episode(PRESENT, AT_TARGET, stopped=True, path_m=4.2, collisions=2)
    assert (score.success, score.reason, score.stopped_at, score.collisions) == (
        True,
        "success",
        "silver bottle",
        2,
    )
    assert score.spl == pytest.approx(1.0, abs=0.05)
    assert score.navigation_error_m == pytest.approx(0.7 - 0.115)


def test_a_detour_halves_spl():
    score = score_episode(PRESENT, AT_TARGET, stopped=True, path_m=2 * 4.2, collisions=0)
    assert score.spl == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize(
    ("pose", "stopped", "reason"),
    [
        (AT_TARGET, False, "no_stop"),
        (Pose2D(4.5, 2.0, 0.0), True, "too_far"),
        (Pose2D(5.3, 2.0, math.pi / 2), True, "not_facing"),
        (Pose2D(2.4, 3.0, 0.0), True, "wrong_object"),
    ],
)
def test_other_endings_fail_with_their_reason(pose, stopped, reason):
    score = score_episode(PRESENT, pose, stopped=stopped, path_m=4.0, collisions=0)
    assert (score.success, score.reason, score.spl) == (False, reason, 0.0)


def test_a_distractor_nearer_in_front_makes_it_the_wrong_object():
    crowded = episode(TARGET, SceneObject("box", "red", 5.75, 2.35, 0.0))
    score = score_episode(crowded, AT_TARGET, stopped=True, path_m=4.0, collisions=0)
    assert (score.success, score.stopped_at) == (False, "red box")


def test_facing_a_wide_object_counts_from_its_nearest_part():
    door = SceneObject("door", "blue", 7.9, 2.0, math.pi)
    wide = episode(door, target=door)
    score = score_episode(wide, Pose2D(7.3, 1.5, -0.1), stopped=True, path_m=6.5, collisions=0)
    assert score.success


@pytest.mark.parametrize(
    ("pose", "stopped", "said_absent", "reason"),
    [
        (Pose2D(1.0, 2.0, 0.0), False, True, "success"),
        (Pose2D(1.0, 2.0, 0.0), True, True, "success"),
        (Pose2D(1.0, 2.0, 0.0), False, False, "silent"),
        (Pose2D(2.4, 3.0, 0.0), True, True, "wrong_object"),
    ],
)
def test_an_absent_target_must_be_reported_and_no_look_alike_taken(pose, stopped, said_absent, reason):
    score = score_episode(ABSENT, pose, stopped=stopped, path_m=1.0, collisions=0, said_absent=said_absent)
    assert (score.success, score.reason) == (reason == "success", reason)
    assert score.navigation_error_m is None
