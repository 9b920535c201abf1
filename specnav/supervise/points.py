# SPDX-License-Identifier: Apache-2.0
"""Points in a decision at which a fault can strike, as the messages between edge and cloud show them."""

from __future__ import annotations

import enum

from specdec.errors import ProtocolError
from specdec.link.wire import DraftUp, Open, Opened, VerdictDown, decode_down, decode_up

ROUND = 2  # of a decision: the round in which a fault strikes


class DecisionPoint(enum.Enum):
    """Where in a decision."""

    PREFILL = "prefill"  # the prompt is asked for, its answer not there
    MID_ROUND = "mid-round"  # a draft is on its way, its verdict not there
    BETWEEN_ROUNDS = "between rounds"  # a verdict is in, the next draft not out


class Watcher:
    """Counts the rounds of the sessions of one client and says at which point a message brings it."""

    def __init__(self) -> None:
        self._drafts = 0
        self._verdicts = 0

    def up(self, data: bytes) -> DecisionPoint | None:
        """A message of the client is about to pass."""
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
        """A message of the verifier has passed."""
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
