"""The pre-draft cache: which outcomes it thinks of, what it does first, and what stays when a verdict comes."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from specdec.draft import TreeSize
from specdec.drafting import ROOT, DraftModel, OutcomeDrafter
from specdec.drafting.ngram import NgramLookup
from specdec.drafting.outcomes import ORDERS, OutcomeTree
from specdec.estimates.measured import Measured
from specdec.models import chat_prompt
from specdec.options import GenerationOptions
from tests.helpers.servers import Pair
from tests.helpers.table_models import PROMPT, TableModel
from tests.specdec.checks import UNLIKE

STOP = 9


def planted() -> OutcomeTree:
    """Answer's end -> 1 (0.6), 2 (0.3), the end (0.1); 1 is on its way and went through the model, then 3."""
    tree = OutcomeTree(frozenset({STOP}))
    tree.plant([(1, math.log(0.6)), (2, math.log(0.3)), (STOP, math.log(0.1))])
    first = tree.grow(ROOT, 1, math.log(0.6))
    tree.nodes[first].fed = 0
    tree.nodes[first].best = [(3, math.log(0.5)), (4, math.log(0.5))]
    tree.sent = [first, tree.grow(first, 3, math.log(0.5))]
    return tree


class TestOutcomes:
    """What a verdict may say, and how likely it seems."""

    def test_guesses_are_what_is_not_on_its_way_and_goes_on(self):
        chances = {(one.node, one.token): one.chance for one in planted().outcomes(guesses=True)}
        assert chances == pytest.approx({(ROOT, 2): 0.3, (0, 4): 0.3})

    def test_a_confident_hint_comes_before_every_guess(self):
        tree = planted()
        tree.hint(1, 7, 0.9, layer=3)
        best = max(tree.outcomes(guesses=True), key=lambda one: one.chance)
        assert (best.node, best.token, best.hinted) == (0, 7, True)

    def test_a_deeper_exit_outweighs_a_shallower_one(self):
        tree = planted()
        tree.hint(0, 7, 0.9, layer=1)
        tree.hint(0, 8, 0.6, layer=5)
        chances = {one.token: one.chance for one in tree.outcomes(guesses=False)}
        assert set(chances) == {7, 8} and chances[8] > chances[7]

    def test_a_hint_that_is_there_already_makes_nothing_new(self):
        tree = planted()
        for confidence in (0.4, 0.5):
            tree.hint(0, 2, confidence, layer=3)
        assert len(tree.hints) == 1 and len(tree.nodes) == 2
        assert tree.hints[ROOT, 2].confidence == 0.5 and tree.hints[ROOT, 2].number == 0

    @pytest.mark.parametrize(("last", "token"), [(3, 1), (-1, 1), (0, STOP)])
    def test_hints_that_fit_nothing_are_dropped(self, last: int, token: int):
        tree = planted()
        tree.hint(last, token, 0.9, layer=3)
        assert not tree.hints

    def test_what_grew_behind_the_verdict_stays_and_nothing_else(self):
        tree = planted()
        branch = tree.grow(0, 4, 0.0)
        tree.nodes[branch].fed, tree.nodes[branch].best = 1, [(5, 0.0)]
        below = tree.grow(branch, 5, 0.0)
        tree.nodes[below].fed, tree.nodes[below].best = 2, [(6, 0.0)]
        tree.descend(branch, {2: 0})
        assert tree.line(ROOT, 9) == [5, 6] and len(tree.nodes) == 1 and tree.nodes[0].fed == 0
        assert not tree.sent and not tree.hints


def new_drafter(rows: int, model: TableModel = UNLIKE.draft, **kinds: object) -> OutcomeDrafter:
    drafter = OutcomeDrafter(DraftModel(model, GenerationOptions()), rows, **kinds)  # type: ignore[arg-type]
    drafter.prefill(PROMPT)
    return drafter


def draft(drafter: OutcomeDrafter, answer: list[int], size: int = 3) -> tuple[int, ...]:
    """Draft a chain and let it leave."""
    while drafter.drafted(answer) < size and drafter.step(answer, size):
        pass
    return drafter.take(answer, size, size).draft.ids


class TestNgramLookup:
    """What followed a pair of tokens."""

    def test_the_last_token_after_them_counts_whether_it_stood_in_the_prompt_or_the_answer(self):
        lookup = NgramLookup([1, 2, 3, 1])
        assert lookup.after((1, 2)) == 3 and lookup.after((3, 1)) is None and lookup.pair() == (3, 1)
        lookup.follow([2])
        assert lookup.after((3, 1)) == 2 and lookup.pair() == (1, 2)
        lookup.follow([2, 7, 1, 2])
        assert lookup.after((1, 2)) == 7

    def test_what_must_never_be_drafted_is_not_remembered(self):
        assert NgramLookup([1, 2, 3], never={3}).after((1, 2)) is None

    def test_short_texts_repeat_nothing(self):
        lookup = NgramLookup([1])
        assert lookup.pair() is None and lookup.after(lookup.pair()) is None
        lookup.follow([2])
        assert lookup.pair() == (1, 2)

    def test_a_repeated_token_is_an_outcome_though_the_draft_model_does_not_think_of_it(self):
        tree = planted()
        tree.ngrams = NgramLookup([5, 1, 8, 5])
        chances = {(one.node, one.token): one.chance for one in tree.outcomes(guesses=True)}
        assert chances[0, 8] == pytest.approx(0.6 * 0.4)


ANSWER = [3, 1]


class TestOutcomeDrafter:
    """Forwards, and what they leave."""

    def test_what_was_prepared_is_what_would_have_been_drafted(self):
        """Whatever the verdict says, the draft behind it is the one a fresh drafter makes, fed or not."""
        for token in range(1, UNLIKE.draft.vocab_size):
            for accepted in range(4):
                drafter = new_drafter(rows=4)
                sent = draft(drafter, ANSWER)
                while drafter.step_ahead(3):
                    pass
                answer = [*ANSWER, *sent[:accepted], token]
                if 0 in answer:
                    continue
                assert draft(drafter, answer) == draft(new_drafter(rows=0), answer)

    @pytest.mark.parametrize("order", ORDERS)
    def test_a_verdict_that_was_hinted_at_finds_its_draft_whole(self, order: str):
        drafter = new_drafter(rows=1, guesses=False, order=order)
        sent = draft(drafter, ANSWER)
        other = next(token for token in range(1, 5) if token != sent[1])
        assert not drafter.step_ahead(3), "nothing to do without a hint"
        drafter.hint(1, other, 0.8, layer=2)
        forwards = 0
        while drafter.step_ahead(3):
            forwards += 1
        answer = [*ANSWER, sent[0], other]
        assert forwards <= 3 and drafter.drafted(answer) and not drafter.step(answer, 3)

    def test_rows_are_the_most_that_share_a_forward(self, monkeypatch: pytest.MonkeyPatch):
        drafter = new_drafter(rows=2)
        draft(drafter, ANSWER)
        widths = []
        cursor = drafter._model.cursor
        grow = cursor.grow_tree
        monkeypatch.setattr(
            cursor, "grow_tree", lambda ids, parents: widths.append(len(ids)) or grow(ids, parents)
        )
        while drafter.step_ahead(3):
            pass
        assert widths and max(widths) == 2

    @pytest.mark.parametrize("prices", [{4: 1.0, 6: 2.5}, {6: 1.0}, {2: 1.0, 6: 1.2}])
    def test_rows_are_filled_up_to_a_cliff_in_what_they_cost(self, prices: dict[int, float]):
        """Notified of every forward, as the edge is; a drafter that nobody tells anything fills all rows."""
        drafter, measured = new_drafter(6), Measured()
        drafter.prices.price_s = measured.draft_rows_s
        fed = Counter()
        for seed in range(12):
            answer = [1 + seed % 4, 1 + seed % 3]
            draft(drafter, answer)
            drafter.take(answer, 3, 9)
            while drafter.step_ahead(3):
                fed[drafter.rows_fed] += 1
                price = next(price for rows, price in prices.items() if drafter.rows_fed <= rows)
                measured.drafted_ahead(price, drafter.rows_fed)
        beyond = sum(count for rows, count in fed.items() if rows > 4) / fed.total()
        assert beyond < 0.1 if prices[6] > 2.0 else beyond > 0.4, fed

    def test_without_rows_nothing_is_prepared(self):
        drafter = new_drafter(rows=0)
        draft(drafter, ANSWER)
        drafter.hint(0, 1, 0.9, layer=1)
        assert not drafter.step_ahead(3)

    def test_trees_hold_the_likeliest_nodes_parents_first(self):
        drafter = new_drafter(rows=2, tree=TreeSize(6, 3))
        while drafter.step(ANSWER, 3):
            pass
        sent = drafter.take(ANSWER, 3, 3).draft
        assert sent.parents is not None and len(sent.ids) == 6
        assert all(parent < node for node, parent in enumerate(sent.parents))
        assert max(sent.depths()) <= 2

    def test_an_answer_that_left_the_tree_is_drafted_afresh(self):
        drafter = new_drafter(rows=2)
        draft(drafter, ANSWER)
        drafter.step_ahead(3)
        elsewhere = [4, 4, 4]
        assert drafter.drafted(elsewhere) == 0
        assert draft(drafter, elsewhere) == draft(new_drafter(rows=0), elsewhere)

    def test_a_hint_outside_the_vocabulary_is_dropped(self):
        drafter = new_drafter(rows=2, guesses=False)
        draft(drafter, ANSWER)
        drafter.hint(0, UNLIKE.draft.vocab_size, 0.9, layer=1)
        assert not drafter.step_ahead(3)

    def test_nothing_follows_an_end(self):
        drafter = new_drafter(rows=2)
        assert draft(drafter, [1, 0]) == ()
        assert not drafter.step_ahead(3)


def test_in_a_real_cache_what_was_prepared_is_what_would_have_been_drafted(text_pair: Pair):
    """Branches are moved about in the cache when a verdict comes; they must say what a fresh cache says."""
    prompt = chat_prompt(text_pair.draft, "find the silver bottle")

    def fresh() -> OutcomeDrafter:
        drafter = OutcomeDrafter(DraftModel(text_pair.draft, GenerationOptions()), 6)
        drafter.prefill(prompt)
        return drafter

    answer: list[int] = []
    drafter = fresh()
    reused = 0
    for turn in range(6):
        sent = draft(drafter, answer)
        drafter.hint(turn % 3, 7 + turn, 0.9, layer=1)
        for _ in range(5):
            drafter.step_ahead(3)
        tree = drafter._tree
        branches = [
            (one.node, one.token)
            for one in tree.outcomes(True)
            if tree.tokens.child(one.node, one.token) is not None
        ]
        node, token = branches[turn % len(branches)]
        accepted = 0 if node == -1 else tree.sent.index(node) + 1
        answer = [*answer, *sent[:accepted], token]
        reused += drafter.drafted(answer) > 0
        assert draft(drafter, answer) == draft(fresh(), answer)
    assert reused >= 4
