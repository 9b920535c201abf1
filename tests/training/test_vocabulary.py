"""The pair's tokenizer: words are single tokens, digits stand apart, any text survives."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spec_vlm_nav.language.actions import ACTION_SENTENCES
from spec_vlm_nav.language.prompting import PromptSpec, build_prompt
from specnav.recipes.vocabulary import build_tokenizer, save_tokenizer, template_words

tokenizer = cache(build_tokenizer)  # not at import: every worker imports this file, and one runs it


def ids(text):
    return tokenizer()(text, add_special_tokens=False)["input_ids"]


def test_every_template_word_is_one_token_after_a_space():
    assert [word for word in template_words() if len(ids(" " + word)) != 1] == []


def test_digits_are_tokens_of_their_own():
    assert len(ids("0123456789")) == 10


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.text())
def test_any_text_survives_encoding_and_decoding(text):
    import unicodedata

    kept = tokenizer().decode(ids(text), skip_special_tokens=False, clean_up_tokenization_spaces=False)
    assert kept == unicodedata.normalize("NFC", text)


@pytest.mark.parametrize("sentence", ACTION_SENTENCES)
def test_an_action_sentence_takes_few_tokens(sentence):
    assert len(ids(" " + sentence)) <= 12


def test_a_saved_tokenizer_loads_with_auto_tokenizer_and_agrees(tmp_path):
    from transformers import AutoTokenizer

    save_tokenizer(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    text = "I see the red chair, left 20 degrees. Wörter 東京"
    assert again(text)["input_ids"] == ids(text)
    assert (again.eos_token, again.pad_token) == ("<|im_end|>", "<|endoftext|>")


def test_the_chat_template_and_the_robots_prompt_are_the_same_words():
    from specdec.models import chat_prompt

    frame = b"never decoded here"
    robot = build_prompt(PromptSpec.preset("tiny_nav"), tokenizer(), "find the silver bottle", [frame])
    assert chat_prompt(tokenizer(), "find the silver bottle", [frame]) == robot
