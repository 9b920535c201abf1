# SPDX-License-Identifier: Apache-2.0
"""Scrapes a verifier's `/metrics`, with Prometheus' own parser, and tells what it did between two scrapes."""

from __future__ import annotations

import http.client
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from specdec.link.binding import is_port
from specnav.errors import HarnessError, UsageError

PREFIX = "specdec_"
TIMEOUT_S = 5.0
MOST_BYTES = 8 << 20


class ScrapeFailed(HarnessError):
    """Nothing answers, or the answer is not a verifier's metrics; the message is one line."""


@dataclass(frozen=True)
class Address:
    """Address of `/metrics`."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse HOST:PORT or a URL of it. Raises UsageError for anything else."""
        plain = text.removeprefix("http://").removesuffix("/").removesuffix("/metrics")
        host, colon, port = plain.rpartition(":")
        usable = is_port(port) and int(port) > 0
        if not colon or not host or not host.isprintable() or " " in host or not usable:
            raise UsageError(f"{text!r} is not HOST:PORT: give the address of the verifier's --metrics")
        return cls(host.strip("[]"), int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class MetricSample:
    """A value and its labels."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True)
class Scrape:
    """The result of one scrape.

    Attributes:
        at_s: When it was made, s.
        samples: Samples by metric name, without `specdec_`.
    """

    at_s: float
    samples: Mapping[str, Sequence[MetricSample]]

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of the samples with these labels; 0 if there are none."""
        found = self.samples.get(name, ())
        return sum(one.value for one in found if labels.items() <= one.labels.items())

    def labels(self, name: str, label: str) -> list[str]:
        """Return the values of a label, in order of appearance."""
        return list(dict.fromkeys(one.labels[label] for one in self.samples.get(name, ()) if label in one.labels))

    def buckets(self, name: str) -> dict[float, float]:
        """Return a histogram's cumulative counts by upper bound; the last bound is infinite."""
        found = self.samples.get(f"{name}_bucket", ())
        return dict(sorted((float(one.labels["le"]), one.value) for one in found))


def fetch(address: Address, timeout_s: float = TIMEOUT_S) -> str:
    """Fetch the text of `/metrics`, without a proxy. Raises ScrapeFailed."""
    connection = http.client.HTTPConnection(address.host, address.port, timeout=timeout_s)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        text = _whole(answer, time.monotonic() + timeout_s).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        said = str(error).strip() or type(error).__name__
        raise ScrapeFailed(
            f"nothing answers at http://{address}/metrics ({said}): start the verifier with --metrics {address}, "
            "or give the HOST:PORT of its --metrics"
        ) from error
    finally:
        connection.close()
    if answer.status != 200:
        raise ScrapeFailed(f"http://{address}/metrics answers {answer.status}: not a verifier")
    return text


def _whole(answer: http.client.HTTPResponse, deadline_s: float) -> bytes:
    """The body, at most MOST_BYTES of it. Raises TimeoutError for one that comes in drops."""
    parts, left = [], MOST_BYTES
    while left > 0 and (part := answer.read1(left)):
        parts.append(part)
        left -= len(part)
        if time.monotonic() > deadline_s:
            raise TimeoutError("timed out")
    return b"".join(parts)


def parse(text: str, at_s: float) -> Scrape:
    """Parse the text of `/metrics`. Raises ScrapeFailed if it is not a verifier's."""
    samples: dict[str, list[MetricSample]] = {}
    try:
        for family in text_string_to_metric_families(text):
            for one in family.samples:
                if one.name.startswith(PREFIX) and math.isfinite(one.value):
                    found = samples.setdefault(one.name.removeprefix(PREFIX), [])
                    found.append(MetricSample(one.labels, one.value))
        scrape = Scrape(at_s, samples)
        for name in samples:
            if name.endswith("_bucket"):
                scrape.buckets(name.removesuffix("_bucket"))
    except (ValueError, KeyError) as error:
        raise ScrapeFailed("the answer is not a verifier's /metrics: it cannot be parsed") from error
    if "forwards_total" not in samples:
        raise ScrapeFailed("the answer has no verifier metrics: is this another program's /metrics?")
    return scrape


@dataclass(frozen=True)
class Quantile:
    """A quantile of a histogram.

    Attributes:
        seconds: The quantile; None without observations.
        beyond: It lies above the histogram's last finite bound, which `seconds` is.
    """

    seconds: float | None
    beyond: bool = False


@dataclass(frozen=True)
class Interval:
    """What happened between two scrapes of a verifier.

    If the verifier restarted in between, its counters are taken to have started at 0. Metrics are named without
    `specdec_`; labels select some of a metric's samples, such as those of one client.
    """

    before: Scrape
    now: Scrape

    @property
    def seconds(self) -> float:
        """Length of the interval."""
        return max(self.now.at_s - self.before.at_s, 1e-9)

    def grown(self, name: str, **labels: str) -> float:
        """Return how much a counter has grown; one that has fallen was reset to 0."""
        before, now = self.before.total(name, **labels), self.now.total(name, **labels)
        return now - before if now >= before else now

    def rate(self, name: str, **labels: str) -> float:
        """Return a counter's growth per second."""
        return self.grown(name, **labels) / self.seconds

    def share(self, part: str, whole: str, **labels: str) -> float | None:
        """Return the growth of one counter divided by that of another; None if the other has not grown."""
        grown = self.grown(whole, **labels)
        return self.grown(part, **labels) / grown if grown > 0 else None

    def quantiles(self, name: str) -> tuple[Quantile, Quantile]:
        """Return the median and 95th percentile of the observations in the interval."""
        old, new = self.before.buckets(name), self.now.buckets(name)
        anew = any(new[bound] < old.get(bound, 0.0) for bound in new)
        grown = new if anew else {bound: count - old.get(bound, 0.0) for bound, count in new.items()}
        return quantile(0.5, grown), quantile(0.95, grown)

    @property
    def clients(self) -> list[str]:
        """Names of the connected clients, the busiest first."""
        names = self.now.labels("client_sessions", "client")
        return sorted(
            names,
            key=lambda name: (
                -self.rate("verified_tokens_total", client=name),
                -self.now.total("client_sessions", client=name),
                name,
            ),
        )


def quantile(q: float, buckets: dict[float, float]) -> Quantile:
    """Compute a quantile of cumulative counts by bound like Prometheus' histogram_quantile: linear within a
    bucket.
    """
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
