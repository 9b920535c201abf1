"""Several drafts in flight, and hints: what an early exit expects instead of what is drafted is drafted aside.

A draft that is refuted takes all that was drafted behind it with it, and the next one is late by as much as drafting
takes. An exit often knows half way through the target which token will come instead (paper 000's hints, with paper
002's drafts in flight); what is drafted behind that token stands when the verdict says so, too.
"""

from __future__ import annotations

from collections.abc import Callable

from specdec.drafting import ChainDrafter
from specdec.edge.measured import Measured
from specdec.edge.session import EdgeSession

LIKELIER = 0.4
"""An exit that is right so often is believed before the draft: drafts that go on behind what it refutes can wait."""


class Aside:
    """Of one answer. One forward at a time."""

    def __init__(
        self, session: EdgeSession, drafter: ChainDrafter, measured: Measured, clock: Callable[[], float]
    ) -> None:
        self._session = session
        self._drafter = drafter
        self._measured = measured
        self._clock = clock
        self._expected: list[int] | None = None

    def step(self, size: int, least: float) -> bool:
        """A forward for a draft, at most `size` long, behind the answer that exits expect to be verified next; False
        where they expect what is drafted, are right less often than `least`, or that draft stands.
        """
        session, drafter = self._session, self._drafter
        hinted = session.hinted
        if hinted is None or drafter.agrees(hinted[0]):
            return False
        self._expected, confidence = hinted
        size = min(size, session.room_after(self._expected))
        if size < 1 or self._measured.foretold.against(confidence) < least:
            return False
        started = self._clock()
        if not drafter.step_aside(self._expected, size):
            return False
        ended = self._clock()
        self._measured.drafted_ahead(ended - started, 0)
        session.record.drafted("draft ahead", started, ended)
        return True

    def came(self) -> None:
        """A verdict came: count whether it is the one that was expected."""
        expected, self._expected = self._expected, None
        if expected is not None:
            self._measured.foretold.add(float(self._session.answer[: len(expected)] == expected))
