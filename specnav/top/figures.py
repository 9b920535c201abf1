# SPDX-License-Identifier: Apache-2.0
"""What a verifier did between two scrapes of its metrics. Pure: no sockets, no clock, no terminal."""

from __future__ import annotations

import math
from dataclasses import dataclass

from specnav.top.scrape import Scrape


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
