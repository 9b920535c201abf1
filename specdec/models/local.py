# SPDX-License-Identifier: Apache-2.0
"""Decoding with the target alone, in one process: the baseline that every method must equal token for token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from specdec.models.loaded import LoadedModel
from specdec.models.plans import Prepared
from specdec.models.prompt import Prompt
from specdec.models.session import SessionCursor
from specdec.options import GenerationOptions
from specdec.sampling import Chooser
from specdec.text.stop import StopText


def generate_local(model: LoadedModel, prompt: Prompt, options: GenerationOptions | None = None) -> list[int]:
    """Decode one answer with the target alone.

    The answer ends at an EOS id, with the token that completes a stop string, after `options.max_new_tokens` tokens
    (the EOS token counts), or at the end of the context.

    Args:
        model: The target.
        prompt: As `chat_prompt` makes it.
        options: Length, sampling, stop strings and grammar; None: the defaults, which are greedy.

    Returns:
        The answer's token ids, without the EOS id.

    Raises:
        ModelError: The prompt cannot be used.
    """
    return list(stream_local(model, prompt, options or GenerationOptions()))


def stream_local(
    model: LoadedModel, prompt: Prompt, options: GenerationOptions, history: Sequence[int] = ()
) -> Iterator[int]:
    """Decode one answer with the target alone, token by token.

    Args:
        model: The target.
        prompt: As for `generate_local`.
        options: As for `generate_local`.
        history: Token ids that the answer begins with. They are not yielded.

    Yields:
        Token ids, without the EOS id.

    Raises:
        ModelError: The prompt cannot be used.
    """
    encoded = model.encode(prompt)
    cursor = SessionCursor(model.new_session(), options)
    chooser = Chooser(options)
    stop = StopText(model.tokenizer, options.stop, history, options.min_new_tokens)
    limit = answer_limit(options, model.context_limit, encoded.ids.shape[0])
    row = cursor.prefill(Prepared(encoded))[None]
    answer = list(history)
    if stop.found or (history and len(answer) >= limit) or not model.eos_token_ids.isdisjoint(history):
        return
    if history:
        row = cursor.rows(answer)
    while True:
        made = chooser.choose(row, len(answer))
        if made[0] not in model.eos_token_ids:
            made += cursor.forced([*answer, *made], limit - len(answer) - 1)
        for token in made:
            if token in model.eos_token_ids:
                return
            answer.append(token)
            yield token
            if stop.push(token) or len(answer) >= limit:
                return
        row = cursor.rows(answer)


def answer_limit(options: GenerationOptions, context_limit: int, prompt_length: int) -> int:
    """Most tokens of an answer: the requested number, or what the context has left."""
    return min(options.max_new_tokens, context_limit - prompt_length)
