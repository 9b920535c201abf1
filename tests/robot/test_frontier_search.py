"""The frontier search in a made-up plane: it finds what is hidden, by a good odometry and by a bad one."""

import math
import random
from dataclasses import dataclass, field

import numpy as np
import pytest

from spec_vlm_nav.common.geometry import Pose, wrap
from spec_vlm_nav.exploring.frontier_search import RULE_ROUND, FrontierState, frontier_search
from spec_vlm_nav.exploring.moves import ActionSource, Observation
from spec_vlm_nav.exploring.search_map import EDGE, HALF, LOOKS, SURE, SearchMap
from spec_vlm_nav.language.actions import STOP, Action, ActionKind
from spec_vlm_nav.language.sightings import Sighting

LEFT45, LEFT30, RIGHT30 = (
    Action(ActionKind.TURN_LEFT, 45),
    Action(ActionKind.TURN_LEFT, 30),
    Action(ActionKind.TURN_RIGHT, 30),
)
FORWARD50 = Action(ActionKind.FORWARD, 50)
HERE = Pose(0.0, 0.0, 0.0)
BODY, MARGIN, FIELD, AHEAD = 0.22, 0.27, math.radians(43), 0.8


def unseen(clear, place=HERE, contact=False):
    return Observation(LEFT45, False, contact, clear, None, place)


def sees(degrees, metres, clear=True, place=HERE, action=FORWARD50, contact=False):
    return Observation(action, True, contact, clear, Sighting(math.radians(degrees), metres), place)


def told(story, state=None):
    state, moves = state or FrontierState(), []
    for seen in story:
        state, move = frontier_search(state, seen)
        moves.append(move)
    return state, moves


@dataclass
class Plane:
    """Walls, pillars that hide, a target; a body that goes where it is told, an odometry that may lie."""

    target: tuple[float, float]
    pillars: list[tuple[float, float, float]] = field(default_factory=list)  # x, y, radius
    size: tuple[float, float] = (6.0, 5.0)
    at: Pose = HERE
    drift: float = 1.0  # what odometry makes of a metre, and of a radian
    noise: float = 0.0
    seed: int = 0

    def __post_init__(self):
        self.rng, self.told, self.contacts = random.Random(self.seed), Pose(7.0, -3.0, 1.0), 0

    def room(self, x, y):
        """Metres to the nearest thing."""
        walls = min(x, y, self.size[0] - x, self.size[1] - y)
        return min([walls, *(math.hypot(x - px, y - py) - r for px, py, r in self.pillars)])

    def free(self, heading, length, body):
        steps = round(length / 0.05)
        return all(
            self.room(
                self.at.x + length * k / steps * math.cos(heading), self.at.y + length * k / steps * math.sin(heading)
            )
            > body
            for k in range(1, steps + 1)
        )

    def hides(self):
        dx, dy = self.target[0] - self.at.x, self.target[1] - self.at.y
        for px, py, r in self.pillars:
            t = min(max(((px - self.at.x) * dx + (py - self.at.y) * dy) / (dx * dx + dy * dy), 0), 1)
            if math.hypot(self.at.x + t * dx - px, self.at.y + t * dy - py) < r:
                return True
        return False

    def look(self, contact):
        """What a model without memory would say here."""
        dx, dy = self.target[0] - self.at.x, self.target[1] - self.at.y
        bearing, distance = wrap(math.atan2(dy, dx) - self.at.yaw), math.hypot(dx, dy)
        if abs(bearing) > FIELD or self.hides():
            return unseen(self.free(self.at.yaw, AHEAD, MARGIN), self.told, contact)
        if distance < 0.7:
            return Observation(STOP, True, contact, True, Sighting(bearing, distance), self.told)
        action = FORWARD50 if abs(bearing) < 0.3 else LEFT30 if bearing > 0 else RIGHT30
        clear = self.free(self.at.yaw + bearing, min(distance - 0.5, 1.2), MARGIN)
        return Observation(action, True, contact, clear, Sighting(bearing, distance), self.told)

    def move(self, action):
        """Carry it out; whether it ended against something."""
        done, contact = 0.0, False
        while done < action.distance_m - 1e-9 and not contact:
            x, y = self.at.x + 0.05 * math.cos(self.at.yaw), self.at.y + 0.05 * math.sin(self.at.yaw)
            contact = self.room(x, y) < BODY
            if not contact:
                self.at, done = Pose(x, y, self.at.yaw), done + 0.05
        self.at = Pose(self.at.x, self.at.y, wrap(self.at.yaw + action.angle_rad))
        self.contacts += contact
        turned = action.angle_rad * self.drift + self.rng.gauss(0, self.noise)
        gone = done * self.drift + self.rng.gauss(0, self.noise)
        yaw = self.told.yaw + turned
        self.told = Pose(self.told.x + gone * math.cos(yaw), self.told.y + gone * math.sin(yaw), yaw)
        return contact

    def search(self, decisions=50, lost=()):
        """Search until STOP; returns how many decisions it took, or None. lost: decisions without odometry."""
        state, contact = FrontierState(), False
        for k in range(decisions):
            seen = self.look(contact)
            if k in lost:
                seen = Observation(seen.proposed, seen.sees_target, contact, seen.ahead_clear, seen.sighting, None)
            state, move = frontier_search(state, seen)
            if move.action.is_stop:
                return k + 1
            contact = self.move(move.action)
        return None


WALL = [(3.4, 0.25 * k, 0.15) for k in range(21) if not 8 <= k <= 13]  # with a doorway of 1.2 m
ROOMS = [
    {"target": (5.2, 0.8), "pillars": WALL, "at": Pose(1.0, 4.0, 2.0)},
    {"target": (5.0, 4.0), "pillars": [(3.5, 3.0, 0.5), (2.0, 3.2, 0.4)], "at": Pose(1.0, 1.0, 3.0)},
    {"target": (0.6, 4.4), "pillars": [(1.4, 3.4, 0.45)], "at": Pose(4.5, 1.0, 0.0)},
    {"target": (3.0, 4.5), "pillars": [(3.0, 3.0, 0.6)], "at": Pose(3.0, 1.2, -1.6)},
]


@pytest.mark.slow
@pytest.mark.parametrize("room", ROOMS)
def test_it_finds_and_reaches_what_is_hidden(room):
    plane = Plane(**room)
    assert plane.search() is not None
    assert plane.contacts <= 1


@pytest.mark.slow
@pytest.mark.parametrize("drift", [0.93, 1.07])
def test_it_finds_it_by_an_odometry_that_drifts_and_is_noisy(drift):
    found = [Plane(**room, drift=drift, noise=0.03, seed=k).search() for k, room in enumerate(ROOMS)]
    assert all(found), found


@pytest.mark.slow
def test_it_finds_it_although_odometry_is_lost_now_and_then():
    found = [Plane(**room).search(60, lost=(5, 6, 15, 25)) for room in ROOMS]
    assert sum(f is not None for f in found) >= 3, found


def test_a_look_around_turns_everywhere_and_takes_five_looks():
    yaw, state, seen = 0.0, FrontierState(), []
    for _ in range(5):
        state, (move,) = told([unseen(False, Pose(0.0, 0.0, yaw))], state)
        seen.append(yaw)
        assert move.action.is_turn and move.source is ActionSource.EXPLORATION
        yaw = wrap(yaw + move.action.angle_rad)
    covered = [any(abs(wrap(a - y)) <= math.radians(44) for y in seen) for a in np.linspace(-3.1, 3.1, 60)]
    assert all(covered)


@pytest.mark.parametrize("side", [1, -1])
def test_what_a_turn_lost_is_turned_back_to(side):
    story = [sees(35 * side, 2.0), unseen(True, Pose(0.0, 0.0, math.radians(-40 * side)))]
    move = told(story)[1][-1]
    assert move.action.angle_rad * side > math.radians(20)


def test_what_is_lost_straight_ahead_is_walked_on_to():
    story = [sees(0, 3.0), sees(0, 2.5, place=Pose(0.5, 0.0, 0.0)), unseen(True, Pose(1.0, 0.0, 0.0))]
    assert told(story)[1][-1].action.distance_m > 0


@pytest.mark.slow
def test_a_search_never_walks_where_the_way_is_called_blocked():
    yaw = x = y = 0.0
    state = FrontierState()
    for _ in range(60):
        state, (move,) = told([unseen(False, Pose(x, y, yaw))], state)
        assert move.action.is_turn
        yaw = wrap(yaw + move.action.angle_rad)


@pytest.mark.slow
@pytest.mark.parametrize("says_clear", [True, False])
def test_never_two_strides_into_what_was_touched(says_clear):
    """A model that calls a wall clear, seen or not, is not believed twice on the same spot."""
    for make in (lambda p, c: unseen(says_clear, p, c), lambda p, c: sees(5, 2.0, says_clear, p, contact=c)):
        yaw, against, contact, state = 0.0, [], False, FrontierState()
        for _ in range(30):
            state, (move,) = told([make(Pose(0.0, 0.0, yaw), contact)], state)
            contact = move.action.distance_m > 0
            if contact:
                assert not against or abs(wrap(yaw - against[-1])) > math.radians(9)
                against.append(yaw)
            yaw = wrap(yaw + move.action.angle_rad)


def test_a_contact_is_turned_away_from_on_the_side_that_is_free():
    for side in (1, -1):
        story = [sees(20 * side, 2.0, False), sees(20 * side, 1.8, True, Pose(0.3, 0.0, 0.0), contact=True)]
        turn = told(story)[1][-1].action.angle_rad
        assert turn * side < 0


def test_turning_to_and_fro_on_one_spot_ends_in_going_round():
    state, yaw, rules = FrontierState(), 0.0, []
    x = 0.0
    for k in range(14):
        bearing = wrap(0.3 - yaw)
        at = Pose(x, 0.0, yaw)
        seen = sees(math.degrees(bearing), 2.5, False, at, (LEFT30, RIGHT30)[k % 2])
        if abs(bearing) > math.radians(45):
            seen = unseen(True, at)
        state, (move,) = told([seen], state)
        rules.append(move.rule)
        yaw = wrap(yaw + move.action.angle_rad)
        x += move.action.distance_m
    assert RULE_ROUND in rules and x > 0.5


@pytest.mark.slow
def test_memory_is_bounded_and_follows_the_robot():
    state, x = FrontierState(), 0.0
    for k in range(90):
        x += 0.7
        state, _ = told([unseen(k % 2 == 0, Pose(x, 0.3 * x, 0.3))], state)
        known = state.known
        assert known.belief.sum() == pytest.approx(1.0, abs=1e-3) and (known.belief >= 0).all()
        assert abs(x - known.x) <= HALF and len(known.looks) <= LOOKS
    assert abs(x - known.x) <= EDGE + 0.5


def test_an_odometry_that_begins_anew_begins_a_new_map():
    state, _ = told([unseen(True), unseen(True, Pose(50.0, 0.0, 0.0))])
    assert len(state.known.looks) == 1 and state.known.x == 50.0


def test_without_odometry_nothing_is_learnt_and_the_model_leads():
    state, moves = told([unseen(True, None) for _ in range(12)])
    assert state.known is None and all(m.action == LEFT45 for m in moves)
    before, _ = told([unseen(True), unseen(True)])
    after, _ = told([unseen(True, None), unseen(True, Pose(math.nan, 0.0, 0.0))], before)
    assert after.known is before.known


def test_looking_twice_from_one_place_tells_little_and_what_was_seen_counts():
    known = SearchMap.around(0.0, 0.0)
    once = known.without_target(HERE, None)
    twice = once.without_target(HERE, None)
    near = (20, 18)  # a metre ahead
    assert once.belief[near] < (1 - 0.8 * SURE) * known.belief[near] * 1.5
    assert twice.belief[near] > 0.9 * once.belief[near]
    spot = known.with_target(HERE, 0.0, 3.0, 0.7).belief
    i, j = np.unravel_index(spot.argmax(), spot.shape)
    assert (i + 0.5) * 0.4 - HALF == pytest.approx(3.0, abs=0.4) and abs((j + 0.5) * 0.4 - HALF) < 0.4
