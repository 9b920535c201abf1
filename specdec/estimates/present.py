# SPDX-License-Identifier: Apache-2.0
"""What forwards, link and queue take as far as is known now: looked up once for a choice between many plans."""

from __future__ import annotations

from specdec.estimates.measured import Measured


class CurrentTimes:
    """Times in seconds. away: there and back, and waiting in the cloud. beside_cost: of a second of drafting beside a
    forward of the cloud, the part that this gets longer by; slower: this many times as long a verification takes while
    the edge drafts on.
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
        """A draft forward of this many rows."""
        if rows not in self._drafts_s:
            self._drafts_s[rows] = self._measured.draft_rows_s(rows) or self._draft_s
        return self._drafts_s[rows]

    def verify_s(self, rows: int, beside: bool = False) -> float:
        """A verification of this many rows; as reported where none was measured, else as a token of the cloud alone.
        beside: while the edge drafts on.
        """
        if rows not in self._verify_s:
            measured = self._measured
            known_s = measured.verify_rows_s(rows) or measured.told_rows_s(rows)
            self._verify_s[rows] = known_s if known_s is not None else measured.alone_s or 0.0
        return self._verify_s[rows] * self.slower if beside else self._verify_s[rows]

    def cloud_s(self, rows: int, beside: bool) -> float:
        """Waiting and verifying."""
        return self.queue_s + self.verify_s(rows, beside)

    def exchange_s(self, rows: int, beside: bool) -> float:
        """The whole way of a draft and its verdict."""
        return self.away_s + self.verify_s(rows, beside)
