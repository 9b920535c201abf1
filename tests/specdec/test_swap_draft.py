"""Another draft model, live: no answer changes, and one of another vocabulary is refused."""

from __future__ import annotations

import copy

import pytest

from specdec.edge.decoder import EdgeDecoder
from specdec.errors import ModelError, OptionsError
from specdec.models import chat_prompt
from specdec.options import GenerationOptions
from tests.helpers.servers import Pair, patiently_connected

OPTIONS = GenerationOptions(16)


def test_answers_stay_and_drafts_get_better(text_pair: Pair, servers: dict[str, str]) -> None:
    """The target itself is taken for the new draft: from then on everything is accepted."""
    prompt = chat_prompt(text_pair.target, "say something")
    with patiently_connected(servers[text_pair.target.path]) as link:
        decoder = EdgeDecoder(link, text_pair.draft, "sd", 3)
        before = [t for c in decoder.generate(prompt, OPTIONS) for t in c]
        old_tau = decoder.stats.tau
        decoder.swap_draft(text_pair.target)
        assert decoder.draft_model is text_pair.target
        assert [t for c in decoder.generate(prompt, OPTIONS) for t in c] == before
        assert decoder.stats.tau > max(old_tau, 3.0)


def test_an_answer_in_progress_ends_with_the_model_it_has(
    text_pair: Pair, servers: dict[str, str]
) -> None:
    prompt = chat_prompt(text_pair.target, "say something")
    with patiently_connected(servers[text_pair.target.path]) as link:
        decoder = EdgeDecoder(link, text_pair.draft, "sd", 3)
        whole = [t for c in decoder.generate(prompt, OPTIONS) for t in c]
        answer = decoder.generate(prompt, OPTIONS)
        begun = next(answer)
        decoder.swap_draft(text_pair.target)
        assert decoder.draft_model is text_pair.draft
        assert begun + [t for c in answer for t in c] == whole
        list(decoder.generate(prompt, OPTIONS))
        assert decoder.draft_model is text_pair.target


@pytest.mark.parametrize("connected", [False, True])
def test_another_vocabulary_is_refused_and_the_old_draft_stays(
    text_pair: Pair, servers: dict[str, str], connected: bool
) -> None:
    stranger = copy.copy(text_pair.draft)
    stranger.__dict__["vocabulary_fingerprint"] = b"stranger"
    prompt = chat_prompt(text_pair.target, "say something")
    with patiently_connected(servers[text_pair.target.path]) as link:
        decoder = EdgeDecoder(link, text_pair.draft, "sd", 3)
        if connected:
            list(decoder.generate(prompt, OPTIONS))
        with pytest.raises(ModelError, match="different vocabularies") as caught:
            decoder.swap_draft(stranger)
        assert "\n" not in str(caught.value)
        assert decoder.draft_model is text_pair.draft
        assert list(decoder.generate(prompt, OPTIONS))


@pytest.mark.slow
def test_there_is_nothing_to_swap_where_nothing_drafts(text_pair: Pair, servers: dict[str, str]) -> None:
    with patiently_connected(servers[text_pair.target.path]) as link:
        for method in ("ar", "ngram"):
            with pytest.raises(OptionsError, match="no draft model"):
                EdgeDecoder(link, None, method).swap_draft(text_pair.draft)
