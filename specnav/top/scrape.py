# SPDX-License-Identifier: Apache-2.0
"""One look at a verifier's `/metrics`: fetched over HTTP and parsed by Prometheus' own parser."""

from __future__ import annotations

import http.client
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from specnav.errors import HarnessError, UsageError

PREFIX = "specdec_"
TIMEOUT_S = 5.0
MOST_BYTES = 8 << 20


class ScrapeFailed(HarnessError):
    """Nothing answers, or not with a verifier's metrics; the message is one line."""


@dataclass(frozen=True)
class Address:
    """Where `/metrics` is."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """HOST:PORT, also as a URL. Raises UsageError for anything else."""
        plain = text.removeprefix("http://").removesuffix("/").removesuffix("/metrics")
        host, colon, port = plain.rpartition(":")
        if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise UsageError(f"{text!r} is not HOST:PORT: give where the verifier's --metrics listens")
        return cls(host.strip("[]"), int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class MetricSample:
    """One value, and what it is of."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True)
class Scrape:
    """What was read at once. at_s: when; samples: by name, without `specdec_`."""

    at_s: float
    samples: Mapping[str, Sequence[MetricSample]]

    def total(self, name: str, **labels: str) -> float:
        """Sum of what has these labels; 0 where there is none."""
        found = self.samples.get(name, ())
        return sum(one.value for one in found if labels.items() <= one.labels.items())

    def labels(self, name: str, label: str) -> list[str]:
        """The values of a label, in order."""
        return list(dict.fromkeys(one.labels[label] for one in self.samples.get(name, ()) if label in one.labels))

    def buckets(self, name: str) -> dict[float, float]:
        """How many values were at most so large, by bound; the last one is infinite."""
        found = self.samples.get(f"{name}_bucket", ())
        return dict(sorted((float(one.labels["le"]), one.value) for one in found))


def fetch(address: Address) -> str:
    """The text of `/metrics`. Raises ScrapeFailed."""
    connection = http.client.HTTPConnection(address.host, address.port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        text = answer.read(MOST_BYTES).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        said = str(error).strip() or type(error).__name__
        raise ScrapeFailed(
            f"nothing answers at http://{address}/metrics ({said}): start the verifier with --metrics {address}, "
            "or give the HOST:PORT of its --metrics"
        ) from error
    finally:
        connection.close()
    if answer.status != 200:
        raise ScrapeFailed(f"http://{address}/metrics answers {answer.status}: that is not a verifier")
    return text


def parse(text: str, at_s: float) -> Scrape:
    """What the text says. Raises ScrapeFailed for one that is not a verifier's."""
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
        raise ScrapeFailed("what answers there has no metrics of a verifier: is it another program's /metrics?")
    return scrape
