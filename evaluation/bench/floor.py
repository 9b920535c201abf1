"""The floor of an answer: the time that its forwards and link delays take by themselves.

*Busy* intervals are read from the answer's timeline: every edge and cloud span as measured (a forward with the picking
of its tokens), and every uplink and downlink span shortened to what the link itself must take: half the round trip plus
the message's bytes over the bandwidth; 0 where no link is emulated. The floor is the length of their UNION:
things that ran one after the other add up, things that overlapped count once. Wall time beyond it was spent on
messages, queues, scheduling and hand-overs, jitter and retransmissions.

`overhead_over_floor` = wall time / floor, 1.0 being perfect. For a synchronous round the floor is exactly
drafting + RTT + verification. A method that works ahead is charged for the time in which anything was in progress,
useful or not: wasted work that nobody waited for does not count, wasted work that held things up does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from evaluation.bench.records import RoundRecord
from evaluation.trace import Span
from specdec.link.shaping import Direction, LinkProfile

Interval = tuple[float, float]


def union_length(intervals: Iterable[Interval]) -> float:
    """Length of the union of intervals."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(intervals):
        if end > reached:
            total += end - max(start, reached)
            reached = end
    return total


def one_way_ms(size: int, link: LinkProfile) -> float:
    """What an idle link takes for one message of `size` bytes: no jitter, no loss, no queue."""
    clean = LinkProfile(rtt_ms=link.rtt_ms, bandwidth_mbps=link.bandwidth_mbps)
    return Direction(clean, seed=0).arrival(0.0, size) * 1e3


def busy_intervals(
    timeline: Sequence[Span], rounds: Sequence[RoundRecord], prompt_bytes: int, link: LinkProfile
) -> Iterator[Interval]:
    """Edge and cloud spans as they are, link spans cut to the time the link itself must take.

    The n-th message after the prompt in a direction has the n-th round's bytes.
    """
    up = iter([prompt_bytes, *(one.uplink_bytes for one in rounds)])
    down = iter([0, *(one.downlink_bytes for one in rounds)])
    for span in timeline:
        if span.lane == "uplink":
            yield span.start_ms, min(span.end_ms, span.start_ms + one_way_ms(next(up, 0), link))
        elif span.lane == "downlink":
            yield max(span.start_ms, span.end_ms - one_way_ms(next(down, 0), link)), span.end_ms
        else:
            yield span.start_ms, span.end_ms


def floor_ms(
    timeline: Sequence[Span], rounds: Sequence[RoundRecord], prompt_bytes: int, link: LinkProfile
) -> float:
    """The floor of an answer, milliseconds (see the module's words)."""
    return union_length(busy_intervals(timeline, rounds, prompt_bytes, link))


def busy_ms(timeline: Sequence[Span], lane: str) -> float:
    """How long a lane was busy."""
    return union_length((span.start_ms, span.end_ms) for span in timeline if span.lane == lane)
