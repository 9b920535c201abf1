"""What the edge says to the verifier and how it refuses: messages made from what a session knows, as pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from specdec.drafting import Draft
from specdec.errors import LinkLost, ProtocolError, SpecdecError
from specdec.link.convert import sampling_to_wire
from specdec.link.wire import ERROR_SHUTDOWN, ERROR_UNKNOWN_SESSION, DraftUp, ErrorDown, Open, Pong
from specdec.methods import HINT_ORDERS, Method
from specdec.models import Prompt
from specdec.options import GenerationOptions


class Cancelled(SpecdecError):
    """The caller's cancel event was set."""


class SessionForgotten(LinkLost):
    """The verifier is there but no longer has the session (restart, time-out) or a message got lost."""


def open_message(
    session: int,
    prompt: Prompt,
    options: GenerationOptions,
    method: Method,
    answer: Sequence[int],
    *,
    speculate: int,
    front_layers: int,
    pending: bool,
    hints: int,
) -> Open:
    """The message that opens a session. answer: what is verified so far.

    speculate: draft tokens a round of a draft model in the cloud, 0 without one. front_layers: layers that the edge
    runs. pending: a rejection was seen in part. hints: how many a round are of use.
    """
    return Open(
        session,
        method.cloud == "stream",
        sampling_to_wire(options),
        list(prompt.ids),
        list(prompt.images),
        list(answer),
        int(method.recovery_at(options.temperature)),
        method.recovery_size,
        speculate,
        method.ahead,
        front_layers,
        pending,
        hints,
        HINT_ORDERS.index(method.hint_order),
    )


def draft_message(session: int, round_: int, draft: Draft, epoch: int) -> DraftUp:
    """A draft of which ids suffice."""
    parents = None if draft.parents is None else list(draft.parents)
    return DraftUp(session, round_, draft.base, list(draft.ids), parents, epoch)


def refusal(message: ErrorDown, address: str) -> SpecdecError:
    """What an error message of the verifier at `address` means for this session."""
    if message.code == ERROR_UNKNOWN_SESSION:
        return SessionForgotten("the verifier no longer knows the session: open it again")
    if message.code == ERROR_SHUTDOWN:
        return LinkLost(f"the verifier at {address} is shutting down: start it again")
    return ProtocolError(f"the verifier refused: {message.message}")


def check_stream(message: Pong, asked: int, known: int) -> None:
    """Raise SessionForgotten where a Pong shows that tokens of a stream, or the wish for them, did not arrive.

    asked: the round when the Pong was asked for. known: tokens of the answer that are here. The link keeps the order
    of messages.
    """
    if message.streamed > known + 1 or message.received < asked:
        raise SessionForgotten("some tokens of the stream, or the wish for them, got lost on the way")


def check_rounds(message: Pong, asked: int, oldest: int | None) -> None:
    """The same for a draft or its verdict. oldest: the round whose verdict comes next, None where none does."""
    if oldest == asked and (message.received < asked or message.answered >= asked):
        raise SessionForgotten("a draft or its verdict got lost on the way")
