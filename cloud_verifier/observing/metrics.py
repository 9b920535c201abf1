"""Metrics for Prometheus, read off the engine and the session table when somebody asks: nothing on the hot path."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from cloud_verifier.engine.load import EngineLoad, Histogram

PREFIX = "specdec_"


class VerifierCollector(Collector):
    """One verifier's metrics; names begin with `specdec_`, times are seconds."""

    def __init__(
        self,
        load: EngineLoad,
        gauges: Callable[[], dict[str, float]],
        refusals: Callable[[], dict[tuple[str, str], int]],
    ) -> None:
        """gauges: name -> value now. refusals: (client, code) -> how often. Both are asked on every look."""
        self._load = load
        self._gauges = gauges
        self._refusals = refusals

    def collect(self) -> Iterable[Metric]:
        """All of them, as they are now."""
        load = self._load
        for name, text, value in (
            ("forwards", "Forwards of the target and of a draft model in the cloud", load.forwards),
            ("forward_rows", "Rows of all forwards", load.rows),
            ("forward_sessions", "Sessions that took part in forwards", load.sessions),
            ("forward_seconds", "Time spent in forwards", load.busy_s),
            ("failed_forwards", "Forwards that ended in an error", load.failed),
            ("verified_tokens", "Tokens that verdicts and streams brought", load.tokens),
            ("drafted_tokens", "Draft tokens judged", load.drafted),
            ("accepted_tokens", "Draft tokens accepted", load.accepted),
        ):
            family = CounterMetricFamily(PREFIX + name, text)
            family.add_metric([], value)
            yield family
        for name, text, histogram in (
            ("batch_sessions", "Sessions that shared a forward", load.batch),
            ("verify_seconds", "Work on one verdict in the cloud", load.verify),
            ("queue_seconds", "Waiting of one verdict in the cloud", load.queue),
        ):
            yield as_family(PREFIX + name, text, histogram)
        for name, value in self._gauges().items():
            gauge = GaugeMetricFamily(PREFIX + name, name.replace("_", " "))
            gauge.add_metric([], value)
            yield gauge
        refused = CounterMetricFamily(PREFIX + "refusals", "What was refused", labels=["client", "code"])
        for (client, code), count in self._refusals().items():
            refused.add_metric([client, code], count)
        yield refused

    def describe(self) -> Iterator[Metric]:
        """Nothing is known before it is asked for."""
        return iter(())


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
