# SPDX-License-Identifier: Apache-2.0
"""Prompts: token ids plus encoded images, as they are sent to the cloud once.

Ids have one placeholder per image; each side expands it by the grid of its own model. Users' text is never parsed for
special tokens, so an instruction cannot smuggle in an image placeholder or an end of turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from specdec.errors import ModelError

if TYPE_CHECKING:
    from torch import Tensor

VISION_START = "<|vision_start|>"
IMAGE_PAD = "<|image_pad|>"
VISION_END = "<|vision_end|>"
_PROBE = "Zq7"
"""Test text for chat templates, which occurs in no template."""
_MOST_HIDDEN = 16


@dataclass(frozen=True)
class Prompt:
    """A tokenized prompt. It is sent to the verifier once.

    Attributes:
        ids: Token ids; every image is one placeholder id.
        images: Encoded JPEG or PNG bytes, in the order of the placeholders.
    """

    ids: tuple[int, ...]
    images: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class EncodedPrompt:
    """A prompt encoded for one model.

    Attributes:
        ids: int64 [n], with image placeholders expanded.
        positions: int64 [3, n]; None: they are 0 .. n-1.
        delta: Offset from an index after the prompt to its position.
        pixel_values: float32 [patches, features], or None.
        grids: int64 [images, 3], or None.
        features: [image tokens, hidden_size] of pictures that are encoded already, instead of pixel_values.
        picture_starts: Where in `ids` each picture begins.
        extras: Further inputs of the library's forward pass for a prompt with pictures.
    """

    ids: Tensor
    positions: Tensor | None = None
    delta: int = 0
    pixel_values: Tensor | None = None
    grids: Tensor | None = None
    features: Tensor | None = None
    picture_starts: tuple[int, ...] = ()
    extras: Mapping[str, Tensor] | None = None


def chat_prompt(
    model_or_tokenizer: Any,
    text: str | Sequence[str | bytes],
    images: Sequence[bytes] = (),
    system: str | None = None,
    history: Sequence[tuple[str, str]] = (),
) -> Prompt:
    """Build a prompt in the form the model was trained on.

    The tokenizer's chat template is applied if it has one. Without a template the pieces are concatenated, `system`
    first, and each entry of `history` is a separate line.

    Args:
        model_or_tokenizer: A `LoadedModel` or a tokenizer; its chat template is used.
        text: The user's words, with all `images` before them. For any other order: a sequence of pieces, where bytes
            are images; `images` stays empty then.
        images: Contents of JPEG or PNG files.
        system: The system message; None: none.
        history: Earlier (question, answer) pairs of the conversation, oldest first.

    Returns:
        The prompt: token ids and images.

    Raises:
        ModelError: Images are given both in `text` and in `images`, or the template cannot be applied.
    """
    pieces: tuple[str | bytes, ...] = (*images, text) if isinstance(text, str) else tuple(text)
    if not isinstance(text, str) and images:
        raise ModelError("give images either inside the text pieces or in images=, not both")
    messages = [Message("system", (system,))] if system else []
    for question, answer in history:
        messages += [Message("user", (question,)), Message("assistant", (answer,))]
    return conversation_prompt(model_or_tokenizer, [*messages, Message("user", pieces)])


def chat_prompts(model_or_tokenizer: Any, texts: Sequence[str]) -> list[Prompt]:
    """`chat_prompt` for many texts.

    If the template only adds text before and after the user's, it is rendered once and all texts are tokenized
    together. 50,000 prompts then take seconds instead of minutes. Raises ModelError.
    """
    tokenizer = getattr(model_or_tokenizer, "tokenizer", None) or model_or_tokenizer
    around = _around_a_user(tokenizer) if len(texts) > 1 else None
    if around is None or not all(texts):
        return [chat_prompt(model_or_tokenizer, text) for text in texts]
    special = _special_strings(tokenizer)
    rendered = [around[0] + _strip(text, special) + around[1] for text in texts]
    return [Prompt(tuple(ids)) for ids in tokenizer(rendered, add_special_tokens=False)["input_ids"]]


def _around_a_user(tokenizer: Any) -> tuple[str, str] | None:
    """The text that a chat template adds before and after the user's; None if it does anything else."""
    if not getattr(tokenizer, "chat_template", None):
        return None
    tried = (_PROBE, f" {_PROBE}\n\n{_PROBE} ")
    plain, spaced = (_render_template(tokenizer, [Message("user", (words,))]) for words in tried)
    before, _, behind = plain.partition(_PROBE)
    return (before, behind) if spaced == before + tried[1] + behind else None


@dataclass(frozen=True)
class Message:
    """One turn of a conversation. role: "system", "user" or "assistant". content: pieces; bytes are images."""

    role: str
    content: tuple[str | bytes, ...]


def conversation_prompt(model_or_tokenizer: Any, messages: Sequence[Message]) -> Prompt:
    """Build a prompt from any turns in any order, in the form the model was trained on, up to the start of the answer.

    The tokenizer's chat template is applied if it has one. Without a template each turn is a separate line, except that
    a system message is prepended to the next turn. Raises ModelError for turns that the template refuses, and for
    images that it does not support.
    """
    tokenizer = getattr(model_or_tokenizer, "tokenizer", None) or model_or_tokenizer
    special = _special_strings(tokenizer)
    turns = [
        Message(
            one.role, tuple(piece if isinstance(piece, bytes) else _strip(piece, special) for piece in one.content)
        )
        for one in messages
    ]
    found = tuple(piece for one in turns for piece in one.content if isinstance(piece, bytes))
    has_template = bool(getattr(tokenizer, "chat_template", None))
    own_pad = getattr(model_or_tokenizer, "image_pad_id", None) if found else None
    if has_template:
        rendered = _render_template(tokenizer, turns)
    else:
        rendered = _without_template(turns, _placeholder(tokenizer, own_pad))
    ids = tuple(tokenizer(rendered, add_special_tokens=not has_template)["input_ids"])
    if not ids:
        raise ModelError("the prompt is empty: give some text")
    if found:
        pad_id = tokenizer.convert_tokens_to_ids(IMAGE_PAD) if own_pad is None else own_pad
        if ids.count(pad_id) != len(found):
            raise ModelError(
                f"the chat template left {ids.count(pad_id)} image placeholders for {len(found)} images: "
                "use a model with image support"
            )
    return Prompt(ids, found)


def plain_prompt(model_or_tokenizer: Any, text: str) -> Prompt:
    """A prompt without a chat template; special tokens in the text are dropped. Raises ModelError for empty text."""
    tokenizer = getattr(model_or_tokenizer, "tokenizer", None) or model_or_tokenizer
    ids = tuple(tokenizer(_strip(text, _special_strings(tokenizer)))["input_ids"])
    if not ids:
        raise ModelError("the prompt is empty: give some text")
    return Prompt(ids)


def _placeholder(tokenizer: Any, own_pad: int | None) -> str:
    """The placeholder text for a picture without a template."""
    own = IMAGE_PAD if own_pad is None else str(tokenizer.decode([own_pad]))
    if own != IMAGE_PAD:
        return own
    return VISION_START + IMAGE_PAD + VISION_END


def _without_template(turns: Sequence[Message], image: str) -> str:
    rendered = ""
    for number, one in enumerate(turns, 1):
        rendered += "".join(image if isinstance(piece, bytes) else piece for piece in one.content)
        if one.role != "system" and number < len(turns):
            rendered += "\n"
    return rendered


def _render_template(tokenizer: Any, turns: Sequence[Message]) -> str:
    """Render turns with the chat template. A turn with pictures is passed as a list of parts. Any other turn is passed
    as a string, or as a list of one part if the template ignores strings. Raises ModelError if the template refuses.
    """
    as_parts = _takes_parts_only(tokenizer)
    messages: list[dict[str, Any]] = []
    for one in turns:
        content: str | list[dict[str, str]]
        if any(isinstance(piece, bytes) for piece in one.content):
            content = [
                {"type": "image"} if isinstance(piece, bytes) else {"type": "text", "text": piece}
                for piece in one.content
            ]
        else:
            content = "".join(piece for piece in one.content if isinstance(piece, str))
            content = [{"type": "text", "text": content}] if as_parts else content
        messages.append({"role": one.role, "content": content})
    return _applied(tokenizer, messages)


def _takes_parts_only(tokenizer: Any) -> bool:
    """Whether a template renders a user's text only if it is a list of parts, as some vision-language templates do.

    Tested with a fixed text, independent of the conversation: templates may leave out parts of a conversation on
    purpose, such as earlier reasoning. Raises ModelError for a template that renders a user's text in neither form.
    """
    try:
        if _PROBE in _applied(tokenizer, [{"role": "user", "content": _PROBE}]):
            return False
        lost = True
    except ModelError:  # it may accept a string in another context
        lost = False
    part = {"type": "text", "text": _PROBE}
    try:
        between = _applied(tokenizer, [{"role": "user", "content": [part, part]}]).split(_PROBE)
    except ModelError:
        between = []
    if len(between) == 3 and "type" not in between[1]:  # otherwise the list itself was rendered
        return True
    if lost:
        raise ModelError("the model's chat template leaves out the user's text: use a model with another template")
    return False


def _applied(tokenizer: Any, messages: list[dict[str, Any]]) -> str:
    """`apply_chat_template` with the start of the answer. Raises ModelError with the template's message."""
    try:
        rendered: str = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except ModelError:
        raise
    except Exception as error:  # templates are programs: they raise on purpose, and fail like any other
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ModelError(f"the model's chat template refuses these messages: {reason}") from error
    return rendered


def _special_strings(tokenizer: Any) -> list[str]:
    added = getattr(tokenizer, "added_tokens_decoder", {})
    strings = {str(token) for token in added.values() if getattr(token, "special", False)}
    return sorted(strings | set(tokenizer.all_special_tokens), key=len, reverse=True)


def _strip(text: str, special: Sequence[str]) -> str:
    """Remove special-token strings until none is left; removing one may form another. Raises ModelError for a text with
    deeply nested ones, because each round scans the whole text.
    """
    for _ in range(_MOST_HIDDEN):
        cleaned = text
        for token in special:
            cleaned = cleaned.replace(token, "")
        if cleaned == text:
            return text
        text = cleaned
    raise ModelError("the text has nested special tokens: leave them out")
