"""The action language: the parser faults seen in other packages, one test each, and arbitrary text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spec_vlm_nav.language.actions import (
    ACTION_SENTENCES,
    STOP,
    STOP_SENTENCE,
    Action,
    ActionKind,
    ahead_clear,
    find_action,
    reasoning_of,
    sees_target,
)

SENTENCES = sorted(ACTION_SENTENCES)


def test_the_language_has_exactly_the_ten_sentences():
    assert SENTENCES == [
        "I think I should stop because I have finished the instruction.",
        "The next action is move forward 25 cm.",
        "The next action is move forward 50 cm.",
        "The next action is move forward 75 cm.",
        "The next action is turn left 15 degree.",
        "The next action is turn left 30 degree.",
        "The next action is turn left 45 degree.",
        "The next action is turn right 15 degree.",
        "The next action is turn right 30 degree.",
        "The next action is turn right 45 degree.",
    ]


def test_25_cm_are_a_quarter_of_a_metre_not_three_quarters():
    action = find_action("The next action is move forward 25 cm.")
    assert action is not None and action.distance_m == pytest.approx(0.25)


@pytest.mark.parametrize("unit", ["m", "metres", "degree", "mm", "", "feet"])
def test_a_number_with_another_unit_is_no_action(unit):
    assert find_action(f"The next action is move forward 25 {unit}.") is None


def test_left_is_positive_and_right_is_negative():
    left, right = (find_action(f"The next action is turn {side} 30 degree.") for side in ("left", "right"))
    assert left is not None and right is not None
    assert left.angle_rad == pytest.approx(0.5235987755982988)
    assert right.angle_rad == -left.angle_rad


@pytest.mark.parametrize(
    "text", ["", "go on", "forward", "The next action is to think.", "move forward 25 cm"]
)
def test_unparsed_text_never_drives_forward(text):
    assert find_action(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "I see 45 chairs.",
        "The chair is 45 degree to the left.",
        "turn left 45",
        "The next action is turn left 450 degree.",
        "The next action is turn left 4 5 degree.",
    ],
)
def test_a_number_anywhere_in_the_text_is_no_turn(text):
    assert find_action(text) is None


def test_stop_is_found_although_the_reasoning_speaks_of_turning():
    assert find_action(f"I could turn left 30 degree. {STOP_SENTENCE}") == STOP


def test_the_first_complete_sentence_decides_whatever_follows():
    text = f"{STOP_SENTENCE} The next action is move forward 75 cm."
    assert find_action(text) == STOP


def test_a_sentence_quoted_inside_another_does_not_count():
    assert find_action('Do not say "The next action is move forward 25 cm."') is None
    assert find_action("It is wrong that The next action is move forward 25 cm.") is None


@pytest.mark.parametrize(
    "text",
    [
        "the next action is move forward 25 cm.",
        "The next action is move forward 25 cm",
        "The next action is move forward ２５ cm.",
        "The next action is  move forward 25 cm.",
        "The next action is move forward -25 cm.",
        "The next action is move forward 100 cm.",
        "The next action is move backward 25 cm.",
        "The next action is turn left 30 degrees.",
    ],
)
def test_near_misses_are_no_action(text):
    assert find_action(text) is None


@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_streamed_action_is_there_with_its_full_stop_and_not_before(sentence):
    text = f"I see the red chair, ahead, about 0.6 m, clear. {sentence}"
    assert all(find_action(text[:n]) is None for n in range(len(text)))
    assert find_action(text) == ACTION_SENTENCES[sentence]


@settings(max_examples=40)
@given(
    st.lists(
        st.one_of(st.sampled_from([*SENTENCES, " ", "\n", ". ", '"', "I see it. "]), st.text()), max_size=8
    )
)
def test_what_was_found_does_not_change_when_more_text_streams_in(parts):
    text, found = "", None
    for part in parts:
        for character in part:
            text += character
            now = find_action(text)
            assert found is None or now == found
            found = now


@given(st.text())
def test_arbitrary_text_never_raises_and_never_moves_without_a_sentence_of_the_language(text):
    action = find_action(text)
    assert action is None or any(sentence in text for sentence in SENTENCES)
    reasoning_of(text)
    sees_target(text)


@given(st.sampled_from(SENTENCES), st.integers(0, 80), st.characters())
def test_one_changed_character_makes_it_no_action(sentence, at, character):
    at %= len(sentence)
    broken = sentence[:at] + character + sentence[at + 1 :]
    assert (find_action(broken) is None) == (broken not in SENTENCES)


def test_reasoning_is_what_stands_before_the_action():
    assert reasoning_of("I see it. The next action is turn left 15 degree.") == "I see it."
    assert reasoning_of("I see it.") == "I see it."
    quoted = "I was told The next action is turn left 15 degree."
    assert reasoning_of(f"{quoted} The next action is turn left 30 degree.") == quoted


@pytest.mark.parametrize("sentence", SENTENCES)
@pytest.mark.parametrize("gap", [" ", "\n"])
def test_an_action_that_comes_before_its_reasoning_is_found_as_soon(sentence, gap):
    text = f"{sentence}{gap}I see the red chair, ahead, about 0.6 m, clear."
    assert find_action(sentence[:-1]) is None
    assert find_action(sentence) == find_action(text) == ACTION_SENTENCES[sentence]
    assert reasoning_of(text) == "I see the red chair, ahead, about 0.6 m, clear."
    assert sees_target(text) is True and ahead_clear(text) is True
    assert reasoning_of(sentence) == ""


@pytest.mark.parametrize("before", ["", "I see it. "])
def test_of_two_actions_the_first_counts_and_the_second_is_no_reasoning(before):
    text = f"{before}The next action is turn left 15 degree. I see the chair. {STOP_SENTENCE} I see no more."
    assert find_action(text) == Action(ActionKind.TURN_LEFT, 15)
    assert reasoning_of(text) == (before.strip() or "I see the chair.")


@pytest.mark.parametrize(
    ("text", "sees"),
    [
        ("I see the red chair, left 20 degrees, about 1.5 m, clear.", True),
        ("I do not see the silver bottle. The next action is turn left 30 degree.", False),
        ("The next action is turn left 30 degree.", None),
        ("What I see is unclear.", None),
        ("", None),
    ],
)
def test_whether_the_model_says_that_it_sees_the_target(text, sees):
    assert sees_target(text) is sees


def test_an_action_of_no_amount_or_a_negative_one_is_refused():
    with pytest.raises(ValueError, match="finite"):
        Action(ActionKind.FORWARD, -1)
    with pytest.raises(ValueError, match="finite"):
        Action(ActionKind.FORWARD, float("nan"))
