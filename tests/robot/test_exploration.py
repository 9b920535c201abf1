"""The exploration policies by name: which model may have which, what all of them must never do."""

import math
import random

import pytest

from spec_vlm_nav.common.errors import ParameterError
from spec_vlm_nav.common.geometry import Pose
from spec_vlm_nav.exploring.moves import ActionSource, Observation
from spec_vlm_nav.exploring.policy import ExplorationPolicy
from spec_vlm_nav.language.actions import ACTION_SENTENCES, STOP, Action, ActionKind
from spec_vlm_nav.language.prompting import AUTO, POLICIES, fitting_policy
from spec_vlm_nav.language.sightings import Sighting, sighting_of

LEFT30, RIGHT30 = Action(ActionKind.TURN_LEFT, 30), Action(ActionKind.TURN_RIGHT, 30)
FORWARD50 = Action(ActionKind.FORWARD, 50)
NOWHERE = Pose(math.nan, 0.0, 0.0)


def observations(seed: int, count: int = 60):
    """Whatever a model, a body and an odometry might say, in any order."""
    rng = random.Random(seed)
    x = y = yaw = 0.0
    for _ in range(count):
        x, y, yaw = x + rng.gauss(0, 0.4), y + rng.gauss(0, 0.4), yaw + rng.gauss(0, 1.0)
        place = rng.choice([Pose(x, y, yaw)] * 8 + [None, NOWHERE, Pose(x + 100, y, yaw)])
        sees = rng.choice([True, False, False, None])
        sighting = Sighting(rng.uniform(-3.1, 3.1), rng.uniform(0.1, 20.0)) if sees and rng.random() < 0.9 else None
        proposed = rng.choice([*ACTION_SENTENCES.values()])
        yield Observation(proposed, sees, rng.random() < 0.2, rng.choice([True, False, None]), sighting, place)


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
def test_whatever_happens_a_stop_stays_a_stop_and_nothing_goes_backwards_or_too_far(name):
    for seed in range(6):
        policy = ExplorationPolicy(name)
        for seen in observations(seed):
            move = policy.decide(seen)
            if seen.proposed.is_stop:
                assert move.action == STOP and move.source is ActionSource.MODEL
            else:
                assert not move.action.is_stop
            assert 0 <= move.action.distance_m <= 0.75 and abs(move.action.angle_rad) <= math.radians(75)
            is_models = move.source is ActionSource.MODEL
            assert is_models == (move.rule == "") and (not is_models or move.action == seen.proposed)


@pytest.mark.parametrize("name", POLICIES)
def test_the_same_story_gives_the_same_moves(name):
    told = []
    for _ in range(2):
        policy = ExplorationPolicy(name)
        told.append([policy.decide(seen) for seen in observations(3)])
    assert told[0] == told[1]


@pytest.mark.parametrize("name", POLICIES)
def test_no_step_of_its_own_without_a_word_of_the_way(name):
    """A model that says neither clear nor blocked does not speak the language."""
    policy = ExplorationPolicy(name)
    for k in range(40):
        seen = Observation(LEFT30, (None, False)[k % 2], False, None, None, Pose(0.0, 0.0, k * 0.5))
        assert policy.decide(seen).action.distance_m == 0


@pytest.mark.parametrize("name", POLICIES)
def test_a_memory_taken_back_leaves_no_trace(name):
    policy, other = ExplorationPolicy(name), ExplorationPolicy(name)
    story = list(observations(5))
    for seen in story[:20]:
        policy.decide(seen), other.decide(seen)
    before = policy.state
    for seen in story[30:50]:
        policy.decide(seen)
    policy.state = before
    assert [policy.decide(s) for s in story[20:30]] == [other.decide(s) for s in story[20:30]]


def test_the_policy_none_changes_nothing():
    policy = ExplorationPolicy("none")
    for action in (LEFT30, RIGHT30, FORWARD50, STOP):
        assert policy.decide(Observation(action, False, contact=True)).action is action


@pytest.mark.parametrize("name", ["random", "damped_search"])
def test_an_unknown_policy_is_refused_by_name(name):
    with pytest.raises(ParameterError, match=f"frontier_search, none, got '{name}'"):
        ExplorationPolicy(name)


@pytest.mark.parametrize("wanted", POLICIES)
def test_the_search_fits_a_model_that_speaks_to_it_and_none_fits_all(wanted):
    assert fitting_policy(wanted, "frontier_search", "some/model") == wanted


@pytest.mark.parametrize("spoken", POLICIES)
def test_auto_is_what_the_models_prompt_declares(spoken):
    assert fitting_policy(AUTO, spoken, "some/model") == spoken


def test_a_policy_is_refused_for_a_model_that_does_not_speak_its_language():
    with pytest.raises(ParameterError, match=r"frontier_search.*some/model does not use"):
        fitting_policy("frontier_search", "none", "some/model")


@pytest.mark.parametrize(
    ("text", "bearing", "distance"),
    [
        ("I see the red chair, left 20 degrees, about 1.5 m, clear. The next action is turn left 15 degree.", 20, 1.5),
        ("I see the red chair, right 45 degrees, about 4.0 m, blocked.", -45, 4.0),
        ("I see the red chair, ahead, about 0.6 m, clear.", 0, 0.6),
        ("The room is dark. I see the old, red chair, ahead, about 12 m.", 0, 12.0),
    ],
)
def test_where_the_target_is_seen(text, bearing, distance):
    assert sighting_of(text) == Sighting(math.radians(bearing), distance)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I do not see the red chair, clear.",
        "I see the red chair, clear.",
        "I see the red chair, left 20, about 1.5 m, clear.",
        "I see the red chair, left 200 degrees, about 1.5 m, clear.",
        "I see the red chair, left 20 degrees, about 0.0 m, clear.",
        "I see the red chair, left 20 degrees, about 99 m, clear.",
        "I see the red chair, left 20 degrees, about 1.5 miles, clear.",
        "I see the red chair, left -20 degrees, about 1.5 m, clear.",
        "They say: I see the red chair, ahead, about 1.5 m, clear.",
        "I see the red chair. It is left 20 degrees, about 1.5 m, clear.",
    ],
)
def test_no_number_is_picked_out_of_other_prose(text):
    assert sighting_of(text) is None
