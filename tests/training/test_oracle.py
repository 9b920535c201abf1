"""The oracle: its answers always parse, its action follows what it states, and stops stay within what counts."""

import math
import random
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spec_vlm_nav.language.actions import (
    ACTION_SENTENCES,
    Action,
    ActionKind,
    ahead_clear,
    find_action,
    reasoning_of,
    sees_target,
)
from specnav.recipes.oracle import (
    STOP_DISTANCE,
    VisibleObject,
    answer_seen,
    answer_unseen,
    decide,
    instruct,
    stated_distance,
)
from specnav.recipes.questions import QuestionEncoder
from specnav.recipes.vocabulary import build_tokenizer

VIEWS = st.builds(
    VisibleObject,
    bearing=st.floats(-47, 47),
    distance=st.floats(0.0, 8.0),
    ahead_free=st.floats(0.0, 1.2),
    blocked=st.booleans(),
    way=st.one_of(st.just(math.nan), st.floats(-180, 180)),
)


@cache
def encoder():
    """Not at import: every worker imports this file, and one runs it."""
    return QuestionEncoder(build_tokenizer())


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(VIEWS)
def test_an_answer_about_a_seen_object_parses_and_fits_a_training_row(view):
    answer = answer_seen("silver bottle", view)
    action, _ = decide(view)
    assert find_action(answer) == action
    assert ACTION_SENTENCES[answer[len(reasoning_of(answer)) :].strip()] == action
    assert sees_target(answer) is True
    encoder().row("find the silver bottle", answer)


@pytest.mark.parametrize(("free", "clear"), [(1.2, True), (0.3, False)])
def test_an_answer_about_an_unseen_object_looks_around_and_tells_whether_the_way_is_clear(free, clear):
    answer = answer_unseen("silver bottle", free)
    assert find_action(answer) == Action(ActionKind.TURN_LEFT, 45)
    assert (sees_target(answer), ahead_clear(answer)) == (False, clear)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(VIEWS)
def test_it_stops_only_within_reach_and_in_front(view):
    action, _ = decide(view)
    if action.is_stop:
        assert view.distance <= STOP_DISTANCE < 0.8 and abs(view.bearing) < 45


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(VIEWS)
def test_a_clear_way_is_taken_by_the_stated_bearing(view):
    action, blocked = decide(view)
    if not blocked and view.distance > STOP_DISTANCE and abs(view.bearing) > 27.5:
        wanted = ActionKind.TURN_LEFT if view.bearing > 0 else ActionKind.TURN_RIGHT
        assert action == Action(wanted, 30)


def test_distances_are_stated_in_tenths_near_and_halves_far():
    assert [stated_distance(d) for d in (0.58, 1.94, 2.2, 2.3)] == ["0.6", "1.9", "2.0", "2.5"]


def test_every_instruction_template_fits_a_training_row():
    rng = random.Random(0)
    for _ in range(200):
        encoder().row(instruct("silver bottle", rng), answer_unseen("silver bottle", 1.0))
