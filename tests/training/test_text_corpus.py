"""The corpus: what is read, how it is split, cleaned, asked about, encoded and drawn from."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from specnav.recipes.corpus import (
    clean,
    invent_questions,
    is_held_back,
    library_files,
    read_corpus,
    read_topics,
    source_talks,
    topic_talks,
)
from specnav.recipes.errors import TrainingError
from specnav.recipes.text.rows import (
    RowSource,
    draw_positions,
    encode_part,
    encode_questions,
    load_stream,
    save_encoded,
    talk_text,
)
from specnav.recipes.text.vocabulary import ASSISTANT, CONTEXT, END, USER, learn_tokenizer


@pytest.fixture(scope="module")
def corpus(little_library):
    return read_corpus(little_library)


@pytest.fixture(scope="module")
def tokenizer(corpus):
    return learn_tokenizer(corpus.train.documents, 400)


def test_tests_and_character_tables_are_left_out_and_the_order_is_sorted(little_library):
    files = library_files(little_library)
    assert files == sorted(files) and len(files) == 60
    assert all(file.startswith("unit") for file in files)


def test_files_are_held_back_by_their_name_and_never_in_both_halves(corpus):
    assert set(corpus.validation.files) == {f"unit{n}.py" for n in range(60) if is_held_back(f"unit{n}.py")}
    assert not set(corpus.train.files) & set(corpus.validation.files)
    held_back = {talk.question for talk in corpus.validation.talks}
    assert not held_back & {talk.question for talk in corpus.train.talks}


def test_reading_twice_gives_the_same_corpus(little_library, corpus):
    assert read_corpus(little_library) == corpus


def test_a_licence_at_the_top_goes_and_other_comments_stay():
    assert clean("#! /usr/bin/python\n# Copyright 1999 me\n\nx = 1  \n") == "x = 1\n"
    assert clean("# What x is for\nx = 1\n\n\n\n\ny = 2") == "# What x is for\nx = 1\n\n\ny = 2\n"


def test_a_function_answers_with_its_code_and_a_long_docstring_answers_in_prose(corpus):
    talks = corpus.train.talks
    code = [talk for talk in talks if talk.answer.startswith("def total(")]
    prose = [talk for talk in talks if talk.answer.startswith("Return the first")]
    assert code and all("Return the sum of all" in talk.question for talk in code)
    assert prose and all(talk.answer.endswith("negative.") for talk in prose)


def test_sources_that_do_not_parse_give_no_talks():
    assert source_talks("print 'python two'\n", "old.py") == []


def test_help_topics_become_prose_with_questions():
    text = "The assert statement\n********************\n\nAssert statements are convenient.\n"
    source = f"topics = { ({'assert': text})!r}\n"
    (talk,) = topic_talks(read_topics(source))
    assert "assert" in talk.question and talk.answer == "Assert statements are convenient."


def test_a_folder_without_sources_is_refused_in_one_line(tmp_path):
    with pytest.raises(TrainingError, match="has no Python sources") as caught:
        read_corpus(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["def f(x):\n    return x\n", "naïve 日本 🙂\t\r\n  ", "  two  spaces ", "\x00\x7f"]
)
def test_any_text_comes_back_from_its_tokens_as_it_was(tokenizer, text):
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_the_template_writes_a_talk_as_it_was_trained(tokenizer, corpus):
    talk = corpus.train.talks[0]
    said = [{"role": "user", "content": talk.question}, {"role": "assistant", "content": talk.answer}]
    assert tokenizer.apply_chat_template(said, tokenize=False) == talk_text(talk)
    asked = [{"role": "user", "content": [{"type": "text", "text": "why?"}]}]
    assert (
        tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
        == f"{USER}why?{ASSISTANT}"
    )
    assert encode_questions(tokenizer, ["why?"], 64)[0] == tokenizer(f"{USER}why?{ASSISTANT}")["input_ids"]


def test_the_tokenizer_has_the_size_asked_for_and_single_special_tokens(tokenizer):
    assert len(tokenizer) == 400
    assert all(len(tokenizer(token)["input_ids"]) == 1 for token in (END, USER, ASSISTANT))


def test_rows_depend_on_the_generator_alone_and_talks_start_with_a_question(tmp_path, tokenizer, corpus):
    file = tmp_path / "corpus.npz"
    save_encoded(file, encode_part(tokenizer, corpus.train), encode_part(tokenizer, corpus.validation))
    source = RowSource(file, 48)
    first, again = (source.draw(torch.Generator().manual_seed(5), 64) for _ in range(2))
    assert torch.equal(first, again) and first.shape == (64, 48)
    starting = int((first[:, 0] == tokenizer.convert_tokens_to_ids(USER)).sum())
    assert 10 < starting < 45
    windows = load_stream(file, "validation_files").windows(48)
    assert windows.shape[1] == 48 and windows.dtype == torch.int64


def test_positions_grow_and_stay_within_the_context():
    positions = draw_positions(torch.Generator().manual_seed(1), 500, 48)
    steps = positions.diff(dim=1)
    assert int(steps.min()) == 1 and int(positions.max()) < CONTEXT
    assert ((steps > 1).sum(1) <= 1).all()
    assert 0.35 < float((steps > 1).any(1).float().mean()) < 0.65


def test_invented_questions_are_half_prose(corpus):
    questions = invent_questions(corpus.train, 40, random.Random(2))
    own = {talk.question for talk in corpus.train.talks}
    assert len(questions) == 40
    assert np.mean([question in own for question in questions]) == pytest.approx(0.5, abs=0.1)
