"""The moving side as a whole: reports on the way, the operator's stop, live limits, and what it says of itself."""

import math

import pytest

from spec_vlm_nav.common.codes import MotionState
from spec_vlm_nav.common.diagnostics import Level
from spec_vlm_nav.common.geometry import ZERO
from spec_vlm_nav.motion import diagnostics
from spec_vlm_nav.motion.ahead.collision import Clearance
from spec_vlm_nav.motion.command import OPERATOR_STOP, CommandKind
from spec_vlm_nav.motion.core import MotionCore
from spec_vlm_nav.motion.executor import ExecutorConfig
from spec_vlm_nav.motion.limits import SafetyConfig
from spec_vlm_nav.motion.parameters import MOTION, corridor_config, executor_config, safety_config
from tests.robot.moving_robot import DT, Robot, move, stand, turn

AHEAD = {"collision_watched": True, "collision_distance_m": 0.35, "collision_timeout_s": 0.5}


def rows(robot):
    return {row.name: row for row in diagnostics.rows(robot.core, robot.now)}


# -- reports


def test_done_and_left_of_a_distance_add_up_to_the_command():
    robot = Robot().moving()
    status = robot.core.status
    assert status.state is MotionState.MOVING and 0.05 < status.done.distance_m < 0.3
    assert status.left.distance_m == pytest.approx(0.75 - status.done.distance_m)
    assert status.left.angle_rad == 0


def test_left_of_a_turn_is_an_angle_and_settling_comes_before_reached():
    robot = Robot().send(turn(unverified=True))
    robot.run(0.5)
    left = robot.core.status.left
    assert 0 < left.angle_rad < 0.7 and left.distance_m == 0 and robot.core.status.unverified
    robot.run(3)
    events = robot.events
    assert [e.state for e in events] == [MotionState.MOVING, MotionState.SETTLING, MotionState.REACHED]
    assert abs(events[-1].left.angle_rad) < 0.03 and events[-1].done.angle_rad == pytest.approx(0.7, abs=0.03)
    assert all(e.unverified for e in events)


# -- the operator's stop


def test_a_stop_by_hand_is_zero_at_the_next_tick_and_latches_until_the_next_instruction():
    robot = Robot().moving(sequence=3)
    robot.core.stop()
    assert robot.run(DT) == ZERO
    last = robot.events[-1]
    assert (last.state, last.reason, last.session, last.sequence) == (
        MotionState.STOPPED,
        OPERATOR_STOP,
        7,
        3,
    )
    assert last.done.distance_m > 0.05
    robot.send(move(sequence=4))
    assert robot.run(0.5) == ZERO and "latched until the next instruction" in robot.events[-1].reason
    robot.send(stand(CommandKind.HOLD, sequence=5))
    assert robot.events[-1].reason == OPERATOR_STOP  # the one that missed the first report hears it again
    assert robot.send(move(sequence=6)).run(0.5) == ZERO
    assert robot.send(move(sequence=7, instruction=2)).run(0.5).linear > 0


def test_a_stop_by_hand_holds_while_the_model_still_thinks():
    robot = Robot().send(stand(CommandKind.HOLD, sequence=1, instruction=4))
    robot.core.stop()
    assert robot.send(move(sequence=2, instruction=4)).run(0.5) == ZERO


def test_a_stop_by_hand_before_any_session_lets_the_first_new_instruction_move():
    robot = Robot()
    robot.core.stop()
    assert robot.core.gate.latched_by == OPERATOR_STOP and robot.events[-1].state is MotionState.STOPPED
    assert robot.send(move()).run(0.5).linear > 0


def test_a_stop_after_a_stop_by_hand_stays_latched():
    robot = Robot().moving()
    robot.core.stop()
    robot.send(stand(CommandKind.STOP, sequence=2))
    assert robot.core.gate.latched_by == OPERATOR_STOP
    assert robot.send(move(sequence=3)).run(0.3) == ZERO


# -- what is ahead


def seen(robot, nearest=math.inf, blind=""):
    robot.core.on_clearance(Clearance(nearest, blind), robot.now)
    return robot


def clear_run(robot, seconds):
    for _ in range(round(seconds / DT)):
        seen(robot).run(DT)
    return robot.velocity


def test_something_too_near_ends_a_forward_motion_at_once():
    robot = seen(Robot(**AHEAD)).send(move())
    assert clear_run(robot, 0.4).linear > 0.2
    seen(robot, 0.3)
    assert robot.run(DT) == ZERO
    last = robot.events[-1]
    assert last.state is MotionState.COLLISION_AHEAD and "0.30 m ahead" in last.reason
    assert last.done.distance_m > 0.05


def near_run(robot, seconds, nearest=0.2):
    for _ in range(round(seconds / DT)):
        seen(robot, nearest).run(DT)
    return robot.velocity


def test_with_something_near_forward_is_not_begun_but_turning_is_free():
    robot = seen(Robot(**AHEAD), 0.2).send(move())
    assert robot.states == [MotionState.COLLISION_AHEAD] and near_run(robot, 0.3) == ZERO
    robot.send(turn(sequence=2))
    assert near_run(robot, 0.3).angular > 0


def test_a_silent_or_blind_sensor_that_was_configured_lets_nothing_move():
    robot = Robot(**AHEAD).send(move())
    assert robot.states == [MotionState.STALE_SENSOR]
    seen(robot).send(move(sequence=2))
    assert robot.run(0.4).linear > 0
    assert robot.run(0.2) == ZERO
    last = robot.events[-1]
    assert last.state is MotionState.STALE_SENSOR and "silent" in last.reason
    seen(robot, blind="scan measures nothing ahead").send(move(sequence=3))
    assert robot.events[-1].reason == "scan measures nothing ahead"
    for sequence, evasion in ((4, turn), (5, lambda **kw: move(distance=-0.1, **kw))):
        robot.send(evasion(sequence=sequence))
        assert robot.events[-1].state is MotionState.STALE_SENSOR and robot.run(0.3) == ZERO
    assert clear_run(seen(robot).send(turn(sequence=6)), 0.3).angular > 0


def test_without_a_sensor_nothing_is_watched_ahead():
    assert seen(Robot(), 0.1).send(move()).run(0.5).linear > 0


# -- live limits


def test_a_limit_lowered_while_moving_holds_at_once_for_executor_and_gate():
    robot = Robot().moving()
    robot.core.configure(ExecutorConfig(linear_speed=0.1), SafetyConfig(max_linear=0.1))
    assert robot.run(0.3).linear == pytest.approx(0.1)
    robot.core.executor.config = ExecutorConfig()
    assert robot.run(0.2).linear == pytest.approx(0.1)


def test_the_parameters_reach_executor_gate_and_corridor():
    values = {p.name: p.default for p in MOTION} | {
        "max_linear": 0.3,
        "unverified_max_linear": 0.11,
        "verifier_timeout_s": 3.5,
        "collision_source": "depth",
        "collision_distance_m": 0.6,
    }
    safety = safety_config(values)
    assert executor_config(values).linear_speed == 0.3 == safety.max_linear
    assert (safety.unverified_max_linear, safety.verifier_timeout_s) == (0.11, 3.5)
    assert safety.collision_watched and safety.collision_distance_m == 0.6
    assert corridor_config(values).reach_m == 0.6
    assert not safety_config({p.name: p.default for p in MOTION}).collision_watched


# -- diagnostics


def test_the_health_of_a_robot_at_rest_and_supervised():
    robot = Robot(supervisor_timeout_s=1.0).supervise(camera_age_s=0.05, verifier_age_s=0.2, link_rtt_ms=41.0)
    robot.send(stand(CommandKind.HOLD, sequence=1)).run(1)
    found = rows(robot)
    inputs = [
        "odometry",
        "response",
        "robot state",
        "presence",
        "geofence",
        "supervisor",
        "camera",
        "verifier",
        "collision",
    ]
    assert list(found) == ["gate", *inputs, "counts"]
    assert {row.level for row in found.values()} == {Level.OK}
    assert found["odometry"].values["rate_hz"] == pytest.approx(30, abs=2)
    assert found["camera"].values["age_s"] == pytest.approx(0.05, abs=0.05)
    assert found["verifier"].values["link_rtt_ms"] == 41.0


def test_every_fault_shows_in_its_own_row():
    robot = Robot(supervisor_timeout_s=0.5, **AHEAD).supervise(camera_age_s=9.0, verifier_age_s=9.0)
    robot.send(stand(CommandKind.STOP, sequence=1)).run(0.1)
    found = rows(robot)
    assert {n for n, row in found.items() if row.level is Level.ERROR} == {"camera", "verifier", "collision"}
    assert found["gate"].level is Level.WARN and "latched by STOP" in found["gate"].message
    robot.told, robot.odometry = None, False
    robot.run(1)
    found = rows(robot)
    assert found["odometry"].level is Level.ERROR is found["supervisor"].level
    assert seen(robot, 0.1) and rows(robot)["collision"].level is Level.WARN


def test_an_e_stop_a_robot_that_lies_down_and_a_fence_show_as_well():
    robot = Robot(robot_state_timeout_s=1.0, geofence_m=2.0)
    robot.core.on_robot_state(False, "it lies", robot.now)
    robot.run(0.1)
    robot.core.estop("topic e_stop")
    found = rows(robot)
    assert found["gate"].level is Level.ERROR and "e-stop" in found["gate"].message
    assert found["robot state"].level is Level.ERROR and found["robot state"].message == "it lies"
    assert found["geofence"].values["radius_m"] == 2.0 and found["response"].level is Level.OK


def test_before_anything_was_heard_nothing_is_called_fine():
    found = {row.name: row for row in diagnostics.rows(MotionCore(), 0.0)}
    assert found["odometry"].level is Level.ERROR
    assert found["supervisor"].level is Level.STALE is found["verifier"].level


def test_what_ended_and_what_was_refused_is_counted_by_its_reason():
    robot = Robot(odom_timeout_s=0.3).moving()
    robot.odometry = False
    robot.run(0.5)
    robot.send(move(sequence=1))
    robot.send(move(sequence=2))
    counts = rows(robot)["counts"]
    assert counts.values == {"ended STALE_ODOM": 1, "refused: STALE_ODOM": 1, "refused: order": 1}
    assert counts.message == "1 ended by a watchdog, 2 refused"
