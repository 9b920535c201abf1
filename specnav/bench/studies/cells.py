# SPDX-License-Identifier: Apache-2.0
"""The cells of the study of many clients, and its measurements by round trip, method and number of clients.

A *cell* is one measurement: a method, a round trip and a number of clients. The best fixed draft lengths are searched
first, with one client, as SpecEdge's paper does for its baseline.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from specdec.methods import get_method
from specnav.bench.records.capacity import Capacity, most_clients, on_line
from specnav.bench.records.study import CellRecord, StudyResults

COUNTS = (1, 2, 4, 8, 16)
RTTS = (0.0, 15.0, 40.0, 80.0)
METHODS = ("ar", "cloud-sd", "sd", "fsd", "specedge", "auto")
GROUPS = {"specedge": (1, 2)}
GAMMAS = (2, 4, 7)
BOUND = 10.0
"""Tokens per second that a client must get, at the operating point's own times."""
BASELINE = "cloud-sd"

ByCount = Mapping[int, CellRecord]


@dataclass(frozen=True)
class ServingCell:
    """One measurement to make. rtt_ms: at the operating point's own times, unscaled."""

    name: str
    method: str
    gamma: int
    groups: int
    rtt_ms: float
    clients: int

    @property
    def file(self) -> str:
        """Name of its file."""
        method = re.sub(r"[^\w.]+", "-", self.method)
        return f"{method}-gamma{self.gamma}-groups{self.groups}-rtt{self.rtt_ms:g}-n{self.clients}.json"

    def __str__(self) -> str:
        clients = f"{self.clients} client{'s' * (self.clients > 1)}"
        return f"{self.name}, γ = {self.gamma}, RTT {self.rtt_ms:g} ms, {clients}"


def searches(methods: Sequence[str], rtt_ms: float) -> list[ServingCell]:
    """The cells that find the best draft length of the methods with a fixed one."""
    return [
        ServingCell(method, method, gamma, 1, rtt_ms, 1)
        for method in methods
        if _keeps_length(method)
        for gamma in GAMMAS
    ]


def best_gammas(cells: Iterable[CellRecord]) -> dict[str, int]:
    """For each method, the draft length with the most tokens per second for one client.

    Methods that were measured with one length only are left out.
    """
    tried: dict[tuple[str, float], list[CellRecord]] = {}
    for one in cells:
        if one.row.clients == 1 and _keeps_length(one.method):
            tried.setdefault((one.method, one.rtt_ms), []).append(one)
    return {
        method: max(several, key=lambda one: one.row.rate).gamma
        for (method, _), several in tried.items()
        if len(several) > 1
    }


def cells(
    methods: Sequence[str],
    rtts: Sequence[float],
    counts: Sequence[int],
    gammas: Mapping[str, int],
    gamma: int,
) -> list[ServingCell]:
    """All other cells, ordered by round trip. gammas: draft length by method; gamma: of all other methods."""
    return [
        ServingCell(
            method if groups == 1 else f"{method}, {groups} groups",
            method,
            gammas.get(method, gamma),
            groups,
            rtt,
            n,
        )
        for rtt in rtts
        for method in methods
        for groups in GROUPS.get(method, (1,))
        for n in counts
    ]


def _keeps_length(name: str) -> bool:
    method = get_method(name)
    fixed = method.drafts and method.length == "fixed" and method.tree is None and not method.controlled
    return fixed or method.cloud_drafts


@dataclass(frozen=True)
class ServingMeasurements:
    """The measurements at the operating point's own times. cells: by round trip, name and number of clients."""

    cells: Mapping[float, Mapping[str, ByCount]]
    rtt_ms: float
    scale: float

    def rates(self, rtt: float, name: str) -> dict[int, float]:
        """Tokens per second of all clients together, by number of clients."""
        return {n: one.row.rate * self.scale for n, one in self.cells[rtt].get(name, {}).items()}

    def slow(self, rtt: float, name: str) -> dict[int, float]:
        """Tokens per second that 95 % of the clients reach, by number of clients."""
        return {n: one.row.slow * self.scale for n, one in self.cells[rtt].get(name, {}).items()}

    def capacity(self, rtt: float, name: str) -> tuple[Capacity, float]:
        """(largest number of clients that get BOUND, the verifier's tokens per second with them); 0 if none does."""
        most = most_clients(self.slow(rtt, name), BOUND)
        rates = sorted((float(n), rate) for n, rate in self.rates(rtt, name).items())
        return most, on_line(rates, most.clients) if most.clients else 0.0

    def names(self) -> list[str]:
        """Names of all measured variants, in order."""
        return list(dict.fromkeys(name for by_name in self.cells.values() for name in by_name))

    def equal_batches(self, rtt: float, name: str) -> dict[int, float]:
        """For n clients of the baseline: the rate of 2n clients with this method over the baseline's rate.

        Their forwards are shared by equally many sessions.
        """
        base, ours = self.rates(rtt, BASELINE), self.rates(rtt, name)
        return {n: ours[2 * n] / rate for n, rate in base.items() if rate and 2 * n in ours}

    def on_the_edge(self) -> list[str]:
        """Names of the variants that draft on the edge."""
        return [name for name in self.names() if get_method(name.split(",")[0]).drafts]


def seen_in(results: StudyResults) -> ServingMeasurements | None:
    """The cells with the chosen draft lengths; None before there is one."""
    chosen = best_gammas(results.cells)
    found: dict[float, dict[str, dict[int, CellRecord]]] = {}
    for one in results.cells:
        if chosen.get(one.method, one.gamma) == one.gamma:
            found.setdefault(one.rtt_ms, {}).setdefault(one.name, {})[one.row.clients] = one
    if not found:
        return None
    point = float(results.config.get("rtt_ms") or 0.0) / results.time_scale
    nearest = min(found, key=lambda rtt: (abs(rtt - point), rtt))
    ordered = {
        rtt: {name: dict(sorted(by.items())) for name, by in found[rtt].items()} for rtt in sorted(found)
    }
    return ServingMeasurements(ordered, nearest, results.time_scale)
