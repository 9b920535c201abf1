"""Answers under the robot's grammar: whatever the model, an action comes of every one."""

import random

import numpy as np
import pytest

from spec_vlm_nav.common.errors import ParameterError
from spec_vlm_nav.language.actions import ACTION_SENTENCES, find_action
from spec_vlm_nav.language.grammar import action_grammar
from spec_vlm_nav.language.prompting import PRESETS
from spec_vlm_nav.model.asking import QuestionWriter, grammars_of
from spec_vlm_nav.model.decider import DecoderSettings
from specdec.errors import OptionsError
from specdec.models import LoadedModel, chat_prompt, load_model
from specdec.models.local import generate_local
from specdec.options import GenerationOptions
from tests.robot.real_decider import built_pairs, picture

TOKENS = 200
"""This model spells most words letter by letter."""


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    """A Qwen2-VL of random weights."""
    return load_model(built_pairs() / "vision-target")


@pytest.fixture(scope="module")
def grammar(model: LoadedModel) -> str:
    return action_grammar(model.grammars, TOKENS)


def ids_of(model: LoadedModel, text: str) -> list[int]:
    ids: list[int] = model.tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids
    return ids


@pytest.mark.parametrize(
    ("before", "sentence"),
    [("I see it. ", sentence) for sentence in ACTION_SENTENCES]
    + [
        (before, "The next action is turn left 30 degree.")
        for before in ("", "Hm!  ", "I said The next.\n", "The sofa\nis here. ")
    ],
)
def test_every_sentence_may_be_said_and_ends_the_answer(
    model: LoadedModel, grammar: str, sentence: str, before: str
) -> None:
    compiled = model.grammar(grammar)
    assert compiled is not None
    allowed = np.flatnonzero(compiled.follow().mask(ids_of(model, before + sentence)))
    assert set(allowed.tolist()) == model.eos_token_ids


@pytest.mark.parametrize(
    "text", ["The next action is turn left 31", "Ok. The next thing", "The next action is move forward 25 m"]
)
def test_no_other_action_can_be_said(model: LoadedModel, grammar: str, text: str) -> None:
    compiled = model.grammar(grammar)
    assert compiled is not None
    with pytest.raises(Exception, match="does not follow the grammar"):
        compiled.follow().mask(ids_of(model, text))


@pytest.mark.slow
def test_random_words_come_to_an_action_in_time(model: LoadedModel, grammar: str) -> None:
    """Any way through the grammar, now and then along the beginnings of action sentences."""
    compiled = model.grammar(grammar)
    assert compiled is not None
    beginnings = [ids_of(model, text) for text in ("The next", ". I think I should stop", "\n", ". The next")]
    coin = random.Random(5)
    kinds = set()
    for _ in range(60):
        followed, ids = compiled.follow(), list[int]()
        while not model.eos_token_ids.intersection(ids[-1:]):
            for token in coin.choice(beginnings) if coin.random() < 0.02 else ():
                if followed.mask(ids)[token]:
                    ids.append(token)
            ids += followed.forced(ids, TOKENS) or [coin.choice(np.flatnonzero(followed.mask(ids)).tolist())]
            assert len(ids) <= TOKENS
        text = model.tokenizer.decode(ids[:-1])
        action = find_action(text)
        assert action is not None, text
        assert text.endswith(action.sentence)
        kinds.add(action.kind)
    assert len(kinds) >= 3


@pytest.mark.slow
def test_a_model_of_random_weights_says_actions(model: LoadedModel, grammar: str) -> None:
    for seed in range(3):
        frame = picture(seed, 224, 140)
        prompt = chat_prompt(model, "find the bottle", images=[frame])
        options = GenerationOptions(TOKENS, temperature=1.0, seed=seed, grammar=grammar)
        text = model.tokenizer.decode(generate_local(model, prompt, options))
        assert find_action(text) is not None, text
        without = generate_local(model, prompt, GenerationOptions(TOKENS, temperature=1.0, seed=seed))
        assert find_action(model.tokenizer.decode(without)) is None


def test_the_action_may_come_first(model: LoadedModel) -> None:
    grammar = action_grammar(model.grammars, TOKENS, action_first=True)
    prompt = chat_prompt(model, "hello")
    text = model.tokenizer.decode(generate_local(model, prompt, GenerationOptions(TOKENS, grammar=grammar)))
    assert text.startswith(("The next action is ", "I think I should stop because"))
    assert find_action(text) is not None


def test_too_few_tokens_are_refused(model: LoadedModel) -> None:
    with pytest.raises(OptionsError, match=r"raise max_new_tokens \(8\)"):
        action_grammar(model.grammars, 8)
    asker = QuestionWriter(PRESETS["qwen2_vl"], None, model.grammars)
    with pytest.raises(ParameterError, match="answer_grammar = 'actions' refused"):
        asker.options(DecoderSettings(max_new_tokens=8, answer_grammar="actions"))
    assert asker.options(DecoderSettings(max_new_tokens=8)).grammar == ""
    assert asker.options(DecoderSettings(answer_grammar="actions")).grammar


def test_a_tokenizer_alone_suffices(model: LoadedModel) -> None:
    """The edge of a method without a draft model."""
    grammars = grammars_of(model.tokenizer)
    assert action_grammar(grammars, TOKENS) == action_grammar(model.grammars, TOKENS)
