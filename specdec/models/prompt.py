"""Prompts: token ids plus encoded images, the form in which a question travels once to the cloud.

Ids carry one image placeholder per image; each side expands it by the grid of its own model. Text of users is
never parsed for special tokens, so an instruction cannot smuggle in an image placeholder or an end of turn.
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


@dataclass(frozen=True)
class Prompt:
    """What travels up once.

    ids: token ids, every image as ONE placeholder id.
    images: encoded JPEG or PNG bytes, in the order of the placeholders.
    """

    ids: tuple[int, ...]
    images: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class EncodedPrompt:
    """A prompt as one model takes it.

    ids: int64 [n], image placeholders expanded. positions: int64 [3, n], or None where they are simply 0 ..
    n-1. delta: what to add to an index after the prompt to get its position.
    pixel_values: float32 [patches, features] or None; grids: int64 [images, 3] or None. features: [image tokens,
    hidden_size], of pictures that the model has looked at already, instead of pixel_values. picture_starts: where in
    `ids` each picture begins. extras: what the library's own forward takes beside the ids of a prompt with pictures.
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

    text: the user's words, with all `images` put before them; or a sequence of pieces, where bytes are
    images, for any other order (then `images` stays empty). The tokenizer's chat template is applied when it
    has one; without one the pieces are joined as they are, `system` first. history: the conversation's
    earlier (question, answer) pairs, oldest first; without a template each is a line of its own.
    """
    tokenizer = getattr(model_or_tokenizer, "tokenizer", None) or model_or_tokenizer
    pieces: list[str | bytes] = [*images, text] if isinstance(text, str) else list(text)
    if not isinstance(text, str) and images:
        raise ModelError("give images either inside the text pieces or in images=, not both")
    special = _special_strings(tokenizer)
    cleaned = [piece if isinstance(piece, bytes) else _strip(piece, special) for piece in pieces]
    found = tuple(piece for piece in cleaned if isinstance(piece, bytes))
    own_pad = getattr(model_or_tokenizer, "image_pad_id", None) if found else None
    earlier = [(_strip(question, special), _strip(answer, special)) for question, answer in history]
    if getattr(tokenizer, "chat_template", None):
        rendered = _render_template(tokenizer, cleaned, _strip(system, special) if system else None, earlier)
    else:
        image = VISION_START + IMAGE_PAD + VISION_END
        if own_pad is not None and tokenizer.convert_ids_to_tokens(own_pad) != IMAGE_PAD:
            image = tokenizer.convert_ids_to_tokens(own_pad)
        rendered = "".join(image if isinstance(piece, bytes) else piece for piece in cleaned)
        rendered = "".join(f"{part}\n" for pair in earlier for part in pair) + rendered
        if system:
            rendered = _strip(system, special) + rendered
    ids = tuple(
        tokenizer(rendered, add_special_tokens=not getattr(tokenizer, "chat_template", None))["input_ids"]
    )
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


def _render_template(
    tokenizer: Any, pieces: Sequence[str | bytes], system: str | None, earlier: Sequence[tuple[str, str]]
) -> str:
    content: str | list[dict[str, str]]
    if all(isinstance(piece, str) for piece in pieces):
        content = "".join(piece for piece in pieces if isinstance(piece, str))
    else:
        content = [
            {"type": "image"} if isinstance(piece, bytes) else {"type": "text", "text": piece}
            for piece in pieces
        ]
    messages: list[dict[str, Any]] = []
    for question, answer in earlier:
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    messages.append({"role": "user", "content": content})
    if system:
        messages.insert(0, {"role": "system", "content": system})
    rendered: str = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    if any(isinstance(one["content"], str) and one["content"].strip() not in rendered for one in messages):
        # Some templates for pictures look at pieces only, and lose words that come without.
        for one in messages:
            if isinstance(one["content"], str):
                one["content"] = [{"type": "text", "text": one["content"]}]
        rendered = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return rendered


def _special_strings(tokenizer: Any) -> list[str]:
    added = getattr(tokenizer, "added_tokens_decoder", {})
    strings = {str(token) for token in added.values() if getattr(token, "special", False)}
    return sorted(strings | set(tokenizer.all_special_tokens), key=len, reverse=True)


def _strip(text: str, special: Sequence[str]) -> str:
    """Remove special-token strings until none is left (removing one may uncover another)."""
    while True:
        cleaned = text
        for token in special:
            cleaned = cleaned.replace(token, "")
        if cleaned == text:
            return text
        text = cleaned
