"""The emergency stop latches until a reset, the operator's stop until the next instruction; strangers lift neither."""

import pytest

from spec_vlm_nav.common.codes import MotionState
from spec_vlm_nav.common.geometry import ZERO
from spec_vlm_nav.motion.command import OPERATOR_STOP, CommandKind
from spec_vlm_nav.motion.core import MotionCore
from tests.robot.faulty_robot import FaultyRobot
from tests.robot.moving_robot import DT, Robot, move, stand, turn

ESTOPPED, REFUSED, STOPPED = MotionState.ESTOPPED, MotionState.REFUSED, MotionState.STOPPED
OTHER = 999


def estopped():
    robot = Robot().moving()
    robot.core.estop("topic e_stop")
    return robot


def supervised():
    return Robot(supervisor_timeout_s=1.0).supervise(camera_age_s=0.05, verifier_age_s=0.05).moving()


# -- the emergency stop


def test_an_emergency_stop_is_zero_at_the_next_tick_and_says_who():
    robot = estopped()
    assert robot.run(DT) == ZERO and not robot.core.is_moving
    last = robot.events[-1]
    assert last.state is ESTOPPED and "topic e_stop" in last.reason and last.done.distance_m > 0.05
    told = robot.core.as_of(robot.now, robot.core.status)
    assert told.estopped and told.held_by == "e-stop: topic e_stop"


@pytest.mark.parametrize(
    "unlatches",
    [
        lambda robot: robot.send(move(sequence=2)),
        lambda robot: robot.send(move(sequence=2, instruction=2)),
        lambda robot: robot.send(turn(sequence=2, instruction=9, unverified=True)),
        lambda robot: robot.send(move(sequence=1, session=OTHER)),
        lambda robot: robot.send(stand(CommandKind.HOLD)).send(move(sequence=3, instruction=2)),
        lambda robot: robot.send(stand(CommandKind.STOP)).send(move(sequence=3, instruction=2)),
        lambda robot: [robot.core.stop(), robot.send(move(sequence=2, instruction=2))],
        lambda robot: [robot.core.estop("again"), robot.send(move(sequence=2, instruction=2))],
        lambda robot: [robot.run(60), robot.send(move(sequence=2, instruction=2))],
    ],
    ids=[
        "move",
        "instruction",
        "turn",
        "session",
        "hold",
        "stop",
        "stop by hand",
        "e-stop again",
        "a minute",
    ],
)
def test_nothing_but_a_reset_unlatches_it(unlatches):
    robot = estopped()
    unlatches(robot)
    assert robot.run(1.0) == ZERO
    last = robot.events[-1]
    assert last.state is ESTOPPED and last.reason == "e-stop: topic e_stop"  # the first reason stays


def test_after_a_reset_only_a_new_instruction_moves():
    robot = estopped()
    assert robot.core.reset() == "the e-stop (topic e_stop)"
    assert robot.run(1.0) == ZERO and robot.send(move(sequence=2)).run(0.5) == ZERO
    assert "latched until the next instruction" in robot.events[-1].reason
    assert robot.send(move(sequence=3, instruction=2)).run(0.5).linear > 0


def test_before_anything_was_heard_it_latches_as_well():
    core = MotionCore()
    core.estop("button")
    assert core.tick(0.0) == ZERO and core.gate.held_by == "e-stop: button"
    robot = Robot()
    robot.core.estop("button")
    assert robot.send(move()).run(0.5) == ZERO and robot.events[-1].state is ESTOPPED


def test_it_goes_before_every_other_reason():
    robot = Robot(robot_state_timeout_s=0.5)
    robot.odometry = False
    robot.run(1.0)
    robot.core.estop("button")
    assert robot.send(move()).events[-1].state is ESTOPPED


# -- reset


def test_a_reset_of_nothing_says_nothing_and_still_stops():
    robot = Robot().moving()
    assert robot.core.reset() == "" and robot.run(DT) == ZERO
    assert robot.events[-1].state is STOPPED and robot.core.gate.latched_by == OPERATOR_STOP
    assert robot.send(move(sequence=2, instruction=2)).run(0.5).linear > 0


def test_a_reset_says_all_that_it_took_back():
    robot = FaultyRobot(noise_m=0.0, stuck="all")
    robot.insist((0.5, 0.0), times=2)
    robot.core.estop("button")
    assert robot.core.reset().startswith(
        "the e-stop (button) and odometry (no response: odometry shows +0.00 m"
    )
    assert robot.core.gate.held_by == OPERATOR_STOP and robot.lost is None


# -- strangers: commands that do not come from the sender of their session


def refused(robot, reason):
    last = robot.core.take_events()[-1]
    return (last.state, last.session) == (REFUSED, OTHER) and reason in last.reason


@pytest.mark.parametrize("command", [move, turn])
@pytest.mark.parametrize("sequence", [1, 10_000])
def test_a_stranger_moves_nothing_and_disturbs_nothing(command, sequence):
    robot = supervised()
    robot.forge(command(sequence=sequence, session=OTHER))
    assert refused(robot, "nonce")
    assert robot.run(0.2).linear > 0.2 and robot.core.gate.session == 7
    assert robot.send(turn(sequence=2)).run(0.3).angular > 0  # its sequence numbers count for nobody else


def test_a_move_in_the_name_of_the_session_in_charge_moves_nothing_and_the_robot_stands():
    robot = supervised()
    robot.forge(turn(sequence=2, instruction=5))
    assert robot.run(DT) == ZERO and robot.core.gate.sequence == 1
    assert robot.send(turn(sequence=2)).run(0.3).angular > 0


@pytest.mark.parametrize("kind", [CommandKind.STOP, CommandKind.HOLD])
def test_a_stranger_may_stop_the_robot(kind):
    robot = supervised()
    robot.forge(stand(kind, sequence=1, session=OTHER))
    assert robot.run(DT) == ZERO and robot.core.gate.session == 7


def test_a_move_before_the_first_command_of_any_session_moves_nothing():
    robot = Robot()
    robot.forge(move(session=OTHER))
    assert refused(robot, "nonce") and robot.run(0.5) == ZERO and robot.core.gate.session is None


def test_a_session_that_tells_how_it_is_takes_over_at_once_and_the_old_one_stays_out():
    robot = supervised().supervise(OTHER, camera_age_s=0.05, verifier_age_s=0.05)
    robot.run(DT)
    assert robot.send(turn(sequence=1, session=OTHER)).run(0.3).angular > 0
    robot.core.take_events()
    robot.supervise(7, camera_age_s=0.05, verifier_age_s=0.05).run(DT)
    robot.send(move(sequence=900, instruction=9))
    assert "replaced by another one" in robot.core.take_events()[-1].reason and robot.run(DT).linear == 0


def test_a_stranger_does_not_lift_the_operators_stop():
    robot = Robot().moving()
    robot.core.stop()
    robot.forge(move(sequence=1, instruction=99, session=OTHER))
    assert robot.run(0.5) == ZERO and robot.core.gate.latched_by == OPERATOR_STOP


def test_after_the_operators_stop_the_session_in_charge_goes_on_with_its_next_instruction():
    robot = supervised()
    robot.core.stop()
    robot.forge(move(sequence=1, session=OTHER, instruction=9))
    assert robot.send(move(sequence=2)).run(0.3) == ZERO
    assert robot.send(move(sequence=3, instruction=2)).run(0.5).linear > 0


def test_a_restarted_deciding_side_that_tells_how_it_is_goes_on_after_the_operators_stop():
    robot = supervised()
    robot.core.stop()
    robot.supervise(8, camera_age_s=0.05, verifier_age_s=0.05).run(DT)
    assert robot.send(move(sequence=1, session=8)).run(0.5).linear > 0


def test_a_stop_that_the_deciding_side_said_itself_holds_no_other_session():
    robot = Robot().moving()
    robot.send(stand(CommandKind.STOP))
    assert robot.send(move(sequence=1, session=OTHER)).run(0.5).linear > 0


def test_a_new_session_lifts_an_operator_s_stop_by_an_instruction_of_its_own_only():
    robot = Robot().moving()
    robot.core.stop()
    robot.supervise(session=8).run(0.2)
    robot.send(move(session=8, instruction=0, sequence=0))
    assert robot.run(1) == ZERO and robot.events[-1].state is REFUSED
    robot.send(move(session=8, instruction=1, sequence=1))
    assert robot.run(1).linear > 0


def test_a_stop_that_the_deciding_side_repeats_is_no_newer_stop():
    robot = Robot().moving()
    robot.core.stop()
    key = robot.core.state_key
    robot.send(stand(CommandKind.HOLD, sequence=5))
    assert robot.core.state_key == key and robot.core.status.reason == OPERATOR_STOP
    robot.core.stop()
    assert robot.core.state_key != key


def test_sessions_that_were_replaced_fill_no_memory_and_the_latest_stay_out(monkeypatch):
    monkeypatch.setattr("spec_vlm_nav.motion.gate.MOST_RETIRED", 20)
    robot = Robot(supervisor_timeout_s=1.0).moving()
    for session in range(100, 200):
        robot.send(stand(CommandKind.HOLD, sequence=1, session=session))
    assert len(robot.core.gate._retired) == 20
    robot.core.take_events()
    robot.send(move(sequence=900, session=198))
    assert "replaced by another one" in robot.core.take_events()[-1].reason


# -- a deciding side that falls silent


@pytest.mark.parametrize("wakes_first", ["supervision", "command", "odometry"])
def test_after_a_silence_nothing_moves_until_the_next_instruction_whatever_is_heard_first(wakes_first):
    robot = Robot(supervisor_timeout_s=0.5).supervise(camera_age_s=0.05, verifier_age_s=0.05).moving()
    told, robot.told = robot.told, None
    if wakes_first == "odometry":
        robot.run(0.7)
    else:
        robot.now += 0.7  # motion_node itself hung as well: everything waits in its queues
    if wakes_first == "supervision":
        robot.supervise(camera_age_s=0.0, verifier_age_s=0.0)
        robot.core.on_supervision(robot.told, robot.now)
    robot.told = told
    robot.send(move(sequence=2))
    assert robot.run(1.0) == ZERO
    assert robot.core.gate.held_by.startswith("nothing heard from the navigator for 0.")
    robot.send(move(sequence=3, instruction=2))
    assert robot.run(0.5).linear > 0


def test_a_silence_while_the_robot_stands_may_last_twice_as_long():
    robot = supervised().send(stand(CommandKind.HOLD))
    told, robot.told = robot.told, None
    robot.run(1.8)
    robot.told = told
    assert robot.run(0.1) == ZERO and robot.send(move(sequence=3)).run(0.5).linear > 0
    robot.send(stand(CommandKind.HOLD, sequence=4))
    robot.told = None
    robot.run(2.2)
    robot.told = told
    assert robot.send(move(sequence=5)).run(0.5) == ZERO
    assert "is latched until the next instruction" in robot.core.take_events()[-1].reason


def test_a_motion_that_motion_node_did_not_watch_is_over():
    robot = Robot(response_watched=False).moving()
    robot.now += 1.5
    assert robot.run(0.2) == ZERO
    assert any("itself stalled for 1.5 s" in event.reason for event in robot.events)
