"""The damping of a model that leads: which rule fires when, and whose move it is."""

import pytest

from spec_vlm_nav.exploring.damping import (
    FLIPS_LIMIT,
    RULE_CONTACT,
    RULE_DAMPED,
    RULE_FREEING,
    Damping,
    damped,
)
from spec_vlm_nav.exploring.moves import ActionSource, Observation
from spec_vlm_nav.language.actions import STOP, Action, ActionKind

LEFT30, RIGHT30 = Action(ActionKind.TURN_LEFT, 30), Action(ActionKind.TURN_RIGHT, 30)
FORWARD50 = Action(ActionKind.FORWARD, 50)


class Led:
    """A model that leads, damped."""

    def __init__(self):
        self.state = Damping()

    def decide(self, proposed, sees_target, contact=False, ahead_clear=None):
        seen = Observation(proposed, sees_target, contact, ahead_clear)
        self.state, move = damped(self.state, seen)
        return move


def test_the_models_action_goes_through_and_is_marked_as_its_own():
    move = Led().decide(FORWARD50, True)
    assert (move.action, move.source, move.rule) == (FORWARD50, ActionSource.MODEL, "")


def test_a_turn_that_flips_sign_is_halved_until_the_smallest():
    policy = Led()
    turned = [policy.decide(a, True) for a in (LEFT30, RIGHT30, LEFT30, RIGHT30)]
    assert [m.action.amount for m in turned] == [30, 15, 7.5, 7.5]
    assert [m.rule for m in turned] == ["", RULE_DAMPED, RULE_DAMPED, RULE_DAMPED]
    assert turned[1].action.kind is ActionKind.TURN_RIGHT


@pytest.mark.parametrize("clear", [True, False, None])
@pytest.mark.parametrize("sees", [True, False, None])
def test_of_itself_it_makes_no_step(sees, clear):
    policy = Led()
    policy.decide(LEFT30, True)
    moves = [policy.decide(LEFT30, sees, ahead_clear=clear) for _ in range(30)]
    assert all(move.action == LEFT30 and move.source is ActionSource.MODEL for move in moves)


@pytest.mark.parametrize("sees", [True, False, None])
@pytest.mark.parametrize("clear", [True, False, None])
def test_after_a_contact_it_turns_aside_before_anything_else(sees, clear):
    move = Led().decide(FORWARD50, sees, contact=True, ahead_clear=clear)
    assert move.action.is_turn and move.action.amount == 45 and move.rule == RULE_CONTACT


def test_past_an_obstacle_it_steps_only_where_the_way_is_called_clear():
    policy = Led()
    policy.decide(FORWARD50, True, contact=True)
    move = policy.decide(LEFT30, True, ahead_clear=None)
    assert (move.action, move.source) == (LEFT30, ActionSource.MODEL)


def test_after_a_contact_on_the_way_it_turns_aside_until_the_way_is_clear_and_passes():
    policy = Led()
    policy.decide(FORWARD50, True)
    assert policy.decide(FORWARD50, True, contact=True).rule == RULE_CONTACT
    moves = [policy.decide(FORWARD50, True, ahead_clear=clear) for clear in (False, False, True, True)]
    assert [m.action.kind for m in moves[:2]] == [moves[0].action.kind] * 2 and moves[0].action.is_turn
    assert [m.rule for m in moves] == [RULE_FREEING] * 3 + [""] and moves[2].action == FORWARD50


@pytest.mark.parametrize("contact", [False, True])
@pytest.mark.parametrize("sees", [True, False, None])
def test_stop_is_never_turned_into_a_motion(sees, contact):
    policy = Led()
    for _ in range(11):
        policy.decide(LEFT30, True)
        move = policy.decide(STOP, sees, contact)
        assert move.action == STOP and move.source is ActionSource.MODEL


def test_turning_to_and_fro_ends_in_a_detour_on_one_side_and_a_step_where_it_is_clear():
    policy = Led()
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
    policy, sides = Led(), []
    for _ in range(2):
        move = policy.decide(FORWARD50, True, contact=True, ahead_clear=True)
        assert move.rule == RULE_CONTACT
        sides.append(move.action.kind)
        assert policy.decide(LEFT30, True, ahead_clear=True).action == FORWARD50
        policy.decide(FORWARD50, True, ahead_clear=True)
    assert set(sides) == {ActionKind.TURN_LEFT, ActionKind.TURN_RIGHT}
