# SPDX-License-Identifier: Apache-2.0
"""The shapes of replies for OpenAI's clients. Pure.

In addition to OpenAI's own fields, "specnav" in `usage` tells how the answer was drafted.
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from specnav.api.answer import AnswerOutcome, Piece
from specnav.api.asking.asked import ApiRequest

_numbers = itertools.count(secrets.randbits(96))
"""Answer numbers. Fresh random bits for each would take a system call, after which the thread waits for the GIL
again.
"""

DONE = b"data: [DONE]\n\n"
Json = dict[str, Any]


def event(data: Json) -> bytes:
    """One server-sent event."""
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


def usage_of(outcome: AnswerOutcome) -> Json:
    """Token counts of an answer."""
    stats = outcome.stats
    return {
        "prompt_tokens": outcome.prompt_tokens,
        "completion_tokens": stats.tokens,
        "total_tokens": outcome.prompt_tokens + stats.tokens,
        "completion_tokens_details": {
            "accepted_prediction_tokens": outcome.accepted,
            "rejected_prediction_tokens": outcome.drafted - outcome.accepted,
        },
        "specnav": {
            "method": outcome.method,
            "rounds": len(stats.rounds),
            "drafted": outcome.drafted,
            "accepted": outcome.accepted,
            "resumes": stats.resumes,
        },
    }


def models(name: str, since: int) -> Json:
    """The list of models, with one entry."""
    return {"object": "list", "data": [model(name, since)]}


def model(name: str, since: int) -> Json:
    """The entry of our model."""
    return {"id": name, "object": "model", "created": since, "owned_by": "specnav"}


class Shapes:
    """The reply to one request, whole or in chunks."""

    def __init__(self, asked: ApiRequest, name: str) -> None:
        """name: the model's name."""
        self._asked = asked
        self._chat = asked.kind == "chat"
        prefix = "chatcmpl" if self._chat else "cmpl"
        self.id = f"{prefix}-{next(_numbers):024x}"
        self._about = {"id": self.id, "created": int(time.time()), "model": name}
        self._begun = False

    def whole(self, piece: Piece, outcome: AnswerOutcome) -> Json:
        """The whole answer."""
        choice: Json = {"index": 0, "finish_reason": outcome.finish, "logprobs": None}
        if self._chat:
            choice["message"] = {"role": "assistant", "content": piece.text, "refusal": None}
        else:
            choice["text"] = piece.text
        if self._asked.token_ids:
            choice["token_ids"] = list(piece.ids)
        kind = "chat.completion" if self._chat else "text_completion"
        return {**self._about, "object": kind, "choices": [choice], "usage": usage_of(outcome)}

    def part(self, piece: Piece, finish: str | None = None) -> Json:
        """A chunk of it; the last one has the finish reason."""
        choice: Json = {"index": 0, "finish_reason": finish, "logprobs": None}
        if self._chat:
            choice["delta"] = {} if self._begun else {"role": "assistant"}
            if piece.text or not self._begun:
                choice["delta"]["content"] = piece.text
            self._begun = True
        else:
            choice["text"] = piece.text
        if self._asked.token_ids:
            choice["token_ids"] = list(piece.ids)
        return self._chunk([choice])

    def last(self, outcome: AnswerOutcome) -> Iterator[Json]:
        """The final chunks: the finish reason and, if requested, the token counts."""
        yield self.part(Piece(), outcome.finish or "stop")
        if self._asked.include_usage:
            yield {**self._chunk([]), "usage": usage_of(outcome)}

    def _chunk(self, choices: list[Json]) -> Json:
        kind = "chat.completion.chunk" if self._chat else "text_completion"
        chunk: Json = {**self._about, "object": kind, "choices": choices}
        if self._asked.include_usage:
            chunk["usage"] = None
        return chunk
