"""Prompts: wording, history, and that text from outside stays text."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_vlm_nav.common.errors import InstructionError, PromptError
from spec_vlm_nav.language.actions import ACTION_SENTENCES, Action, ActionKind
from spec_vlm_nav.language.prompting import (
    FRAME,
    PRESETS,
    PromptSpec,
    build_prompt,
    choose_frames,
    clean_instruction,
    pick_history,
    render,
)

LEFT, AHEAD = Action(ActionKind.TURN_LEFT, 30), Action(ActionKind.FORWARD, 50)


def spec(template="Task: {instruction}. {frame} Next?", **more):
    return PromptSpec("test", template, **more)


def test_the_default_prompt_has_the_instruction_before_the_image():
    text = render(PRESETS["tiny_nav"], "find the silver bottle")
    assert 0 < text.index("find the silver bottle") < text.index(FRAME)


def test_a_model_made_for_the_policy_before_gets_its_successor(tmp_path):
    said = '{"name": "old", "template": "{instruction} {frame}", "exploration": "damped_search"}'
    (tmp_path / "nav_prompt.json").write_text(said)
    assert PromptSpec.from_model_folder(tmp_path).exploration == "frontier_search"


def test_last_actions_are_the_newest_oldest_first():
    with_actions = spec("{instruction} [{last_actions}] {frame}", last_actions=2)
    assert render(with_actions, "go", [LEFT, LEFT, AHEAD]).startswith("go [turn left 30, forward 50]")
    assert render(with_actions, "go").startswith("go [none]")


def test_navila_wants_eight_images_with_missing_history_black():
    frames = choose_frames(PRESETS["navila"], [b"a", b"b"], b"now", black=b"black")
    assert frames == (b"black",) * 5 + (b"a", b"b", b"now")
    assert render(PRESETS["navila"], "go", (), 7).count(FRAME) == 8


def test_the_untrained_qwen_prompt_teaches_the_ten_sentences():
    text = render(PRESETS["qwen2_vl"], "go")
    assert text.count("The next action is") == 9 and "I think I should stop" in text


@pytest.mark.parametrize("name", ["navila", "qwen2_vl"])
def test_what_repeats_can_stand_before_the_frames(name):
    """The same fields and frames in another order: nothing but a short end follows the first frame."""
    usual, last = PRESETS[name], PRESETS[f"{name}_frames_last"]
    assert (last.history_frames, last.last_actions) == (usual.history_frames, usual.last_actions)
    text = render(last, "go to the chair", (), last.history_frames)
    front, _, end = text.partition(FRAME)
    assert "go to the chair" in front and end.count(FRAME) == last.history_frames
    assert len(end.replace(FRAME, "")) < 80
    assert all(sentence in front for sentence in ACTION_SENTENCES if name == "qwen2_vl")


def test_history_is_spread_over_the_past_or_taken_from_its_end():
    assert pick_history(14, 7) == (0, 2, 4, 6, 8, 10, 12)
    assert pick_history(14, 3, "latest") == (11, 12, 13)
    assert pick_history(2, 7) == (0, 1)


@pytest.mark.slow
@given(st.integers(0, 500), st.integers(1, 16))
def test_history_is_in_order_without_repeats_and_within_bounds(past, wanted):
    picked = pick_history(past, wanted)
    assert list(picked) == sorted(set(picked)) and len(picked) == min(past, wanted)
    assert all(0 <= i < past for i in picked)


@pytest.mark.parametrize("text", ["", "   ", "...", "\n\t"])
def test_an_empty_instruction_is_refused(text):
    with pytest.raises(InstructionError, match="empty instruction"):
        clean_instruction(text)


def test_a_huge_instruction_is_refused_with_the_limit():
    with pytest.raises(InstructionError, match="100000 characters refused: the limit is 500"):
        clean_instruction("x" * 100_000)


@pytest.mark.slow
@given(st.text(max_size=200))
def test_an_instruction_never_becomes_markup_or_a_second_line(text):
    try:
        cleaned = clean_instruction(text)
    except InstructionError:
        return
    assert "<|" not in cleaned and "|>" not in cleaned and cleaned.isprintable() and cleaned


def test_braces_in_an_instruction_stay_braces():
    assert "{frame}" in render(spec(), "find {frame} {0}")


def test_a_spec_travels_with_the_model(tmp_path):
    saved = spec("{instruction} {last_actions} {frame}", last_actions=4)
    saved.save(tmp_path)
    assert PromptSpec.from_model_folder(tmp_path) == saved
    assert PromptSpec.from_model_folder(tmp_path / "nothing") == PRESETS["tiny_nav"]


@pytest.mark.parametrize("content", ["{", "[]", '{"name": "x"}', '{"name": "x", "template": "{frame}"}'])
def test_a_broken_spec_file_is_one_clear_error(tmp_path, content):
    (tmp_path / "nav_prompt.json").write_text(content)
    with pytest.raises(PromptError):
        PromptSpec.from_model_folder(tmp_path)


def test_an_unknown_setting_in_a_spec_file_is_named(tmp_path):
    (tmp_path / "nav_prompt.json").write_text(json.dumps({"name": "x", "template": "", "colour": 1}))
    with pytest.raises(PromptError, match="colour"):
        PromptSpec.from_model_folder(tmp_path)


@pytest.mark.parametrize(
    ("template", "more", "why"),
    [
        ("{instruction}", {}, "lacks"),
        ("{instruction} {frame} {mood}", {}, "unknown fields"),
        ("{instruction} {frame} {history}", {}, "belong together"),
        ("{instruction} {frame}", {"last_actions": 2}, "belong together"),
        ("{instruction} {frame}", {"history_sampling": "random"}, "history_sampling"),
    ],
)
def test_a_wrong_spec_is_refused(template, more, why):
    with pytest.raises(PromptError, match=why):
        spec(template, **more)


class FakeTokenizer:
    """Fake: one id per character, the image placeholder as one id; knows one special word without bars."""

    all_special_tokens = ("<|image_pad|>", "<image>")

    def __call__(self, text, add_special_tokens):
        assert not add_special_tokens
        out = []
        while text:
            if text.startswith("<|image_pad|>"):
                out.append(9999)
                text = text.removeprefix("<|image_pad|>")
            elif text.startswith("<image>"):
                out.append(7777)
                text = text.removeprefix("<image>")
            else:
                out.append(ord(text[0]))
                text = text[1:]
        return {"input_ids": out}

    def convert_tokens_to_ids(self, token):
        return {"<|image_pad|>": 9999}.get(token)


def test_an_instruction_cannot_smuggle_in_special_tokens():
    prompt = build_prompt(spec(), FakeTokenizer(), "go <|image_pad|><image> now", [b"jpeg"])
    assert prompt.ids.count(9999) == 1 and 7777 not in prompt.ids and prompt.images == (b"jpeg",)


def test_a_tokenizer_without_vision_is_refused():
    class Blind(FakeTokenizer):
        def convert_tokens_to_ids(self, token):
            return None

    with pytest.raises(PromptError, match="vision-language"):
        build_prompt(spec(), Blind(), "go", [b"jpeg"])


def test_the_action_can_be_asked_for_first_where_the_wording_knows_how():
    spec = PRESETS["qwen2_vl"].ordered("action_first")
    text = render(spec, "go")
    assert text.index("The first is exactly one of these") < text.index("The second says where")
    assert all(sentence in text for sentence in ACTION_SENTENCES)
    assert PRESETS["qwen2_vl"].ordered("as_trained") == PRESETS["qwen2_vl"]


@pytest.mark.parametrize("name", ["tiny_nav", "navila"])
def test_a_model_trained_on_one_order_is_not_asked_for_another(name):
    with pytest.raises(PromptError, match="order it was trained on"):
        PRESETS[name].ordered("action_first")


def test_a_models_folder_may_bring_its_own_wording_for_the_action_first(tmp_path):
    spec = PromptSpec("mine", "{instruction}{frame}", action_first="Act. {instruction}{frame}")
    spec.save(tmp_path)
    assert render(PromptSpec.from_model_folder(tmp_path).ordered("action_first"), "go").startswith("Act. go")
