# SPDX-License-Identifier: Apache-2.0
"""Present times of forward passes, link and queue, cached for one comparison of many plans."""

from __future__ import annotations

from specdec.estimates.measured import Measured


class CurrentTimes:
    """Times in seconds. away_s: round trip and waiting in the cloud. queue_s: waiting in the cloud. beside_cost:
    seconds that a cloud forward pass gets longer per second of concurrent drafting. slower: factor on a verification
    while the edge drafts.
    """

    def __init__(self, measured: Measured) -> None:
        self._measured = measured
        self.away_s = measured.away_s or 0.0
        self.queue_s = measured.queue_s
        self.beside_cost = measured.cloud_forwards.beside_cost
        self.slower = 1.0 / (1.0 - self.beside_cost * measured.beside_share.value)
        self._draft_s = measured.draft_s or 0.0
        self._drafts_s: dict[int, float] = {}
        self._verify_s: dict[int, float] = {}

    def draft_s(self, rows: int) -> float:
        """A draft forward pass over n rows."""
        if rows not in self._drafts_s:
            self._drafts_s[rows] = self._measured.draft_rows_s(rows) or self._draft_s
        return self._drafts_s[rows]

    def verify_s(self, rows: int, beside: bool = False) -> float:
        """A verification over n rows: measured, else as reported, else the time of a token of the cloud alone. beside:
        while the edge drafts.
        """
        if rows not in self._verify_s:
            measured = self._measured
            known_s = measured.cloud_forwards.measured_s(rows) or measured.cloud_forwards.told_s(rows)
            self._verify_s[rows] = known_s if known_s is not None else measured.alone_s or 0.0
        return self._verify_s[rows] * self.slower if beside else self._verify_s[rows]

    def cloud_s(self, rows: int, beside: bool) -> float:
        """Waiting and verification in the cloud."""
        return self.queue_s + self.verify_s(rows, beside)

    def exchange_s(self, rows: int, beside: bool) -> float:
        """From sending a draft to its verdict."""
        return self.away_s + self.verify_s(rows, beside)
