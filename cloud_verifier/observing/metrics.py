# SPDX-License-Identifier: Apache-2.0
"""Metrics for Prometheus, read from the engine and the session table on request: no work on the hot path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from cloud_verifier.observing.counts import ClientUse, EngineLoad, Histogram
from specdec.energy import Meter
from specdec.link.wire import (
    ERROR_BUSY,
    ERROR_INTERNAL,
    ERROR_KEY,
    ERROR_MALFORMED,
    ERROR_REFUSED,
    ERROR_TOO_LARGE,
)

PREFIX = "specdec_"
GAUGES = {
    "sessions": "Open sessions",
    "working": "Sessions that the engine works on, or has worked on in the last seconds",
    "clients": "Connections that were heard from lately",
    "connections": "Open TCP connections",
    "waiting_bytes": "Bytes of messages that wait for the engine",
    "kv_admitted_bytes": "KV cache that all sessions together may come to hold",
    "kv_session_max_bytes": "KV cache that the largest session may come to hold",
    "kv_budget_bytes": "KV cache available to all sessions",
    "shared_bytes": "Cached prompts and pictures kept for future sessions",
    "kept_picture_bytes": "Pictures that are kept for clients to name",
    "slowest_loop_s": "Seconds since the slowest loop last ran",
    "draining": "1 while new sessions are refused",
}
COUNTERS = {
    "kv_evictions": "KV caches evicted from idle sessions",
    "handshakes_refused": "Connections refused for lack of a valid key",
    "connections_cut": "Connections that were closed or postponed: silent, too many, or over a bound",
    "pictures_named": "Pictures that were named instead of sent again",
    "pictures_missing": "Named pictures that were no longer kept",
}

CODES = (ERROR_BUSY, ERROR_TOO_LARGE, ERROR_MALFORMED, ERROR_REFUSED, ERROR_INTERNAL, ERROR_KEY)
"""Error codes that every client reports from the start: a rate cannot be computed from a counter that just
appeared.
"""


class Observed(Protocol):
    """What metrics are read from, on every request, in another thread; implemented by Server."""

    @property
    def load(self) -> EngineLoad:
        """Statistics of the engine."""
        ...

    @property
    def meter(self) -> Meter:
        """Measures the machine's energy."""
        ...

    def gauges(self) -> Mapping[str, float]:
        """The current value of each of GAUGES."""
        ...

    def counters(self) -> Mapping[str, float]:
        """The current value of each of COUNTERS."""
        ...

    def uses(self) -> Sequence[ClientUse]:
        """Statistics of each client. Clients are named by key, so there are no more labels than keys."""
        ...

    def kv_bytes(self) -> Mapping[str, int]:
        """Bytes of KV cache by client name; clients without a cache may be missing."""
        ...


class VerifierCollector(Collector):
    """One verifier's metrics; names begin with `specdec_`, times are seconds."""

    def __init__(self, verifier: Observed) -> None:
        self._verifier = verifier

    def collect(self) -> Iterable[Metric]:
        """All current metrics."""
        yield from _of_the_engine(self._verifier.load)
        counts = self._verifier.counters()
        for name, count in counts.items():
            yield CounterMetricFamily(PREFIX + name, COUNTERS.get(name, ""), value=count)
        values = self._verifier.gauges()
        for name, value in values.items():
            yield GaugeMetricFamily(PREFIX + name, GAUGES.get(name, ""), value=value)
        yield from _of_the_machine(self._verifier.meter)
        yield from _of_the_clients(self._verifier.uses(), self._verifier.kv_bytes())


def _of_the_engine(load: EngineLoad) -> Iterator[Metric]:
    for name, text, value in (
        ("forwards", "Forward passes of the target and of a draft model in the cloud", load.forwards),
        ("forward_rows", "Rows of all forward passes", load.rows),
        ("forward_sessions", "Sessions per forward pass, summed", load.sessions),
        ("forward_seconds", "Time spent in forward passes", load.busy_s),
        ("failed_forwards", "Forward passes that failed", load.failed),
        ("kv_restored", "Evicted KV caches that were computed again", load.restored),
        ("hints_sent", "Hints sent", load.hints_sent),
    ):
        yield CounterMetricFamily(PREFIX + name, text, value=value)
    for name, text, histogram in (
        ("batch_sessions", "Sessions per forward pass", load.batch),
        ("verify_seconds", "Work per verdict in the cloud", load.verify),
        ("queue_seconds", "Waiting per verdict in the cloud", load.queue),
        ("between_forwards_seconds", "Time between two forward passes while work was waiting", load.between),
        ("hint_seconds", "Time spent on hints, per forward pass that had any", load.hints),
    ):
        yield as_family(PREFIX + name, text, histogram)


def _of_the_machine(meter: Meter) -> Iterator[Metric]:
    """Energy metrics; none without a sensor, because 0 would be a guess."""
    if (joules := meter.joules) is not None:
        yield CounterMetricFamily(PREFIX + "energy_joules", "Energy that the machine has used", value=joules)
    for name, text, watts in (
        ("power_watts", "Power that the machine uses", meter.watts),
        ("idle_power_watts", "Lowest power in any second so far", meter.idle_watts),
    ):
        if watts is not None:
            yield GaugeMetricFamily(PREFIX + name, text, value=watts)


def _of_the_clients(uses: Sequence[ClientUse], kv_bytes: Mapping[str, int]) -> Iterator[Metric]:
    """One sample per client, labelled with the name of its key."""
    for name, text, attribute in (
        ("verified_tokens", "Verified tokens sent in verdicts and streams", "tokens"),
        ("drafted_tokens", "Draft tokens judged", "drafted"),
        ("accepted_tokens", "Draft tokens accepted", "accepted"),
        ("sessions_opened", "Sessions opened", "opened"),
        ("sessions_resumed", "Sessions resumed with part of their answer", "resumed"),
        ("reconnects", "Reconnects with a known token", "reconnects"),
    ):
        counter = CounterMetricFamily(PREFIX + name, text, labels=["client"])
        for use in uses:
            counter.add_metric([use.name], getattr(use, attribute))
        yield counter
    messages = CounterMetricFamily(PREFIX + "messages", "Messages", labels=["client", "direction"])
    size = CounterMetricFamily(PREFIX + "message_bytes", "Bytes of messages", labels=["client", "direction"])
    refused = CounterMetricFamily(PREFIX + "refusals", "Refusals", labels=["client", "code"])
    sessions = GaugeMetricFamily(PREFIX + "client_sessions", "Open sessions", labels=["client"])
    kv = GaugeMetricFamily(PREFIX + "client_kv_bytes", "KV cache of a client's sessions", labels=["client"])
    for use in uses:
        messages.add_metric([use.name, "up"], use.messages_up)
        messages.add_metric([use.name, "down"], use.messages_down)
        size.add_metric([use.name, "up"], use.bytes_up)
        size.add_metric([use.name, "down"], use.bytes_down)
        for code, count in {**dict.fromkeys(CODES, 0), **use.refusals()}.items():
            refused.add_metric([use.name, code], count)
        sessions.add_metric([use.name], use.sessions)
        kv.add_metric([use.name], kv_bytes.get(use.name, 0))
    yield from (messages, size, refused, sessions, kv)


def as_family(name: str, text: str, histogram: Histogram) -> HistogramMetricFamily:
    """A histogram in Prometheus' form: cumulative buckets, +Inf last."""
    so_far, buckets = 0, []
    for bound, count in zip((*histogram.bounds, float("inf")), list(histogram.counts), strict=True):
        so_far += count
        buckets.append(("+Inf" if bound == float("inf") else f"{bound:g}", float(so_far)))
    family = HistogramMetricFamily(name, text)
    family.add_metric([], buckets, histogram.total)
    return family


def render(collector: Collector) -> bytes:
    """The metrics in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return generate_latest(registry)
