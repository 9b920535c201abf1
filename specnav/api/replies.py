# SPDX-License-Identifier: Apache-2.0
"""The shapes of replies, as OpenAI's clients read them. Pure.

Beside OpenAI's own fields, `usage` says under "specnav" how the answer was drafted.
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
"""Of answers. Fresh bits for each would be a call to the system, after which its thread waits for its turn again."""

DONE = b"data: [DONE]\n\n"
Json = dict[str, Any]


def event(data: Json) -> bytes:
    """One server-sent event."""
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


def usage_of(outcome: AnswerOutcome) -> Json:
    """What an answer took."""
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
    """The list of models: one."""
    return {"object": "list", "data": [model(name, since)]}


def model(name: str, since: int) -> Json:
    """The one there is."""
    return {"id": name, "object": "model", "created": since, "owned_by": "specnav"}


class Shapes:
    """The reply to one request, as a whole or in parts."""

    def __init__(self, asked: ApiRequest, name: str) -> None:
        """name: of the model."""
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
        """A part of it; the last one says how the answer ended."""
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
        """What follows the last text: how the answer ended, and what it took, where that was asked for."""
        yield self.part(Piece(), outcome.finish or "stop")
        if self._asked.include_usage:
            yield {**self._chunk([]), "usage": usage_of(outcome)}

    def _chunk(self, choices: list[Json]) -> Json:
        kind = "chat.completion.chunk" if self._chat else "text_completion"
        chunk: Json = {**self._about, "object": kind, "choices": choices}
        if self._asked.include_usage:
            chunk["usage"] = None
        return chunk
