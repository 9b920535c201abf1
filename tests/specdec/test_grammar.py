"""Answers that follow a grammar: the constrained target's own, token for token and in distribution, by any method."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec.edge.decoder import EdgeDecoder
from specdec.errors import ModelError, OptionsError, ProtocolError, SpecdecError
from specdec.methods import METHODS, get_method
from specdec.models import LoadedModel, Prompt, chat_prompt
from specdec.models.local import generate_local
from specdec.models.plans import Prepared
from specdec.models.session import SessionCursor
from specdec.options import MAX_GRAMMAR_BYTES, GenerationOptions
from specdec.sampling.grammar import FollowedGrammar, Grammar, Grammars
from tests.helpers.servers import Pair, patiently_connected
from tests.helpers.table_models import LANGUAGES, TableModel, adjusted, next_chances, next_state
from tests.specdec.checks import (
    COMBINATIONS,
    LOSSLESS,
    NOISE,
    PROMPTS,
    SAMPLED,
    UNLIKE,
    answer,
    answer_alone,
    check_distribution,
    on_tables,
)
from tests.specdec.grammars import ACTIONS
from tests.specdec.wired import WiredLink

(TOY,) = LANGUAGES
NOTHING_FOLLOWS = 'start: "a" NEVER\nNEVER: /a/ & /b/'


def reference(model: TableModel, prompt: Prompt, options: GenerationOptions) -> list[int]:
    """The likeliest token that the grammar allows after each other, read from the table; with the EOS."""
    state = 0
    for token in prompt.ids:
        state = next_state(state, token)
    ids: list[int] = []
    while len(ids) < options.max_new_tokens and not set(ids[-1:]) & model.eos_token_ids:
        ids.append(int(adjusted(model, state, options, prompt, tuple(ids)).argmax()))
        state = next_state(state, ids[-1])
    return ids


@pytest.mark.slow
@pytest.mark.parametrize("method", on_tables([*LOSSLESS, *COMBINATIONS]))
def test_greedy_answers_are_the_constrained_targets(method: str) -> None:
    for index, prompt in enumerate(PROMPTS):
        options = GenerationOptions((1, 2, 3, 24)[index % 4], grammar=TOY, min_new_tokens=3 * (index % 2))
        # Each of the four meets both.
        link = WiredLink(UNLIKE.target, UNLIKE.draft, slowness=(0.0, 0.4)[index // 4 % 2], seed=index)
        ids, _ = answer(method, options, prompt=prompt, link=link)
        assert ids == reference(UNLIKE.target, prompt, options), prompt.ids


@pytest.mark.slow
@pytest.mark.parametrize("method", NOISE)
def test_the_seed_alone_decides_a_sampled_answer(method: str) -> None:
    for seed in range(8):
        options = replace(SAMPLED, grammar=TOY, seed=seed, max_new_tokens=12)
        link = WiredLink(UNLIKE.target, UNLIKE.draft, slowness=0.4, cuts=(5,) if seed % 2 else (), seed=seed)
        assert answer(method, options, link=link)[0] == answer_alone(options)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ar", "dsd", "picospec"])
def test_sampled_answers_have_the_constrained_targets_distribution(method: str) -> None:
    check_distribution(method, replace(SAMPLED, grammar=TOY, top_p=0.95))


def test_forced_tokens_take_no_forward() -> None:
    """Of the target alone: one forward a choice, and one for the prompt."""
    for seed in range(30):
        options = replace(SAMPLED, grammar=TOY, seed=seed)
        before = UNLIKE.target.runner.passes
        ids, _ = answer("ar", options)
        passes = UNLIKE.target.runner.passes - before
        state, choices = 0, 0
        for token in (1, 2):
            state = next_state(state, token)
        for place, token in enumerate(ids):
            row = adjusted(UNLIKE.target, state, options, Prompt((1, 2)), tuple(ids[:place]))
            choices += np.count_nonzero(next_chances(row, options)) > 1
            state = next_state(state, token)
        assert passes == choices, ids


@pytest.mark.slow
def test_forced_tokens_of_a_draft_take_no_forward_of_the_draft_model() -> None:
    for method in ("sd", "fsd"):
        passes = []
        for forced in (FollowedGrammar.forced, lambda *_: []):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(FollowedGrammar, "forced", forced)
                before = UNLIKE.draft.runner.passes
                for seed in range(20):
                    answer(method, replace(SAMPLED, grammar=TOY, seed=seed))
                passes.append(UNLIKE.draft.runner.passes - before)
        assert passes[0] < 0.8 * passes[1], method


@pytest.mark.slow
@given(st.data())
@settings(max_examples=60, deadline=None, derandomize=True)
def test_what_may_follow_depends_on_the_ids_alone(data: st.DataObject) -> None:
    """However an answer got to where it is: taken back, gone on with, or followed from its beginning."""
    grammar = UNLIKE.target.grammar(TOY)
    assert grammar is not None
    followed, ids = grammar.follow(), list[int]()
    for _ in range(12):
        allowed = np.flatnonzero(followed.mask(ids)).tolist()
        assert allowed == np.flatnonzero(grammar.follow().mask(ids)).tolist()
        assert followed.forced(ids, 9)[:1] == (allowed if len(allowed) == 1 else [])
        if ids and (allowed == [0] or data.draw(st.booleans())):
            del ids[data.draw(st.integers(0, len(ids) - 1)) :]
        elif choices := [token for token in allowed if token]:
            ids.append(data.draw(st.sampled_from(choices)))


def library_answer(model: LoadedModel, prompt: Prompt, options: GenerationOptions) -> list[int]:
    """Greedy `generate` of the library, a fresh matcher of the grammar before every token; without its final EOS."""
    from llguidance import LLMatcher, LLTokenizer

    end = sorted(model.eos_token_ids)
    vocabulary = LLTokenizer(
        model.tokenizer.backend_tokenizer.to_str(), n_vocab=model.vocab_size, eos_token=end
    )
    encoded = torch.tensor([prompt.ids])

    def allowed(_: int, ids: Any) -> list[int]:
        matcher = LLMatcher(vocabulary, LLMatcher.grammar_from_lark(options.grammar))
        assert matcher.consume_tokens(ids[encoded.shape[1] :].tolist())
        bits = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
        return np.flatnonzero(np.unpackbits(bits, bitorder="little")).tolist()

    found = model.hf_model.generate(
        input_ids=encoded,
        do_sample=False,
        max_new_tokens=options.max_new_tokens,
        prefix_allowed_tokens_fn=allowed,
    )
    ids = found[0, encoded.shape[1] :].tolist()
    return ids[:-1] if ids[-1] in model.eos_token_ids else ids


class TestRealModels:
    """Random weights, so that nothing but the grammar makes them say what they are to say."""

    @pytest.mark.slow
    @pytest.mark.parametrize("tokens", [5, 23, 90])
    def test_the_target_alone_equals_the_librarys_generate(self, pair: Pair, tokens: int) -> None:
        options = GenerationOptions(tokens, grammar=ACTIONS)
        for text in ("find the silver bottle", "hello"):
            prompt = chat_prompt(pair.target, text)
            expected = library_answer(pair.target, prompt, options)
            assert generate_local(pair.target, prompt, options) == expected

    @pytest.mark.slow
    @pytest.mark.parametrize("method", METHODS)
    def test_every_method_over_a_link(self, text_pair: Pair, servers: dict[str, str], method: str) -> None:
        front = text_pair.target if get_method(method).split else None
        prompt = chat_prompt(text_pair.target, "find the silver bottle")
        with patiently_connected(servers[text_pair.target.path]) as link:
            decoder = EdgeDecoder(link, text_pair.draft, method=method, front_model=front)
            for options in (
                GenerationOptions(90, grammar=ACTIONS),
                GenerationOptions(90, temperature=1.0, seed=3, grammar=ACTIONS),
            ):
                ids = [token for chunk in decoder.generate(prompt, options) for token in chunk]
                text = text_pair.target.tokenizer.decode(ids)
                assert text.endswith((" cm.", " degree.", "the instruction."))
                if options.temperature == 0.0 or get_method(method).recovery_at(1.0) == 0:
                    assert ids == generate_local(text_pair.target, prompt, options)

    def test_a_cursors_rows_are_masked_along_a_growing_tree(self, text_pair: Pair) -> None:
        model, prompt = text_pair.target, chat_prompt(text_pair.target, "hello")
        options = GenerationOptions(40, grammar='start: /[a-z ]{3}/ "!"')
        ids = {letter: model.tokenizer.get_vocab()[letter] for letter in "abcdef!"}
        cursor, alone = (SessionCursor(model.new_session(), options) for _ in range(2))
        for one in (cursor, alone):
            one.prefill(Prepared(model.encode(prompt)))
        a, b, c, d, bang = (ids[letter] for letter in "abcd!")
        rows = [*cursor.tree_rows([a], [b, bang], [-1, -1]), *cursor.grow_tree([c, d], [0, 2])]
        for row, path in zip(rows, [[], [b], None, [b, c]], strict=False):
            if path is None:
                assert not torch.isinf(row).any()  # nobody gets there
            else:
                expected = alone.rows([a, *path])[0]
                assert torch.equal(torch.isinf(row), torch.isinf(expected))
                torch.testing.assert_close(row, expected, rtol=1e-4, atol=1e-4)
        assert torch.isfinite(alone.rows([a, b, c])[0]).nonzero().flatten().tolist() == [bang]


class TestBadInput:
    """One line that says what is wrong, and nothing else happens."""

    @pytest.mark.parametrize(
        "text", ["start: nothing", "start", 'start: ("a"', "start: /(/", 'start: "\N{SNOWMAN}"']
    )
    def test_a_grammar_that_cannot_be_used(self, text: str) -> None:
        with pytest.raises(OptionsError, match="grammar") as found:
            answer("sd", GenerationOptions(9, grammar=text))
        assert "\n" not in str(found.value)

    def test_one_that_leads_nowhere(self) -> None:
        with pytest.raises(SpecdecError, match="no answer follows the grammar"):
            answer("sd", GenerationOptions(9, grammar=NOTHING_FOLLOWS))

    def test_one_whose_shortest_answer_is_too_long(self) -> None:
        with pytest.raises(
            SpecdecError, match=r"has at least 4 tokens: allow more than 3 \(max_new_tokens\)"
        ):
            answer("sd", GenerationOptions(3, grammar="start: /abcd|dcbab/"))
        assert len(answer("sd", GenerationOptions(4, grammar="start: /abcd|dcbab/"))[0]) == 4

    def test_one_that_is_too_long(self) -> None:
        with pytest.raises(OptionsError, match="16384 bytes"):
            GenerationOptions(grammar="a" * (MAX_GRAMMAR_BYTES + 1))
        with pytest.raises(OptionsError, match="bytes"):
            GenerationOptions(grammar=7)  # type: ignore[arg-type]

    def test_a_verifier_refuses_a_bad_one_and_lives(self, text_pair: Pair, servers: dict[str, str]) -> None:
        prompt = chat_prompt(text_pair.target, "hello")
        with patiently_connected(servers[text_pair.target.path]) as link:
            decoder = EdgeDecoder(link, None, method="ar")
            with pytest.raises(ProtocolError, match="the grammar cannot be used"):
                list(decoder.generate(prompt, GenerationOptions(9, grammar="start: nothing")))
            assert list(decoder.generate(prompt, GenerationOptions(9)))

    def test_a_history_that_breaks_it(self, text_pair: Pair) -> None:
        cursor = SessionCursor(
            text_pair.target.new_session(), GenerationOptions(grammar='start: "yes" | "no"')
        )
        cursor.prefill(Prepared(text_pair.target.encode(chat_prompt(text_pair.target, "hello"))))
        with pytest.raises(ModelError, match="does not follow the grammar"):
            cursor.rows([text_pair.target.tokenizer.get_vocab()["a"]])

    def test_a_tokenizer_without_a_file(self, text_pair: Pair) -> None:
        with pytest.raises(ModelError, match=r"tokenizer\.json"):
            Grammars(object(), 5, {0}).compile(TOY)
        with pytest.raises(ModelError, match="end-of-sequence"):
            Grammars(text_pair.target.tokenizer, 5, set()).compile(TOY)


@pytest.mark.slow
def test_a_mask_of_the_wrong_row_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: every row of a draft masked as if it followed the answer alone."""
    right = FollowedGrammar.masks

    def forgetful(self: FollowedGrammar, answer: Any, tails: Any) -> Any:
        return right(self, answer, [()] * len(tails))

    monkeypatch.setattr(FollowedGrammar, "masks", forgetful)
    wrong = 0
    for prompt in PROMPTS:
        options = GenerationOptions(24, grammar=TOY)
        try:
            wrong += answer("sd", options, prompt=prompt)[0] != reference(UNLIKE.target, prompt, options)
        except (ModelError, ProtocolError):
            wrong += 1
    assert wrong


def test_the_last_grammars_are_kept(text_pair: Pair) -> None:
    first = text_pair.target.grammar('start: "x0"')
    assert isinstance(first, Grammar) and text_pair.target.grammar('start: "x0"') is first
    for number in range(40):
        text_pair.target.grammar(f'start: "y{number}"')
    assert text_pair.target.grammar('start: "x0"') is not first
