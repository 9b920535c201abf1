# SPDX-License-Identifier: Apache-2.0
"""Metrics for Prometheus, read off the engine and the session table on request: nothing on the hot path."""

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
    "sessions": "Sessions that are open",
    "working": "Sessions that the engine works for, or has worked for in the last seconds",
    "clients": "Connections that were heard of lately",
    "connections": "TCP connections that are open",
    "waiting_bytes": "Bytes of messages that wait for the engine",
    "kv_admitted_bytes": "Cache that sessions may come to hold, all together",
    "kv_session_max_bytes": "Cache that the largest session may come to hold",
    "kv_budget_bytes": "Cache that there is for all sessions",
    "shared_bytes": "Cache that is kept of prompts and pictures for sessions to come",
    "kept_picture_bytes": "Pictures that are kept for clients to name",
    "slowest_loop_s": "Seconds since the slowest of the loops last went round",
    "draining": "1 once no new sessions are taken",
}
COUNTERS = {
    "kv_evictions": "Caches that resting sessions gave back for others",
    "handshakes_refused": "Connections that were not let in, for want of a key",
    "connections_cut": "Connections that were shut down or put off: silent, too many, or over a bound",
    "pictures_named": "Pictures that were named instead of sent again",
    "pictures_missing": "Of these, pictures that were not there any more",
}

CODES = (ERROR_BUSY, ERROR_TOO_LARGE, ERROR_MALFORMED, ERROR_REFUSED, ERROR_INTERNAL, ERROR_KEY)
"""Of refusals: each client has all of them from the start, as a rate cannot be distinguished from a first sample."""


class Observed(Protocol):
    """What is looked at; a Server has it. Asked from another thread, on every look."""

    @property
    def load(self) -> EngineLoad:
        """What the engine has done."""
        ...

    @property
    def meter(self) -> Meter:
        """What the machine's sensors report its energy."""
        ...

    def gauges(self) -> Mapping[str, float]:
        """What is so now: a value for each of GAUGES."""
        ...

    def counters(self) -> Mapping[str, float]:
        """What only ever grows: a value for each of COUNTERS."""
        ...

    def uses(self) -> Sequence[ClientUse]:
        """What each client has used. Their names are those of keys, so that there are no more labels than keys."""
        ...

    def kv_bytes(self) -> Mapping[str, int]:
        """Bytes of cache by the name of a client; one without any may be missing."""
        ...


class VerifierCollector(Collector):
    """One verifier's metrics; names begin with `specdec_`, times are seconds."""

    def __init__(self, verifier: Observed) -> None:
        self._verifier = verifier

    def collect(self) -> Iterable[Metric]:
        """All of them, as they are now."""
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
        ("forwards", "Forwards of the target and of a draft model in the cloud", load.forwards),
        ("forward_rows", "Rows of all forwards", load.rows),
        ("forward_sessions", "Sessions that took part in forwards", load.sessions),
        ("forward_seconds", "Time spent in forwards", load.busy_s),
        ("failed_forwards", "Forwards that ended in an error", load.failed),
        ("kv_restored", "Caches made anew for sessions that had given theirs back", load.restored),
        ("hints_sent", "Hints that left", load.hints_sent),
    ):
        yield CounterMetricFamily(PREFIX + name, text, value=value)
    for name, text, histogram in (
        ("batch_sessions", "Sessions that shared a forward", load.batch),
        ("verify_seconds", "Work on one verdict in the cloud", load.verify),
        ("queue_seconds", "Waiting of one verdict in the cloud", load.queue),
        ("between_forwards_seconds", "From one forward to the next where work was waiting", load.between),
        ("hint_seconds", "Making hints in one forward that had any", load.hints),
    ):
        yield as_family(PREFIX + name, text, histogram)


def _of_the_machine(meter: Meter) -> Iterator[Metric]:
    """Nothing where there is no sensor: 0 would be a guess."""
    if meter.joules is not None:
        yield CounterMetricFamily(PREFIX + "energy_joules", "Energy that the machine has taken", value=meter.joules)
    for name, text, watts in (
        ("power_watts", "Power that the machine takes", meter.watts),
        ("idle_power_watts", "The least power of any second so far", meter.idle_watts),
    ):
        if watts is not None:
            yield GaugeMetricFamily(PREFIX + name, text, value=watts)


def _of_the_clients(uses: Sequence[ClientUse], kv_bytes: Mapping[str, int]) -> Iterator[Metric]:
    """A sample for each client, by the name of its key."""
    for name, text, attribute in (
        ("verified_tokens", "Tokens that verdicts and streams brought", "tokens"),
        ("drafted_tokens", "Draft tokens judged", "drafted"),
        ("accepted_tokens", "Draft tokens accepted", "accepted"),
        ("sessions_opened", "Sessions that were opened", "opened"),
        ("sessions_resumed", "Sessions that were opened with the beginning of their answer", "resumed"),
        ("reconnects", "Clients that came again with their token", "reconnects"),
    ):
        counter = CounterMetricFamily(PREFIX + name, text, labels=["client"])
        for use in uses:
            counter.add_metric([use.name], getattr(use, attribute))
        yield counter
    messages = CounterMetricFamily(PREFIX + "messages", "Messages", labels=["client", "direction"])
    size = CounterMetricFamily(PREFIX + "message_bytes", "Bytes of messages", labels=["client", "direction"])
    refused = CounterMetricFamily(PREFIX + "refusals", "What was refused", labels=["client", "code"])
    sessions = GaugeMetricFamily(PREFIX + "client_sessions", "Sessions that are open", labels=["client"])
    kv = GaugeMetricFamily(PREFIX + "client_kv_bytes", "Cache of a client's sessions", labels=["client"])
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
    """A histogram as Prometheus takes it: cumulated, with +Inf at the end."""
    so_far, buckets = 0, []
    for bound, count in zip((*histogram.bounds, float("inf")), list(histogram.counts), strict=True):
        so_far += count
        buckets.append(("+Inf" if bound == float("inf") else f"{bound:g}", float(so_far)))
    family = HistogramMetricFamily(name, text)
    family.add_metric([], buckets, histogram.total)
    return family


def render(collector: Collector) -> bytes:
    """The text that Prometheus reads."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return generate_latest(registry)
