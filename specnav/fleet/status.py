# SPDX-License-Identifier: Apache-2.0
"""The status of a fleet, for people and for Prometheus."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from specnav.fleet.register import ReplicaReport
from specnav.fleet.scaling import State

STATES: tuple[State, ...] = ("ready", "starting", "draining", "failed", "left_out")


class ReplicaStatus(Struct, frozen=True):
    """One replica. words: its problem, "" if none. edges: assigned to it; active: of these, with an answer in
    progress.
    """

    report: ReplicaReport
    state: State
    edges: int
    active: int
    words: str


class FleetStatus(Struct, frozen=True):
    """A fleet. address: for --connect. wanted, bounds: replicas. Counted since the directory's last start: asks
    (requests), moves (edges that changed replica), nobody (requests without a replica), malformed (invalid messages).
    too_fast: requests over a key's rate; connections_cut: connections closed or postponed. working: sessions that the
    replicas' engines work on.
    """

    address: str
    generation: int
    wanted: int
    bounds: str
    edges: int
    active: int
    asks: int
    moves: int
    nobody: int
    malformed: int
    pid: int
    metrics: str
    replicas: list[ReplicaStatus]
    too_fast: int = 0
    connections_cut: int = 0
    working: int = 0

    def count(self, state: State, generation: int = 0) -> int:
        """Number of replicas in a state, in one generation or in all."""
        return sum(
            one.state == state and generation in (0, one.report.generation) for one in self.replicas
        )

    @property
    def settled(self) -> bool:
        """Whether exactly the wanted replicas serve, all of the current generation."""
        of_now = self.count("ready", self.generation)
        return of_now == self.wanted == len(self.replicas)

    @property
    def troubles(self) -> list[str]:
        """Problems, one line per replica."""
        told = [one for one in self.replicas if one.words]
        return [f"{one.report.name} on {one.report.node or 'no node'}: {one.words}" for one in told]


def metrics_text(status: FleetStatus) -> bytes:
    """The metrics in Prometheus' text format."""
    states = Counter(one.state for one in status.replicas)
    gauges = {"wanted": status.wanted, "edges": status.edges, "answers": status.active, "working": status.working}
    gauges["generation"] = status.generation
    counters = {"asks": status.asks, "moves": status.moves, "nobody": status.nobody, "malformed": status.malformed}
    counters |= {"too_fast": status.too_fast, "connections_cut": status.connections_cut}
    lines = ["# TYPE specdec_fleet_replicas gauge"]
    lines += [f'specdec_fleet_replicas{{state="{state}"}} {states[state]}' for state in STATES]
    for name, value in gauges.items():
        lines += [f"# TYPE specdec_fleet_{name} gauge", f"specdec_fleet_{name} {value}"]
    for name, value in counters.items():
        lines += [f"# TYPE specdec_fleet_{name}_total counter", f"specdec_fleet_{name}_total {value}"]
    lines.append("# TYPE specdec_fleet_replica_edges gauge")
    lines += [f'specdec_fleet_replica_edges{{replica="{one.report.name}"}} {one.edges}' for one in status.replicas]
    return ("\n".join(lines) + "\n").encode()


def targets_json(reports: Sequence[ReplicaReport]) -> bytes:
    """The replicas' metrics endpoints, for Prometheus' http_sd_configs."""
    groups = [{"targets": [one.metrics], "labels": {"replica": one.name}} for one in reports if one.metrics]
    return json.dumps(groups).encode()
