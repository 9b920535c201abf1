"""The verified part of an answer on the edge: it only grows, and says when it is over."""

from __future__ import annotations

from collections.abc import Sequence

from specdec.edge.stats import Finish
from specdec.errors import ProtocolError
from specdec.text.stop import StopText


class VerifiedAnswer:
    """ids: verified tokens, without EOS. finish: "running", or how it ended. limit: tokens it may have."""

    def __init__(self, history: list[int], stop: StopText) -> None:
        """history: what was verified before; stop has seen it."""
        self.ids = history
        self.finish: Finish = "stop" if stop.found else "running"
        self.limit = 0
        self.eos_ids: frozenset[int] = frozenset()
        self._stop = stop

    def merge(self, base: int, ids: Sequence[int]) -> list[int]:
        """Join verified ids that begin at `base`; returns the new ones. Notices EOS, stop strings and the limit.

        Raises ProtocolError where they contradict what was verified before.
        """
        known = self.ids[base:]
        overlap = min(len(known), len(ids))
        if known[:overlap] != list(ids[:overlap]):
            raise ProtocolError("the verifier contradicts what it verified before: report this as a bug")
        fresh: list[int] = []
        for token in ids[overlap:]:
            if token in self.eos_ids:
                self.finish = "eos"
                break
            fresh.append(token)
            if self._stop.push(token):
                self.finish = "stop"
                break
            if len(self.ids) + len(fresh) >= self.limit:
                self.finish = "length"
                break
        self.ids.extend(fresh)
        return fresh
