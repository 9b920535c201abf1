"""Answers with adjusted logits and stop strings: the library's own, and the same with every method over a real link."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from specdec.edge.decoder import EdgeDecoder
from specdec.link import Link
from specdec.methods import METHODS, get_method
from specdec.models import LoadedModel, Prompt, chat_prompt
from specdec.models.local import generate_local, stream_local
from specdec.models.plans import Prepared
from specdec.models.session import SessionCursor
from specdec.options import GenerationOptions
from specdec.sampling.choice import Adjuster
from specdec.sampling.recoveries import Recovery
from tests.helpers.servers import Pair, patiently_connected
from tests.helpers.tiny_models import picture
from tests.specdec.checks import (
    EARLY,
    FALSE_ALARM,
    SAMPLED,
    check_distribution,
    sampled_pvalue,
    unlike_when_greedy,
)

pytestmark = pytest.mark.slow


def prompts(model: LoadedModel) -> list[Prompt]:
    found = [chat_prompt(model, text) for text in ("find the silver bottle", "hello hello hello")]
    if model.is_multimodal:
        found.append(chat_prompt(model, "what?", images=[picture(4, 224, 140)]))
    return found


def library_answer(model: LoadedModel, prompt: Prompt, options: GenerationOptions) -> list[int]:
    """Greedy `generate` of the library with its own settings of the same names, without its final EOS."""
    from transformers import AutoTokenizer

    encoded = model.encode(prompt)
    inputs: dict[str, Tensor] = {"input_ids": encoded.ids[None]}
    if encoded.pixel_values is not None:
        assert encoded.grids is not None
        inputs["pixel_values"] = encoded.pixel_values
        inputs["image_grid_thw"] = encoded.grids
        inputs["mm_token_type_ids"] = (encoded.ids == model.image_pad_id).int()[None]
    ids = model.hf_model.generate(
        **inputs,
        do_sample=False,
        max_new_tokens=options.max_new_tokens,
        repetition_penalty=options.repetition_penalty,
        sequence_bias={(token,): bias for token, bias in options.logit_bias} or None,
        min_new_tokens=options.min_new_tokens or None,
        stop_strings=list(options.stop) or None,
        tokenizer=AutoTokenizer.from_pretrained(model.path) if options.stop else None,
    )
    answer = ids[0, encoded.ids.shape[0] :].tolist()
    return answer[:-1] if answer[-1] in model.eos_token_ids else answer


def a_stop(model: LoadedModel, prompt: Prompt, options: GenerationOptions) -> str:
    """Text that the answer has in its middle, of two tokens where two neighbours are whole characters."""
    text = model.tokenizer.decode(generate_local(model, prompt, options), clean_up_tokenization_spaces=False)
    middle = text[len(text) // 3 :]
    pieces = [middle[at : at + size] for size in (2, 1) for at in range(len(middle) - size + 1)]
    return next(piece for piece in pieces if piece.isascii() and piece.isprintable())


def eager_to_end(model: LoadedModel, bias: float = 6.0) -> tuple[tuple[int, float], ...]:
    """A bias that makes random models want to end their answers."""
    return tuple((token, bias) for token in sorted(model.eos_token_ids))


def cases(model: LoadedModel) -> dict[str, GenerationOptions]:
    """Every processor alone, and together."""
    ends = eager_to_end(model)
    return {
        "penalty": GenerationOptions(40, repetition_penalty=1.4),
        "bias": GenerationOptions(40, logit_bias=((40, 6.0), (60, 5.0), (200, -9.0))),
        "ends": GenerationOptions(40, logit_bias=ends),
        "minimum": GenerationOptions(40, logit_bias=ends, min_new_tokens=7),
        "together": GenerationOptions(
            40, repetition_penalty=1.2, logit_bias=((40, 6.0), *ends), min_new_tokens=9
        ),
    }


CASES = ["penalty", "bias", "ends", "minimum", "together"]


class TestAlone:
    """The target alone in one process, against the library."""

    @pytest.mark.parametrize("case", CASES)
    def test_greedy_equals_the_librarys_generate(self, pair: Pair, case: str) -> None:
        options = cases(pair.target)[case]
        for prompt in prompts(pair.target):
            assert generate_local(pair.target, prompt, options) == library_answer(
                pair.target, prompt, options
            )

    def test_settings_change_the_answer(self, text_pair: Pair) -> None:
        """Else the tests here would show little."""
        prompt = prompts(text_pair.target)[0]
        plain = generate_local(text_pair.target, prompt, GenerationOptions(40))
        answers = [generate_local(text_pair.target, prompt, one) for one in cases(text_pair.target).values()]
        assert all(answer != plain for answer in answers)
        assert len({tuple(answer) for answer in answers}) == len(answers)

    @pytest.mark.parametrize("case", ["penalty", "together"])
    def test_stop_strings_equal_the_librarys(self, pair: Pair, case: str) -> None:
        for prompt in prompts(pair.target):
            for asked in (GenerationOptions(40), cases(pair.target)[case]):
                # The library stops before its minimum; here that rule counts (see the tests of stop strings).
                mild = tuple(one for one in asked.logit_bias if one[0] not in pair.target.eos_token_ids)
                options = replace(asked, min_new_tokens=0, logit_bias=mild)
                whole = generate_local(pair.target, prompt, options)
                stopping = replace(options, stop=("never said", a_stop(pair.target, prompt, options)))
                answer = generate_local(pair.target, prompt, stopping)
                assert answer == library_answer(pair.target, prompt, stopping)
                assert len(answer) < len(whole) and answer == whole[: len(answer)]

    def test_a_minimum_bans_every_eos_until_then(self, text_pair: Pair) -> None:
        prompt = prompts(text_pair.target)[0]
        eager = GenerationOptions(30, logit_bias=eager_to_end(text_pair.target, 1000.0))
        assert generate_local(text_pair.target, prompt, eager) == []
        for least in (1, 5):
            assert (
                len(generate_local(text_pair.target, prompt, replace(eager, min_new_tokens=least))) == least
            )

    def test_a_cursors_rows_are_adjusted_along_a_growing_tree(self, text_pair: Pair) -> None:
        model, prompt = text_pair.target, prompts(text_pair.target)[0]
        options = cases(model)["together"]
        cursor, alone = (
            SessionCursor(model.new_session(), options),
            SessionCursor(model.new_session(), options),
        )
        cursor.prefill(Prepared(model.encode(prompt)))
        alone.prefill(Prepared(model.encode(prompt)))
        cursor.rows([5])
        rows = [*cursor.tree_rows([5, 6], [10, 11], [-1, -1]), *cursor.grow_tree([12, 13], [0, 1])]
        for row, path in zip(rows, [[], [10], [11], [10, 12], [11, 13]], strict=True):
            torch.testing.assert_close(row, alone.rows([5, 6, *path])[0], rtol=1e-4, atol=1e-4)


def decoder(method: str, link: Link, pair: Pair) -> EdgeDecoder:
    """With whatever models the method wants on the edge."""
    front = pair.target if get_method(method).split else None
    return EdgeDecoder(link, pair.draft, method=method, front_model=front)


def over(method: str, link: Link, pair: Pair, prompt: Prompt, options: GenerationOptions) -> list[int]:
    return [token for chunk in decoder(method, link, pair).generate(prompt, options) for token in chunk]


NAMES = [*METHODS, "sd+tree:12x4", "sd+overlap:continue", "sd+overlap:stream"]
GREEDY = unlike_when_greedy(NAMES)


class TestOverALink:
    """Whatever the method, the answer is the target's own."""

    @pytest.mark.parametrize("method", GREEDY)
    def test_greedy_answers_are_the_targets(
        self, vision_pair: Pair, servers: dict[str, str], method: str
    ) -> None:
        pair = vision_pair
        prompt, found = prompts(pair.target)[-1], cases(pair.target)
        # All processors together, and one of them alone: another with every method.
        for case in ("together", CASES[GREEDY.index(method) % (len(CASES) - 1)]):
            options = replace(found[case], max_new_tokens=30)
            expected = generate_local(pair.target, prompt, options)
            with patiently_connected(servers[pair.target.path]) as link:
                assert over(method, link, pair, prompt, options) == expected

    @pytest.mark.parametrize("method", [name for name in NAMES if get_method(name).recovery is Recovery.NOISE])
    def test_with_shared_noise_they_are_the_targets_at_a_temperature(
        self, text_pair: Pair, servers: dict[str, str], method: str
    ) -> None:
        options = replace(cases(text_pair.target)["together"], temperature=0.9, seed=7, top_p=0.95)
        prompt = prompts(text_pair.target)[0]
        with patiently_connected(servers[text_pair.target.path]) as link:
            answer = over(method, link, text_pair, prompt, options)
        assert answer == generate_local(text_pair.target, prompt, options)

    @pytest.mark.parametrize("method", NAMES)
    def test_rejection_sampling_keeps_to_the_minimum_and_the_bias(
        self, text_pair: Pair, servers: dict[str, str], method: str
    ) -> None:
        """An EOS that is wanted above all comes right after the minimum; a bias of that size decides everything."""
        prompt = prompts(text_pair.target)[0]
        wanted = replace(
            GenerationOptions(20, temperature=0.9, min_new_tokens=6),
            logit_bias=((65, 500.0), *eager_to_end(text_pair.target, 1000.0)),
        )
        with patiently_connected(servers[text_pair.target.path]) as link:
            assert over(method, link, text_pair, prompt, wanted) == [65] * 6

    @pytest.mark.parametrize("method", GREEDY)
    def test_an_answer_ends_with_the_token_that_completes_a_stop_string(
        self, text_pair: Pair, servers: dict[str, str], method: str
    ) -> None:
        model, prompt = text_pair.target, prompts(text_pair.target)[0]
        stop = a_stop(model, prompt, GenerationOptions(40))
        options = GenerationOptions(40, stop=(stop,))
        expected = generate_local(model, prompt, options)
        with patiently_connected(servers[model.path]) as link:
            one = decoder(method, link, text_pair)
            assert [token for chunk in one.generate(prompt, options) for token in chunk] == expected
            assert one.stats.finish == "stop"
            # Going on with an answer that was begun before: the text before counts, and what is complete stays so.
            for begun in (1, len(expected) - 1, len(expected)):
                rest = [t for chunk in one.generate(prompt, options, history=expected[:begun]) for t in chunk]
                assert expected[:begun] + rest == expected
                assert one.stats.finish == "stop"


ADJUSTED_SAMPLES = 400
ADJUSTED = replace(SAMPLED, repetition_penalty=3.0, logit_bias=((0, 1.5), (3, -1.0)), min_new_tokens=2)


class TestDistribution:
    """Sampled answers follow the target's distribution after adjusting, against a reference of its own."""

    @pytest.mark.parametrize("method", ["ar", "dssd"])
    def test_a_method_samples_as_the_adjusted_target_alone(self, method: str) -> None:
        check_distribution(method, ADJUSTED, samples=ADJUSTED_SAMPLES)

    def test_a_penalty_that_forgets_the_draft_would_be_noticed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The negative control: rows in the middle of a draft, adjusted as if they followed the answer alone."""
        right = Adjuster._penalise

        def forgetful(self: Adjuster, scores: Tensor, seen: frozenset[int], tails: list[object]) -> Tensor:
            return right(self, scores, seen, [()] * len(tails))

        monkeypatch.setattr(Adjuster, "_penalise", forgetful)
        assert sampled_pvalue("dssd", ADJUSTED, samples=ADJUSTED_SAMPLES, looks=EARLY) < FALSE_ALARM


def test_an_answer_that_has_ended_does_not_go_on(text_pair: Pair) -> None:
    prompt, options = prompts(text_pair.target)[0], GenerationOptions(8)
    end = next(iter(text_pair.target.eos_token_ids))
    assert list(stream_local(text_pair.target, prompt, options, [5])), "this one goes on"
    assert not list(stream_local(text_pair.target, prompt, options, [5, end]))


def test_a_stream_is_the_same_token_by_token(text_pair: Pair) -> None:
    prompt, options = prompts(text_pair.target)[0], cases(text_pair.target)["together"]
    stream = stream_local(text_pair.target, prompt, options)
    assert [next(stream) for _ in range(5)] == generate_local(text_pair.target, prompt, options)[:5]
