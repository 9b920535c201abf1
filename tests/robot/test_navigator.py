"""The deciding side in simulated time: what it asks for when frames, answers and faults arrive; no model, no ROS."""

from __future__ import annotations

import math

import pytest

from spec_vlm_nav.common.codes import ActionSource, ErrorCode, MotionState
from spec_vlm_nav.common.geometry import Motion
from spec_vlm_nav.common.status import Status
from spec_vlm_nav.deciding.parts.interfaces import NavigatorPhase
from spec_vlm_nav.language.actions import Action, ActionKind
from spec_vlm_nav.motion.command import CommandKind
from tests.robot.navigator_world import (
    FORWARD,
    STOP,
    TURN,
    World,
)


def test_without_an_instruction_nothing_is_decided():
    world = World().run(3)
    assert world.jobs == [] and world.requests == []


def test_an_instruction_is_decided_from_a_frame_newer_than_itself_and_moved():
    world = World().run(1)
    told = world.now
    world.instruct()
    assert len(world.jobs) == 1 and world.jobs[0].frame.received > told
    world.answer(FORWARD)
    request = world.requests[-1]
    assert (
        request.kind is CommandKind.MOVE
        and request.motion == Motion(distance_m=0.75)
        and request.source is ActionSource.MODEL
    )
    assert request.frame is world.jobs[0].frame and request.deadline_s > 0
    assert world.said == [FORWARD.split(" The")[0]]


def test_the_robot_moves_when_the_action_is_found_not_when_the_answer_ends():
    world = World().instruct().find(FORWARD)
    assert world.kinds[-1] is CommandKind.MOVE and world.reports == []
    world.answer(FORWARD)
    assert world.reports[-1].sequence == len(world.requests) and world.reports[-1].answer.token_ids == (1, 2)


def test_one_decision_at_a_time_and_the_next_from_a_frame_after_the_motions_end():
    world = World(settle_s=0.2).instruct().answer(FORWARD).run(1.5)
    assert len(world.jobs) == 1
    end = world.now
    world.ended().run(0.6)
    assert len(world.jobs) == 2 and world.jobs[1].frame.received > end + 0.2
    assert world.jobs[1].last_actions == (Action(ActionKind.FORWARD, 75),) and world.jobs[1].past == (
        b"jpeg 1",
    )


def test_stop_latches_and_the_node_idles_until_the_next_instruction():
    world = World().instruct().answer(STOP)
    assert world.requests[-1].kind is CommandKind.STOP and world.requests[-1].source is ActionSource.MODEL
    world.ended(MotionState.STOPPED).run(5)
    assert len(world.jobs) == 1 and world.navigator.phase is NavigatorPhase.IDLE
    world.instruct("find the blue box")
    assert (
        len(world.jobs) == 2 and world.jobs[1].past == () and world.jobs[1].instruction == "find the blue box"
    )


@pytest.mark.parametrize("word", ["stop", " Stop. ", "HALT", "stop now", 30_000 * "\u200b" + "stop", "<|stop|>"])
def test_stop_is_heard_while_the_model_thinks(word):
    world = World().instruct()
    world.navigator.on_instruction(word, world.now)
    assert world.requests[-1].kind is CommandKind.STOP and world.cancels == 1
    world.answer(FORWARD)  # too late
    world.run(2)
    assert world.requests[-1].kind is CommandKind.STOP and len(world.jobs) == 1


def test_a_new_instruction_while_thinking_cancels_and_stands_still_first():
    world = World().instruct()
    first = world.jobs[0]
    world.navigator.on_instruction("find the blue box", world.now)
    assert world.cancels == 1 and world.requests[-1].kind is CommandKind.HOLD
    assert world.reports[-1].code is ErrorCode.CANCELED
    world.answer(FORWARD, first).run(0.5)
    assert CommandKind.MOVE not in world.kinds
    assert world.jobs[-1].instruction == "find the blue box"
    world.answer(FORWARD)
    assert world.kinds[-1] is CommandKind.MOVE and world.requests[-1].instruction == 2


def test_a_new_instruction_while_moving_stands_still_first():
    world = World().instruct().answer(FORWARD)
    world.instruct("find the blue box")
    assert world.requests[-1].kind is CommandKind.HOLD and len(world.jobs) == 2


@pytest.mark.parametrize(
    ("text", "why"), [("", "empty"), ("  \n", "empty"), ("x" * 100_000, "100000 characters")]
)
def test_a_bad_instruction_is_one_line_and_a_stop(text, why):
    world = World().instruct().answer(FORWARD)
    said = len(world.logs)
    world.navigator.on_instruction(text, world.now)
    world.run(3)
    assert world.requests[-1].kind is CommandKind.STOP and len(world.jobs) == 1
    assert len(world.logs) == said + 1 and why in world.logs[-1][1]
    assert world.reports[-1].code is ErrorCode.INVALID_INPUT


def test_an_answer_without_an_action_stands_still_is_counted_and_tried_again():
    world = World(parse_failure_limit=3).instruct()
    for count in range(1, 4):
        world.answer("Go forward 25 cm, I think.").run(0.3)
        assert world.reports[count - 1].code is ErrorCode.PARSE_FAILED
    assert CommandKind.MOVE not in world.kinds
    assert (
        world.requests[-1].kind is CommandKind.STOP
        and len(world.jobs) == 3
        and world.navigator.phase is NavigatorPhase.IDLE
    )


def test_a_lost_link_holds_backs_off_and_is_said_once():
    world = World(first_retry_s=0.5, last_retry_s=2.0).instruct()
    tries = []
    for _ in range(6):
        world.fail(ErrorCode.LINK_LOST, "no verifier")
        before = world.now
        while len(world.jobs) == len(tries) + 1:
            world.run(0.05)
        tries.append(world.now - before)
    assert [round(t, 1) for t in tries[:3]] == pytest.approx([0.5, 1.0, 2.0], abs=0.11) and max(tries) < 2.3
    assert [text for _, text in world.logs if "no verifier" in text] == [
        "no verifier; the robot stands still and tries again"
    ]
    world.answer(FORWARD)
    assert "the verifier answers again" in world.logs[-1][1] and world.kinds[-1] is CommandKind.MOVE


def test_a_link_lost_after_the_action_ends_the_motion_too():
    world = World().instruct().find(FORWARD).fail(ErrorCode.LINK_LOST)
    assert world.requests[-1].kind is CommandKind.HOLD


def test_a_camera_that_stops_while_moving_ends_the_motion_within_its_timeout():
    world = World(camera_timeout_s=1.0).instruct().answer(FORWARD)
    world.camera = False
    world.run(1.05)
    assert world.requests[-1].kind is CommandKind.HOLD and world.reports[-1].code is ErrorCode.STALE_CAMERA
    world.run(5)
    assert len([text for _, text in world.logs if "camera" in text]) == 1 and len(world.jobs) == 1
    world.camera = True
    world.run(0.3)
    assert len(world.jobs) == 2 and "camera frames arrive again" in world.logs[-1][1]


def test_no_camera_from_the_start_is_said_once():
    world = World()
    world.camera = False
    world.instruct().run(5)
    assert [level for level, text in world.logs if "no camera" in text] == ["warn"] and world.jobs == []


def test_a_camera_that_stops_while_thinking_means_that_the_answer_moves_nothing():
    world = World(camera_timeout_s=1.0).instruct()
    world.camera = False
    world.run(1.5).answer(FORWARD)
    assert CommandKind.MOVE not in world.kinds and world.reports[-1].code is ErrorCode.STALE_CAMERA
    world.camera = True
    world.run(0.5)
    assert len(world.jobs) == 2


def test_a_decision_that_takes_too_long_is_canceled_and_tried_again():
    world = World(decision_timeout_s=2.0).instruct().run(2.0)
    assert world.cancels == 1 and world.reports[-1].code is ErrorCode.TIMEOUT
    late = world.jobs[0]
    world.run(1.0)
    assert len(world.jobs) == 2
    world.answer(FORWARD, late)
    assert CommandKind.MOVE not in world.kinds


@pytest.mark.parametrize(("tells", "after_s"), [(False, 1.0), (True, 2.5)])
def test_a_motion_node_that_is_silent_or_never_done_is_noticed(tells, after_s):
    world = World(motion_deadline_s=2.0, status_grace_s=0.5).instruct().answer(FORWARD)
    world.mover = tells
    world.run(after_s - 0.1)
    assert world.requests[-1].kind is CommandKind.MOVE
    world.run(0.2)
    assert world.requests[-1].kind is CommandKind.HOLD and "motion_node" in world.logs[-1][1]


def test_contact_is_handed_to_the_policy_and_its_move_is_marked_as_its_own():
    world = World("frontier_search").instruct().answer(FORWARD)
    world.ended(MotionState.BLOCKED, "wall").run(0.5).answer(FORWARD)
    request = world.requests[-1]
    assert (
        abs(request.motion.angle_rad) == pytest.approx(math.radians(45))
        and request.source is ActionSource.EXPLORATION
    )
    report = world.reports[-1]
    assert report.source is ActionSource.EXPLORATION and report.rule and report.action.startswith("turn ")
    assert report.model_action == "The next action is move forward 75 cm."


@pytest.mark.parametrize(("done_m", "turns_aside"), [(0.1, True), (0.7, False)])
def test_a_motion_that_slid_along_something_counts_as_contact(done_m, turns_aside):
    world = World("frontier_search").instruct().answer(FORWARD)
    world.ended(MotionState.EXPIRED, "not reached in time", Motion(done_m))
    world.run(0.5).answer(FORWARD)
    assert (world.requests[-1].motion.angle_rad != 0) is turns_aside


def test_odometry_trouble_is_said_once_and_tried_again():
    world = World().instruct()
    for _ in range(3):
        world.answer(TURN).ended(MotionState.STALE_ODOM, "odometry is 3.00 s old").run(1.0)
    assert len(world.jobs) == 4
    assert len([text for _, text in world.logs if "odometry" in text]) == 1
    assert [r.code for r in world.reports].count(ErrorCode.STALE_ODOM) == 1


def test_the_decision_limit_ends_the_instruction():
    world = World(max_decisions=2).instruct()
    for _ in range(2):
        world.answer(TURN).ended().run(0.5)
    assert len(world.jobs) == 2 and world.requests[-1].kind is CommandKind.STOP
    assert world.reports[-1].code is ErrorCode.TOO_MANY_DECISIONS


def test_internal_errors_in_a_row_end_the_instruction():
    world = World(internal_failure_limit=3).instruct()
    for _ in range(3):
        world.fail(ErrorCode.INTERNAL).run(6)
    assert len(world.jobs) == 3 and world.requests[-1].kind is CommandKind.STOP


def test_status_of_another_command_is_ignored():
    world = World().instruct().answer(FORWARD)
    world.navigator.on_status(Status(MotionState.REACHED, 1, 999), world.now)
    assert world.run(0.5).navigator.phase is NavigatorPhase.MOVING


def test_times_are_measured_from_the_frame_and_from_the_start_of_the_decision():
    world = World().instruct()
    job = world.jobs[0]
    world.now = job.frame.received + 0.2
    world.find(FORWARD).answer(FORWARD)
    report = world.reports[-1]
    assert report.camera_to_action_ms == pytest.approx(200) and 0 < report.decision_ms < 200.1
