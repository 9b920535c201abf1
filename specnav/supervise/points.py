# SPDX-License-Identifier: Apache-2.0
"""Points in a decision at which a fault can strike, recognized from the messages between edge and cloud."""

from __future__ import annotations

import enum

from specdec.errors import ProtocolError
from specdec.link.wire import DraftUp, Open, Opened, VerdictDown, decode_down, decode_up

ROUND = 2  # the round of a decision in which a fault strikes


class DecisionPoint(enum.Enum):
    """A point in a decision."""

    PREFILL = "prefill"  # the prompt was sent and is not answered yet
    MID_ROUND = "mid-round"  # a draft was sent, and its verdict has not come
    BETWEEN_ROUNDS = "between rounds"  # a verdict has come, and the next draft is not sent yet


class Watcher:
    """Counts the rounds of a client's sessions, and reports which point a message brings a decision to."""

    def __init__(self) -> None:
        self._drafts = 0
        self._verdicts = 0

    def up(self, data: bytes) -> DecisionPoint | None:
        """Handle a message of the client that is about to pass; returns the point it reaches, if any."""
        try:
            message = decode_up(data)
        except ProtocolError:
            return None
        if isinstance(message, Open):
            self._drafts = self._verdicts = 0
            return DecisionPoint.PREFILL
        if isinstance(message, DraftUp):
            self._drafts += 1
            return DecisionPoint.MID_ROUND if self._drafts == ROUND else None
        return None

    def down(self, data: bytes) -> DecisionPoint | None:
        """Handle a message of the verifier that has passed; returns the point it reaches, if any."""
        try:
            message = decode_down(data)
        except ProtocolError:
            return None
        if isinstance(message, Opened):
            self._verdicts = 0
        if isinstance(message, VerdictDown):
            self._verdicts += 1
            return DecisionPoint.BETWEEN_ROUNDS if self._verdicts == ROUND else None
        return None
