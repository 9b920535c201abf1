"""The damped search: which rule fires when, and whose move it is."""

import pytest

from spec_vlm_nav.exploring.damped_search import (
    FLIPS_LIMIT,
    RULE_CONTACT,
    RULE_DAMPED,
    RULE_FREEING,
    RULE_LOST,
    RULE_UNSEEN,
    STRIDES,
    UNSEEN_LIMIT,
    SearchState,
    damped_search,
)
from spec_vlm_nav.exploring.moves import ActionSource, Observation
from spec_vlm_nav.language.actions import STOP, Action, ActionKind

LEFT30, RIGHT30 = Action(ActionKind.TURN_LEFT, 30), Action(ActionKind.TURN_RIGHT, 30)
FORWARD50 = Action(ActionKind.FORWARD, 50)


class ExplorationPolicy:
    """What frontier_search does while it does not know where the robot is."""

    def __init__(self):
        self.state = SearchState()

    def decide(self, proposed, sees_target, contact=False, ahead_clear=None):
        seen = Observation(proposed, sees_target, contact, ahead_clear)
        self.state, move = damped_search(self.state, seen)
        return move


def test_the_models_action_goes_through_and_is_marked_as_its_own():
    move = ExplorationPolicy().decide(FORWARD50, True)
    assert (move.action, move.source, move.rule) == (FORWARD50, ActionSource.MODEL, "")


def test_a_turn_that_flips_sign_is_halved_until_the_smallest():
    policy = ExplorationPolicy()
    turned = [policy.decide(a, True) for a in (LEFT30, RIGHT30, LEFT30, RIGHT30)]
    assert [m.action.amount for m in turned] == [30, 15, 7.5, 7.5]
    assert [m.rule for m in turned] == ["", RULE_DAMPED, RULE_DAMPED, RULE_DAMPED]
    assert turned[1].action.kind is ActionKind.TURN_RIGHT


def test_a_target_lost_right_after_a_turn_is_walked_towards():
    policy = ExplorationPolicy()
    policy.decide(LEFT30, True)
    move = policy.decide(LEFT30, False, ahead_clear=True)
    assert (move.action, move.source, move.rule) == (FORWARD50, ActionSource.EXPLORATION, RULE_LOST)


def test_a_target_lost_after_a_step_forward_is_left_to_the_model():
    policy = ExplorationPolicy()
    policy.decide(FORWARD50, True)
    assert policy.decide(LEFT30, False).source is ActionSource.MODEL


def test_after_many_decisions_without_the_target_it_walks_on_and_counts_anew():
    policy = ExplorationPolicy()
    clear = [True] * UNSEEN_LIMIT + [False] * (UNSEEN_LIMIT - 1) + [True]
    rules = [policy.decide(LEFT30, False, ahead_clear=c).rule for c in clear]
    assert [i for i, rule in enumerate(rules, 1) if rule == RULE_UNSEEN] == [UNSEEN_LIMIT, 2 * UNSEEN_LIMIT]


@pytest.mark.parametrize("lost_after_a_turn", [True, False])
def test_of_a_model_that_says_nothing_of_the_way_no_step_is_made(lost_after_a_turn):
    policy = ExplorationPolicy()
    policy.decide(LEFT30, lost_after_a_turn)
    moves = [policy.decide(LEFT30, None) for _ in range(4 * UNSEEN_LIMIT)]
    assert all(move.action == LEFT30 and move.source is ActionSource.MODEL for move in moves)


def test_a_search_walks_on_where_the_way_is_clear_and_twice_in_a_row():
    policy = ExplorationPolicy()
    for _ in range(UNSEEN_LIMIT):
        assert policy.decide(LEFT30, False, ahead_clear=False).source is ActionSource.MODEL
    rules = [policy.decide(LEFT30, False, ahead_clear=True).rule for _ in range(3)]
    assert rules == [RULE_UNSEEN, RULE_UNSEEN, ""]


@pytest.mark.parametrize("sees", [True, False, None])
@pytest.mark.parametrize("clear", [True, False, None])
def test_after_a_contact_it_turns_aside_before_anything_else(sees, clear):
    move = ExplorationPolicy().decide(FORWARD50, sees, contact=True, ahead_clear=clear)
    assert move.action.is_turn and move.action.amount == 45 and move.rule == RULE_CONTACT


def test_nothing_that_it_ever_does_goes_backwards():
    for sees in (True, False, None):
        for clear in (True, False, None):
            policy = ExplorationPolicy()
            for i in range(4 * UNSEEN_LIMIT):
                move = policy.decide((FORWARD50, LEFT30, RIGHT30)[i % 3], sees, i % 2 == 0, clear)
                assert move.action.distance_m >= 0


def test_past_an_obstacle_it_steps_only_where_the_way_is_called_clear():
    policy = ExplorationPolicy()
    policy.decide(FORWARD50, True, contact=True)
    move = policy.decide(LEFT30, True, ahead_clear=None)
    assert (move.action, move.source) == (LEFT30, ActionSource.MODEL)


def test_after_a_contact_on_the_way_it_turns_aside_until_the_way_is_clear_and_passes():
    policy = ExplorationPolicy()
    policy.decide(FORWARD50, True)
    assert policy.decide(FORWARD50, True, contact=True).rule == RULE_CONTACT
    moves = [policy.decide(FORWARD50, True, ahead_clear=clear) for clear in (False, False, True, True)]
    assert [m.action.kind for m in moves[:2]] == [moves[0].action.kind] * 2 and moves[0].action.is_turn
    assert [m.rule for m in moves] == [RULE_FREEING] * 3 + [""] and moves[2].action == FORWARD50


def test_turning_to_and_fro_ends_in_a_detour():
    policy = ExplorationPolicy()
    rules = [policy.decide((LEFT30, RIGHT30)[i % 2], True, ahead_clear=False).rule for i in range(5)]
    assert rules[-1] == RULE_FREEING


def test_a_search_does_not_walk_where_the_way_is_called_blocked():
    policy = ExplorationPolicy()
    policy.decide(LEFT30, True)
    moves = [policy.decide(LEFT30, False, ahead_clear=False) for _ in range(3 * UNSEEN_LIMIT)]
    assert all(m.source is ActionSource.MODEL for m in moves)


@pytest.mark.parametrize("contact", [False, True])
@pytest.mark.parametrize("sees", [True, False, None])
def test_stop_is_never_turned_into_a_motion(sees, contact):
    policy = ExplorationPolicy()
    for _ in range(UNSEEN_LIMIT + 2):
        policy.decide(LEFT30, True)
        move = policy.decide(STOP, sees, contact)
        assert move.action == STOP and move.source is ActionSource.MODEL


def test_turning_to_and_fro_ends_in_a_detour_on_one_side_and_a_step_where_it_is_clear():
    policy = ExplorationPolicy()
    turns = [policy.decide(a, True, ahead_clear=False) for a in (LEFT30, RIGHT30) * 3]
    detour = [i for i, move in enumerate(turns) if move.rule == RULE_FREEING]
    assert detour[0] == FLIPS_LIMIT and all(
        move.source is ActionSource.EXPLORATION for move in turns[detour[0] :]
    )
    assert {move.action.kind for move in turns[detour[0] :]} == {turns[detour[0]].action.kind}
    step = policy.decide(RIGHT30, True, ahead_clear=True)
    assert step.action.kind is ActionKind.FORWARD and step.rule == RULE_FREEING
    assert policy.decide(FORWARD50, True, ahead_clear=True).source is ActionSource.MODEL


def test_after_a_contact_on_the_way_to_the_target_it_is_passed_on_alternating_sides():
    policy, sides = ExplorationPolicy(), []
    for _ in range(2):
        move = policy.decide(FORWARD50, True, contact=True, ahead_clear=True)
        assert move.rule == RULE_CONTACT
        sides.append(move.action.kind)
        assert policy.decide(LEFT30, True, ahead_clear=True).action == FORWARD50
        policy.decide(FORWARD50, True, ahead_clear=True)
    assert set(sides) == {ActionKind.TURN_LEFT, ActionKind.TURN_RIGHT}


def test_the_search_never_walks_where_the_way_is_called_blocked():
    policy = ExplorationPolicy()
    moves = [policy.decide(LEFT30, False, ahead_clear=False) for _ in range(4 * UNSEEN_LIMIT)]
    assert all(move.action.is_turn for move in moves)


def test_a_long_search_walks_several_strides_while_the_way_is_clear():
    policy = ExplorationPolicy()
    moves = [policy.decide(LEFT30, False, ahead_clear=True) for _ in range(UNSEEN_LIMIT + STRIDES)]
    assert [m.rule for m in moves[UNSEEN_LIMIT - 1 :]] == [RULE_UNSEEN] * STRIDES + [""]
