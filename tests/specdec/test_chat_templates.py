"""Prompts are what `apply_chat_template` gives, or are refused: published templates, conversations of every shape."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from specdec.errors import ModelError
from specdec.models.direct.tokenizer import DirectTokenizer
from specdec.models.prompt import Message, conversation_prompt
from tests.helpers import tiny_models as tiny

TEMPLATES = {
    path.stem: path.read_text(encoding="utf-8")
    for path in sorted((Path(__file__).parent.parent / "data" / "chat_templates").glob("*.jinja"))
}
PARTS_ONLY = {"idefics-3", "llava"}
PICTURE = tiny.picture(1)


def said(*turns: tuple[str, str | tuple[str | bytes, ...]]) -> list[Message]:
    return [Message(role, (content,) if isinstance(content, str) else content) for role, content in turns]


CONVERSATIONS = {
    "one turn": said(("user", "What is 3 plus 4?")),
    "system first": said(("system", "Be brief."), ("user", "Hello")),
    "several turns": said(
        ("user", "one "), ("assistant", " two\n"), ("user", "three"), ("assistant", "4"), ("user", "5")
    ),
    "thoughts": said(("user", "a"), ("assistant", "<think>\nhm, b\n</think>\n\nc"), ("user", "and d?")),
    "thoughts left open": said(("user", "a"), ("assistant", "<think> hm"), ("user", "<think> I do </think>")),
    "an answer last": said(("user", "a"), ("assistant", "<think>b</think>c")),
    "empty": said(("user", "")),
    "an empty answer": said(("user", "a"), ("assistant", ""), ("user", "b")),
    "the same role twice": said(("user", "a"), ("user", "b")),
    "an answer first": said(("assistant", "a"), ("user", "b")),
    "system later": said(("user", "a"), ("system", "b"), ("user", "c")),
    "parts of text": said(("system", ("Be ", "brief.")), ("user", ("one ", "two"))),
    "jinja and tags": said(("user", "{{ 7 * 7 }} {% raw %} <b>&amp;</b> 'quotes' \" é 餮")),
    "a picture": said(("user", ("What is ", PICTURE, " this?"))),
    "pictures in turns": said(("user", (PICTURE, "a")), ("assistant", "b"), ("user", ("c", PICTURE))),
    "system and a picture": said(("system", "Be brief."), ("user", (PICTURE, "a"))),
}


@cache
def tokenizer_of(template: str) -> PreTrainedTokenizerFast:
    tokenizer = tiny.make_tokenizer()
    tokenizer.add_special_tokens({"bos_token": "<|vision_pad|>"})
    tokenizer.chat_template = TEMPLATES[template]
    return tokenizer


def as_sent(turns: list[Message], parts: bool) -> list[dict[str, Any]]:
    """The messages as the library takes them."""
    found: list[dict[str, Any]] = []
    for turn in turns:
        pieces = [
            {"type": "image"} if isinstance(one, bytes) else {"type": "text", "text": one}
            for one in turn.content
        ]
        text = "".join(one for one in turn.content if isinstance(one, str))
        if all(isinstance(one, str) for one in turn.content):
            found.append({"role": turn.role, "content": [{"type": "text", "text": text}] if parts else text})
        else:
            found.append({"role": turn.role, "content": pieces})
    return found


@pytest.mark.slow
@pytest.mark.parametrize("direct", [False, True], ids=["library", "ours"])
@pytest.mark.parametrize("template", TEMPLATES)
def test_a_prompt_is_what_the_library_gives_or_is_refused(template: str, direct: bool) -> None:
    library = tokenizer_of(template)
    named = dict(library.special_tokens_map)
    ours = DirectTokenizer(library.backend_tokenizer, named, (), TEMPLATES[template]) if direct else library
    refused = set()
    for name, turns in CONVERSATIONS.items():
        pictures = sum(isinstance(piece, bytes) for turn in turns for piece in turn.content)
        try:
            messages = as_sent(turns, template in PARTS_ONLY)
            right = library.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
        except Exception as error:
            with pytest.raises(ModelError, match="refuses these messages") as told:
                conversation_prompt(ours, turns)
            assert str(error).split("\n")[0][:50] in str(told.value)
            refused.add(name)
            continue
        if right.count(library.convert_tokens_to_ids("<|image_pad|>")) != pictures:
            with pytest.raises(ModelError, match="image placeholders"):
                conversation_prompt(ours, turns)
            refused.add(name)
            continue
        prompt = conversation_prompt(ours, turns)
        assert list(prompt.ids) == right, name
        assert len(prompt.images) == pictures
        assert library.decode(right).count("Zq7") == 0
    assert "one turn" not in refused and "several turns" not in refused and "thoughts" not in refused


@pytest.mark.parametrize("template", TEMPLATES)
def test_other_words_are_another_prompt(template: str) -> None:
    tokenizer = tokenizer_of(template)
    prompts = {
        conversation_prompt(
            tokenizer, said(("user", f"u{n}"), ("assistant", f"<think>t</think>a{n}"), ("user", "c"))
        ).ids
        for n in range(3)
    }
    assert len(prompts) == 3


def test_qwen_3_leaves_earlier_thoughts_out_and_keeps_every_message() -> None:
    text = tokenizer_of("qwen3").decode(
        conversation_prompt(tokenizer_of("qwen3"), CONVERSATIONS["thoughts"]).ids
    )
    assert text == (
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nc<|im_end|>\n"
        "<|im_start|>user\nand d?<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{% for m in messages %}{{ m.content + 5 }}{% endfor %}", "str"),
        ("{{ messages[0].content.no.such.thing }}", "no attribute"),
        ("{{ raise_exception('Only\n tools!') }}", "Only tools!"),
        ("{% for m in messages %}{{ m.content }}", "end of"),
        ("{{ messages[0].content }}{{ 1 / 0 }}", "division"),
        ("{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}{{ messages[0].content }}", "recursion"),
        ("{{ messages[0].content.__class__.__mro__ }}{{ messages[0].content }}", "unsafe"),
    ],
)
def test_what_goes_wrong_in_a_template_is_a_refusal_with_its_words(template: str, reason: str) -> None:
    tokenizer = tiny.make_tokenizer()
    tokenizer.chat_template = template
    with pytest.raises(ModelError, match=rf"refuses these messages: .*{reason}"):
        conversation_prompt(tokenizer, said(("user", "a")))


@pytest.mark.parametrize("template", ["{{ 'hello' }}", "{% for m in messages %}{{ m.text }}{% endfor %}"])
def test_a_template_without_place_for_words_is_refused(template: str) -> None:
    tokenizer = tiny.make_tokenizer()
    tokenizer.chat_template = template
    with pytest.raises(ModelError, match="leaves out the user's text"):
        conversation_prompt(tokenizer, said(("user", "a")))
