"""What the edge does while a verdict is out: drafting on, several drafts in flight, and what a rejection voids."""

from __future__ import annotations

import pytest

from specdec.drafting import ChainDrafter, Draft, DraftModel, Proposal
from specdec.edge.decoder import EdgeDecoder
from specdec.edge.flight import DraftInFlight, DraftPreparation, Flight
from specdec.errors import OptionsError
from specdec.methods import get_method
from specdec.models import LoadedModel, Prompt, chat_prompt
from specdec.models.local import generate_local
from specdec.options import GenerationOptions
from specdec.verifying import Judgement, Verifier
from tests.helpers import tiny_models as tiny
from tests.helpers.servers import Pair, patiently_connected

pytestmark = pytest.mark.slow

OVERLAPS = ["sd+overlap:continue", "sd+overlap:stream", "sd+leave:tokens", "picospec", "specedge"]
SHARED_NOISE = [name if name != "picospec" else "picospec+payload:ids" for name in OVERLAPS]


def prompts(model: LoadedModel) -> list[Prompt]:
    images = [tiny.picture(1)] if model.is_multimodal else []
    return [chat_prompt(model, text, images=images) for text in ("one", "two")]


def sent(round_: int, base: int, *ids: int) -> DraftInFlight:
    return DraftInFlight(round_, Proposal(Draft(base, ids), ids), ((float(round_), 10),), DraftPreparation(0.0))


class TestFlight:
    """The pure part."""

    def test_expects_that_everything_is_accepted(self) -> None:
        flight = Flight()
        assert flight.expected([1, 2]) == [1, 2]
        flight.add(sent(1, 2, 3, 4))
        flight.add(sent(2, 4, 5, 6))
        assert flight.expected([1, 2]) == [1, 2, 3, 4, 5, 6]

    def test_goes_on_while_all_is_accepted_and_the_next_draft_had_the_bonus_token(self) -> None:
        flight = Flight()
        for one in (sent(1, 0, 3, 4), sent(2, 2, 5, 6), sent(3, 4, 7, 8)):
            flight.add(one)
        flight.settle(2, 5)
        assert (len(flight), flight.epoch) == (2, 0)

    def test_drafts_that_are_judged_together_become_one(self) -> None:
        flight = Flight()
        for one in (sent(1, 0, 3, 4), sent(2, 2, 5, 6), sent(3, 4, 7, 8)):
            flight.add(one)
        assert flight.judged(7) is None
        both = flight.judged(2)
        assert both is not None and both.draft == Draft(0, (3, 4, 5, 6)) and both.round == 2
        assert both.sent_s == 1.0 and both.sent_bytes == 20
        assert flight.expected([]) == [3, 4, 5, 6, 7, 8]
        flight.settle(4, None)
        assert (len(flight), flight.epoch) == (1, 0)

    @pytest.mark.parametrize(
        ("last", "token"), [(1, 9), (0, 9), (2, 9)], ids=["partly", "none", "other-bonus"]
    )
    def test_breaks_where_a_verdict_says_otherwise(self, last: int, token: int) -> None:
        flight = Flight()
        for one in (sent(1, 0, 3, 4), sent(2, 2, 5, 6), sent(3, 4, 7, 8)):
            flight.add(one)
        flight.settle(last, token)
        assert (len(flight), flight.epoch) == (0, 1)


class TestPredicting:
    def test_what_was_predicted_while_waiting_costs_no_forward_later(self, text_pair: Pair) -> None:
        model = text_pair.draft
        drafter = ChainDrafter(DraftModel(model, GenerationOptions()))
        drafter.prefill(prompts(model)[0])
        first = drafter.chain([], 3).draft
        assert all(drafter.step(first.ids, 4) for _ in range(4))
        passes = model.runner.passes
        assert drafter.drafted(first.ids) == 4
        again = drafter.chain(first.ids, 4)
        assert model.runner.passes == passes
        fresh = ChainDrafter(DraftModel(model, GenerationOptions()))
        fresh.prefill(prompts(model)[0])
        assert fresh.chain(first.ids, 4) == again

    def test_predictions_of_another_answer_are_not_used(self, text_pair: Pair) -> None:
        model = text_pair.draft
        drafter = ChainDrafter(DraftModel(model, GenerationOptions()))
        drafter.prefill(prompts(model)[0])
        drafter.chain([], 6)
        other = [5, 6, 7]
        assert drafter.drafted(other) == 0
        fresh = ChainDrafter(DraftModel(model, GenerationOptions()))
        fresh.prefill(prompts(model)[0])
        assert drafter.chain(other, 4) == fresh.chain(other, 4)


class TestEpochs:
    def test_both_sides_count_alike(self, text_pair: Pair) -> None:
        prompt = prompts(text_pair.target)[0]
        right = generate_local(text_pair.target, prompt, GenerationOptions(20))
        verifier = Verifier(text_pair.target, GenerationOptions(20))
        verifier.open(prompt)
        flight = Flight()
        wrong = (right[4] + 1) % 250
        for round_, draft in enumerate((Draft(0, tuple(right[:2])), Draft(2, (right[2], right[3])))):
            flight.add(sent(round_, draft.base, *draft.ids))
            judgement = verifier.verify(draft)
            flight.settle(judgement.last, judgement.token)
            assert (flight.epoch, verifier.epoch) == (0, 0)
        for draft in (Draft(4, (wrong, 1)), Draft(6, (2, 3))):
            flight.add(sent(9, draft.base, *draft.ids))
        judgement = verifier.verify(Draft(4, (wrong, 1)))
        flight.settle(judgement.last, judgement.token)
        assert (flight.epoch, verifier.epoch) == (1, 1)

    def test_other_bonus_token_is_seen_without_a_forward(self, text_pair: Pair) -> None:
        prompt = prompts(text_pair.target)[0]
        right = generate_local(text_pair.target, prompt, GenerationOptions(20))
        verifier = Verifier(text_pair.target, GenerationOptions(20))
        verifier.open(prompt)
        verifier.verify(Draft(1, (right[1],)))
        passes = text_pair.target.runner.passes
        assert verifier.verify(Draft(2, ((right[2] + 1) % 250, 5))) == Judgement((), right[2])
        assert text_pair.target.runner.passes == passes
        assert verifier.epoch == 1


@pytest.mark.parametrize("method", SHARED_NOISE)
@pytest.mark.parametrize(
    "options", [GenerationOptions(40), GenerationOptions(40, temperature=0.8, seed=2)], ids=["greedy", "sampled"]
)
def test_answers_are_the_targets(
    vision_pair: Pair, servers: dict[str, str], method: str, options: GenerationOptions
) -> None:
    pair = vision_pair
    with patiently_connected(servers[pair.target.path]) as link:
        # A draft that is often wrong, and one that never is.
        for prompt, draft in zip(prompts(pair.target), (pair.draft, pair.target), strict=True):
            decoder = EdgeDecoder(link, draft, method)
            ids = [t for chunk in decoder.generate(prompt, options) for t in chunk]
            assert ids == generate_local(pair.target, prompt, options)


@pytest.mark.realtime
def test_stream_has_several_drafts_in_flight_over_a_slow_link(
    text_pair: Pair, servers: dict[str, str]
) -> None:
    """With a perfect draft and 60 ms of round trip, rounds overlap: far fewer round trips than rounds."""
    from tests.helpers.emulated import emulated

    prompt = prompts(text_pair.target)[0]
    options = GenerationOptions(60, temperature=1.0, seed=3)
    expected = generate_local(text_pair.target, prompt, options)
    took: dict[str, float] = {}
    with emulated(servers[text_pair.target.path], "--rtt", "60") as address, patiently_connected(address) as link:
        for method in ("sd", "sd+overlap:stream"):
            decoder = EdgeDecoder(link, text_pair.target, method, gamma=3)
            assert [t for chunk in decoder.generate(prompt, options) for t in chunk] == expected
            took[method] = decoder.stats.total_ms
    assert took["sd+overlap:stream"] < 0.6 * took["sd"]


@pytest.mark.parametrize(
    "name",
    ["sd+overlap", "sd+overlap:fast", "sd+leave:x", "sd+tree:8x2+overlap:stream", "specedge+leave:tokens"],
)
def test_combinations_that_do_not_exist_are_refused(name: str) -> None:
    with pytest.raises(OptionsError):
        get_method(name)
