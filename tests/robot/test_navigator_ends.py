"""How instructions end: each exactly once, with its code; nothing goes on for ever. In simulated time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spec_vlm_nav.camera.images import Frame
from spec_vlm_nav.common.codes import ErrorCode, MotionState
from spec_vlm_nav.common.geometry import Motion
from spec_vlm_nav.common.status import Status
from spec_vlm_nav.deciding.parts.interfaces import NavigatorPhase
from spec_vlm_nav.language.actions import find_action
from spec_vlm_nav.model.worker import ActionFound
from spec_vlm_nav.motion.command import OPERATOR_STOP, CommandKind
from tests.robot.navigator_world import (
    FORWARD,
    LOST,
    STOP,
    TURN,
    UP,
    World,
    codes,
    degraded,
    link,
    reconcile,
    unverified,
)

# -- how instructions end


def test_every_instruction_ends_exactly_once_with_its_code():
    world = World(max_decisions=1).instruct().answer(STOP).run(1)
    world.instruct().answer(FORWARD).ended().run(1)
    world.instruct()
    world.instruct("find the blue box")
    world.navigator.on_cancel(world.now)
    world.navigator.on_cancel(world.now)
    world.instruct("  ")
    world.run(2)
    ended = [(1, "NONE"), (2, "TOO_MANY_DECISIONS"), (3, "CANCELED"), (4, "CANCELED"), (5, "INVALID_INPUT")]
    assert codes(world) == ended
    assert world.outcomes[0].decisions == 1 and world.outcomes[1].motions == 1


def test_the_time_allowance_ends_it():
    world = World()
    world.navigator.on_instruction("find the red chair", world.now, 3.0)
    world.run(0.3).answer(FORWARD).run(2.5)
    assert world.outcomes == []
    world.run(0.3)
    assert codes(world) == [(1, "TIMEOUT")] and world.kinds[-1] is CommandKind.STOP
    assert world.outcomes[0].elapsed_s == pytest.approx(3.0, abs=0.1)


@pytest.mark.parametrize(("hint", "met"), [("RED chair", True), ("unicorn", False), ("", True)])
def test_the_hint_is_looked_for_in_the_last_reasoning(hint, met):
    world = World()
    world.navigator.on_instruction("find the red chair", world.now, 0.0, hint)
    world.run(0.3).answer(STOP)
    assert world.outcomes[0].hint_met is met and world.outcomes[0].code is ErrorCode.NONE


def test_something_that_was_in_the_way_now_and_then_does_not_end_it_where_the_robot_gets_on():
    world = World(max_obstructions=3).instruct()
    world.lively = True
    for _ in range(4):
        world.answer(FORWARD).run(0.2).ended(MotionState.COLLISION_AHEAD, "0.2 m ahead").run(1.0)
        world.answer(TURN).run(0.2).ended(done=Motion(angle_rad=0.5)).run(1.0)
        world.answer(FORWARD).run(0.2).ended(done=Motion(0.75)).run(1.0)
    assert world.outcomes == []


def test_odometry_that_stays_away_is_published_once_and_ends_it_after_the_patience():
    world = World(patience_s=4.0).instruct()
    for _ in range(4):
        assert world.outcomes == []
        world.answer(TURN).ended(MotionState.STALE_ODOM, "odometry is 0.6 s old").run(1.1)
    assert codes(world) == [(1, "STALE_ODOM")]
    assert [r.error for r in world.reports if r.code is ErrorCode.STALE_ODOM] == [
        "motion ended: odometry is 0.6 s old"
    ]


def test_odometry_that_is_back_ends_neither_the_motion_that_shows_it_nor_the_next_instruction():
    world = World(patience_s=2.0).instruct()
    world.answer(TURN).ended(MotionState.STALE_ODOM, "odometry is 0.6 s old").run(1.1)
    world.answer(FORWARD).run(2.5)  # motion_node carries it out
    assert world.outcomes == []
    world.ended(MotionState.STALE_ODOM, "odometry is 0.6 s old").run(1.1)
    assert codes(world) == [(1, "STALE_ODOM")]
    world.instruct().run(2.5)  # nothing shows yet whether it is back
    assert codes(world) == [(1, "STALE_ODOM")]
    world.answer(FORWARD).run(2.5)
    assert codes(world) == [(1, "STALE_ODOM")]


def test_the_operators_stop_at_motion_node_ends_it_but_an_old_one_does_not():
    world = World().instruct().answer(FORWARD).run(0.3)
    world.navigator.on_status(Status(MotionState.STOPPED, 0, 0, OPERATOR_STOP), world.now)
    assert codes(world) == [(1, "CANCELED")]
    world.navigator.on_instruction("find the blue box", world.now)
    world.now += 0.1
    world.navigator.on_status(Status(MotionState.STOPPED, 0, 0, OPERATOR_STOP), world.now)
    assert len(world.outcomes) == 1


def test_a_dry_run_decides_frame_after_frame_and_waits_for_no_motion():
    world = World(dry_run=True).instruct()
    for count in range(1, 4):
        assert len(world.jobs) == count
        world.answer(FORWARD).run(0.2)
    assert world.navigator.phase is not NavigatorPhase.MOVING


# -- found in review: what never ended, or moved against the operator's word


@pytest.mark.parametrize("code", [ErrorCode.TIMEOUT, ErrorCode.INVALID_INPUT])
def test_failures_that_go_on_and_on_end_the_instruction_after_the_patience(code):
    world = World(patience_s=10.0, decision_timeout_s=60.0).instruct()
    for _ in range(20):
        if len(world.jobs) and not world.outcomes:
            world.fail(code, "it fails").run(5)
    assert codes(world) == [(1, code.name)] and "it fails" in world.outcomes[0].message
    assert 10 < world.outcomes[0].elapsed_s < 20


def test_a_second_decision_that_takes_too_long_is_told_again():
    world = World().instruct().fail(ErrorCode.TIMEOUT, "no answer").run(1).answer(FORWARD).ended().run(1)
    world.fail(ErrorCode.TIMEOUT, "no answer")
    assert len([text for level, text in world.logs if level == "warn" and "no answer" in text]) == 2


def test_a_stop_of_the_draft_that_is_never_confirmed_is_given_up_although_the_link_is_up():
    world = unverified(degraded(), STOP)
    link(world, UP).run(31)
    assert codes(world) == [(1, "LINK_LOST")]


def test_an_end_forgets_the_open_decision_of_the_worker_too():
    world = unverified(degraded(), FORWARD)
    before = world.cancels - world.kept_open
    world.navigator.on_cancel(world.now)
    assert world.cancels - world.kept_open == before + 1


def test_once_on_link_loss_is_changed_the_draft_model_moves_nothing_more():
    world = unverified(degraded(), FORWARD).run(0.1)
    world.navigator.config = replace(world.navigator.config, on_link_loss="stop")
    assert link(world, LOST).kinds[-1] is CommandKind.HOLD
    world = degraded()
    world.navigator.config = replace(world.navigator.config, on_link_loss="stop")
    unverified(world, FORWARD)
    assert CommandKind.MOVE not in world.kinds and world.reports[-1].code is ErrorCode.LINK_LOST
    assert reconcile(world, TURN).kinds[-1] is CommandKind.HOLD and world.outcomes == []


def test_a_picture_from_before_the_motion_is_no_proof_of_a_frozen_camera():
    world = World().instruct().run(2).answer(FORWARD)  # it stood: all pictures were the same
    sequence = len(world.requests)
    world.camera = False  # the next frame takes a while
    for done in (0.05, 0.1, 0.15, 0.2):
        world.run(0.1)
        moving = Status(MotionState.MOVING, 1, sequence, "", Motion(done), Motion(0.75 - done))
        world.navigator.on_status(moving, world.now)
    assert world.kinds[-1] is CommandKind.MOVE
    world.navigator.on_frame(Frame(b"another", (5, 5), world.now))
    assert world.run(0.1).kinds[-1] is CommandKind.MOVE


def test_motions_that_motion_node_keeps_refusing_end_the_instruction():
    world = World(max_obstructions=4).instruct()
    for _ in range(20):
        if not world.outcomes:
            world.answer(FORWARD).ended(MotionState.REFUSED, "longer than the limit of one command").run(1)
    assert codes(world) == [(1, "REFUSED")] and "longer than" in world.outcomes[0].message
    assert world.outcomes[0].motions == 4


def test_a_motion_node_that_stays_silent_ends_it_too_one_that_answers_again_does_not():
    world = World(patience_s=8.0).instruct()
    for _ in range(4):
        if not world.outcomes:
            world.answer(FORWARD).run(5.8)
    assert codes(world) == [(1, "INTERNAL")] and "motion_node" in world.outcomes[0].message
    world = World(patience_s=8.0).instruct()
    for _ in range(4):
        world.answer(FORWARD).run(5.8).answer(FORWARD).ended().run(0.3)
    assert world.outcomes == []


def test_a_stop_of_the_draft_whose_answer_then_fails_is_not_waited_for():
    world = degraded()
    found = ActionFound(world.jobs[-1].number, find_action(STOP), STOP, b"jpeg", world.now, unverified=True)
    world.navigator.on_event(found, world.now)
    world.fail(ErrorCode.INVALID_INPUT, "the model broke").run(2)
    assert len(world.jobs) == 2 and world.outcomes == []


class Telling(World):
    """Records which command was the last one at each warning and error."""

    last_kinds = ()

    def log(self, level, text):
        super().log(level, text)
        if level != "info":
            self.last_kinds += (self.kinds[-1],)


def motion_node_dies(world):
    world.mover = False
    world.run(2.0)


@pytest.mark.parametrize(
    "strike",
    [
        lambda world: link(world, LOST),
        motion_node_dies,
        lambda world: world.navigator.on_estop("e-stop: topic e_stop", world.now),
        lambda world: world.run(10.0),  # longer than max_duration_s
    ],
    ids=["link lost", "motion_node silent", "e-stop", "too long"],
)
def test_the_robot_is_told_to_stand_before_the_reason_is_reported(strike):
    world = Telling(max_duration_s=5.0, motion_deadline_s=20.0).instruct().answer(FORWARD)
    assert world.kinds[-1] is CommandKind.MOVE
    strike(world)
    assert world.last_kinds and world.last_kinds[0] is not CommandKind.MOVE
