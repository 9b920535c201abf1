"""Losslessness: whatever the method, the draft and the link, the answer is what the target alone would have said."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch

from specdec.drafting import ChainDrafter, Draft, DraftModel, Proposal
from specdec.edge.decoder import EdgeDecoder
from specdec.errors import ModelError
from specdec.link import Link
from specdec.methods import METHODS as ALL_METHODS
from specdec.methods import get_method
from specdec.models import LoadedModel, Prompt, chat_prompt
from specdec.models.local import generate_local
from specdec.models.plans import Plan, PlanStep
from specdec.options import GenerationOptions
from specdec.sampling.recoveries import Recovery
from tests.helpers import tiny_models as tiny
from tests.helpers.servers import Pair, patiently_connected

pytestmark = pytest.mark.slow

TEXTS = ["find the silver bottle", "1 + 1 ="]


@pytest.fixture
def link(servers: dict[str, str], pair: Pair) -> Iterator[Link]:
    with patiently_connected(servers[pair.target.path]) as opened:
        yield opened


def prompts(model: LoadedModel) -> list[Prompt]:
    """Text prompts; for vision models one, and prompts with one and two images of different sizes."""
    found = [chat_prompt(model, text) for text in TEXTS]
    if model.is_multimodal:
        del found[1:]
        found.append(chat_prompt(model, ["find the ball", tiny.picture(1)]))
        found.append(chat_prompt(model, "compare", images=[tiny.picture(2), tiny.picture(3, 112, 224)]))
        found.append(chat_prompt(model, "what?", images=[tiny.picture(4, 224, 140)]))
    return found


def library_answer(model: LoadedModel, prompt: Prompt, max_new_tokens: int) -> list[int]:
    """Greedy `generate` of the library, without its final EOS."""
    return list(_library_answer(model, prompt, max_new_tokens))


@cache
def _library_answer(model: LoadedModel, prompt: Prompt, max_new_tokens: int) -> list[int]:
    encoded = model.encode(prompt)
    inputs: dict[str, torch.Tensor] = {"input_ids": encoded.ids[None]}
    if encoded.pixel_values is not None:
        assert encoded.grids is not None
        inputs["pixel_values"] = encoded.pixel_values
        inputs["image_grid_thw"] = encoded.grids
        inputs["mm_token_type_ids"] = (encoded.ids == model.image_pad_id).int()[None]
    ids = model.hf_model.generate(**inputs, do_sample=False, max_new_tokens=max_new_tokens)
    answer = ids[0, encoded.ids.shape[0] :].tolist()
    return answer[:-1] if answer[-1] in model.eos_token_ids else answer


@cache
def local_answer(model: LoadedModel, prompt: Prompt, options: GenerationOptions) -> list[int]:
    """The target alone; knows no method, so that all methods share it."""
    return generate_local(model, prompt, options)


def answer(decoder: EdgeDecoder, prompt: Prompt, options: GenerationOptions) -> list[int]:
    return [token for chunk in decoder.generate(prompt, options) for token in chunk]


METHODS = [*ALL_METHODS, "sd+leave:tokens", "sd+overlap:stream", "sd+length:online", "split+layers:2"]
NOISE_METHODS = [name for name in METHODS if get_method(name).recovery is Recovery.NOISE]


# Texts and pictures of one model; the other's caches differ in nothing that a method knows of.
@pytest.mark.parametrize(
    ("pair", "method"),
    [*(("vision", name) for name in METHODS), *(("text", name) for name in ("ar", "sd", "specedge"))],
    indirect=["pair"],
)
def test_greedy_equals_the_librarys_generate(pair: Pair, link: Link, method: str) -> None:
    options = GenerationOptions(max_new_tokens=40)
    decoder = EdgeDecoder(link, pair.draft, method=method, front_model=pair.target)
    for prompt in prompts(pair.target):
        expected = library_answer(pair.target, prompt, 40)
        assert local_answer(pair.target, prompt, options) == expected
        assert answer(decoder, prompt, options) == expected


@pytest.mark.parametrize(
    ("pair", "options"),
    [
        ("text", GenerationOptions(30, temperature=0.8, seed=1)),
        ("text", GenerationOptions(30, temperature=0.8, seed=2, top_k=10)),
        ("vision", GenerationOptions(30, temperature=1.0, seed=3, top_p=0.8)),
        ("vision", GenerationOptions(30, temperature=1.3, seed=4, min_p=0.1, top_k=50, top_p=0.95)),
    ],
    indirect=["pair"],
    ids=["plain", "top-k", "top-p", "all"],
)
def test_shared_noise_gives_one_answer_for_a_seed_with_any_method(
    pair: Pair, link: Link, options: GenerationOptions
) -> None:
    found = prompts(pair.target)
    for which, prompt in enumerate(found):
        expected = generate_local(pair.target, prompt, options)
        # Each method meets one of the prompts with these options, and the others with the next ones.
        for method in NOISE_METHODS[(which + options.seed) % len(found) :: len(found)]:
            decoder = EdgeDecoder(link, pair.draft, method=method, front_model=pair.target)
            assert answer(decoder, prompt, options) == expected, method


def test_cloud_sd_sends_what_a_round_verified_in_one_message(pair: Pair, link: Link) -> None:
    decoder = EdgeDecoder(link, method="cloud-sd")
    got = answer(decoder, prompts(pair.target)[0], GenerationOptions(40))
    stats = decoder.stats
    assert len(stats.rounds) < len(got) - 1
    assert 0.1 < stats.acceptance < 1
    assert all(one.uplink_bytes == 0 for one in stats.rounds)


def test_seeds_differ(text_pair: Pair) -> None:
    prompt = chat_prompt(text_pair.target, TEXTS[0])
    answers = {
        tuple(generate_local(text_pair.target, prompt, GenerationOptions(20, temperature=1.0, seed=seed)))
        for seed in range(8)
    }
    assert len(answers) == 8


def test_some_drafts_are_accepted_and_some_are_not(pair: Pair, link: Link) -> None:
    """Else the tests above would show little."""
    drafted = accepted = 0
    for prompt in prompts(pair.target):
        decoder = EdgeDecoder(link, pair.draft)
        answer(decoder, prompt, GenerationOptions(40))
        drafted += sum(one.drafted for one in decoder.stats.rounds)
        accepted += sum(one.accepted for one in decoder.stats.rounds)
    assert 0.15 < accepted / drafted < 0.95


def test_a_draft_of_the_target_itself_is_always_accepted(
    pair: Pair, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        pair.target, "never_drafted", frozenset()
    )  # a random model wants pictures in its answers
    for options in (GenerationOptions(41), GenerationOptions(41, temperature=0.8, seed=5)):
        decoder = EdgeDecoder(link, pair.target)
        answer(decoder, prompts(pair.target)[-1], options)
        rounds = decoder.stats.rounds[: -1 if decoder.stats.finish == "eos" else None]
        assert rounds
        assert all(one.accepted == one.drafted for one in rounds)


@pytest.mark.parametrize("gamma", [1, 16])
def test_any_gamma_gives_the_same_answer(text_pair: Pair, servers: dict[str, str], gamma: int) -> None:
    prompt = chat_prompt(text_pair.target, TEXTS[0])
    with patiently_connected(servers[text_pair.target.path]) as link:
        decoder = EdgeDecoder(link, text_pair.draft, gamma=gamma)
        assert answer(decoder, prompt, GenerationOptions(30)) == library_answer(text_pair.target, prompt, 30)


class TestLength:
    """max_new_tokens is exact, whatever the rounds are."""

    @pytest.mark.parametrize("limit", [1, 2, 5, 6])
    def test_max_new_tokens_is_exact(self, pair: Pair, link: Link, limit: int) -> None:
        prompt = prompts(pair.target)[-1]
        expected = library_answer(pair.target, prompt, limit)
        for draft in (pair.draft, pair.target):
            decoder = EdgeDecoder(link, draft)
            assert answer(decoder, prompt, GenerationOptions(limit)) == expected
            rounds = decoder.stats.rounds
            assert sum(one.drafted for one in rounds[-1:]) <= limit - 1
        for method in ("ar", "cloud-sd"):
            assert answer(EdgeDecoder(link, method=method), prompt, GenerationOptions(limit)) == expected

    def test_answer_ends_where_the_context_does(self, text_pair: Pair, servers: dict[str, str]) -> None:
        model = text_pair.target
        prompt = Prompt(tuple((7 * i) % 250 for i in range(model.context_limit - 10)))
        expected = generate_local(model, prompt, GenerationOptions(100))
        assert len(expected) == 10
        with patiently_connected(servers[model.path]) as link:
            for method in ("ar", "sd"):
                assert (
                    answer(EdgeDecoder(link, text_pair.draft, method), prompt, GenerationOptions(100))
                    == expected
                )


class _ScriptedDrafter:
    """Stands in for a Drafter and proposes what a script says."""

    def __init__(self, script: object) -> None:
        self._script = script

    def prefill(self, prompt: Prompt) -> None:
        """Nothing to prepare."""

    def drafted(self, answer: list[int]) -> int:
        return 1 << 20

    def step(self, answer: list[int], size: int) -> bool:
        return False

    def take(self, answer: list[int], size: int, room: int) -> Proposal:
        ids = tuple(self._script(answer, size))  # type: ignore[operator]
        return Proposal(Draft(len(answer), ids), ids)


class TestAdversarialDrafts:
    """Drafts that a broken or hostile edge might send; more of them, for every method, are in test_adversarial."""

    def run(
        self, pair: Pair, link: Link, monkeypatch: pytest.MonkeyPatch, script: object
    ) -> tuple[list[int], EdgeDecoder]:
        import specdec.edge.decoder

        monkeypatch.setattr(specdec.edge.decoder, "ChainDrafter", lambda *_: _ScriptedDrafter(script))
        decoder = EdgeDecoder(link, pair.draft)
        return answer(decoder, prompts(pair.target)[-1], GenerationOptions(24)), decoder

    def expected(self, pair: Pair) -> list[int]:
        return library_answer(pair.target, prompts(pair.target)[-1], 24)

    def test_empty(self, pair: Pair, link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
        got, _ = self.run(pair, link, monkeypatch, lambda answer, gamma: [])
        assert got == self.expected(pair)

    def test_image_placeholders_in_a_draft_are_never_accepted(
        self, vision_pair: Pair, servers: dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pad = vision_pair.target.image_pad_id
        with patiently_connected(servers[vision_pair.target.path]) as link:
            got, decoder = self.run(vision_pair, link, monkeypatch, lambda answer, gamma: [pad] * gamma)
        assert got == self.expected(vision_pair)
        assert decoder.stats.acceptance == 0


def test_drafter_never_proposes_an_image_placeholder(vision_pair: Pair) -> None:
    """Even a model that wants nothing else."""
    model = vision_pair.draft
    prompt = chat_prompt(model, "x", images=[tiny.picture(1)])
    drafter = ChainDrafter(DraftModel(model, GenerationOptions()))
    drafter.prefill(prompt)
    original = drafter._model.cursor.rows

    def eager_for_pictures(*arguments: object) -> Plan[torch.Tensor]:
        rows = (yield from original.plan(*arguments)).clone()  # type: ignore[arg-type]
        rows[:, sorted(model.never_drafted)] = 1e9
        return rows

    drafter._model.cursor.rows = PlanStep(eager_for_pictures)  # type: ignore[misc, assignment]
    assert not set(drafter.chain([], 8).draft.ids) & model.never_drafted


def test_target_that_ends_with_any_of_its_eos_ids_ends_the_answer(
    text_pair: Pair, servers: dict[str, str]
) -> None:
    """Sampled at high temperature, answers end at either EOS id, in ar and sd alike, and keep nothing after it."""
    model = text_pair.target
    prompt = chat_prompt(model, "end")
    eager = tuple((token, 3.0) for token in sorted(model.eos_token_ids))
    ended = 0
    with patiently_connected(servers[model.path]) as link:
        for seed in range(12):
            options = GenerationOptions(60, temperature=2.0, seed=seed, logit_bias=eager)
            expected = generate_local(model, prompt, options)
            for draft in (text_pair.draft, model):
                decoder = EdgeDecoder(link, draft)
                assert answer(decoder, prompt, options) == expected
                assert (decoder.stats.finish == "eos") == (len(expected) < 60)
                ended += decoder.stats.finish == "eos"
    assert ended >= 4


@pytest.mark.parametrize("method", ["sd", "ngram", "auto"])
def test_ids_outside_the_vocabulary_are_refused_and_never_drafted_in_a_later_answer(
    text_pair: Pair, servers: dict[str, str], method: str
) -> None:
    prompt, options = chat_prompt(text_pair.target, "say something"), GenerationOptions(6)
    first = generate_local(text_pair.target, prompt, options)
    outside = text_pair.target.vocab_size
    with patiently_connected(servers[text_pair.target.path]) as link:
        decoder = EdgeDecoder(link, text_pair.draft, method, 3)
        for bad, history in ((Prompt((*prompt.ids, first[0], outside)), ()), (prompt, (first[0], outside))):
            with pytest.raises(ModelError, match="outside the vocabulary"):
                list(decoder.generate(bad, options, history=history))
            assert [token for chunk in decoder.generate(prompt, options) for token in chunk] == first


@pytest.mark.parametrize("ids", [(-1,), (1 << 31,), ("5",), (1.0,), (True,)])
def test_ids_that_no_message_can_hold_do_not_spoil_the_next_answer(
    text_pair: Pair, servers: dict[str, str], ids: tuple[Any, ...]
) -> None:
    """The verifier would refuse them without a session's number, and the next answer would take that for its own."""
    prompt, options = chat_prompt(text_pair.target, "say something"), GenerationOptions(6)
    with patiently_connected(servers[text_pair.target.path]) as link:
        decoder = EdgeDecoder(link, text_pair.draft, "sd", 3)
        for bad, history in ((Prompt(ids), ()), (prompt, ids)):
            with pytest.raises(ModelError, match="must be token ids"):
                list(decoder.generate(bad, options, history=history))
            answer = [token for chunk in decoder.generate(prompt, options) for token in chunk]
            assert answer == generate_local(text_pair.target, prompt, options)
