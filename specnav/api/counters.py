# SPDX-License-Identifier: Apache-2.0
"""Counters of the server, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from specdec.drafting.joint import JointForwards
from specnav.api.answer import AnswerOutcome

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class Counters:
    """Counts requests and their results."""

    def __init__(self, joint: JointForwards, busy: Callable[[], int], waiting: Callable[[], int]) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter("specnav_api_requests", "Requests, by status", ["status"], registry=registry)
        self._tokens = Counter("specnav_api_tokens", "Tokens of answers", registry=registry)
        self._drafted = Counter("specnav_api_drafted", "Draft tokens judged", registry=registry)
        self._accepted = Counter("specnav_api_accepted", "Draft tokens accepted", registry=registry)
        self._seconds = Histogram(
            "specnav_api_seconds", "Seconds per request", buckets=_SECONDS, registry=registry
        )
        for name, text, look in (
            ("answers", "Answers being made", busy),
            ("queue", "Waiting requests", waiting),
            ("draft_forwards", "Draft forward passes so far", lambda: joint.forwards),
            ("draft_sessions", "Sessions per draft forward pass, summed", lambda: joint.sessions),
        ):
            Gauge(f"specnav_api_{name}", text, registry=registry).set_function(look)

    def request(self, status: int, seconds: float, outcome: AnswerOutcome | None) -> None:
        """Count a finished request."""
        self._requests.labels(str(status)).inc()
        self._seconds.observe(seconds)
        if outcome is not None:
            self._tokens.inc(outcome.stats.tokens)
            self._drafted.inc(outcome.drafted)
            self._accepted.inc(outcome.accepted)

    def page(self) -> bytes:
        """The content of /metrics."""
        return generate_latest(self._registry)
