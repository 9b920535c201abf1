"""Layer split: two halves make the whole model, on one machine and over a link."""

from __future__ import annotations

import pytest
import torch

from specdec.edge.decoder import EdgeDecoder, connect
from specdec.errors import ModelError, OptionsError, ProtocolError
from specdec.models import LoadedModel, Prompt, chat_prompt
from specdec.models.local import generate_local
from specdec.models.split import BackSession, FrontPart
from specdec.options import GenerationOptions
from specdec.verifying import Verifier
from tests.helpers import tiny_models as tiny
from tests.helpers.servers import Pair, patiently_connected


def prompt_for(model: LoadedModel) -> Prompt:
    return chat_prompt(model, "split me", images=[tiny.picture(3)] if model.is_multimodal else [])


@pytest.mark.parametrize("layers", [1, 2])
def test_two_parts_give_the_logits_of_the_whole(pair: Pair, layers: int) -> None:
    model, prompt = pair.target, prompt_for(pair.target)
    front, back = FrontPart(model, layers), BackSession(model, layers)
    whole = model.new_session()
    encoded = model.encode(prompt)
    back.hand_in(front.prefill(prompt, [7, 8]), encoded.ids.shape[0] + 2)
    torch.testing.assert_close(back.prefill(encoded), whole.prefill(encoded))
    torch.testing.assert_close(back.extend([7, 8]), whole.extend([7, 8]))
    back.hand_in(front.extend([9]), 1)
    torch.testing.assert_close(back.extend([9]), whole.extend([9]))


def test_a_split_target_answers_as_the_target(pair: Pair) -> None:
    model, prompt, options = (
        pair.target,
        prompt_for(pair.target),
        GenerationOptions(12, temperature=0.7, seed=4),
    )
    front, back = FrontPart(model), BackSession(model, 1)
    verifier = Verifier(model, options, back)
    back.hand_in(front.prefill(prompt, ()), model.encode(prompt).ids.shape[0])
    verifier.open(prompt)
    while not verifier.finished:
        back.hand_in(front.extend(verifier.answer[-1:]), 1)
        verifier.step()
    answer = [token for token in verifier.answer if token not in model.eos_token_ids]
    assert answer == generate_local(model, prompt, options)


@pytest.mark.parametrize("layers", [3, 99])
def test_more_layers_than_there_are_to_give_are_refused(text_pair: Pair, layers: int) -> None:
    with pytest.raises(OptionsError, match="choose 1 to 2"):
        FrontPart(text_pair.target, layers)


def test_hidden_states_of_another_size_or_broken_ones_are_refused(text_pair: Pair) -> None:
    model = text_pair.target
    back = BackSession(model, 1)
    whole = FrontPart(model, 1).prefill(prompt_for(model), ())
    with pytest.raises(ProtocolError, match="same number type"):
        back.hand_in(whole[: len(whole) // 2], model.encode(prompt_for(model)).ids.shape[0])
    with pytest.raises(ProtocolError, match="NaN"):
        back.hand_in(b"\xff" * 4 * model.runner.hidden_size, 1)
    with pytest.raises(ProtocolError, match="0 arrived"):
        back.extend([5])


def test_the_edge_needs_the_target_and_the_same_one(
    text_pair: Pair, vision_pair: Pair, servers: dict[str, str]
) -> None:
    with patiently_connected(servers[text_pair.target.path]) as link:
        with pytest.raises(OptionsError, match="give the target model"):
            EdgeDecoder(link, text_pair.draft, "split")
        with pytest.raises(OptionsError, match="choose 1 to 2"):
            decoder = EdgeDecoder(link, None, "split+layers:7", front_model=text_pair.target)
            list(decoder.generate(prompt_for(text_pair.target)))


@pytest.mark.slow
def test_a_split_survives_an_outage(text_pair: Pair, servers: dict[str, str]) -> None:
    from tests.helpers.emulated import emulated

    model, prompt, options = text_pair.target, prompt_for(text_pair.target), GenerationOptions(30)
    settings = ("--rtt", "10", "--outage", "0.15:0.8")
    with emulated(servers[model.path], *settings) as address, connect(address, reply_timeout_s=0.4) as link:
        decoder = EdgeDecoder(link, None, "split", resume_timeout_s=20, front_model=model)
        got = [token for chunk in decoder.generate(prompt, options) for token in chunk]
    assert got == generate_local(model, prompt, options)


@pytest.mark.slow
def test_a_prompt_that_is_too_long_is_refused_before_anything_is_computed(text_pair: Pair) -> None:
    model = text_pair.target
    with pytest.raises(ModelError, match="shorten it"):
        FrontPart(model).prefill(Prompt(tuple([5] * model.context_limit)), ())
