"""Drafts that are always right, always wrong, end everywhere or never: the answer is the target's, for every method.

The draft MODEL is the adversary, so that whatever a method makes of a draft model (chains, trees, what it drafts ahead)
is tried alike.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from specdec.edge.session import EdgeSession
from specdec.edge.stats import AnswerStats
from specdec.methods import get_method
from specdec.options import GenerationOptions
from tests.helpers.table_models import PROMPT, TableModel, TablePair
from tests.specdec.checks import (
    COMBINATIONS,
    LOSSLESS,
    PARTS_OF_ROWS,
    REJECTION,
    SAMPLED,
    UNLIKE,
    answer,
    check_distribution,
    check_greedy,
    drafting,
    unlike_when_greedy,
)
from tests.specdec.wired import WiredLink

pytestmark = pytest.mark.slow

DRAFTING = drafting([*LOSSLESS, *COMBINATIONS, "picospec-lossy"])
MODEL_DRAFTS = [name for name in DRAFTING if get_method(name).drafter == "model"]
"""What is looked up is neither always right nor always wrong."""
GREEDY_DRAFTING, GREEDY_MODEL_DRAFTS = unlike_when_greedy(DRAFTING), unlike_when_greedy(MODEL_DRAFTS)
TARGET = UNLIKE.target
SELF = TablePair(TARGET, TARGET)
EOS = 0


def drafted_by(logits: np.ndarray) -> TablePair:
    """The target with another draft."""
    return TablePair(TARGET, TableModel(logits))


def eager_to_end(place: int | None) -> TablePair:
    """A draft as good as the target, but it ends in every third state; place None: it does nothing but end."""
    logits = TARGET.logits.copy()
    logits[slice(None) if place is None else slice(place, None, 3), EOS] += 100.0
    return drafted_by(logits)


def share_accepted(costs: list[AnswerStats]) -> float:
    """Of all tokens of chains that were drafted: of a tree, which `auto` may choose, some branch may be right."""
    rounds = [one for cost in costs for one in cost.rounds if not one.mode.startswith("tree")]
    return sum(one.accepted for one in rounds) / max(1, sum(one.drafted for one in rounds))


@pytest.mark.parametrize(
    ("method", "temperature"),
    [*((name, 0.0) for name in GREEDY_MODEL_DRAFTS), *((name, 1.0) for name in MODEL_DRAFTS)],
)
def test_a_draft_of_the_target_itself_is_accepted_whole(method: str, temperature: float) -> None:
    tree = get_method(method).tree
    for seed in range(6):
        link = WiredLink(TARGET, TARGET, slowness=0.3, seed=seed)
        options = GenerationOptions(25, temperature=temperature, seed=seed)
        ids, cost = answer(method, options, SELF, gamma=4, link=link)
        # Where the target ends the answer, what was drafted behind the end is in vain.
        rounds = cost.rounds[:-1] if EOS in ids else cost.rounds
        if tree is None:
            assert all(one.accepted == one.drafted for one in rounds), f"seed {seed}"
        else:  # the target's way is one of many branches
            assert all(one.accepted >= 1 for one in rounds if one.drafted), f"seed {seed}"


@pytest.mark.parametrize("method", GREEDY_MODEL_DRAFTS)
def test_drafts_that_are_always_wrong(method: str) -> None:
    costs = check_greedy(method, drafted_by(-TARGET.logits))
    assert share_accepted(costs) == 0.0 or get_method(method).tree is not None


# The states are alike: which third of them ends too early goes round with the methods.
@pytest.mark.parametrize(
    ("method", "place"),
    [(name, place) for turn, name in enumerate(GREEDY_DRAFTING) for place in (turn % 3, None)],
)
def test_drafts_that_end_where_the_target_does_not(method: str, place: int | None) -> None:
    """A rejected EOS does not end an answer, and nothing follows one that is accepted."""
    check_greedy(method, eager_to_end(place))


@pytest.mark.parametrize("method", GREEDY_DRAFTING)
def test_drafts_longer_than_the_answer_may_be(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_greedy(method, SELF, limits=(1, 2, 3, 4, 6), gamma=16)
    # An edge that does not care how long the answer may be, either.
    monkeypatch.setattr(EdgeSession, "room_after", lambda self, expected: 50)
    check_greedy(method, SELF, limits=(1, 2, 3, 4, 6), gamma=16)


@pytest.mark.parametrize("method", DRAFTING)
def test_sampled_answers_have_the_length_they_may_have(method: str) -> None:
    for limit in (1, 2, 5):
        for seed in range(3):
            options = GenerationOptions(limit, temperature=1.5, seed=seed)
            for pair in (SELF, UNLIKE, eager_to_end(1)):
                link = WiredLink(TARGET, pair.draft, slowness=0.3, seed=seed)
                ids, cost = answer(method, options, pair, gamma=4, link=link)
                assert EOS not in ids[:-1]
                assert len(ids) == limit or (len(ids) < limit and ids[-1] == EOS)
                assert cost.finish == ("eos" if ids[-1] == EOS else "length")


@pytest.mark.parametrize("method", GREEDY_DRAFTING)
def test_verdicts_that_come_again_or_belong_to_another_session_count_for_nothing(method: str) -> None:
    check_greedy(method, stale=True)


@pytest.mark.parametrize("method", REJECTION)
def test_sampled_answers_go_on_wherever_the_link_breaks(method: str) -> None:
    """Also where drafts on their way are taken back, of which the edge has already forgotten all but the ids."""
    for cut in (2, 3, 5):
        for seed in range(8):
            link = WiredLink(TARGET, UNLIKE.draft, slowness=0.8, cuts=(cut,), seed=seed)
            ids, cost = answer(method, replace(SAMPLED, max_new_tokens=14, seed=seed), link=link)
            assert len(ids) == 14 or ids[-1] == EOS
            assert cost.resumes <= 1


ADVERSARIES = {
    "opposite": drafted_by(-TARGET.logits),
    "sure of itself": drafted_by(4.0 * UNLIKE.draft.logits),
    "ends everywhere": eager_to_end(1),
    "the same": SELF,
}


# Each way to recover a token meets one that is rejected; nothing of the same draft is.
@pytest.mark.parametrize(
    ("method", "adversary"),
    [
        ("dsd", "opposite"),
        ("dsd", "the same"),
        ("dssd", "sure of itself"),
        (PARTS_OF_ROWS[0], "ends everywhere"),
        (PARTS_OF_ROWS[1], "opposite"),
    ],
)
def test_no_draft_changes_what_is_sampled(method: str, adversary: str) -> None:
    check_distribution(method, pair=ADVERSARIES[adversary])


@pytest.mark.parametrize("method", REJECTION)
def test_a_certain_draft_of_a_certain_target_is_sampled_without_a_division_by_zero(method: str) -> None:
    """Distributions of one token: every ratio is 0, 1 or undefined."""
    for pair in (SELF, ADVERSARIES["opposite"]):
        ids, _ = answer(method, replace(SAMPLED, max_new_tokens=12, top_k=1), pair)
        greedy, _ = answer("ar", GenerationOptions(12), pair, PROMPT)
        assert ids == greedy
