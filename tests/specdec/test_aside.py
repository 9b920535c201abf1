"""Drafts in flight with hints: what an exit expects instead of what is drafted is drafted aside, and stands in time."""

from __future__ import annotations

import pytest
from checks import UNLIKE
from table_models import PROMPT

from specdec.drafting import ChainDrafter, Draft, DraftModel
from specdec.edge.flight import DraftInFlight, Flight, Preparation
from specdec.errors import OptionsError
from specdec.methods import get_method
from specdec.options import GenerationOptions


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
        flight.add(DraftInFlight(round_, Draft(2 * round_, ids), ids, ((1.0, 9),), Preparation(0.0)))
    joined = flight.up_to(4)
    assert joined is not None and (joined.round, joined.draft.base, joined.draft.ids) == (4, 6, (3, 13, 4, 14))
    assert len(flight) == 3 and flight.oldest is not None and flight.oldest.draft.ids == (3, 13)
    assert flight.up_to(2) is flight.up_to(6) is None


@pytest.mark.parametrize("name", ["dssd+overlap:hinted-stream", "specedge+overlap:hinted-stream"])
def test_it_goes_with_chains_and_ids_only(name: str) -> None:
    with pytest.raises(OptionsError, match=r"ids only|leaves whole"):
        get_method(name)
    method = get_method("sd+overlap:hinted-stream")
    assert method.hints > 0 and method.ahead and method.in_flight > 1
    assert get_method("sd+overlap:hinted-stream+leave:whole").in_flight > 1


def test_a_lookup_does_not_draft_for_hints() -> None:
    with pytest.raises(OptionsError, match="drafts chains and sends ids only"):
        get_method("ngram+overlap:hinted-stream")
