# SPDX-License-Identifier: Apache-2.0
"""Errors meant for people: each message is one line that says what is wrong and what to do about it."""

from __future__ import annotations

import msgspec

DECODE_ERRORS = (msgspec.MsgspecError, ValueError, RecursionError)
"""What reading JSON or MessagePack raises of bytes that are damaged, not text, or nested without end."""


class SpecdecError(Exception):
    """Base of everything this package raises on purpose."""



class ModelError(SpecdecError):
    """A model folder, checkpoint, prompt or image that cannot be used."""


class NoRoom(ModelError):
    """A model's other sessions hold the KV cache memory that this session needs."""


class VocabularyMismatch(ModelError):
    """Draft and target have different vocabularies."""


class OptionsError(SpecdecError):
    """An unknown method, an option outside its allowed range, or one that cannot be used as asked."""


class LinkLost(SpecdecError):
    """The verifier did not answer within the reply time-out, or cannot be reached."""


class VerifierBusy(LinkLost):
    """The verifier is there and has no room for this edge at present: try again later."""


class TargetChanged(SpecdecError):
    """The verifier has another target than the one that began the answer: ask again."""


class ProtocolError(SpecdecError):
    """A message that breaks the wire contract, or a request the other side refused."""


class RequestRefused(ProtocolError):
    """The verifier cannot use what is asked: the prompt, a picture of it, or an option."""


class VersionMismatch(ProtocolError):
    """Edge and cloud speak different versions of the wire contract."""


class KeyRefused(ProtocolError):
    """The verifier does not take this edge's key, its file cannot be used any more, or only one of the two sides has
    keys.
    """


def first_line(error: BaseException) -> str:
    """The first line of a foreign error's message, at most 200 characters; its type if the message is empty.

    A line that ends in a colon says nothing without the next one, which is taken too.
    """
    first, *more = (str(error).strip() or type(error).__name__).splitlines()
    return " ".join([first, more[0].strip()] if first.endswith(":") and more else [first])[:200]
