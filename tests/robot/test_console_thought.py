"""What the model has said so far, on the console: tokens by how they came, and what is not such a message."""

from __future__ import annotations

import json

import pytest

from spec_vlm_nav.common.codes import UNVERIFIED
from spec_vlm_nav.console.decisions import LONGEST, MOST_TOKENS, AnswerView
from spec_vlm_nav.model.course import Origin, known_so_far
from specdec.edge.stats import RoundStats


def gained(count, ready=None):
    return RoundStats(count - 1, count - 1, 0, 0, 0.0, 0.0, 0.0, count, ready=ready)


def test_tokens_are_told_by_how_they_came():
    thought = AnswerView()
    assert thought.on_tokens(json.dumps([["I", 1], [" see", 2], [" it", 0]]))
    told = thought.told()
    assert told["words"] == "I see it" and not told["unverified"]
    assert told["pieces"] == [("I", "drafted"), (" see", "ahead"), (" it", "own")]
    thought.on_tokens(json.dumps([["I", 1], [" guess", 3]]))
    assert thought.told()["unverified"]
    thought.clear()
    assert thought.told() == {"words": "", "pieces": [], "unverified": False}


def test_the_sentence_does_not_take_the_tokens_colours_away_but_another_one_replaces_them():
    thought = AnswerView()
    thought.on_tokens(json.dumps([["I see", 1], [" it.", 0], [" Next", 0]]))
    thought.on_sentence("I see it.")
    assert len(thought.told()["pieces"]) == 3
    thought.on_sentence(UNVERIFIED + "I guess")
    assert thought.told() == {"words": "I guess", "pieces": [], "unverified": True}


NO_TOKENS = ["", "{", "[1]", '{"a": 1}', '[["a"]]', '[["a", "b"]]', '[["a", 1e999]]', "[" * 9000, "7"]


@pytest.mark.parametrize("said", NO_TOKENS)
def test_what_is_no_such_message_changes_nothing(said):
    thought = AnswerView()
    thought.on_tokens('[["I", 1]]')
    assert not thought.on_tokens(said) and thought.told()["words"] == "I"


@pytest.mark.slow
def test_a_message_that_is_too_large_is_cut():
    thought = AnswerView()
    thought.on_tokens(json.dumps([["x" * 9999, 99]] * 9999))
    assert len(thought.told()["pieces"]) == MOST_TOKENS and len(thought.told()["pieces"][0][0]) == LONGEST


def test_a_token_whose_round_is_not_on_record_yet_is_left_out():
    rounds = [gained(3, ready=1), gained(2)]
    own, drafted, ahead, bare = (o.value for o in (Origin.TARGET, Origin.DRAFTED, Origin.AHEAD, Origin.UNVERIFIED))
    assert known_so_far(rounds, 5, 5) == (5, [ahead, drafted, own, drafted, own])
    assert known_so_far(rounds[:1], 5, 5) == (3, [ahead, drafted, own])
    assert known_so_far(rounds, 4, 4) == (4, [ahead, drafted, own, drafted])
    assert known_so_far((), 0, 2) == (2, [bare, bare])
    assert known_so_far(rounds, 5, 7)[1][5:] == [bare, bare]
    assert known_so_far((), 3, 3) == (0, [])
