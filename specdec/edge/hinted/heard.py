"""Hints that came about drafts on their way, and what they say the answer will be."""

from __future__ import annotations

from collections.abc import Sequence

from specdec.edge.flight import Flight
from specdec.link.wire import HintDown
from specdec.verifying import path_to


class HeardHints(list[HintDown]):
    """Those that nobody took, of one session; cleared by every verdict."""

    def take(self, flight: Flight, message: HintDown, size: int) -> bool:
        """A hint about the draft that goes through the target, or about several that wait there as one; False where it
        is about any other: then it comes too late. size: its bytes.
        """
        sent, about = flight.oldest, flight.up_to(message.round)
        if sent is None or about is None or message.last > len(about.draft.ids):
            return False
        sent.hints += 1
        sent.received_bytes += size
        self.append(message)
        return True

    def expected(self, flight: Flight, answer: Sequence[int]) -> tuple[list[int], float] | None:
        """The answer as the deepest exit so far expects it to be after the next verdict, and how sure it is; None where
        no exit has said anything of what is on its way.
        """
        if not self:
            return None
        hint = max(self, key=lambda hint: (hint.layer, hint.confidence))
        sent = flight.up_to(hint.round)
        if sent is None:
            return None
        path = [sent.draft.ids[node] for node in path_to(sent.draft, hint.last)]
        return [*answer[: sent.draft.base], *path, hint.token], hint.confidence
