"""A verifier of figures alone: whatever reads /metrics can be tried on it, without a model or a socket."""

from __future__ import annotations

from collections import Counter

from cloud_verifier.observing.counts import ClientUse, EngineLoad
from cloud_verifier.observing.metrics import COUNTERS, GAUGES, VerifierCollector, render
from specdec.energy import Meter


class MadeUpVerifier:
    """Has what VerifierCollector asks for; tests change it between two looks."""

    def __init__(self, *names: str) -> None:
        self.load = EngineLoad(0.0)
        self.meter = Meter([])
        self.clients = {name: ClientUse(name) for name in names}
        self.now = dict.fromkeys(GAUGES, 0.0)
        self.counts = dict.fromkeys(COUNTERS, 0.0)
        self.kv: Counter[str] = Counter()

    def gauges(self) -> dict[str, float]:
        return self.now

    def counters(self) -> dict[str, float]:
        return self.counts

    def uses(self) -> list[ClientUse]:
        return list(self.clients.values())

    def kv_bytes(self) -> Counter[str]:
        return self.kv

    def text(self) -> str:
        """What Prometheus would read now."""
        return render(VerifierCollector(self)).decode()
