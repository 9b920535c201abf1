"""Where a grammar leaves few choices, one forward of the target makes several of them, and no answer changes."""

from __future__ import annotations

import pytest

from specdec.edge.decoder import EdgeDecoder
from specdec.models import LoadedModel, chat_prompt
from specdec.models.local import generate_local
from specdec.options import GenerationOptions
from specdec.sampling.choices import Choices, choices_after
from specdec.verifying import Verifier
from tests.helpers.servers import Pair, StartServer, patiently_connected
from tests.specdec.grammars import ACTIONS

BEGUN = "\nThe next action is "


def ids_of(model: LoadedModel, text: str) -> list[int]:
    ids: list[int] = model.tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids
    return ids


def found_after(model: LoadedModel, text: str, most: int = 64) -> Choices:
    grammar = model.grammar(ACTIONS)
    assert grammar is not None
    place = grammar.follow().place(ids_of(model, text))
    assert place is not None
    return choices_after(grammar, place, most)


def test_the_ways_on_lead_to_every_further_choice_and_no_further(text_pair: Pair) -> None:
    model = text_pair.target  # it spells letter by letter
    found = found_after(model, BEGUN)
    leaves = [node for node in range(len(found.tree)) if node not in found.tree.parents]
    texts = {
        model.tokenizer.decode([found.tree.ids[step] for step in found.tree.path(leaf)]) for leaf in leaves
    }
    assert texts == {"move forward ", "turn "}, (
        "what is left behind these is one choice, which the forward makes"
    )
    assert found.sizes == (len(found.tree),)


@pytest.mark.parametrize(
    "text", ["", "I see", "\nThe next action is move forward ", "\nThe next action is turn left"]
)
def test_free_text_ends_and_last_choices_bring_nothing(text_pair: Pair, text: str) -> None:
    found = found_after(text_pair.target, text)
    assert not len(found.tree) and not found.sizes


def test_no_more_rows_go_along_than_pay(text_pair: Pair) -> None:
    found = found_after(text_pair.target, BEGUN)
    size = len(found.tree)
    assert found.worth(lambda rows: None) == found.worth(lambda rows: 0.04) == size
    assert found.worth(lambda rows: 0.04 * rows) == 0
    assert found.worth(lambda rows: 0.04 if rows <= size else 0.09) == 0
    assert not len(found_after(text_pair.target, BEGUN, most=3).tree)


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("dear", [False, True])
def test_answers_are_the_targets_and_take_fewer_forwards_where_rows_are_cheap(
    text_pair: Pair, start_server: StartServer, temperature: float, dear: bool
) -> None:
    """The cloud alone, through its engine; a tokenizer of letters makes everything but a choice forced."""
    target = text_pair.target
    server = start_server(target)
    server.server.tell_prices([(1, 1000), (2, 2000 if dear else 1000), (64, 64_000 if dear else 1000)])
    forwards = alone = 0
    with patiently_connected(server.address) as link:
        decoder = EdgeDecoder(link, None, "ar", tokenizer=target.tokenizer)
        for seed in range(4):
            options = GenerationOptions(96, temperature=temperature, seed=seed, grammar=ACTIONS)
            prompt = chat_prompt(target, f"where to, {seed}?")
            before = target.runner.passes
            answer = [token for chunk in decoder.generate(prompt, options) for token in chunk]
            forwards += target.runner.passes - before
            before = target.runner.passes
            assert answer == generate_local(target, prompt, options)
            alone += target.runner.passes - before
    assert forwards == alone if dear else forwards < alone


def test_a_verifier_without_a_grammar_has_no_choices_to_offer(text_pair: Pair) -> None:
    verifier = Verifier(text_pair.target, GenerationOptions(8))
    verifier.open(chat_prompt(text_pair.target, "hi"))
    assert verifier.choices(lambda rows: None).ids == ()


def test_a_way_that_leads_nowhere_is_left_out_and_breaks_no_answer(text_pair: Pair) -> None:
    grammar = text_pair.target.grammar('start: ("a" | "b") ("c" NEVER | "d" ("e" | "f"))\nNEVER: /x/ & /y/')
    assert grammar is not None
    found = choices_after(grammar, grammar.start, 64)
    assert all(grammar.spelling(token) in (b"a", b"b", b"d") for token in found.tree.ids)
