"""Drafts in flight with hints: what an exit expects instead of what is drafted is drafted aside, and stands in time."""

from __future__ import annotations

from threading import Event

import pytest

from specdec.drafting import ChainDrafter, Draft, DraftModel, Proposal
from specdec.edge.flight import DraftInFlight, DraftPreparation, Flight
from specdec.edge.rounds import LIKELIER, SideDraft
from specdec.edge.session import EdgeSession
from specdec.errors import OptionsError
from specdec.estimates.measured import Measured
from specdec.link.wire import HintDown
from specdec.methods import get_method
from specdec.options import GenerationOptions
from specdec.text.stop import StopText
from tests.helpers.table_models import PROMPT
from tests.specdec.checks import UNLIKE


def new_drafter() -> ChainDrafter:
    drafter = ChainDrafter(DraftModel(UNLIKE.draft, GenerationOptions()))
    drafter.prefill(PROMPT)
    return drafter


def another(answer: list[int]) -> list[int]:
    """The same with another last token, which does not end it."""
    return [*answer[:-1], 1 + answer[-1] % (UNLIKE.draft.vocab_size - 1)]


class TestChainDrafter:
    def test_what_is_drafted_aside_costs_no_forward_when_it_is_wanted_and_is_what_would_be_drafted(self) -> None:
        drafter, runner = new_drafter(), UNLIKE.draft.runner
        main = drafter.chain([], 4).guess
        aside = another(list(main[:2]))
        while drafter.step_aside(aside, 3):
            pass
        assert drafter.take([], 4, 4).guess == main
        passes = runner.passes
        found = drafter.chain(aside, 3)
        assert runner.passes == passes and drafter.drafted(aside) == len(found.guess) > 0
        assert found == new_drafter().chain(aside, 3)

    def test_what_is_predicted_goes_on_as_if_nothing_had_been_drafted_aside(self) -> None:
        drafter = new_drafter()
        main = drafter.chain([], 2).guess
        drafter.step_aside(another(list(main)), 3)
        assert drafter.chain([], 5) == new_drafter().chain([], 5)

    def test_a_token_that_is_not_in_the_vocabulary_is_not_drafted_behind(self) -> None:
        drafter = new_drafter()
        assert not drafter.step_aside([UNLIKE.draft.vocab_size], 3)
        assert drafter.chain([], 3) == new_drafter().chain([], 3)

    def test_agreeing_is_to_lead_to_what_is_predicted_or_to_go_on_behind_it(self) -> None:
        drafter = new_drafter()
        main = list(drafter.chain([], 3).guess)
        assert drafter.agrees(main[:2]) and drafter.agrees([*main, 1])
        assert not drafter.agrees(another(main[:2]))

    def test_another_prompt_begins_with_nothing_aside(self) -> None:
        drafter = new_drafter()
        aside = another(list(drafter.chain([], 2).guess))
        drafter.step_aside(aside, 3)
        drafter.prefill(PROMPT)
        assert drafter.drafted(aside) == 0


def test_drafts_up_to_a_round_are_seen_as_one_and_stay_on_their_way() -> None:
    flight = Flight()
    for round_ in (3, 4, 5):
        ids = (round_, round_ + 10)
        flight.add(DraftInFlight(round_, Proposal(Draft(2 * round_, ids), ids), ((1.0, 9),), DraftPreparation(0.0)))
    joined = flight.up_to(4)
    assert joined is not None and (joined.round, joined.draft.base, joined.draft.ids) == (4, 6, (3, 13, 4, 14))
    assert len(flight) == 3 and flight.oldest is not None and flight.oldest.draft.ids == (3, 13)
    assert flight.up_to(2) is flight.up_to(6) is None


@pytest.mark.parametrize("name", ["dssd+overlap:hinted-stream", "specedge+overlap:hinted-stream"])
def test_it_goes_with_chains_and_ids_only(name: str) -> None:
    with pytest.raises(OptionsError, match=r"ids only|sent whole"):
        get_method(name)
    method = get_method("sd+overlap:hinted-stream")
    assert method.hints > 0 and method.ahead and method.in_flight > 1
    assert get_method("sd+overlap:hinted-stream+leave:whole").in_flight > 1


def test_a_lookup_does_not_draft_for_hints() -> None:
    with pytest.raises(OptionsError, match="drafts chains and sends ids only"):
        get_method("ngram+overlap:hinted-stream")


class Hinted:
    """A session that exits have said something about."""

    def __init__(self, hinted: tuple[list[int], float] | None) -> None:
        self.hinted = hinted
        self.answer: list[int] = []
        self.record = self

    def room_after(self, answer: list[int]) -> int:
        return 10 - len(answer)

    def drafted(self, *_: object) -> None:
        """Nobody keeps accounts."""


def aside_of(hinted: tuple[list[int], float] | None) -> tuple[SideDraft, ChainDrafter, Measured, Hinted]:
    drafter, measured, session = new_drafter(), Measured(), Hinted(hinted)
    drafter.chain([], 3)
    return SideDraft(session, drafter, measured, lambda: 0.0), drafter, measured, session  # type: ignore[arg-type]


def test_the_deepest_exits_surest_word_counts_and_only_of_drafts_that_are_on_their_way() -> None:
    history = [7, 8]
    session = EdgeSession(None, lambda: 0.0, Event(), history, Measured(), StopText(None, (), history))  # type: ignore[arg-type]
    for round_, ids in ((1, (3, 4)), (2, (5, 6))):
        base = 2 * round_
        session._flight.add(DraftInFlight(round_, Proposal(Draft(base, ids), ids), ((1.0, 9),), DraftPreparation(0.0)))
    assert session.hinted is None
    session.hints += [HintDown(1, 1, 0, 9, 0.9, 2, 0), HintDown(1, 1, 1, 9, 0.2, 5, 0), HintDown(1, 1, 2, 9, 0.4, 5, 0)]
    assert session.hinted == ([7, 8, 3, 4, 9], 0.4)
    session.hints[:] = [HintDown(1, 2, 3, 9, 0.7, 5, 0)]  # the exit sees both drafts as one
    assert session.hinted == ([7, 8, 3, 4, 5, 9], 0.7)
    session.hints[:] = [HintDown(1, 3, 0, 9, 0.7, 5, 0)]
    assert session.hinted is None


class TestAside:
    def test_only_what_is_not_drafted_is_drafted_aside_and_no_longer_than_a_draft(self) -> None:
        assert not aside_of(None)[0].step(2, 0.0)
        aside, drafter, _, _ = aside_of(([3, 4], 0.9))
        drafter.agrees = lambda answer: answer == [3, 4]  # type: ignore[method-assign]
        assert not aside.step(2, 0.0)
        expected = another(list(new_drafter().chain([], 3).guess)[:1])
        aside, drafter, _, _ = aside_of((expected, 0.9))
        assert [aside.step(2, 0.0) for _ in range(3)] == [True, True, False]
        assert drafter.drafted(expected) == 2

    def test_an_answer_that_is_as_long_as_it_may_be_is_not_drafted_behind(self) -> None:
        assert not aside_of((another(list(range(10))), 0.9))[0].step(2, 0.0)

    def test_an_exit_is_believed_first_as_often_as_it_was_right(self) -> None:
        expected = another(list(new_drafter().chain([], 3).guess)[:1])
        aside, _, measured, session = aside_of((expected, 0.9))
        assert aside.step(2, LIKELIER), "before any verdict its own word counts"
        for _ in range(60):  # it is always wrong
            aside.step(2, LIKELIER)
            aside.came()
        assert measured.foretold.value < 0.1 and not aside.step(9, LIKELIER) and aside.step(9, 0.0)
        session.answer = [*expected, 1]
        for _ in range(60):
            aside.step(9, LIKELIER)
            aside.came()
        assert measured.foretold.value > 0.9
