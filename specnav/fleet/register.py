# SPDX-License-Identifier: Apache-2.0
"""The directory's tables: replicas by their reports, edges by their requests. It starts nothing and waits for nothing;
the time comes as an argument, and the caller holds a lock.

After a restart the tables fill again by themselves: replicas report twice a second, and edges name their replica.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec import Struct

from specdec.link.directory_wire import (
    EDGE_BYTES,
    MOST_OTHERS,
    NOBODY_READY,
    NOBODY_SAME,
    Ask,
    Nobody,
    Take,
)
from specnav.fleet.choice import ReplicaCandidate, choose
from specnav.fleet.identity import Identity, differences
from specnav.fleet.scaling import ReplicaLoad, State

SILENT_S = 4.0
"""A replica that has not reported for this long is not assigned, unless there is no other."""
SETTLE_S = 3.0
"""After its start a directory leaves edges where they are for this long while it waits for all replicas' reports."""
ACTIVE_S = 120.0
"""An edge that has not asked for this long counts as having no answer in progress."""
MOST_EDGES = 100_000
MOST_OF_OWNER = 256
"""Most edges of one key, or of one connection without keys; above, the one that has not asked for longest is
dropped.
"""
MOST_MARKS_KEPT = 4096
RANKS = 3


class ReplicaReport(Struct, frozen=True):
    """A replica's report about itself. node: "" while Ray has not placed it. address: "" while it does not serve.
    draining: it accepts no new sessions; ended: its process has ended for good. working: sessions its engine works on.
    """

    name: str
    number: int
    generation: int
    node: str = ""
    address: str = ""
    metrics: str = ""
    identity: Identity | None = None
    pid: int = 0
    starts: int = 0
    draining: bool = False
    ended: bool = False
    trouble: str = ""
    working: int = 0


def _scope_of(who: bytes) -> bytes:
    """The key of an edge; b"" without keys."""
    return who[:-EDGE_BYTES]


def _by_rank() -> tuple[OrderedDict[bytes, float], ...]:
    return tuple(OrderedDict() for _ in range(RANKS))


@dataclass
class _Replica:
    """active: edges with an answer in progress and since when, by rank of their class, oldest first. marks: of prompts
    it knows, per key whose edges sent them, so that no key learns another key's marks, or evicts those of a key with
    fewer.
    """

    report: ReplicaReport
    heard: float
    edges: set[bytes] = field(default_factory=set)
    active: tuple[OrderedDict[bytes, float], ...] = field(default_factory=_by_rank)
    marks: dict[bytes, OrderedDict[bytes, None]] = field(default_factory=dict)

    def count(self, now: float) -> list[int]:
        """Number of edges with an answer in progress, by rank; drops edges that were silent for too long."""
        for edges in self.active:
            while edges and now - next(iter(edges.values())) > ACTIVE_S:
                edges.popitem(last=False)
        return [len(edges) for edges in self.active]

    def remember(self, scope: bytes, marks: Iterable[bytes]) -> None:
        """Add prompt marks of a key's edges; above the limit the oldest mark of the key with the most marks is
        dropped.
        """
        mine = self.marks.setdefault(scope, OrderedDict())
        for mark in marks:
            mine[mark] = None
            mine.move_to_end(mark)
        while sum(map(len, self.marks.values())) > MOST_MARKS_KEPT:
            greatest = max(self.marks, key=lambda each: len(self.marks[each]))
            self.marks[greatest].popitem(last=False)
            if not self.marks[greatest]:
                del self.marks[greatest]

    def leaves(self, who: bytes) -> None:
        """An edge no longer has an answer in progress here."""
        for edges in self.active:
            edges.pop(who, None)


class Register:
    """The tables, and the answers to edges."""

    def __init__(self, now: float, identities: dict[int, Identity] | None = None) -> None:
        """identities: by generation, as far as known."""
        self.identities = dict(identities or {})
        self.asks = self.moves = self.nobody = 0
        self.draining: set[str] = set()
        self._began = now
        self._expected = 0
        self._replicas: dict[str, _Replica] = {}
        self._edges: OrderedDict[bytes, str] = OrderedDict()
        self._owned: dict[bytes, OrderedDict[bytes, None]] = {}
        self._owner_of: dict[bytes, bytes] = {}

    def expect(self, replicas: int) -> None:
        """Number of earlier replicas: until they have reported, edges stay where they are."""
        self._expected = replicas

    def report(self, report: ReplicaReport, now: float) -> None:
        """Store a replica's report. The first serving replica of a generation sets the identity for all others."""
        known = self._replicas.get(report.name)
        if known is None:
            self._replicas[report.name] = _Replica(report, now)
        else:
            if report.address != known.report.address:
                known.marks.clear()
            known.report, known.heard = report, now
        if report.identity is not None and report.address:
            self.identities.setdefault(report.generation, report.identity)

    def forget(self, name: str) -> None:
        """Remove a replica for good."""
        gone = self._replicas.pop(name, None)
        for edge in gone.edges if gone else ():
            self._edges[edge] = ""
        self.draining.discard(name)

    def reports(self) -> list[ReplicaReport]:
        """The last report of each replica."""
        return [one.report for one in self._replicas.values()]

    def state(self, name: str, now: float) -> State:
        """The state of a replica, as it counts for edges and for scaling."""
        replica = self._replicas[name]
        report = replica.report
        if name in self.draining or report.draining:
            return "draining"
        if now - replica.heard > SILENT_S or not report.address:
            return "failed" if report.trouble else "starting"
        return "left_out" if self.left_out(report) else "ready"

    def left_out(self, report: ReplicaReport) -> str:
        """How a serving replica differs from its generation, so that it is not assigned; "" if it does not differ."""
        wanted = self.identities.get(report.generation)
        if wanted is None or report.identity is None:
            return ""
        return differences(wanted, report.identity)

    def seen(self, now: float) -> list[ReplicaLoad]:
        """All replicas, for scaling."""
        return [
            ReplicaLoad(one.report.number, one.report.generation, self.state(name, now), sum(one.count(now)))
            for name, one in self._replicas.items()
        ]

    def active(self, now: float) -> int:
        """Number of edges with an answer in progress."""
        return sum(sum(one.count(now)) for one in self._replicas.values())

    def working(self, now: float) -> int:
        """Sessions that all replicas' engines report to work on. Edges' own claims do not count, so they start
        no replicas.
        """
        return sum(
            one.report.working for one in self._replicas.values() if now - one.heard <= SILENT_S and one.report.address
        )

    def edges_of(self, name: str, now: float) -> tuple[int, int]:
        """Number of edges assigned to a replica, and how many of them have an answer in progress."""
        replica = self._replicas[name]
        return len(replica.edges), sum(replica.count(now))

    @property
    def edges(self) -> int:
        """Number of known edges."""
        return len(self._edges)

    def settled(self, now: float) -> bool:
        """Whether all replicas from before a restart have reported, or have had the time to."""
        heard = sum(bool(one.report.node) for one in self._replicas.values())
        return now - self._began >= SETTLE_S or heard >= self._expected

    def answer(self, who: bytes, owner: bytes, ask: Ask, rank: int, now: float) -> Take | Nobody:
        """Assign a replica to an edge. who: the edge, including its key; owner: its key, or its connection without
        keys. rank: of its class, 0 comes first.
        """
        self.asks += 1
        self._know(who, owner)
        ready = self._usable(now)
        wanted = ask.same or self._current(ready.values())
        of_kind = {
            address: one
            for address, one in ready.items()
            if one.report.identity is not None and one.report.identity.digest == wanted
        }
        if ask.at and ask.at not in of_kind and ask.at not in ask.avoid and not self.settled(now):
            return Take(ask.number, ask.at, wanted, list(of_kind)[:MOST_OTHERS])
        candidates = [self._candidate(one, who, ask, rank, now) for one in of_kind.values()]
        best = choose(candidates, ask.at, ask.avoid)
        if not best:
            self.nobody += 1
            if ask.same and ready:
                text = "the model that began this answer is no longer served: ask again from the beginning"
                return Nobody(ask.number, NOBODY_SAME, text)
            return Nobody(ask.number, NOBODY_READY, f"none of its {len(self._replicas)} replicas is ready: try again")
        self.moves += bool(ask.at) and best[0] != ask.at
        self._assign(who, of_kind[best[0]], ask, rank, now)
        return Take(ask.number, best[0], wanted, best[1 : MOST_OTHERS + 1])

    def _usable(self, now: float) -> dict[str, _Replica]:
        """Replicas to which edges can be sent, by address: the ready ones; if there are none, those with late reports.

        On an overloaded machine reports are seconds late while verifiers still serve. If a replica is really gone, the
        edge notices soon and asks for another.
        """
        served = [(self.state(name, now), one) for name, one in self._replicas.items() if one.report.address]
        ready = {one.report.address: one for state, one in served if state == "ready"}
        late = {one.report.address: one for state, one in served if state in ("starting", "failed")}
        return ready or {address: one for address, one in late.items() if not self.left_out(one.report)}

    def rest(self, who: bytes) -> None:
        """An edge no longer has an answer in progress."""
        replica = self._replicas.get(self._edges.get(who, ""))
        if replica is not None:
            replica.leaves(who)

    def _current(self, ready: Iterable[_Replica]) -> bytes:
        """The identity digest of the newest generation that serves."""
        newest = max(ready, key=lambda one: one.report.generation, default=None)
        identity = None if newest is None else newest.report.identity
        return b"" if identity is None else identity.digest

    def _candidate(self, replica: _Replica, who: bytes, ask: Ask, rank: int, now: float) -> ReplicaCandidate:
        active = replica.count(now)
        for place, edges in enumerate(replica.active):
            active[place] -= who in edges
        known = replica.marks.get(_scope_of(who), ())
        familiar = sum(mark in known for mark in ask.marks)
        assigned = len(replica.edges) - (who in replica.edges)
        return ReplicaCandidate(replica.report.address, sum(active[: rank + 1]), sum(active), assigned, familiar)

    def _assign(self, who: bytes, replica: _Replica, ask: Ask, rank: int, now: float) -> None:
        before = self._replicas.get(self._edges[who])
        if before is not None:
            before.leaves(who)
            before.edges.discard(who)
        self._edges[who] = replica.report.name
        replica.edges.add(who)
        if ask.active:
            replica.active[rank][who] = now
        if ask.marks:
            replica.remember(_scope_of(who), ask.marks)

    def _know(self, who: bytes, owner: bytes) -> None:
        self._edges.setdefault(who, "")
        self._edges.move_to_end(who)
        before = self._owner_of.get(who)
        if before is not None and before != owner:
            self._disown(who)
        mine = self._owned.setdefault(owner, OrderedDict())
        mine[who] = None
        mine.move_to_end(who)
        self._owner_of[who] = owner
        if len(mine) > MOST_OF_OWNER:
            self._forget_edge(next(iter(mine)))
        if len(self._edges) > MOST_EDGES:
            greatest = max(self._owned, key=lambda each: len(self._owned[each]))
            self._forget_edge(next(iter(self._owned[greatest])))

    def _forget_edge(self, who: bytes) -> None:
        self._disown(who)
        if (replica := self._replicas.get(self._edges.pop(who, ""))) is not None:
            replica.leaves(who)
            replica.edges.discard(who)

    def _disown(self, who: bytes) -> None:
        owner = self._owner_of.pop(who)
        del self._owned[owner][who]
        if not self._owned[owner]:
            del self._owned[owner]
