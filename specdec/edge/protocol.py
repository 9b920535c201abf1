# SPDX-License-Identifier: Apache-2.0
"""The opening message, checks before it is sent, and the meaning of the verifier's error messages. Pure functions; no
image is decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specdec.errors import (
    LinkLost,
    ModelError,
    OptionsError,
    ProtocolError,
    RequestRefused,
    SpecdecError,
    VerifierBusy,
    VocabularyMismatch,
)
from specdec.link.convert import sampling_to_wire
from specdec.link.wire import (
    ERROR_BUSY,
    ERROR_PICTURES,
    ERROR_REFUSED,
    ERROR_SHUTDOWN,
    ERROR_TARGET,
    ERROR_TOO_LARGE,
    ERROR_UNKNOWN_SESSION,
    LACKS_GRAMMARS,
    LACKS_SAMPLED,
    LACKS_SEVERAL,
    LACKS_SPLIT,
    LACKS_TREES,
    MAX_HINTS,
    ErrorDown,
    Open,
    Picture,
    Pong,
    Welcome,
)
from specdec.methods import HINT_ORDERS, Method
from specdec.models import LoadedModel, Prompt
from specdec.models.loaded import fingerprint, speaks, tokens_of
from specdec.options import MAX_TOKEN_ID, GenerationOptions
from specdec.pictures.sizes import PictureRules, picture_size
from specdec.sampling.recoveries import Recovery


class Cancelled(SpecdecError):
    """The caller's cancel event was set."""


class PicturesWanted(LinkLost):
    """The verifier lacks pictures that were sent by name, and opened no session. missing: their indices, from 0."""

    def __init__(self, missing: Sequence[int]) -> None:
        super().__init__("the verifier lacks pictures that were sent by name: send their contents")
        self.missing = missing


class TargetUnknown(LinkLost):
    """The verifier's target differs from the one in its greeting: greet it again."""


class SessionForgotten(LinkLost):
    """The verifier is reachable but no longer has the session (restart, time-out), or a message was lost."""


@dataclass(frozen=True)
class Opening:
    """How a session is opened. method, gamma: those that the edge starts with. images: as they are sent. front_layers:
    layers that the edge runs. scope: caches may be shared only with sessions of this scope.
    """

    prompt: Prompt
    options: GenerationOptions
    welcome: Welcome
    method: Method
    gamma: int
    images: Sequence[bytes | Picture] = ()
    front_layers: int = 0
    scope: str = ""

    def message(self, session: int, answer: Sequence[int], *, pending: bool, hints_pay: bool) -> Open:
        """The opening message. answer: ids verified so far. pending: a rejection was received in part. hints_pay:
        whether hints have proved useful enough to request.
        """
        method = self.method
        return Open(
            session,
            method.cloud == "stream",
            sampling_to_wire(self.options),
            list(self.prompt.ids),
            list(self.images),
            list(answer),
            int(method.recovery_at(self.options.temperature)),
            method.recovery_size,
            speculate=self.gamma if method.cloud_drafts else 0,
            ahead=method.ahead,
            front_layers=self.front_layers,
            pending=pending,
            hints=min(method.hints, MAX_HINTS) if self.welcome.exits and hints_pay else 0,
            hint_order=HINT_ORDERS.index(method.hint_order),
            scope=self.scope,
            weights=self.welcome.weights,
        )


def refusal(message: ErrorDown, address: str) -> SpecdecError:
    """The exception for an error message from the verifier at `address`."""
    if message.code == ERROR_UNKNOWN_SESSION:
        return SessionForgotten("the verifier no longer knows the session: open it again")
    if message.code == ERROR_SHUTDOWN:
        return LinkLost(f"the verifier at {address} is shutting down: start it again")
    if message.code == ERROR_PICTURES:
        return PicturesWanted(message.missing)
    if message.code == ERROR_TARGET:
        return TargetUnknown(f"the verifier at {address} has another target now: greet it again")
    if message.code == ERROR_BUSY:
        return VerifierBusy(f"the verifier at {address} is busy: {message.message}")
    if message.code == ERROR_TOO_LARGE:
        return OptionsError(f"the verifier refused: {message.message}")
    if message.code == ERROR_REFUSED:
        return RequestRefused(f"the verifier refused: {message.message}")
    return ProtocolError(f"the verifier refused: {message.message}")


def check_stream(message: Pong, asked: int, known: int) -> None:
    """Raise SessionForgotten if a Pong shows that streamed tokens, or the request for them, were lost.

    asked: the round when the ping was sent. known: tokens of the answer received so far. The link keeps messages in
    order.
    """
    if message.streamed > known + 1 or message.received < asked:
        raise SessionForgotten("some tokens of the stream, or the request for them, were lost")


def check_rounds(message: Pong, asked: int, oldest: int | None) -> None:
    """Raise SessionForgotten if a Pong shows that a draft or its verdict was lost. asked: as in `check_stream`. oldest:
    the round whose verdict is due next, if any.
    """
    if oldest == asked and (message.received < asked or message.answered >= asked):
        raise SessionForgotten("a draft or its verdict was lost")


def same_target(one: Welcome, other: Welcome) -> bool:
    """Whether two greetings name one target: compared by digest of the weights, or by name if a digest is missing."""
    if one.weights and other.weights:
        return one.weights == other.weights
    return (one.model, one.vocabulary) == (other.model, other.vocabulary)


def check_vocabulary(welcome: Welcome, model: LoadedModel) -> None:
    """Raise VocabularyMismatch unless a draft has the target's vocabulary.

    The message names the difference if it is known.
    """
    mine, theirs = model.vocab_size, welcome.vocab_size
    if mine == theirs and speaks(model, welcome.vocabulary):
        return
    if mine == theirs:
        what = f"both have {mine} tokens, which are not the same"
    elif (
        mine > theirs
        and fingerprint({i: t for i, t in model.tokens.items() if i < theirs}) == welcome.vocabulary
    ):
        what = f"only the draft has token {theirs}, {model.tokens.get(theirs)!r}"
    else:
        what = f"the draft has {mine} tokens and the target {theirs}"
    raise VocabularyMismatch(
        f"draft {model.name} and target {welcome.model} have different vocabularies ({what}): "
        "use two models of one family"
    )


def check_tokenizer(welcome: Welcome, tokenizer: Any) -> None:
    """Raise VocabularyMismatch unless a tokenizer has the target's vocabulary: its prompts would be other texts."""
    # Earlier versions of a verifier say a fingerprint of all tokens, also of those without a row in the embedding.
    if not any(welcome.vocabulary == fingerprint(tokens_of(tokenizer, rows)) for rows in (welcome.vocab_size, None)):
        raise VocabularyMismatch(
            f"the tokenizer of the prompts and target {welcome.model} have different vocabularies: give a draft model, "
            "whose tokenizer it is, of the target's family"
        )


def check_ids(ids: Sequence[int], what: str) -> None:
    """Raise ModelError for ids that no message can hold: the verifier could not say which session it refuses."""
    if not all(type(token) is int and 0 <= token <= MAX_TOKEN_ID for token in ids):
        raise ModelError(f"{what} must be token ids, whole numbers from 0 to {MAX_TOKEN_ID}")


def check_known_ids(welcome: Welcome, ids: Sequence[int], what: str) -> None:
    """Raise ModelError for ids outside the verifier's vocabulary. It would refuse them, and each later answer for which
    the edge drafts them from memory.
    """
    if 0 < welcome.vocab_size <= max(ids, default=0):
        raise ModelError(f"{what} lie outside the vocabulary of {welcome.vocab_size} of {welcome.model}")


def check_prompt(welcome: Welcome, prompt: Prompt) -> None:
    """Raise OptionsError, naming the bound, for a prompt that the verifier would refuse as too large.

    Invalid images, and bounds that the verifier has not reported, are left for the verifier to check.
    """
    allowed = welcome.allowed
    length = len(prompt.ids)
    if prompt.images and allowed.image_factor:
        if len(prompt.images) > allowed.images:
            raise OptionsError(
                f"a prompt of {len(prompt.images)} images is too large: the verifier accepts {allowed.images}"
            )
        rules = PictureRules(allowed.image_factor, allowed.image_least, allowed.image_most)
        pixels = 0
        for image in prompt.images:
            try:
                width, height = picture_size(image)
                length += rules.tokens(width, height) - 1  # its placeholder is counted already
            except ModelError:
                return
            pixels += width * height
        if pixels > allowed.image_pixels:
            raise OptionsError(
                f"the images have {pixels} pixels in total and the verifier accepts {allowed.image_pixels}: "
                "make them smaller"
            )
    if 0 < welcome.context_limit <= length:
        raise OptionsError(
            f"the prompt has {length} tokens and the verifier accepts {welcome.context_limit} with the answer: "
            "shorten it"
        )


def check_draft_size(welcome: Welcome, nodes: int) -> None:
    """Raise OptionsError if drafts of this many tokens are too large for the verifier."""
    most = welcome.allowed.draft_nodes
    if 0 < most < nodes:
        raise OptionsError(
            f"drafts of {nodes} tokens are too large: the verifier accepts {most}; use a smaller gamma or tree"
        )


def check_method(welcome: Welcome, method: Method, options: GenerationOptions) -> None:
    """Raise OptionsError if the verifier's engine cannot do what the method needs. A controlled method is only checked
    for grammars: it avoids what the engine lacks.
    """
    named = not method.controlled
    asked = {
        LACKS_TREES: ("takes no token trees", named and method.tree is not None, "use sd or fsd"),
        LACKS_SPLIT: ("runs no upper layers alone", named and method.split, "use ar or sd"),
        LACKS_SAMPLED: (
            "does no rejection sampling",
            named and method.recovery_at(options.temperature) is not Recovery.NOISE,
            "use sd, whose ids are drawn with shared noise",
        ),
        LACKS_SEVERAL: ("takes one draft at a time", named and method.in_flight > 1, "use sd"),
        LACKS_GRAMMARS: ("follows no grammars", bool(options.grammar), "ask without one"),
    }
    for word, (what, wanted, instead) in asked.items():
        if wanted and word in welcome.lacks:
            why = "" if word == LACKS_GRAMMARS else f", which method {method.name!r} needs"
            raise OptionsError(
                f"the engine of this verifier {what}{why}: {instead}, or serve with --engine own"
            )
