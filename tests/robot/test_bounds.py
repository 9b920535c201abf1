"""Every instruction ends: by obstructions that do not cease, by its bounds, by the emergency stop."""

import math

import pytest

from spec_vlm_nav.common.codes import ErrorCode, MotionState
from spec_vlm_nav.common.geometry import Motion, Pose
from spec_vlm_nav.common.status import Status
from spec_vlm_nav.deciding.parts.instruction import (
    PROGRESS_M,
    Obstructions,
    Odometer,
    fell_short,
    is_obstruction,
)
from spec_vlm_nav.deciding.parts.interfaces import NavigatorPhase
from spec_vlm_nav.motion.command import CommandKind
from tests.robot.navigator_world import FORWARD, STOP, TURN, World

OBSTRUCTED = {
    MotionState.BLOCKED: "BLOCKED",
    MotionState.COLLISION_AHEAD: "COLLISION_AHEAD",
    MotionState.NO_RESPONSE: "NO_RESPONSE",
    MotionState.WRONG_RESPONSE: "WRONG_RESPONSE",
    MotionState.UNCOMMANDED_MOTION: "UNCOMMANDED_MOTION",
    MotionState.GEOFENCE: "GEOFENCE",
    MotionState.REFUSED: "REFUSED",
    MotionState.EXPIRED: "BLOCKED",
}


def lively(**config):
    world = World(**config)
    world.lively = True
    return world.instruct()


def codes(world):
    return [o.code.name for o in world.outcomes]


# -- obstructions


@pytest.mark.parametrize("state", OBSTRUCTED)
def test_motions_that_come_to_nothing_end_the_instruction_with_the_reason_and_its_code(state):
    world = lively()
    for _ in range(8):
        if not world.outcomes:
            world.answer(FORWARD).run(0.2).ended(state, "because of this").run(1.0)
    assert codes(world) == [OBSTRUCTED[state]]
    outcome = world.outcomes[0]
    assert outcome.motions == 5 and "because of this" in outcome.message and "5 motions" in outcome.message
    assert world.requests[-1].kind is CommandKind.STOP and outcome.elapsed_s < 10


def test_obstructions_of_all_kinds_count_together():
    world = lively(max_obstructions=len(OBSTRUCTED))
    for state in OBSTRUCTED:
        assert world.outcomes == []
        world.answer(FORWARD).run(0.2).ended(state, "one of many").run(1.0)
    assert codes(world) == ["BLOCKED"]  # the last of them says how it ended


@pytest.mark.parametrize("between", [TURN, "none"])
def test_turning_and_backing_off_take_back_no_obstruction(between):
    world = lively()
    for _ in range(12):
        if world.outcomes:
            break
        world.answer(FORWARD).run(0.2).ended(MotionState.BLOCKED, "wall").run(1.0)
        if between != "none" and not world.outcomes:
            world.answer(between).run(0.2).ended(done=Motion(angle_rad=0.5)).run(1.0)
            world.answer(FORWARD).run(0.2).ended(done=Motion(-0.12)).run(1.0)
    assert codes(world) == ["BLOCKED"]


def test_walking_to_and_fro_before_a_wall_takes_back_nothing_either():
    world = lively()
    for _ in range(12):
        if not world.outcomes:
            world.answer(FORWARD).run(0.2).ended(MotionState.BLOCKED, "wall", Motion(0.2)).run(1.0)
        if not world.outcomes:
            world.answer(FORWARD).run(0.2).ended(done=Motion(-0.2)).run(1.0)
    assert codes(world) == ["BLOCKED"]


def test_getting_somewhere_else_takes_obstructions_back():
    counted, odometer = Obstructions(), Odometer()
    assert counted.add(odometer.place) == 1 and counted.add(odometer.place) == 2
    odometer.hear(1, Motion(PROGRESS_M - 0.01))
    counted.progressed(odometer.place)
    assert counted.add(odometer.place) == 3
    odometer.hear(2, Motion(0.02))
    counted.progressed(odometer.place)
    assert counted.count == 0 and counted.add(odometer.place) == 1


def test_a_motion_that_expired_half_way_is_no_obstruction():
    assert fell_short(Motion(0.1), Motion(0.5)) and not fell_short(Motion(0.3), Motion(0.5))
    assert fell_short(Motion(angle_rad=-0.4), Motion(angle_rad=0.5))  # the wrong way
    assert not fell_short(Motion(-0.08), Motion(-0.12))
    assert not is_obstruction(Status(MotionState.EXPIRED, done=Motion(0.3)), Motion(0.5))
    assert not is_obstruction(Status(MotionState.REACHED), Motion(0.5))
    assert not is_obstruction(Status(MotionState.STALE_ODOM), Motion(0.5))


# -- bounds


def test_every_instruction_is_bounded_in_time_by_default():
    world = lively()
    assert world.navigator.config.max_duration_s == 600
    world = lively(max_duration_s=5.0)
    world.run(5.5)
    assert codes(world) == ["TIMEOUT"]


def test_a_goal_may_ask_for_less_time_and_not_for_more():
    for allowance, ends_after in ((3.0, 3.0), (60.0, 8.0), (0.0, 8.0)):
        world = World(max_duration_s=8.0)
        world.navigator.on_instruction("find the red chair", world.now, allowance)
        world.run(10)
        assert world.outcomes[0].elapsed_s == pytest.approx(ends_after, abs=0.1)


def test_the_way_is_bounded_also_in_the_middle_of_a_motion():
    world = lively(max_distance_m=1.0)
    world.answer(FORWARD).run(0.2).ended(done=Motion(0.75)).run(0.5)
    assert world.outcomes == []
    world.mover = False
    world.answer(FORWARD)
    for done in (0.1, 0.2, 0.26):
        world.run(0.1)
        world.navigator.on_status(
            Status(MotionState.MOVING, 1, len(world.requests), "", Motion(done)), world.now
        )
    world.run(0.1)
    assert codes(world) == ["TOO_FAR"] and world.requests[-1].kind is CommandKind.STOP
    assert world.outcomes[0].distance_m == pytest.approx(1.01)


def test_a_new_instruction_begins_with_nothing_travelled_and_nothing_in_the_way():
    world = lively(max_distance_m=1.0, max_obstructions=2)
    for _ in range(3):
        world.instruct().answer(FORWARD).run(0.2).ended(MotionState.BLOCKED, "wall", Motion(0.7)).run(1.0)
    world.instruct()
    assert codes(world) == ["CANCELED"] * 3 or codes(world) == ["CANCELED"] * 4


@pytest.mark.slow
def test_bounds_of_zero_are_no_bounds():
    world = lively(max_duration_s=0.0, max_distance_m=0.0, max_decisions=0)
    for _ in range(40):
        world.answer(FORWARD).run(0.2).ended(done=Motion(0.75)).run(20.0)
    assert world.outcomes == []


# -- the emergency stop


def test_the_emergency_stop_ends_the_instruction_and_turns_new_ones_down_until_it_is_reset():
    world = lively().answer(FORWARD).run(0.3)
    world.navigator.on_estop("e-stop: topic e_stop", world.now)
    assert codes(world) == ["ESTOPPED"] and world.requests[-1].kind is CommandKind.STOP
    requests = len(world.requests)
    world.instruct().run(3)
    assert codes(world) == ["ESTOPPED"] * 2 and "reset it first" in world.outcomes[-1].message
    assert CommandKind.MOVE not in world.kinds[requests:] and world.navigator.phase is NavigatorPhase.IDLE
    world.navigator.on_estop("", world.now)
    world.instruct().answer(FORWARD)
    assert world.requests[-1].kind is CommandKind.MOVE


@pytest.mark.parametrize("phase", [NavigatorPhase.LOOKING, NavigatorPhase.THINKING, NavigatorPhase.MOVING])
def test_the_emergency_stop_ends_it_in_every_phase(phase):
    world = World()
    world.camera = phase is not NavigatorPhase.LOOKING
    world.instruct()
    if phase is NavigatorPhase.MOVING:
        world.answer(FORWARD)
    assert world.navigator.phase is phase
    world.navigator.on_estop("e-stop: button", world.now)
    assert codes(world) == ["ESTOPPED"] and world.navigator.phase is NavigatorPhase.IDLE


# -- stopping by words


@pytest.mark.parametrize(
    "words", ["please stop moving", "stop the robot", "freeze", "emergency stop", "Arrête-toi !", "停下来"]
)
def test_words_that_mean_stop_stop_and_begin_nothing(words):
    world = lively().answer(FORWARD).run(0.3)
    number = world.navigator.instruction.number
    world.navigator.on_instruction(words, world.now)
    world.run(3)
    assert codes(world) == ["CANCELED"] and world.navigator.instruction.number == number
    assert world.requests[-1].kind is CommandKind.STOP and len(world.jobs) == 1


def test_stop_at_the_door_is_an_instruction():
    world = lively().answer(FORWARD).run(0.3)
    world.navigator.on_instruction("stop at the door", world.now)
    assert (
        world.run(1).navigator.phase is not NavigatorPhase.IDLE
        and world.jobs[-1].instruction == "stop at the door"
    )


# -- inputs that are waited for


@pytest.mark.parametrize("state", [MotionState.STALE_SENSOR, MotionState.NOT_READY])
def test_a_sensor_or_a_robot_that_is_not_ready_is_waited_for_and_given_up_after_the_patience(state):
    world = lively(patience_s=4.0)
    for _ in range(8):
        if not world.outcomes:
            world.answer(TURN).ended(state, "it lies").run(1.1)
    assert codes(world) == [state.name] and world.outcomes[0].elapsed_s < 7
    world = lively(patience_s=4.0)
    for _ in range(6):
        world.answer(TURN).ended(state, "it lies").run(1.1).answer(TURN).ended().run(0.3)
    assert world.outcomes == []


# -- while the model is being loaded


def test_nothing_is_decided_while_something_is_waited_for_and_the_bounds_hold():
    world = World(max_duration_s=20.0)
    world.navigator.waits_for = "the model is still being loaded"
    world.instruct().run(5)
    assert world.jobs == [] and world.outcomes == []
    world.navigator.waits_for = ""
    world.run(0.3).answer(STOP)
    assert codes(world) == ["NONE"]
    world.navigator.waits_for = "the model is still being loaded"
    world.instruct().run(25)
    assert codes(world)[-1] == "NOT_READY"
    assert world.outcomes[-1].message == "not done within 20.0 s: the model is still being loaded"


def test_an_instruction_whose_time_is_over_says_what_kept_it_from_being_done():
    world = World(max_duration_s=8.0)
    world.instruct()
    for _ in range(9):
        world.fail(ErrorCode.INVALID_INPUT, "camera frame cannot be decoded: broken JPEG").run(1.0)
    assert codes(world) == ["INVALID_INPUT"]
    assert "not done within 8." in world.outcomes[0].message and "broken JPEG" in world.outcomes[0].message
    late = World(max_duration_s=8.0).instruct()
    late.run(6)  # the model thinks
    late.fail(ErrorCode.INVALID_INPUT, "broken JPEG").run(3.0)
    assert codes(late) == ["TIMEOUT"]


# -- the odometer


def test_the_odometer_puts_motions_together():
    odometer = Odometer()
    for sequence in range(1, 5):  # a square
        odometer.hear(2 * sequence, Motion(0.5))
        odometer.hear(2 * sequence + 1, Motion(0.0, 0.4))
        odometer.hear(2 * sequence + 1, Motion(0.0, math.pi / 2))
    assert odometer.distance_m == pytest.approx(2.0)
    assert odometer.place.x == pytest.approx(0.0, abs=1e-9) == odometer.place.y
    odometer.hear(99, Motion(math.nan))
    assert odometer.distance_m == pytest.approx(2.0)
    odometer.restart()
    assert odometer.place == Pose(0, 0, 0)


def test_a_robot_that_nothing_moves_is_not_asked_for_long():
    obstructions = Obstructions()
    for now in (0.0, 2.0, 3.9):
        obstructions.add(Pose(0, 0, 0), is_held=True, now=now)
        assert not obstructions.are_final(5, now)
    obstructions.add(Pose(0, 0, 0), is_held=True, now=4.1)
    assert obstructions.are_final(5, 4.1)


def test_one_that_another_motion_may_get_round_is_counted_only():
    obstructions = Obstructions()
    for now, held in ((0.0, True), (2.0, False), (5.0, True)):
        obstructions.add(Pose(0, 0, 0), is_held=held, now=now)
        assert not obstructions.are_final(5, now)
