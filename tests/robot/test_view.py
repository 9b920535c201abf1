"""What view_node shows: never a motion that is over, never reasoning of another action, UNVERIFIED where it is."""

import math

import numpy as np
import pytest
from PIL import Image

from spec_vlm_nav.common.codes import MotionState
from spec_vlm_nav.common.geometry import Motion, Pose
from spec_vlm_nav.common.status import Status
from spec_vlm_nav.viewing.board import Board, Decided, Scene, Told
from spec_vlm_nav.viewing.drawing import BACKGROUND, COLOURS, ORANGE, _font, annotate, arrow_of, wrap
from spec_vlm_nav.viewing.track import Trail, motion_points

TURN = Told(5, 7, True, Motion(0.0, 0.5), "turn left 30", "MODEL", deadline_s=4.0)
DECIDED = Decided(5, 7, "find the lamp", "I see the lamp on the left.", decision_ms=80.0)


def moving(board, at, sequence=7, state=MotionState.MOVING):
    board.on_status(Status(state, 5, sequence, "", left=Motion(0.0, 0.3)), at)


def test_a_motion_is_shown_from_its_command_to_its_end():
    board = Board()
    assert board.scene(0.0) == Scene()
    board.on_command(TURN, 10.0)
    board.on_decision(DECIDED)
    assert board.scene(10.01).motion == TURN.motion
    board.on_status(Status(MotionState.MOVING, 5, 7, TURN.text), 10.05)
    assert board.scene(10.1).state == "MOVING"
    moving(board, 10.9, state=MotionState.SETTLING)
    scene = board.scene(11.0)
    assert scene.motion == TURN.motion and scene.state == "SETTLING"
    assert (scene.action, scene.decided_by, scene.reasoning) == (TURN.text, "model", DECIDED.reasoning)
    board.on_status(Status(MotionState.BLOCKED, 5, 7, "no progress"), 11.05)
    assert board.scene(11.05).state == "BLOCKED: no progress"
    moving(board, 11.1, state=MotionState.REACHED)
    over = board.scene(11.1)
    assert over.motion is None and over.state == "REACHED" and over.action == TURN.text


@pytest.mark.parametrize(
    ("status_at", "asked_at"),
    [(10.1, 12.0), (13.9, 14.1), (None, 11.6)],
    ids=["motion_node silent", "deadline passed", "never taken up"],
)
def test_nothing_keeps_an_arrow_standing(status_at, asked_at):
    board = Board()
    board.on_command(TURN, 10.0)
    if status_at:
        moving(board, status_at)
    assert board.under_way(asked_at) is None and board.scene(asked_at).motion is None


def test_a_stop_ends_the_arrow_and_a_status_of_an_older_command_does_not_begin_one():
    board = Board()
    board.on_command(TURN, 10.0)
    moving(board, 10.1)
    board.on_command(Told(5, 8, False, text="camera stale", source="SUPERVISOR"), 10.2)
    moving(board, 10.3)
    scene = board.scene(10.3)
    assert scene.motion is None and (scene.action, scene.decided_by) == ("camera stale", "supervisor")


def test_reasoning_of_an_earlier_decision_does_not_stand_beside_a_new_action():
    board = Board()
    board.on_decision(DECIDED)
    board.on_command(TURN, 10.0)
    assert board.scene(10.0).reasoning == DECIDED.reasoning
    board.on_command(Told(5, 8, True, Motion(0.5, 0.0), "forward 50", "EXPLORATION", deadline_s=4.0), 12.0)
    assert board.scene(12.0).reasoning == ""
    board.on_decision(Decided(5, 8, "find the lamp", "The way is free.", rule="walk on"))
    scene = board.scene(12.1)
    assert (scene.reasoning, scene.decided_by) == ("The way is free.", "exploration (walk on)")


def test_silence_is_said_in_words():
    board = Board()
    board.on_supervision("up 42 ms", 10.0)
    moving(board, 10.0)
    assert (board.scene(10.5).link, board.scene(10.5).state) == ("up 42 ms", "MOVING")
    late = board.scene(20.0)
    assert (late.link, late.state) == ("vlm_nav_node is silent", "motion_node is silent")


def test_a_decision_taken_back_is_said():
    board = Board()
    board.on_command(TURN, 10.0)
    board.on_decision(Decided(5, 7, "find the lamp", "I see it.", rolled_back=True))
    assert "rolled back" in board.scene(10.1).problem


# -- points


@pytest.mark.parametrize(
    ("motion", "end"),
    [
        (Motion(0.5, 0.0), (1.0, 2.5)),
        (Motion(-0.25, 0.0), (1.0, 1.75)),
        (Motion(0.0, math.pi / 2), (0.6, 2.0)),
        (Motion(0.0, -math.pi / 2), (1.4, 2.0)),
    ],
    ids=["forward", "back", "left", "right"],
)
def test_a_motion_leads_where_the_robot_will_go(motion, end):
    points = motion_points(Pose(1.0, 2.0, math.pi / 2), motion)
    assert points[-1] == pytest.approx(end)
    assert len(points) >= 2


def test_the_path_is_thinned_bounded_and_begun_anew_after_a_jump():
    trail = Trail(0.1, 5)
    changed = [trail.add(Pose(0.03 * i, 0.0, 0.0), (i, 0)) for i in range(100)]
    assert sum(changed) < 30 and len(trail) == 5
    places = [stop.pose.x for stop in trail]
    assert places == sorted(places) and min(np.diff(places)) >= 0.1
    assert not trail.add(Pose(math.nan, 0.0, 0.0), (100, 0))
    assert trail.add(Pose(50.0, 0.0, 0.0), (101, 0))
    assert [stop.pose.x for stop in trail] == [50.0]


# -- pictures


def pixels(scene, width=640):
    return np.asarray(annotate(Image.new("RGB", (224, 140), (90, 90, 90)), scene, width)).astype(int)


def count(picture, colour, rows=slice(None)):
    return int((np.abs(picture[rows] - np.array(colour)).sum(axis=2) < 30).sum())


def test_the_picture_keeps_its_shape_and_is_covered_by_nothing_at_rest():
    shown = pixels(Scene(instruction="find the lamp", action="stop", decided_by="model", state="STOPPED"))
    assert shown.shape[1] == 640 and (shown[:400] == 90).all()
    assert count(shown, BACKGROUND, slice(400, None)) > 10000


@pytest.mark.parametrize(("angle", "side"), [(0.7, "left"), (-0.7, "right")])
def test_an_arrow_points_to_the_side_that_the_robot_turns_to(angle, side):
    shown = pixels(Scene(action="turn", decided_by="model", motion=Motion(0.0, angle)))[:400]
    left, right = (count(part, COLOURS["model"]) for part in (shown[:, :320], shown[:, 320:]))
    assert (left > 5 * right) if side == "left" else (right > 5 * left)


def test_forward_is_up_and_longer_for_more():
    def length(motion):
        (_, foot), (_, tip) = arrow_of(motion, 640, 400)
        return foot - tip

    assert length(Motion(0.75, 0.0)) > length(Motion(0.25, 0.0)) > 20
    assert length(Motion(-0.25, 0.0)) < -20
    assert length(Motion(50.0, 0.0)) < 400


def test_unverified_is_marked_on_the_picture_and_in_words():
    scene = Scene(action="forward 25", decided_by="model", motion=Motion(0.25, 0.0))
    plain = pixels(scene)
    marked = pixels(Scene(**{**vars(scene), "unverified": True}))
    assert count(plain, ORANGE) == 0 and count(marked, ORANGE, slice(0, 20)) > 5000
    assert count(marked, ORANGE, slice(400, None)) > 50 and count(marked, COLOURS["model"]) == 0


def test_any_text_fits_its_lines():
    font = _font(18)
    assert wrap("", font, 300, 2) == [""]
    assert wrap("one two", font, 300, 2) == ["one two"]
    for text in ("word " * 200, "x" * 2000, "short " + "y" * 500, "ζ漢字 " * 50):
        lines = wrap(text, font, 300, 2)
        assert 1 <= len(lines) <= 2 and all(font.getlength(line) <= 300 for line in lines)
        assert lines[-1].endswith("...")
    annotate(Image.new("RGB", (1, 1)), Scene(instruction="x" * 5000, reasoning="a\nb" * 900), 240)
