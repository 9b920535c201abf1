"""Another draft model on the robot, live: decisions go on with the old one, and no answer changes."""

from dataclasses import replace

import pytest

from spec_vlm_nav.common.errors import ParameterError
from specdec.errors import ModelError
from tests.robot.real_decider import MODELS, SETTINGS, Oracle, job, never

pytestmark = pytest.mark.slow


def nothing(text, jpeg, unverified=False):
    pass


def test_a_new_draft_is_taken_over_before_the_next_decision_and_the_answer_stays(make, target):
    decider = make(replace(SETTINGS, method="sd"))
    before = decider.decide(job(), never(), nothing)
    old = decider._model
    decider.swap_draft(str(MODELS / "nav-target"))
    assert decider._model is not old
    after = decider.decide(job(), never(), nothing)
    assert after.token_ids == before.token_ids == Oracle(target, decider)(job())
    assert decider.figures()["drafts_swapped"] == 1
    assert all(one.accepted == one.drafted for one in after.rounds[:-1])  # the target predicts itself
    assert not all(one.accepted == one.drafted for one in before.rounds)


def test_a_draft_that_does_not_fit_is_refused_and_the_old_one_goes_on(make, target, tmp_path):
    decider = make(replace(SETTINGS, method="sd"))
    old = decider._model
    with pytest.raises(ParameterError, match="another vocabulary"):
        decider.swap_draft(str(MODELS / "text-draft"))
    with pytest.raises(ModelError):
        decider.swap_draft(str(tmp_path))
    assert decider._model is old
    assert decider.decide(job(), never(), nothing).token_ids == Oracle(target, decider)(job())


def test_without_a_draft_model_decisions_are_the_targets_and_there_is_nothing_to_swap(make, target):
    decider = make(replace(SETTINGS, method="ngram"))
    for _ in range(2):
        assert decider.decide(job(), never(), nothing).token_ids == Oracle(target, decider)(job())
    with pytest.raises(ParameterError, match="that needs none"):
        decider.swap_draft(str(MODELS / "nav-draft"))
