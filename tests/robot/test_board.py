"""What the console says of a motion: never one that is over; and the path, thinned."""

import math

import numpy as np
import pytest

from spec_vlm_nav.common.codes import MotionState
from spec_vlm_nav.common.geometry import Motion, Pose
from spec_vlm_nav.common.status import Status
from spec_vlm_nav.console.board import Board, Trail
from spec_vlm_nav.motion.command import Command, CommandKind

TURN = Command(CommandKind.MOVE, 5, 1, 7, Motion(0.0, 0.5), 4.0, text="turn left 30")


def moving(board, at, sequence=7, state=MotionState.MOVING):
    board.on_status(Status(state, 5, sequence, "", left=Motion(0.0, 0.3)), at)


def begun(at):
    board = Board()
    board.on_command(TURN, "model", at)
    return board


def test_a_motion_is_shown_from_its_command_to_its_end():
    assert Board().told(0.0) == {"action": "", "by": "", "unverified": False}
    board = begun(10.0)
    assert board.told(10.01)["motion"] == (0.0, 0.5)
    moving(board, 10.9, state=MotionState.SETTLING)
    shown = {"action": "turn left 30", "by": "model", "unverified": False}
    assert board.told(11.0) == {**shown, "motion": (0.0, 0.5)}
    moving(board, 11.1, state=MotionState.REACHED)
    assert board.told(11.1) == shown


@pytest.mark.parametrize(
    ("status_at", "asked_at"),
    [(10.1, 12.0), (13.9, 14.1), (None, 11.6)],
    ids=["motion_node silent", "deadline passed", "never taken up"],
)
def test_nothing_keeps_an_arrow_standing(status_at, asked_at):
    board = begun(10.0)
    if status_at:
        moving(board, status_at)
    assert board.under_way(asked_at) is None and "motion" not in board.told(asked_at)


def test_a_stop_ends_the_arrow_and_a_status_of_an_older_command_does_not_begin_one():
    board = begun(10.0)
    moving(board, 10.1)
    board.on_command(Command(CommandKind.HOLD, 5, 1, 8, text="camera stale"), "supervisor", 10.2)
    moving(board, 10.3)
    assert board.told(10.3) == {"action": "camera stale", "by": "supervisor", "unverified": False}


def test_the_path_is_thinned_bounded_and_begun_anew_after_a_jump():
    trail = Trail(0.1, 5)
    changed = [trail.add(Pose(0.03 * i, 0.0, 0.0)) for i in range(100)]
    assert sum(changed) < 30 and len(trail) == 5
    places = [pose.x for pose in trail]
    assert places == sorted(places) and min(np.diff(places)) >= 0.1
    assert not trail.add(Pose(math.nan, 0.0, 0.0))
    assert trail.add(Pose(50.0, 0.0, 0.0))
    assert [pose.x for pose in trail] == [50.0]
