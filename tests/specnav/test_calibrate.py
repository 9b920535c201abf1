"""`specnav calibrate` in simulated time: what it measures of bases that are late, weak or deaf, and what ends it."""

from __future__ import annotations

import io
import itertools
import math
import os
import select
from datetime import datetime, timezone

import pytest
import yaml

from benchmarks.calibrated_bases import measure
from spec_vlm_nav.common.geometry import ZERO, Motion, Pose
from spec_vlm_nav.motion.parameters import MOTION
from spec_vlm_nav.motion.watchdogs import OdometryReading
from spec_vlm_nav.parameters.files import refuse_unknown
from specnav.calibrate.asking import StepPrompt
from specnav.calibrate.config import CalibrateConfig
from specnav.calibrate.core.course import CalibrationRun
from specnav.calibrate.core.measuring import MeasuredStop, Noise, Response
from specnav.calibrate.core.procedure import CalibrationError, CalibrationFindings
from specnav.calibrate.core.result import DEFAULTS, calibration, check
from specnav.calibrate.core.steps import forward, resting, search_forward, search_turn, turn
from specnav.calibrate.files import check_out, given_parameters, text_of, write
from specnav.calibrate.view import table_of
from specnav.errors import UsageError
from tests.helpers.imperfect_base import BaseTraits, OdometryFault
from tests.helpers.simulated_base import SimulatedBase, calibrate, carry_out

pytestmark = pytest.mark.slow

QUICK = CalibrateConfig(repetitions=1)
BACKWARDS, BESIDE = -0.1, 0.15  # m: turning on the spot moves a real base a little, this one not at all


def base(**traits):
    return BaseTraits(**{"deadband_linear": 0.05, "deadband_angular": 0.1, **traits})


def measured(course, style="epsilon"):
    assert course.fault == ""
    return calibration(course.findings, 0.3, style).parameters()


@pytest.mark.parametrize("drops_zeros", [False, True])
@pytest.mark.parametrize("delay_s", [0.0, 0.3, 0.6])
def test_delay_scales_slowest_speeds_and_stop_are_measured(delay_s, drops_zeros):
    traits = base(delay_s=delay_s, drops_zeros=drops_zeros, linear_scale=0.85, angular_scale=1.1)
    found = measured(calibrate(SimulatedBase(traits)))
    assert found["actuation_delay_s"] == pytest.approx(
        delay_s + 0.015, abs=0.02
    )  # half a tick, half a message
    assert found["linear_scale"] == pytest.approx(0.85, abs=0.01)
    assert found["angular_scale"] == pytest.approx(1.1, abs=0.01)
    # The base begins to move at 0.059 m/s and 0.091 rad/s of what is commanded; stairs are 30 % high.
    assert 0.059 <= found["min_linear"] <= 0.059 * 1.3
    assert 0.091 <= found["min_angular"] <= 0.091 * 1.3
    coasts = 0.255 * (delay_s + 0.02) + 0.255**2 / (2 * 1.5)
    assert found["stopping_distance_m"] == pytest.approx(coasts, abs=0.02)
    assert found["stop_style"] == "epsilon"


def test_whether_plain_zeros_are_obeyed_is_said_and_the_creep_written_where_it_is_needed():
    said = {}
    for drops in (False, True):
        course = calibrate(SimulatedBase(base(delay_s=0.3, drops_zeros=drops)), QUICK, "zero")
        found = calibration(course.findings, 0.3, "zero")
        said[drops] = found.parameters()["stop_style"], found.notes[-1]
    assert said[False][0] == "zero" and "plain zeros are obeyed" in said[False][1]
    assert said[True][0] == "epsilon" and "plain zeros are not obeyed" in said[True][1]


def test_zeros_that_are_never_obeyed_are_followed_by_the_creep():
    # This base would hold the last velocity for ever.
    world = SimulatedBase(base(delay_s=0.3, drops_zeros=True, hold_s=1e9))
    course = calibrate(world, QUICK)
    assert course.fault == "" and course.findings.zero_stop.seconds > 2.0
    assert course.findings.epsilon_stop.seconds < 0.5


def test_a_base_so_late_that_motion_node_would_give_up_gets_a_longer_time_out():
    found = measured(calibrate(SimulatedBase(base(delay_s=0.9)), QUICK))
    assert found["response_timeout_s"] == pytest.approx(1.2)


def test_noise_of_odometry_is_told_and_changes_little():
    world = SimulatedBase(base(delay_s=0.3, drops_zeros=True))
    world.odometry.noise_m = 0.002
    course = calibrate(world)
    found = measured(course)
    assert course.findings.noise.metres == pytest.approx(0.002, rel=0.3)
    assert course.findings.noise.rate_hz == pytest.approx(30, rel=0.05)
    assert found["actuation_delay_s"] == pytest.approx(0.31, abs=0.03)
    assert found["linear_scale"] == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("room_m", [0.7, 1.0, 3.0])
def test_it_stays_in_its_room_and_never_goes_backwards(room_m):
    course = calibrate(SimulatedBase(base(delay_s=0.3, drops_zeros=True)), CalibrateConfig(room_m=room_m))
    assert course.fault == ""
    for record in course.records:
        for sample in record.samples:
            assert -0.05 <= sample.pose.x <= room_m and abs(sample.pose.y) < BESIDE
            assert sample.moved.along_m > BACKWARDS
        for stretch in record.step.stretches:
            assert 0 <= stretch.velocity.linear <= 0.3 and abs(stretch.velocity.angular) <= 0.6


@pytest.mark.parametrize(
    ("traits", "said"),
    [
        (
            {"stuck": "all"},
            "the base does not turn: up to 0.60 rad/s were commanded and odometry shows 0.0 degrees",
        ),
        ({"stuck": "forward"}, "the base does not go forward: up to 0.28 m/s were commanded"),
        ({"push": (0.0, 0.4, 0.0)}, "beyond the room"),
        ({"angular_scale": -1.0}, "turns the wrong way"),
        ({"linear_scale": -1.0}, "moves the wrong way"),
        ({"linear_scale": 2.5}, "more than 1.2"),
    ],
)
def test_a_base_that_cannot_be_measured_ends_it_with_one_line_and_stands(traits, said):
    world = SimulatedBase(base(delay_s=0.3, **traits))
    course = calibrate(world, QUICK)
    assert said in course.fault and course.findings is None and "\n" not in course.fault
    assert world.base.pose.x <= 1.1


@pytest.mark.parametrize("struck_at_s", [1.0, 9.0])
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (OdometryFault.STOPPED, "odometry is 0.5"),
        (OdometryFault.NAN, "NaN or infinity"),
        (OdometryFault.JUMPING, "jumped by 2"),
        (OdometryFault.STUCK_STAMPS, "stamps do not advance"),
        (OdometryFault.FOREIGN, "two sources"),
    ],
)
def test_odometry_that_breaks_stops_the_robot_at_once(fault, said, struck_at_s):
    course, world, began = struck(fault, struck_at_s)
    assert said in course.fault
    assert world.now - began < 0.6
    assert course.tick(world.now) == ZERO


@pytest.mark.parametrize(
    ("noise_m", "at_s", "said", "within_s"),
    [
        (0.0002, 17.0, "repeated one pose", 0.6),
        (0.0, 19.0, "does not respond", 0.6),  # in the middle of a turn
        (0.0, 17.0, "does not respond", 2.5),  # nobody can see it before the next turn, 1.3 s later
    ],
)
def test_odometry_that_freezes_in_mid_motion_ends_it(noise_m, at_s, said, within_s):
    course, world, began = struck(OdometryFault.FROZEN, at_s, noise_m)
    assert said in course.fault and world.now - began < within_s


def test_a_base_that_gets_stuck_in_mid_turn_is_told_to_stand_within_a_second():
    world, stuck = SimulatedBase(base(delay_s=0.3)), []
    step = world.base.step

    def sticks(now):
        if now >= 19.0 and not stuck:
            stuck.append(now)
            world.base.traits = base(delay_s=0.3, stuck="all")
        step(now)

    world.base.step = sticks
    course = calibrate(world, QUICK)
    assert "does not respond" in course.fault and world.now - 19.0 < 1.0


def struck(fault, at_s, noise_m=0.0002):
    """Calibrate an odometry that breaks at a time; returns the course, the world, and when it broke."""
    world = SimulatedBase(base(delay_s=0.3))
    world.odometry.noise_m = noise_m
    message, began = world.odometry.message, []

    def broken(pose, now):
        if now >= at_s and not began:
            began.append(now)
            world.odometry.fault = fault
        return message(pose, now)

    world.odometry.message = broken
    return calibrate(world, QUICK), world, began[0]


def test_a_search_forward_commands_no_more_than_there_is_room():
    assert sum(s.velocity.linear * s.seconds for s in search_forward(0.02, 0.3, 0.4).stretches) <= 0.4
    world = SimulatedBase(base(delay_s=0.3, deadband_linear=0.2))
    assert (
        "up to 0.16 m/s were commanded"
        in calibrate(world, CalibrateConfig(room_m=0.7, repetitions=1)).fault
    )


def test_too_little_room_is_said_before_anything_goes_forward():
    world = SimulatedBase(base(delay_s=0.3))
    course = calibrate(world, CalibrateConfig(room_m=0.5, repetitions=1))
    assert "0.5 m of room is too little for 0.3 m/s" in course.fault and "--room" in course.fault
    assert abs(world.base.pose.x) < 0.01
    assert "too little" in calibrate(SimulatedBase(base()), CalibrateConfig(room_m=0.3)).fault


def test_a_stop_in_mid_step_leaves_nothing_to_send_and_no_findings():
    course = CalibrationRun(QUICK)
    for tick in range(200):
        course.hear(OdometryReading(Pose(0.0, 0.0, 0.0), 1.0 + tick / 30), tick / 30)
        if course.next is not None:
            course.allow(tick / 30)
        velocity = course.tick(tick / 30)
        if velocity != ZERO:
            course.end("stop was heard on topic stop")
            assert course.tick((tick + 1) / 30) == ZERO
            break
    assert course.is_over and course.findings is None and course.fault == "stop was heard on topic stop"


def test_nothing_is_sent_before_the_step_is_allowed():
    course = CalibrationRun(QUICK)
    for tick in range(100):
        course.hear(OdometryReading(Pose(0.0, 0.0, 0.0), 1.0 + tick / 30), tick / 30)
        assert course.tick(tick / 30) == ZERO
    assert course.next is not None and course.records == []


def findings(**changes):
    one = {
        "noise": Noise(0.0002, 0.0001, 30.0),
        "turns": [Response(0.30, 1.0), Response(0.32, 1.0)],
        "drives": [Response(0.31, 0.9), Response(0.31, 0.9)],
        "slowest_turns": [0.12, 0.1],
        "slowest_drives": [0.06],
        "stops": [MeasuredStop(0.1, 0.3), MeasuredStop(0.12, 0.3)],
        "zero_stop": MeasuredStop(0.1, 0.3),
        "epsilon_stop": MeasuredStop(0.1, 0.3),
    }
    return CalibrationFindings(**{**one, **changes})


def test_values_are_medians_but_the_stop_is_the_longest_and_the_slowest_speed_the_faster_side():
    found = calibration(findings(), 0.3, "epsilon").parameters()
    assert found["actuation_delay_s"] == 0.31 and found["linear_scale"] == 0.9
    assert found["stopping_distance_m"] == 0.12 and found["min_angular"] == 0.12
    assert "response_timeout_s" not in found


def test_repetitions_that_disagree_are_named():
    turns = [Response(0.1, 1.0), Response(0.4, 1.3)]
    found = calibration(findings(turns=turns), 0.3, "epsilon")
    apart = [note for note in found.notes if note.startswith("repetitions disagree")]
    assert (
        len(apart) == 2 and "actuation_delay_s 0.100 to 0.400 (4)" in apart[0] and "angular_scale" in apart[1]
    )


def test_values_that_motion_node_would_refuse_are_refused_here():
    with pytest.raises(CalibrationError, match=r"linear_scale = 0.1 refused"):
        check(calibration(findings(drives=[Response(0.3, 0.1)]), 0.3), {})
    weak = calibration(findings(slowest_drives=[0.19]), 0.3)
    with pytest.raises(
        CalibrationError, match=r"min_linear = 0.19 and unverified_max_linear = 0.15 contradict"
    ):
        check(weak, {})
    check(weak, {"unverified_max_linear": 0.2})


def written(found):
    now = datetime(2026, 1, 2, 3, 4, tzinfo=timezone.utc)
    return text_of(found, CalibrateConfig(), findings().noise, "/cmd_vel (Twist)", "/odom", now)


def test_the_file_is_a_parameter_file_of_motion_node(tmp_path):
    path = tmp_path / "calibration.yaml"
    write(path, written(calibration(findings(), 0.3, "epsilon")))
    content = yaml.safe_load(path.read_text())
    values = content["/**/motion_node"]["ros__parameters"]
    refuse_unknown("motion_node", values, MOTION, frozenset())
    assert values == calibration(findings(), 0.3, "epsilon").parameters() == given_parameters(path)
    head = path.read_text()
    assert "2026-01-02 03:04 UTC" in head and "/odom" in head and "noise 0.2 mm" in head
    assert [file.name for file in tmp_path.iterdir()] == ["calibration.yaml"]
    check_out(path)  # one of ours may be replaced


def test_a_file_of_somebody_else_and_a_place_that_cannot_be_written_are_refused_before_anything_moves(
    tmp_path,
):
    robot = tmp_path / "robot.yaml"
    robot.write_text("/**/motion_node: {}\n")
    for path, said in (
        (robot, "was not written by"),
        (tmp_path, "is a folder"),
        (tmp_path / "a" / "b", "no folder"),
    ):
        with pytest.raises(UsageError, match=said):
            check_out(path)


def test_other_parameters_are_taken_from_the_users_file(tmp_path):
    file = tmp_path / "robot.yaml"
    file.write_text(
        "/**/motion_node: {ros__parameters: {unverified_max_linear: 0.25, nonsense: 1}}\n"
        "/**/vlm_nav_node: {ros__parameters: {gamma: 4}}\n/**: {ros__parameters: {max_linear: 0.4}}\n"
    )
    assert given_parameters(file) == {"unverified_max_linear": 0.25, "max_linear": 0.4}
    assert given_parameters(None) == {}


def test_the_table_tells_before_and_after():
    table = table_of(calibration(findings(), 0.3, "epsilon"), {"max_linear": 0.4})
    cells = [list(column.cells) for column in table.columns]
    row = cells[0].index("actuation_delay_s")
    assert (cells[1][row], cells[2][row]) == ("0.0", "0.31") and "0.4 m/s it moves 12 cm" in cells[4][row]


def answers(text):
    """A terminal on which somebody has typed this."""
    read, write_end = os.pipe()
    os.write(write_end, text.encode())
    os.close(write_end)
    return os.fdopen(read)


def test_each_step_waits_for_enter_and_a_allows_all_that_follow():
    said = []
    asker = StepPrompt(False, said.append, answers("\na\n"))
    one, two, three = resting(), turn(1.0, 0.5), forward(0.2, 0.2)
    assert asker.allows(one) and asker.allows(two) and asker.allows(three)
    assert len(said) == 3 and "Enter: go" in said[0] and "Enter" not in said[2]
    assert "turns left 57 degrees at 0.50 rad/s" in said[1]


@pytest.mark.parametrize("answer", ["n", "no", "stop", "q", "aa", "\x1b[A"])
def test_any_other_answer_begins_no_step(answer):
    with pytest.raises(CalibrationError, match="ended by the answer"):
        StepPrompt(False, lambda words: None, answers(f"{answer}\n")).allows(resting())


def test_a_key_pressed_before_the_question_answers_it_not():
    typing, terminal = os.openpty()
    with os.fdopen(typing, "wb", 0) as keys, os.fdopen(terminal) as source:
        asker = StepPrompt(False, lambda words: None, source)
        for step in (resting(), turn(1.0, 0.5)):
            keys.write(b"\n\n")
            select.select([source], [], [], 1)
            assert not asker.allows(step)
            keys.write(b"\n")
            select.select([source], [], [], 1)
            assert asker.allows(step)


def test_without_anybody_to_ask_it_says_so():
    asker = StepPrompt(False, lambda words: None, answers(""))
    with pytest.raises(CalibrationError, match="--yes"):
        asker.allows(resting())
    assert StepPrompt(True, lambda words: None, io.StringIO()).allows(resting())


def test_a_search_rises_in_small_stairs_to_the_fastest_allowed():
    step = search_turn(left=False, slowest=0.04, fastest=0.6)
    rates = [-stretch.velocity.angular for stretch in step.stretches]
    assert rates[0] == 0.04 and rates[-1] == 0.6
    assert all(1.0 < b / a <= 1.3 + 1e-9 for a, b in itertools.pairwise(rates))


@pytest.mark.parametrize("drops_zeros", [False, True])
@pytest.mark.parametrize("delay_s", [0.3, 0.6])
def test_motions_end_near_their_goals_before_and_after_a_calibration(delay_s, drops_zeros):
    row = measure(delay_s, drops_zeros, 0.85, runs=2)
    assert row.states == {"REACHED"}  # nothing is called BLOCKED that moves
    blind, default, calibrated = range(3)
    assert abs(row.degrees[default]) < 5 and abs(row.centimetres[default]) < 6
    assert abs(row.degrees[calibrated]) < 2.5 and abs(row.centimetres[calibrated]) < 2.5
    assert abs(row.degrees[blind]) > 5  # what the delay does where no caller knows of it


def test_without_a_delay_a_calibration_does_no_harm():
    outcome = carry_out(
        SimulatedBase(base()),
        Motion(0.0, math.radians(30)),
        measured(calibrate(SimulatedBase(base()), QUICK)),
    )
    assert outcome.state == "REACHED" and abs(math.degrees(outcome.missed_rad)) < 2
    assert DEFAULTS["actuation_delay_s"] == 0.0
