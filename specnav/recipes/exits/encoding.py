# SPDX-License-Identifier: Apache-2.0
"""Encodes conversations as samples, in the prompt format of the target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from PIL import Image, UnidentifiedImageError

from specdec.draft import common_length
from specdec.errors import ModelError
from specdec.models import LoadedModel, chat_prompt
from specnav.recipes.errors import TrainingError
from specnav.recipes.exits.reading import Conversation
from specnav.recipes.samples import ExitSample, fitting


def encode_conversations(model: LoadedModel, found: Sequence[Conversation], length: int) -> list[ExitSample]:
    """Samples of at most `length` ids; a conversation about pictures gives one sample per question.

    Raises TrainingError, naming the line, for input that the model does not accept.
    """
    samples = []
    for conversation in found:
        try:
            drawn = list(_samples(model, conversation))
        except ModelError as error:
            raise TrainingError(f"{conversation.origin}: {error}") from error
        samples += fitting(drawn, length)
    if not samples:
        raise TrainingError(f"nothing is left of the data within {length} tokens: give a larger length")
    return samples


def end_id(model: LoadedModel) -> int:
    """The id that ends an answer in training."""
    known = model.tokenizer.eos_token_id
    return known if known in model.eos_token_ids else min(model.eos_token_ids)


def _samples(model: LoadedModel, conversation: Conversation) -> Iterator[ExitSample]:
    origin = conversation.origin
    if conversation.text:
        yield ExitSample(tuple(_ids(model, conversation.text)), 1, (), origin)
        return
    system = conversation.system or None
    if not conversation.images:
        *before, (question, answer) = conversation.turns
        whole = chat_prompt(model, question, system=system, history=before)
        first = chat_prompt(model, conversation.turns[0][0], system=system)
        start = common_length(whole.ids, first.ids)
        yield ExitSample((*whole.ids, *_ids(model, answer), end_id(model)), start, (), origin)
        return
    if not model.is_multimodal:
        raise TrainingError(f"{origin}: {model.path} accepts no pictures; use a Qwen2-VL model")
    pictures = []
    for file in conversation.images:
        try:
            with Image.open(file) as picture:
                picture.verify()
            pictures.append(file.read_bytes())
        except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
            raise TrainingError(f"{origin}: {file} is not a picture; correct or remove it") from error
    for question, answer in conversation.turns:
        prompt = chat_prompt(model, question, pictures, system=system)
        ids = (*prompt.ids, *_ids(model, answer), end_id(model))
        yield ExitSample(
            ids, len(prompt.ids), tuple(str(file.resolve()) for file in conversation.images), origin
        )


def _ids(model: LoadedModel, text: str) -> list[int]:
    ids = model.tokenizer(text, add_special_tokens=False)["input_ids"]
    # Text must not produce the placeholder of a picture.
    return [token for token in ids if token < model.vocab_size and token not in model.never_drafted]
