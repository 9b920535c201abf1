# SPDX-License-Identifier: Apache-2.0
"""The floor of an answer: the least time it can take, because forwards and link delays depend on one another.

Each verdict ends an *exchange*: the edge sent a draft (in one message or several), the target verified it, and the
verdict came back. Between one verdict and the next, the floor counts the time in which a part of the LATER exchange was
in progress. The parts are drafting until the last message was sent, the link's own delay for each message (half the
round trip plus its bytes over the bandwidth; 0 if no link is emulated), the forward, and the link's delay for the
verdict. Overlapping parts count once. Time before the earlier verdict was hidden and does not count.

`overhead_over_floor` = wall time / floor; 1.0 is perfect. Wall time beyond the floor was spent on messages, queues,
scheduling and hand-overs, jitter and retransmissions. For a synchronous round the floor is exactly drafting + RTT +
verification. Drafting ahead while waiting for a verdict never counts, useful or not: it can neither fill a gap nor
excuse one. It helps if the next exchange then needs less drafting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from specdec.link.shaping import Direction, LinkProfile
from specnav.results.trace import Span

Interval = tuple[float, float]
REFUTED = "refuted draft"
"""Name of a message that gets no verdict (see specdec.edge.recorder)."""


class Exchange(NamedTuple):
    """The spans that led to one message of verified tokens. ups: empty if the cloud needed no message."""

    ups: Sequence[Span]
    work: Span
    down: Span


def exchanges(timeline: Sequence[Span]) -> Iterator[Exchange]:
    """The exchanges of a recorded timeline: messages up, the forward, the message down."""
    ups: list[Span] = []
    work: Span | None = None
    for span in timeline:
        if span.lane == "uplink" and span.name != REFUTED:
            ups.append(span)
        elif span.lane == "cloud":
            work = span
        elif span.lane == "downlink" and work is not None:
            yield Exchange(ups, work, span)
            ups, work = [], None


def union_length(intervals: Iterable[Interval]) -> float:
    """Length of the union of intervals; an interval that ends before it begins is ignored."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(intervals):
        if end > max(start, reached):
            total += end - max(start, reached)
            reached = end
    return total


def one_way_ms(size: int, link: LinkProfile) -> float:
    """Time of one message of `size` bytes on an idle link without jitter, loss, queue or outage."""
    clean = LinkProfile(rtt_ms=link.rtt_ms, bandwidth_mbps=link.bandwidth_mbps)
    return Direction(clean, seed=0).arrival(0.0, size) * 1e3


def needed_intervals(
    one: Exchange, edge: Sequence[Span], since_ms: float, link: LinkProfile
) -> Iterator[Interval]:
    """The parts of an exchange, and of the edge's work for it, after the previous verdict at `since_ms`."""

    def clipped(start: float, end: float) -> Interval:
        return max(start, since_ms), end

    if one.ups:
        left_ms = max(up.start_ms for up in one.ups)
        for span in edge:
            yield clipped(span.start_ms, min(span.end_ms, left_ms))
    for up in one.ups:
        yield clipped(up.start_ms, min(up.end_ms, up.start_ms + one_way_ms(up.size, link)))
    yield clipped(one.work.start_ms, one.work.end_ms)
    down = one.down
    yield clipped(max(down.start_ms, down.end_ms - one_way_ms(down.size, link)), down.end_ms)


def floor_ms(timeline: Sequence[Span], link: LinkProfile) -> float:
    """The floor of an answer in milliseconds, as the module's docstring defines it."""
    edge = [span for span in timeline if span.lane == "edge"]
    total = since = 0.0
    for one in exchanges(timeline):
        total += union_length(needed_intervals(one, edge, since, link))
        since = one.down.end_ms
    return total


def busy_ms(timeline: Sequence[Span], lane: str) -> float:
    """How long a lane was in use, milliseconds."""
    return union_length((span.start_ms, span.end_ms) for span in timeline if span.lane == lane)
