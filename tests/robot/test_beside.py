"""What stands beside the robot, remembered: a step that would graze it is made a little to the side."""

import math
from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from spec_vlm_nav.camera.images import to_jpeg
from spec_vlm_nav.common.geometry import Pose
from spec_vlm_nav.common.parameters import check_all
from spec_vlm_nav.deciding.parameters import VLM_NAV, navigator_config
from spec_vlm_nav.exploring.floor_reading import (
    COLUMNS,
    CameraGeometry,
    FloorPicture,
    FloorReading,
    RobotBody,
)
from spec_vlm_nav.exploring.frontier_search import FrontierState, frontier_search
from spec_vlm_nav.exploring.moves import ActionSource, Move, Observation
from spec_vlm_nav.exploring.side_obstacles import KEPT_LOOKS, RULE_WIDER, STRIDE_M, SideObstacles
from spec_vlm_nav.language.actions import STOP, Action, ActionKind, find_action
from spec_vlm_nav.language.sightings import Sighting
from spec_vlm_nav.model.worker import ActionFound
from spec_vlm_nav.motion.command import CommandKind
from specnav.recipes.rollouts import simulated_body
from tests.robot.navigator_world import World
from tests.robot.painted import BOX, painted

ROOT = Path(__file__).resolve().parents[2]
ON = Move(Action(ActionKind.FORWARD, 50), ActionSource.MODEL)
BEARINGS = np.linspace(math.radians(44), -math.radians(44), COLUMNS)
HERE, RADIUS = Pose(0.0, 0.0, 0.0), 0.26
FREE = FloorReading(BEARINGS, np.full(COLUMNS, np.inf))
BODY = RobotBody(CameraGeometry(0.35), RADIUS)


def seeing(*points, memory=None, place=HERE):
    """A memory after a look at floor that ends at points (x, y)."""
    ends = np.full(COLUMNS, np.inf)
    for x, y in points:
        bearing = math.atan2(y - place.y, x - place.x) - place.yaw
        ends[np.abs(BEARINGS - bearing).argmin()] = math.hypot(x - place.x, y - place.y)
    return (memory or SideObstacles()).looks(place, FloorReading(BEARINGS, ends), (1.0, 2.0, 3.0))


def asked(memory, move=ON, place=HERE, clear=True, contact=False, target_m=None):
    return memory.wider(move, place, RADIUS, clear, contact, target_m)


AT = Pose(0.8, 0.0, 0.0)  # what stood at (1, 0.25) is to the left now
LEFT_THING = (1.0, 0.25)


def test_what_left_the_picture_is_passed_wider_by_a_turn_and_a_stride():
    memory = seeing(LEFT_THING).looks(AT, FREE, (1.0, 2.0, 3.0))
    memory, turn = asked(memory, place=AT)
    assert turn.action.kind is ActionKind.TURN_RIGHT and turn.rule == RULE_WIDER
    assert turn.source is ActionSource.EXPLORATION
    turned = Pose(AT.x, AT.y, -math.radians(turn.action.amount))
    assert memory.gap(turned, turned.yaw, STRIDE_M) > RADIUS
    back = Move(Action(ActionKind.TURN_LEFT, 20), ActionSource.MODEL)  # the target is there
    after, stride = asked(memory, back, turned)
    assert stride.action == Action(ActionKind.FORWARD, 40) and after.way is None
    assert asked(after, back, turned)[1] is back, "one stride, then the model leads again"


@pytest.mark.parametrize("changed", [{"clear": False}, {"contact": True}, {"aside": 0.5}, {"aside": -0.5}])
def test_no_stride_into_what_is_blocked_after_a_contact_or_from_somewhere_else(changed):
    changed = dict(changed)
    memory, turn = asked(seeing(LEFT_THING).looks(AT, FREE, (1.0, 2.0, 3.0)), place=AT)
    turned = Pose(AT.x, AT.y, -math.radians(turn.action.amount))
    turned = replace(turned, y=turned.y + changed.pop("aside", 0.0))
    back = Move(Action(ActionKind.TURN_LEFT, 20), ActionSource.MODEL)
    assert asked(memory, back, turned, **changed)[1] is back


@pytest.mark.parametrize(
    ("move", "changed"),
    [
        (Move(STOP, ActionSource.MODEL), {}),
        (Move(Action(ActionKind.TURN_LEFT, 30), ActionSource.MODEL), {}),
        (ON, {"target_m": 0.6}),
    ],
)
def test_a_stop_a_turn_and_the_last_steps_to_the_target_are_the_models(move, changed):
    memory = seeing(LEFT_THING).looks(AT, FREE, (1.0, 2.0, 3.0))
    assert asked(memory, move, AT, **changed)[1] is move


def test_what_is_wide_of_the_way_or_ahead_changes_nothing():
    for thing in ((0.7, 0.45), (1.2, 0.05)):
        assert asked(seeing(thing).looks(AT, FREE, (1.0, 2.0, 3.0)), place=AT)[1] is ON


def test_where_no_small_turn_helps_the_step_is_made_as_it_was_meant():
    things = [(1.0, 0.25), (1.0, -0.25), (1.1, 0.3), (1.1, -0.3), (1.2, 0.0)]
    assert asked(seeing(*things).looks(AT, FREE, (1.0, 2.0, 3.0)), place=AT)[1] is ON


def test_what_is_looked_through_or_far_or_long_ago_is_forgotten():
    memory = seeing((1.0, 0.2))
    assert len(memory.points) == 1
    assert not len(memory.looks(HERE, FREE, (1.0, 2.0, 3.0)).points), "floor is seen where it stood"
    assert not len(memory.looks(Pose(-2.0, 0.0, math.pi), FREE, (1.0, 2.0, 3.0)).points)
    away = Pose(0.8, 0.0, math.pi)
    for _ in range(KEPT_LOOKS - 1):
        memory = memory.looks(away, FREE, (1.0, 2.0, 3.0))
        assert len(memory.points) == 1
    assert not len(memory.looks(away, FREE, (1.0, 2.0, 3.0)).points)


def observed(place, picture, metres=3.0):
    sighting = Sighting(0.0, metres)
    return Observation(ON.action, True, False, True, sighting, place, FloorPicture(picture, BODY))


def test_from_pictures_alone():
    """A box that is seen, walked up to and gone from view: without a look it would be grazed."""
    state, places = FrontierState(), [HERE, Pose(0.5, 0.0, 0.0), Pose(0.9, 0.0, 0.0)]
    moves = []
    for place in places:
        picture = painted(BODY.camera, [(0.4, 0.18, 1.25 - place.x, BOX)])
        before = state
        state, move = frontier_search(state, observed(place, picture))
        moves.append(move)
        again = frontier_search(before, observed(place, picture))[1]
        assert again == move, "a decision that is taken back leaves no trace"
    assert moves[-1].rule == RULE_WIDER and moves[-1].action.kind is ActionKind.TURN_RIGHT
    blind = FrontierState()
    for place in places:
        blind, move = frontier_search(blind, replace(observed(place, picture), look=None))
        assert move.rule != RULE_WIDER


def test_odometry_that_begins_anew_takes_the_memory_with_it():
    state, _ = frontier_search(FrontierState(), observed(HERE, painted(BODY.camera, [(0.4, 0.1, 1.0, BOX)])))
    assert len(state.beside.points)
    state, _ = frontier_search(state, observed(Pose(9.0, 9.0, 0.0), painted(BODY.camera)))
    assert not len(state.beside.points)
    small = replace(observed(HERE, np.zeros((4, 4, 3), np.uint8)), place=Pose(9.0, 9.0, 0.1))
    assert frontier_search(state, small)[0].beside is state.beside
    lost = replace(observed(HERE, painted(BODY.camera)), place=None)
    assert frontier_search(state, lost)[0].beside is state.beside, "where it looks from is not known"


@pytest.mark.parametrize(
    ("told", "jpeg", "looks"),
    [
        (True, to_jpeg(Image.fromarray(painted(BODY.camera, [(0.4, 0.1, 1.0, BOX)]))), True),
        (True, b"jpeg", False),
        (False, to_jpeg(Image.fromarray(painted(BODY.camera))), False),
    ],
)
def test_the_navigator_shows_the_picture_where_the_camera_is_told(told, jpeg, looks):
    values = {one.name: one.default for one in VLM_NAV} | ({"camera_height_m": 0.35} if told else {})
    world = World("frontier_search", body=navigator_config(values).body).instruct()
    text = "I see the red chair, ahead, about 3.0 m, clear. The next action is move forward 50 cm."
    found = ActionFound(world.jobs[-1].number, find_action(text), text, jpeg, world.now)
    world.navigator.on_event(found, world.now)
    assert world.kinds[-1] is CommandKind.MOVE, "a picture that cannot be read stops nobody"
    assert (world.navigator.policy.state.beside.colour is not None) is looks


def test_the_rollouts_robot_is_the_one_that_the_simulators_parameters_tell_of():
    told = yaml.safe_load((ROOT / "config/sim.yaml").read_text())["/**/vlm_nav_node"]["ros__parameters"]
    check_all(VLM_NAV, told)
    body, simulated = navigator_config({one.name: one.default for one in VLM_NAV} | told).body, simulated_body()
    assert body.radius_m == pytest.approx(simulated.radius_m)
    assert astuple(body.camera) == pytest.approx(astuple(simulated.camera), abs=1e-4)
