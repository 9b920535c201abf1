# SPDX-License-Identifier: Apache-2.0
"""Reassembles drafts that arrive in parts, so that the engine only sees whole drafts.

There is one object per session. Parts must arrive in the order in which they were sent: a repeated part is ignored, and
a gap means that the draft can never be complete. No sockets and no clock; the time comes as an argument.
"""

from __future__ import annotations

from collections.abc import Sequence

from cloud_verifier.engine.tasks import Draft, follows, joined
from specdec.errors import ProtocolError
from specdec.link.wire import DraftUp, PartUp, SampledUp

MOST_PARTS = 16
"""Most parts of one draft."""
PATIENCE_S = 60.0
"""A draft is given up if its next part does not arrive within this time."""


class PartTwice(ProtocolError):
    """The part, or its whole draft, has arrived before: ignore it."""


class PartsTooLarge(ProtocolError):
    """The draft exceeds what the client may send. It is dropped, and its remaining parts are ignored."""


class PartsBroken(ProtocolError):
    """A part is missing or does not fit the earlier ones: the draft can never be complete."""


class DraftParts:
    """The draft of one session that is arriving in parts. held: its parts so far."""

    def __init__(self) -> None:
        self.held: list[Draft] = []
        self._done = 0
        self._came_s = 0.0

    def drop(self) -> Sequence[Draft]:
        """Discard the held parts and return them."""
        held, self.held = self.held, []
        return held

    def superseded_by(self, round_: int) -> bool:
        """Whether a message of this round means that the held draft will never be completed."""
        return bool(self.held) and round_ > self.held[0].round

    def is_late(self, now_s: float) -> bool:
        """Whether the next part of a draft is overdue."""
        return bool(self.held) and now_s - self._came_s > PATIENCE_S

    def add(self, part: PartUp, now_s: float, most_tokens: int, most_bytes: int) -> None:
        """Add a part. most_tokens, most_bytes: bounds on the whole draft.

        Raises PartTwice, PartsTooLarge or PartsBroken, with one line of reason.
        """
        draft, place, held = part.draft, part.part, self.held
        if draft.round <= self._done:
            raise PartTwice(f"part {place} of draft {draft.round} came after that draft was complete")
        if held and place < len(held) and draft.round == held[0].round:
            raise PartTwice(f"part {place} of draft {draft.round} came twice")
        if place != len(held):
            raise PartsBroken(f"part {place} of draft {draft.round} came where part {len(held)} was due")
        if isinstance(draft, DraftUp) and draft.parents is not None:
            raise PartsBroken(f"part {place} of draft {draft.round} is a tree: only chains come in parts")
        if held and not (draft.round == held[0].round and follows(draft, held[-1])):
            raise PartsBroken(f"part {place} of draft {draft.round} does not continue part {place - 1}")
        tokens = len(draft.ids) + sum(len(one.ids) for one in held)
        size = _bytes(draft) + sum(map(_bytes, held))
        too_large = ""
        if place >= MOST_PARTS:
            too_large = f"a draft of more than {MOST_PARTS} parts is too large"
        elif tokens > most_tokens:
            too_large = f"a draft of {tokens} tokens is too large: {most_tokens} are allowed"
        elif size > most_bytes:
            too_large = f"a draft of {size} bytes in parts is too large: {most_bytes} are allowed"
        if too_large:
            self._done = draft.round
            raise PartsTooLarge(too_large)
        held.append(draft)
        self._came_s = now_s

    def whole(self) -> Draft:
        """Join the held parts into one draft and release them. The trace context is the last part's."""
        held = self.drop()
        self._done = held[0].round
        return joined(held, held[-1])


def _bytes(draft: Draft) -> int:
    return len(draft.q) if isinstance(draft, SampledUp) else 0
