# SPDX-License-Identifier: Apache-2.0
"""Layer split on the edge: the target's first layers run here, one round trip per token (docs/references.md)."""

from __future__ import annotations

from collections.abc import Callable

from specdec.edge.session import EdgeSession
from specdec.models import Prompt
from specdec.models.split import FrontPart


class SplitRounds:
    """Drives one answer with the layer split."""

    def __init__(
        self, session: EdgeSession, front: FrontPart, prompt: Prompt, clock: Callable[[], float]
    ) -> None:
        self._session = session
        self._front = front
        self._prompt = prompt
        self._clock = clock
        self._begun = False
        self._sent = 0

    def advance(self) -> list[int]:
        """Send one message and receive one; returns the new verified ids. Raises what EdgeSession.receive raises."""
        session, started = self._session, self._clock()
        if not self._begun:
            data = self._front.prefill(self._prompt, session.answer)
            session.record.edge_prefilled(started, self._clock())
            session.send_hidden(data, of_prompt=True)
            self._begun, self._sent = True, len(session.answer)
        elif session.in_flight == 0:
            data = self._front.extend(session.answer[self._sent :])
            self._sent = len(session.answer)
            session.record.drafted("front layers", started, self._clock())
            session.send_hidden(data, of_prompt=False)
        return session.receive()
