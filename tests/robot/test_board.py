"""What the console says of a motion: never one that is over; and the path, thinned."""

import math

import numpy as np
import pytest

from spec_vlm_nav.common.codes import MotionState
from spec_vlm_nav.common.geometry import Motion, Pose
from spec_vlm_nav.common.status import Status
from spec_vlm_nav.console.board import Board, BoardScene, ShownCommand
from spec_vlm_nav.console.trail import Trail

TURN = ShownCommand(5, 7, True, Motion(0.0, 0.5), "turn left 30", "MODEL", deadline_s=4.0)


def moving(board, at, sequence=7, state=MotionState.MOVING):
    board.on_status(Status(state, 5, sequence, "", left=Motion(0.0, 0.3)), at)


def test_a_motion_is_shown_from_its_command_to_its_end():
    board = Board()
    assert board.scene(0.0) == BoardScene()
    board.on_command(TURN, 10.0)
    assert board.scene(10.01).motion == TURN.motion
    board.on_status(Status(MotionState.MOVING, 5, 7, TURN.text), 10.05)
    assert board.scene(10.1).state == "MOVING"
    moving(board, 10.9, state=MotionState.SETTLING)
    scene = board.scene(11.0)
    assert scene.motion == TURN.motion and scene.state == "SETTLING"
    assert (scene.action, scene.decided_by) == (TURN.text, "model")
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
    board.on_command(ShownCommand(5, 8, False, text="camera stale", source="SUPERVISOR"), 10.2)
    moving(board, 10.3)
    scene = board.scene(10.3)
    assert scene.motion is None and (scene.action, scene.decided_by) == ("camera stale", "supervisor")


def test_silence_is_said_in_words():
    board = Board()
    moving(board, 10.0)
    assert board.scene(10.5).state == "MOVING"
    assert board.scene(20.0).state == "motion_node is silent"


def test_the_path_is_thinned_bounded_and_begun_anew_after_a_jump():
    trail = Trail(0.1, 5)
    changed = [trail.add(Pose(0.03 * i, 0.0, 0.0)) for i in range(100)]
    assert sum(changed) < 30 and len(trail) == 5
    places = [pose.x for pose in trail]
    assert places == sorted(places) and min(np.diff(places)) >= 0.1
    assert not trail.add(Pose(math.nan, 0.0, 0.0))
    assert trail.add(Pose(50.0, 0.0, 0.0))
    assert [pose.x for pose in trail] == [50.0]
