# SPDX-License-Identifier: Apache-2.0
"""What a verifier did between two looks at its metrics. Pure: no sockets, no clock, no terminal."""

from __future__ import annotations

import math
from dataclasses import dataclass

from specnav.top.scrape import Scrape


@dataclass(frozen=True)
class Quantile:
    """Seconds; None where nothing happened. beyond: it is more than that, the last bound of the histogram."""

    seconds: float | None
    beyond: bool = False


@dataclass(frozen=True)
class ClientFigures:
    """One client. Rates are a second's; acceptance is None where nothing was judged."""

    name: str
    sessions: int
    tokens_per_s: float
    acceptance: float | None
    messages_per_s: float
    up_bytes_per_s: float
    down_bytes_per_s: float
    kv_bytes: float
    refusals: int
    refusals_in_all: int


@dataclass(frozen=True)
class VerifierFigures:
    """The verifier as a whole, between two looks. None: nothing happened of which it could be told.

    Rates are a second's. batch: sessions a forward; busy: share of the time in forwards; hint_s: seconds that hints
    took of a forward with any. evictions, restored, refusals, failed: in this interval; *_in_all: since it began.
    """

    seconds: float
    tokens_per_s: float
    forwards_per_s: float
    batch: float | None
    rows: float | None
    busy: float
    acceptance: float | None
    verify: tuple[Quantile, Quantile]
    queue: tuple[Quantile, Quantile]
    hint_s: float | None
    hints_per_s: float
    sessions: int
    connections: int
    waiting_bytes: float
    kv_bytes: float
    kv_budget_bytes: float
    kv_session_max_bytes: float
    evictions: int
    evictions_in_all: int
    restored: int
    refusals: int
    refusals_in_all: int
    handshakes_refused: int
    failed: int
    draining: bool
    clients: tuple[ClientFigures, ...]


def figures_between(before: Scrape, now: Scrape) -> VerifierFigures:
    """What happened in between, and how things are now. A verifier that began anew meanwhile is counted from then."""
    seconds = max(now.at_s - before.at_s, 1e-9)

    def grown(name: str, **labels: str) -> float:
        return increase(before.total(name, **labels), now.total(name, **labels))

    forwards, drafted = grown("forwards_total"), grown("drafted_tokens_total")
    hinted = grown("hint_seconds_count")
    clients = [client_between(before, now, name) for name in now.labels("client_sessions", "client")]
    return VerifierFigures(
        seconds=seconds,
        tokens_per_s=grown("verified_tokens_total") / seconds,
        forwards_per_s=forwards / seconds,
        batch=share(grown("forward_sessions_total"), forwards),
        rows=share(grown("forward_rows_total"), forwards),
        busy=min(1.0, grown("forward_seconds_total") / seconds),
        acceptance=share(grown("accepted_tokens_total"), drafted),
        verify=quantiles(before, now, "verify_seconds"),
        queue=quantiles(before, now, "queue_seconds"),
        hint_s=share(grown("hint_seconds_sum"), hinted),
        hints_per_s=grown("hints_sent_total") / seconds,
        sessions=int(now.total("sessions")),
        connections=int(now.total("clients")),
        waiting_bytes=now.total("waiting_bytes"),
        kv_bytes=now.total("kv_admitted_bytes"),
        kv_budget_bytes=now.total("kv_budget_bytes"),
        kv_session_max_bytes=now.total("kv_session_max_bytes"),
        evictions=int(grown("kv_evictions_total")),
        evictions_in_all=int(now.total("kv_evictions_total")),
        restored=int(grown("kv_restored_total")),
        refusals=int(grown("refusals_total")),
        refusals_in_all=int(now.total("refusals_total")),
        handshakes_refused=int(grown("handshakes_refused_total")),
        failed=int(grown("failed_forwards_total")),
        draining=now.total("draining") > 0,
        clients=tuple(sorted(clients, key=lambda one: (-one.tokens_per_s, -one.sessions, one.name))),
    )


def client_between(before: Scrape, now: Scrape, name: str) -> ClientFigures:
    """The same for one client."""
    seconds = max(now.at_s - before.at_s, 1e-9)

    def grown(metric: str, **labels: str) -> float:
        return increase(before.total(metric, client=name, **labels), now.total(metric, client=name, **labels))

    return ClientFigures(
        name=name,
        sessions=int(now.total("client_sessions", client=name)),
        tokens_per_s=grown("verified_tokens_total") / seconds,
        acceptance=share(grown("accepted_tokens_total"), grown("drafted_tokens_total")),
        messages_per_s=grown("messages_total") / seconds,
        up_bytes_per_s=grown("message_bytes_total", direction="up") / seconds,
        down_bytes_per_s=grown("message_bytes_total", direction="down") / seconds,
        kv_bytes=now.total("client_kv_bytes", client=name),
        refusals=int(grown("refusals_total")),
        refusals_in_all=int(now.total("refusals_total", client=name)),
    )


def increase(before: float, now: float) -> float:
    """How much a counter has grown; one that has fallen began anew at 0."""
    return now - before if now >= before else now


def share(part: float, whole: float) -> float | None:
    """One over the other, or None over nothing."""
    return part / whole if whole > 0 else None


def quantiles(before: Scrape, now: Scrape, name: str) -> tuple[Quantile, Quantile]:
    """Median and 95th percentile of what a histogram took in between."""
    old, new = before.buckets(name), now.buckets(name)
    anew = any(new[bound] < old.get(bound, 0.0) for bound in new)
    grown = new if anew else {bound: count - old.get(bound, 0.0) for bound, count in new.items()}
    return quantile(0.5, grown), quantile(0.95, grown)


def quantile(q: float, buckets: dict[float, float]) -> Quantile:
    """The q-quantile of cumulated counts by bound, as Prometheus' histogram_quantile reckons it: linear in a bucket."""
    whole = buckets.get(math.inf, 0.0)
    if whole <= 0:
        return Quantile(None)
    rank, below, last = q * whole, 0.0, 0.0
    for bound, count in buckets.items():
        if count >= rank and bound == math.inf:
            return Quantile(last, beyond=True)
        if count >= rank and count > below:
            return Quantile(last + (bound - last) * (rank - below) / (count - below))
        below, last = count, bound
    return Quantile(last, beyond=True)
