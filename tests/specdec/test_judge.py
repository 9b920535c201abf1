"""Judging drafts: chains and trees, EOS, and what verify does with drafts that do not fit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec.drafting import Draft, check_draft, select_nodes, usable_nodes
from specdec.errors import ProtocolError
from specdec.models import chat_prompt
from specdec.models.local import generate_local
from specdec.options import GenerationOptions
from specdec.verifying import Judgement, Verifier, judge, path_to
from tests.helpers.servers import Pair

EOS = frozenset({0})


@pytest.mark.parametrize(
    ("ids", "picks", "accepted", "token"),
    [
        ((5, 6, 7), (5, 6, 7, 8), 3, 8),
        ((5, 6, 7), (5, 9, 7, 8), 1, 9),
        ((5, 6, 7), (4, 6, 7, 8), 0, 4),
        ((), (4,), 0, 4),
        ((5, 0, 7), (5, 0, 7, 8), 1, 0),
        ((5, 0), (5, 6, 9), 1, 6),
        ((0,), (0, 5), 0, 0),
        ((5, 6), (0, 6, 7), 0, 0),
    ],
    ids=["all", "second-wrong", "first-wrong", "empty", "eos-right", "eos-wrong", "eos-first", "target-ends"],
)
def test_chain(ids: tuple[int, ...], picks: tuple[int, ...], accepted: int, token: int) -> None:
    judgement = judge(Draft(0, ids), picks, EOS)
    assert judgement == Judgement(tuple(range(accepted)), token)
    assert judgement.last == accepted


def test_tree_follows_the_targets_picks_only() -> None:
    draft = Draft(0, (5, 6, 7, 8, 9), (-1, -1, 1, 2, 2))
    #  root -> 5, 6;  6 -> 7;  7 -> 8, 9
    assert judge(draft, (6, 1, 7, 9, 1, 3), EOS) == Judgement((1, 2, 4), 3)
    assert judge(draft, (5, 1, 7, 9, 1, 3), EOS) == Judgement((0,), 1)
    assert judge(draft, (4, 5, 7, 9, 1, 3), EOS) == Judgement((), 4)
    assert path_to(draft, 5) == [1, 2, 4]
    assert path_to(draft, 0) == []


@pytest.mark.slow
@given(st.lists(st.integers(0, 3), max_size=6), st.lists(st.integers(0, 3), min_size=7, max_size=7))
def test_chain_as_a_tree_is_judged_the_same(ids: list[int], picks: list[int]) -> None:
    chain = judge(Draft(0, tuple(ids)), picks, EOS)
    tree = judge(Draft(0, tuple(ids), tuple(range(-1, len(ids) - 1))), picks, EOS)
    assert chain == tree


def test_drafts_are_cut_by_depth_and_at_forbidden_ids() -> None:
    chain = Draft(2, (5, 6, 7))
    assert usable_nodes(chain, 2, frozenset()) == [0, 1]
    assert usable_nodes(chain, 9, frozenset({6})) == [0]
    assert usable_nodes(chain, -1, frozenset()) == []
    tree = Draft(0, (5, 6, 7, 8, 9), (-1, -1, 1, 2, 2))
    assert usable_nodes(tree, 2, frozenset()) == [0, 1, 2]
    assert usable_nodes(tree, 9, frozenset({5, 8})) == [1, 2, 4]
    assert select_nodes(chain, [0, 1]) == Draft(2, (5, 6))
    assert select_nodes(tree, [1, 2, 4]) == Draft(0, (6, 7, 9), (-1, 0, 1))


def test_impossible_drafts_are_refused() -> None:
    with pytest.raises(ProtocolError, match="vocabulary"):
        check_draft(Draft(0, (300,)), 264)
    with pytest.raises(ProtocolError, match="parent"):
        check_draft(Draft(0, (1, 2), (1, -1)), 264)
    with pytest.raises(ProtocolError, match="parents"):
        check_draft(Draft(0, (1, 2), (-1,)), 264)


class TestVerifier:
    """The target's side of an answer, without any link."""

    def open(self, pair: Pair, limit: int = 30) -> tuple[Verifier, list[int]]:
        prompt = chat_prompt(pair.target, "verify")
        options = GenerationOptions(limit)
        verifier = Verifier(pair.target, options)
        verifier.open(prompt)
        return verifier, generate_local(pair.target, prompt, options)

    def test_a_draft_that_left_before_the_first_token_was_known_counts(self, text_pair: Pair) -> None:
        verifier, right = self.open(text_pair)
        assert verifier.answer == right[:1]
        judgement = verifier.verify(Draft(0, tuple(right[:4])))
        assert judgement.last == 4
        assert verifier.answer == right[:5]

    def test_a_draft_sent_twice_is_judged_the_same_and_takes_nothing_back(self, text_pair: Pair) -> None:
        verifier, right = self.open(text_pair)
        draft = Draft(1, (right[1], right[2], 255))
        first = verifier.verify(draft)
        assert verifier.verify(draft) == first
        assert verifier.answer == right[:4]

    def test_a_placeholder_is_not_accepted_even_where_the_target_picks_it(
        self, text_pair: Pair, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It may only ever come from the target itself."""
        verifier, right = self.open(text_pair)
        monkeypatch.setattr(text_pair.target, "never_drafted", frozenset({right[2]}))
        judgement = verifier.verify(Draft(1, tuple(right[1:5])))
        assert judgement.last == 1
        assert verifier.answer == right[:3]

    def test_drafts_that_do_not_fit_are_refused(self, text_pair: Pair) -> None:
        verifier, right = self.open(text_pair, limit=3)
        with pytest.raises(ProtocolError, match="starts at 2"):
            verifier.verify(Draft(2, (1,)))
        verifier.verify(Draft(1, tuple(right[1:3])))
        assert verifier.finished
        with pytest.raises(ProtocolError, match="after the end"):
            verifier.verify(Draft(3, (1,)))

    def test_history_is_replayed_and_checked(self, text_pair: Pair) -> None:
        prompt = chat_prompt(text_pair.target, "verify")
        _, right = self.open(text_pair)
        again = Verifier(text_pair.target, GenerationOptions(30))
        assert again.open(prompt, right[:7]) == right[7]
        with pytest.raises(ProtocolError, match="no room"):
            again.open(prompt, [1] * 30)
        with pytest.raises(ProtocolError, match="complete"):
            again.open(prompt, [1, min(text_pair.target.eos_token_ids)])
        with pytest.raises(ProtocolError, match="vocabulary"):
            again.open(prompt, [5000])
