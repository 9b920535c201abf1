"""What motion_node hears of the deciding side, and what it does when that stops or turns bad, in simulated time."""

import math

import pytest

from spec_vlm_nav.common.codes import LinkState, MotionState
from spec_vlm_nav.common.geometry import ZERO
from spec_vlm_nav.motion.watchdogs import (
    SESSIONS_KEPT,
    RateMeter,
    Supervision,
    SupervisionWatch,
    WatchdogConfig,
)
from tests.robot.moving_robot import DT, Robot, move, turn

FINE = {"camera_age_s": 0.05, "verifier_age_s": 0.1, "link": LinkState.UP}


def test_a_supervised_motion_goes_on_to_its_end():
    robot = Robot(supervisor_timeout_s=0.5).supervise(**FINE)
    robot.send(move())
    robot.run(3)
    assert robot.states[-1] is MotionState.REACHED


def test_silence_of_the_deciding_side_ends_the_motion_within_its_timeout():
    robot = Robot(supervisor_timeout_s=0.5).supervise(**FINE).moving()
    robot.told = None
    assert robot.run(0.5 - DT).linear > 0
    assert robot.run(3 * DT) == ZERO
    last = robot.events[-1]
    assert last.state is MotionState.SUPERVISOR_LOST and "from the navigator" in last.reason
    assert last.done.distance_m > 0.1


def test_a_command_is_a_sign_of_life_and_0_switches_the_watchdog_off():
    robot = Robot(supervisor_timeout_s=0.8)
    robot.run(5)
    assert robot.send(turn()).run(0.6).angular > 0
    assert robot.send(turn(sequence=2)).run(0.6).angular > 0  # 1.2 s after the first
    assert Robot(supervisor_timeout_s=0.0).send(move()).run(1.2).linear > 0


def test_the_life_of_another_session_keeps_no_motion_alive():
    robot = Robot(supervisor_timeout_s=0.5).supervise(session=8, **FINE).moving(session=7)
    assert robot.run(0.3) == ZERO and robot.states[-1] is MotionState.SUPERVISOR_LOST


def test_a_camera_that_freezes_ends_the_motion_and_nothing_starts_until_it_is_back():
    robot = Robot(camera_timeout_s=1.0).supervise(**FINE).moving()
    robot.supervise(**{**FINE, "camera_age_s": 1.1})
    assert robot.run(DT) == ZERO
    last = robot.events[-1]
    assert last.state is MotionState.STALE_CAMERA and "1.10 s old" in last.reason
    robot.send(move(sequence=2)).run(0.3)
    assert robot.velocity == ZERO and robot.states[-1] is MotionState.STALE_CAMERA
    assert robot.supervise(**FINE).run(0.3) == ZERO  # it does not go on by itself
    assert robot.send(move(sequence=3)).run(0.3).linear > 0


def test_ages_go_on_while_nothing_is_told():
    robot = Robot(camera_timeout_s=0.6).supervise(**FINE).moving()
    robot.told = None
    assert robot.run(0.5).linear > 0
    assert robot.run(0.15) == ZERO and robot.states[-1] is MotionState.STALE_CAMERA


@pytest.mark.parametrize("told", [{"verifier_age_s": 2.5}, {"link": LinkState.LOST}])
def test_a_verifier_not_heard_ends_the_motion_but_not_one_that_is_marked_unverified(told):
    robot = Robot(verifier_timeout_s=2.0).supervise(**FINE).moving()
    robot.supervise(**{**FINE, **told})
    assert robot.run(DT) == ZERO and robot.states[-1] is MotionState.LINK_LOST
    assert robot.send(move(sequence=2)).run(0.2) == ZERO
    assert robot.states == [MotionState.LINK_LOST]  # of the command that was not begun
    assert robot.send(move(sequence=3, unverified=True)).run(0.5).linear > 0
    assert robot.core.status.unverified


@pytest.mark.parametrize("name", ["camera_age_s", "verifier_age_s"])
@pytest.mark.parametrize(("age", "moves"), [(-1.0, True), (math.nan, False), (math.inf, False)])
def test_an_age_that_is_no_number_is_a_fault_and_a_negative_one_is_not_watched(name, age, moves):
    robot = Robot().supervise(**{**FINE, name: age}).send(move())
    assert (robot.run(0.5).linear > 0) is moves


@pytest.mark.parametrize("name", ["camera_timeout_s", "verifier_timeout_s"])
def test_0_switches_a_watchdog_off(name):
    robot = Robot(**{name: 0.0}).supervise(camera_age_s=0.1, link=LinkState.UP)
    bad = {"camera_timeout_s": {"camera_age_s": 99.0}, "verifier_timeout_s": {"link": LinkState.LOST}}
    assert robot.supervise(**bad[name]).send(move()).run(0.5).linear > 0


def test_unverified_commands_are_slow_in_the_executor_and_in_the_last_stage():
    limits = {"unverified_max_linear": 0.15, "unverified_max_angular": 0.3, "max_command_s": 20.0}
    robot = Robot(**limits).send(move(unverified=True, deadline_s=20.0))
    robot.run(1)
    assert robot.velocity.linear == pytest.approx(0.15)
    assert robot.core.executor.config.linear_speed == 0.15
    robot.run(6)
    assert robot.states[-1] is MotionState.REACHED  # its time-out is that of the slow speed
    robot.send(turn(sequence=2, unverified=True)).run(0.5)
    assert robot.velocity.angular == pytest.approx(0.3)
    robot.core.executor.config = robot.core._config  # the executor forgets: the gate still holds
    assert robot.run(0.5).angular == pytest.approx(0.3)
    assert robot.send(turn(sequence=3)).run(0.3).angular > 0.5


def test_an_unverified_limit_above_the_ordinary_one_does_not_make_anything_faster():
    robot = Robot(max_linear=0.2, unverified_max_linear=1.0).send(move(unverified=True))
    assert robot.run(1).linear == pytest.approx(0.2)


def test_many_sessions_do_not_fill_the_memory_and_the_one_heard_is_kept():
    watch = SupervisionWatch()
    for number in range(1000):
        watch.tell(Supervision(number), float(number))
        watch.hear(5, float(number))
    assert watch.silent_for_s(5, 1000.0) == 1.0 and watch.silent_for_s(7, 1000.0) == math.inf
    assert len(watch._sessions) == SESSIONS_KEPT


def test_nothing_told_is_no_fault_of_camera_or_verifier():
    watch, config = SupervisionWatch(), WatchdogConfig()
    watch.hear(1, 0.0)
    assert watch.camera_fault(1, 99.0, config) == "" == watch.verifier_fault(1, 99.0, config)


def test_a_rate_falls_when_nothing_comes():
    meter = RateMeter()
    for tick in range(11):
        meter.tick(tick * 0.1)
    assert meter.hz(1.0) == pytest.approx(10) and meter.hz(2.0) == pytest.approx(5)
    assert RateMeter().hz(1.0) == 0
