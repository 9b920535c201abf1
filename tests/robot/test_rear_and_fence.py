"""Never backwards into the unknown, and never out of the circle around where the instruction began."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spec_vlm_nav.common.codes import MotionState
from spec_vlm_nav.common.geometry import Motion, Pose
from spec_vlm_nav.motion.ahead.collision import Clearance
from spec_vlm_nav.motion.command import CommandKind
from spec_vlm_nav.motion.geofence import Geofence
from spec_vlm_nav.motion.parameters import executor_config, safety_config
from spec_vlm_nav.motion.rear import BESIDE_M, STEP_M, RearConfig, RearWatch
from tests.robot.faulty_robot import DEFAULTS, FaultyRobot

HERE = Pose(0.0, 0.0, 0.0)
REACHED, REFUSED, GEOFENCE = MotionState.REACHED, MotionState.REFUSED, MotionState.GEOFENCE


class Walked:
    """A RearWatch that is walked about; 10 poses a second, at 0.2 m/s and 1 rad/s."""

    def __init__(self):
        self.watch, self.now, self.pose, self.been = RearWatch(), 100.0, HERE, []
        self.wait(0.1)

    def step(self, ahead=0.0, turned=0.0):
        self.now += 0.1
        yaw = self.pose.yaw + turned
        self.pose = Pose(
            self.pose.x + ahead * math.cos(yaw),
            self.pose.y + ahead * math.sin(yaw),
            math.remainder(yaw, math.tau),
        )
        self.been.append((self.now, self.pose))
        self.watch.hear(self.pose, self.now)

    def drive(self, metres):
        for _ in range(round(abs(metres) / 0.02)):
            self.step(math.copysign(0.02, metres))
        return self

    def turn(self, degrees):
        for _ in range(round(abs(degrees) / 5)):
            self.step(turned=math.radians(math.copysign(5, degrees)))
        return self

    def wait(self, seconds):
        for _ in range(round(seconds / 0.1)):
            self.step()
        return self

    def free(self, **config):
        return self.watch.free_m(self.now, RearConfig(**config))


# -- what is known of the rear


def test_at_first_nothing_behind_is_known():
    assert RearWatch().free_m(0.0, RearConfig()) == 0 == Walked().wait(5).free()


@pytest.mark.parametrize("driven", [0.1, 0.2, 0.3, 0.4, 0.5, 0.8, 2.0])
def test_the_way_just_driven_is_free_as_far_as_it_went_and_no_further_than_the_limit(driven):
    free = Walked().drive(driven).free()
    assert min(driven, 0.5) - 0.1 <= free <= min(driven, 0.5)
    assert Walked().drive(driven).free(rear_max_m=0.2) <= 0.2


def test_0_never_goes_back():
    assert Walked().drive(1.0).free(rear_max_m=0.0) == 0 == Walked().drive(1.0).free(rear_known_s=0.0)


def test_what_was_left_too_long_ago_is_not_known_any_more():
    walked = Walked().drive(0.4)
    assert walked.wait(15).free() > 0.25
    assert walked.wait(3.9).free() < 0.35  # the far end of it is 20 s old
    assert walked.wait(2).free() == 0


@pytest.mark.parametrize("degrees", [30, 90, -90, 180, 135])
def test_after_a_turn_another_place_is_behind(degrees):
    assert Walked().drive(0.5).turn(degrees).free() <= 0.1


def test_after_turning_there_and_back_the_way_is_behind_again():
    assert Walked().drive(0.5).turn(60).turn(-60).free() > 0.3


def test_going_back_uses_up_what_is_known():
    walked = Walked().drive(0.5)
    frees = [walked.drive(-0.1).free() for _ in range(6)]
    assert frees == sorted(frees, reverse=True) and frees[-1] == 0
    assert frees[0] <= 0.4


def test_a_jump_makes_all_of_it_unknown():
    walked = Walked().drive(0.5)
    walked.watch.forget()
    walked.step()
    assert walked.free() == 0


LEGS = st.lists(
    st.tuples(st.sampled_from(["drive", "turn", "wait"]), st.floats(-1.0, 1.0)), min_size=1, max_size=8
)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, derandomize=True)
@given(LEGS)
def test_whatever_it_has_driven_it_has_been_wherever_it_may_go_back_to(legs):
    walked = Walked()
    for what, amount in legs:
        {
            "drive": lambda a: walked.drive(a),
            "turn": lambda a: walked.turn(180 * a),
            "wait": lambda a: walked.wait(10 * abs(a)),
        }[what](amount)
    free = walked.free()
    assert 0 <= free <= 0.5
    for back in [STEP_M * i for i in range(1, round(free / STEP_M) + 1)]:
        x = walked.pose.x - back * math.cos(walked.pose.yaw)
        y = walked.pose.y - back * math.sin(walked.pose.yaw)
        near = [at for at, p in walked.been if math.hypot(p.x - x, p.y - y) <= BESIDE_M + STEP_M]
        assert near and walked.now - max(near) <= 20.1


# -- the gate


def test_backwards_is_refused_unless_the_way_just_driven_is_behind():
    robot = FaultyRobot()
    end = robot.ask(-0.12)
    assert end.state is REFUSED and "only 0.00 m behind are known to be free" in end.reason
    assert robot.ask(0.5).state is REACHED
    assert robot.ask(-0.48).state is REFUSED  # a little further than it is sure of
    assert robot.ask(-0.3).state is REACHED is robot.ask(0.25).state
    assert robot.commanded_m <= 1.1 and robot.base.pose.x == pytest.approx(0.45, abs=0.06)


def test_what_is_told_of_the_rear_is_what_may_be_driven():
    robot = FaultyRobot()
    robot.ask(0.5)
    free = robot.core.as_of(robot.now, robot.core.status).rear_free_m
    assert 0.3 < free <= 0.5
    assert robot.ask(-free - 0.01).state is REFUSED and robot.ask(-free).state is REACHED


@pytest.mark.slow
@pytest.mark.parametrize(
    "spoils",
    [
        lambda robot: robot.run(25),
        lambda robot: [robot.ask(angle=1.5), robot.run(0.3)],
        lambda robot: robot.reset(),
        lambda robot: robot.fault("jumping").run(0.2).fault("none").run(0.2),
        lambda robot: robot.fault("nan").run(0.2).fault("none").run(0.2),
        lambda robot: [setattr(robot.base.traits, "stuck", "forward"), robot.ask(0.5), robot.ask(0.5)],
    ],
    ids=["too long ago", "turned away", "reset", "odometry jumped", "no number", "odometry in doubt"],
)
def test_what_makes_the_way_back_unknown(spoils):
    robot = FaultyRobot()
    robot.ask(0.5)
    assert robot.core.gate.rear_free_m(robot.now) > 0.3
    spoils(robot)
    before = robot.commanded_m
    assert robot.core.gate.rear_free_m(robot.now) == 0 and robot.ask(-0.12).state is REFUSED
    assert robot.run(1.0).commanded_m == before


class Seeing(FaultyRobot):
    """With a sensor that sees so far behind; `behind_m` None: it is silent."""

    behind_m = 1.0

    def run(self, seconds):
        for _ in range(max(1, round(seconds / 0.1))):
            if self.behind_m is not None:
                self.core.on_clearance(Clearance(9.0, "", self.behind_m), self.now)
            super().run(min(seconds, 0.1))
        return self


def test_a_sensor_that_looks_behind_shows_what_is_free_less_its_distance():
    robot = Seeing({"collision_source": "scan"})
    assert robot.core.gate.rear_free_m(robot.now) == pytest.approx(1.0 - 0.35)
    assert robot.ask(-0.5).state is REACHED and robot.base.pose.x == pytest.approx(-0.5, abs=0.06)
    robot.behind_m = 0.4
    assert robot.run(0.2).ask(-0.12).state is REFUSED
    robot.behind_m = 0.0  # one that does not look there
    assert robot.run(0.2).ask(-0.12).state is REFUSED


def test_a_sensor_that_has_fallen_silent_lets_nothing_go_backwards_either():
    robot = Seeing({"collision_source": "scan"})
    robot.ask(0.5)
    robot.behind_m = None
    assert robot.run(1.0).ask(-0.12).state is MotionState.STALE_SENSOR and robot.said.linear == 0


# -- the fence


@pytest.mark.parametrize(
    ("pose", "ahead", "radius", "objects"),
    [
        (HERE, 0.75, 1.0, False),
        (HERE, 1.01, 1.0, True),
        (Pose(0.5, 0, 0), 0.75, 1.0, True),
        (Pose(0.5, 0, 0), -0.75, 1.0, False),
        (Pose(-0.5, 0, 0), 1.4, 1.0, False),
        (Pose(0, 0.9, 0), 0.75, 1.0, True),
        (Pose(2.0, 0, math.pi), 0.75, 1.0, False),  # outside already, and on the way back
        (Pose(2.0, 0, 0), 0.05, 1.0, True),
        (Pose(99.0, 0, 0), 0.75, 0.0, False),  # no fence
    ],
)
def test_the_fence_objects_to_what_leads_out_or_further_out(pose, ahead, radius, objects):
    fence = Geofence()
    fence.begin(HERE)
    assert bool(fence.objection(pose, Motion(ahead), radius)) is objects
    assert fence.objection(pose, Motion(0.0, 1.5), radius) == ""  # turning leads nowhere


def test_the_reason_says_how_far_and_how_far_is_allowed():
    fence = Geofence()
    fence.begin(Pose(1.0, 1.0, 0.0))
    said = "leads 1.25 m from where the instruction began; the geofence is 1 m"
    assert fence.objection(Pose(1.5, 1.0, 0.0), Motion(0.75), 1.0) == said


def test_begun_without_a_pose_the_fence_is_laid_around_the_next_one():
    fence = Geofence()
    fence.begin(None)
    assert fence.objection(Pose(5, 0, 0), Motion(0.75), 1.0) == "" and fence.distance_m(Pose(5, 0, 0)) == 0
    fence.hear(Pose(5, 0, 0))
    fence.hear(Pose(5.5, 0, 0))
    assert fence.distance_m(Pose(6, 0, 0)) == 1.0 and fence.objection(Pose(5.5, 0, 0), Motion(0.75), 1.0)


def fenced(radius=1.0, **kwargs):
    return FaultyRobot({"geofence_m": radius}, **kwargs)


@pytest.mark.slow
def test_a_motion_that_would_leave_the_circle_is_not_begun_and_one_back_into_it_is():
    robot = fenced()
    assert [robot.ask(0.75).state, robot.ask(0.75).state] == [REACHED, GEOFENCE]
    assert robot.commanded_m <= 0.8
    assert robot.ask(angle=1.5).state is REACHED is robot.ask(angle=1.5).state
    assert robot.ask(0.75).state is REACHED


def test_every_instruction_has_a_circle_of_its_own():
    robot = fenced()
    robot.insist((0.75, 0.0), times=2)
    robot.instruction += 1
    assert robot.ask(0.75).state is REACHED and robot.ask(0.75).state is GEOFENCE
    robot.core.stop()  # by hand: the next instruction begins where it stands
    robot.instruction += 1
    assert robot.ask(0.75).state is REACHED


def test_the_same_instruction_of_another_session_has_another_circle():
    robot = fenced()
    robot.ask(0.75)
    robot.sequence = 0
    robot.send(CommandKind.MOVE, Motion(0.75), session=8)
    assert robot.run(1.0).core.status.state is not GEOFENCE


def test_a_fence_drawn_closer_ends_the_motion_under_way():
    robot = fenced(15.0)
    robot.send(CommandKind.MOVE, Motion(0.75))
    robot.run(0.8)
    values = {**DEFAULTS, "geofence_m": 0.4}
    robot.core.configure(executor_config(values), safety_config(values))
    robot.run(2.0)
    assert robot.core.status.state is GEOFENCE and robot.base.pose.x <= 0.45


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_wandering_about_never_leaves_the_circle(seed):
    robot, rng = fenced(0.8, seed=seed), random.Random(seed)
    ends = set()
    for _ in range(25):
        motion = rng.choice([(0.25, 0.0), (0.5, 0.0), (0.75, 0.0), (0.0, 0.5), (0.0, -0.8)])
        ends.add(robot.ask(*motion).state)
        assert math.hypot(robot.base.pose.x, robot.base.pose.y) <= 0.8 + 0.02
    assert ends == {REACHED, GEOFENCE}
