# SPDX-License-Identifier: Apache-2.0
"""Runs through a bag's frames: every method in turn on each frame, or one pass per method at the bag's speed.

Clock and sleep are parameters, so that tests need not wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from spec_vlm_nav.camera.images import RawImage
from specnav.bags.records import DecisionRecord
from specnav.replay.deciding import History, MethodDecider, failed
from specnav.replay.plan import ReplayTask

Picture = bytes | RawImage
Pictures = Callable[[], Iterator[tuple[ReplayTask, Picture | None]]]
Keep = Callable[[DecisionRecord, bytes | None], None]
NO_PICTURE = "the camera message cannot be read"


@dataclass
class PassResult:
    """Result of a pass.

    Attributes:
        busy_s: From the first decision to the last, s.
        decisions: Decisions made without an error.
        unusable: Numbers of the frames whose image cannot be used.
        skipped: Frames skipped for lack of time, by method.
    """

    busy_s: float = 0.0
    decisions: int = 0
    unusable: set[int] = field(default_factory=set)
    skipped: dict[str, int] = field(default_factory=dict)

    @property
    def frames_per_s(self) -> float | None:
        """All decisions over the time they took, reading the bag included."""
        return self.decisions / self.busy_s if self.busy_s > 0 and self.decisions else None


def by_frames(
    pictures: Pictures,
    deciders: Sequence[MethodDecider],
    keep: Keep,
    passage: PassResult,
    clock: Callable[[], float] = time.perf_counter,
) -> None:
    """Decide every frame with every method in turn, as fast as possible. The methods take turns at going first.

    Args:
        pictures: Yields every task with its image, None where it cannot be read.
        deciders: The methods.
        keep: Called with every decision and its image.
        passage: Is updated.
        clock: Returns seconds.
    """
    history = History()
    for place, (task, picture) in enumerate(pictures()):
        began = clock()
        history.begin(task)
        jpeg: bytes | None = None
        first = place % len(deciders)
        for decider in (*deciders[first:], *deciders[:first]):
            if picture is None:
                record = failed(task, decider.method, NO_PICTURE)
            else:
                record, jpeg = decider.decide(task, picture, history)
            _count(record, jpeg, passage)
            keep(record, jpeg)
        if jpeg is not None:
            history.add(task, jpeg)
        passage.busy_s += clock() - began


def at_bag_speed(
    pictures: Pictures,
    times_ns: Mapping[int, int],
    deciders: Sequence[MethodDecider],
    keep: Keep,
    passage: PassResult,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Decide at the bag's speed: whenever a method is free, it decides the newest frame and skips older ones.

    Args:
        pictures: Yields every task with its image, None where it cannot be read.
        times_ns: Times of the frames by number.
        deciders: The methods; each makes a pass of its own.
        keep: Called with every decision and its image.
        passage: Is updated.
        clock: Returns seconds.
        sleep: Waits for a number of seconds.
    """
    zero_ns = min(times_ns.values(), default=0)
    for decider in deciders:
        history = History()
        coming = pictures()
        began = clock()
        skipped = 0
        upcoming = next(coming, None)
        while upcoming is not None:
            task, picture = upcoming
            due = began + (times_ns[task.frame.number] - zero_ns) / 1e9
            if (early := due - clock()) > 0:
                sleep(early)
            upcoming = next(coming, None)
            if upcoming is not None and began + (times_ns[upcoming[0].frame.number] - zero_ns) / 1e9 <= clock():
                skipped += 1
                continue
            history.begin(task)
            if picture is None:
                record, jpeg = failed(task, decider.method, NO_PICTURE), None
            else:
                started = clock()
                record, jpeg = decider.decide(task, picture, history)
                if record.decision_ms is not None:
                    age_ms = (started - due) * 1e3 + record.decision_ms
                    record = msgspec.structs.replace(record, age_ms=age_ms)
            _count(record, jpeg, passage)
            keep(record, jpeg)
            if jpeg is not None:
                history.add(task, jpeg)
        passage.skipped[decider.method] = skipped
        passage.busy_s += clock() - began


def _count(record: DecisionRecord, jpeg: bytes | None, passage: PassResult) -> None:
    passage.decisions += not record.error
    if jpeg is None:
        passage.unusable.add(record.frame)


def warm_up(pictures: Pictures, deciders: Sequence[MethodDecider]) -> None:
    """Let every method decide one frame, the same for all, without counting it: the first forwards are slow."""
    for task, picture in pictures():
        if picture is not None:
            blank = replace(task, reference="")
            for decider in deciders:
                decider.decide(blank, picture, History())
            return
