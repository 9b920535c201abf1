# Copyright 2026 spec_vlm_nav maintainers
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

"""
The last seconds of every topic, bounded in time and memory.

If memory is short, pictures are thinned out first: the older, the sparser. Pictures of decisions
stay longest. Times are receive times of a steady clock, s.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
import struct
import threading
from typing import NamedTuple

COST = 160  # memory overhead of an entry, bytes
LARGEST = 1 / 8  # largest share of the memory for one message
SHORTEN_TO = 0.9  # share of the memory in use after a shortening
LASTING_BYTES = 1 << 16
_SPARSEST = 8.0
_STAMP = {1: struct.Struct("<iI"), 0: struct.Struct(">iI")}

Stamp = tuple[int, int]


class Entry(NamedTuple):
    """One message: receive time (steady clock, s), topic, and its bytes (CDR)."""

    at: float
    topic: str
    data: bytes

    @property
    def size(self) -> int:
        """Return the entry's memory, bytes."""
        return len(self.data) + COST


@dataclass(frozen=True)
class RingContents:
    """
    A snapshot of the ring.

    lasting: the newest messages of topics with lasting state, if they are older than the ring.
    """

    entries: tuple[Entry, ...]
    lasting: tuple[Entry, ...] = ()

    @property
    def size(self) -> int:
        """Return the bytes of all messages."""
        return sum(len(entry.data) for entry in (*self.lasting, *self.entries))


def stamp_of(data: bytes) -> Stamp:
    """Return the header stamp of a message that begins with a header; (0, 0) if it is too short."""
    if len(data) < 12:
        return 0, 0
    seconds, nanoseconds = _STAMP[data[1] & 1].unpack_from(data, 4)
    return seconds, nanoseconds


def thin(pictures: Sequence[Entry], now: float, budget: int, decided: Collection[Stamp]) -> list[Entry]:
    """
    Return the pictures to keep within `budget` bytes, oldest first.

    The gap between two pictures of a topic grows with their age, so that the moments before a fault
    are covered best. Pictures in `decided` are dropped last.
    """
    fixed = {i for i, entry in enumerate(pictures) if stamp_of(entry.data) in decided}
    share = 0.001
    kept = list(pictures)
    while sum(entry.size for entry in kept) > budget and share < _SPARSEST:
        before: dict[str, float] = {}
        kept = []
        for i, entry in enumerate(pictures):
            wide = entry.at - before.get(entry.topic, -1e18) >= share * (now - entry.at)
            if wide or i in fixed:
                before[entry.topic] = entry.at
                kept.append(entry)
        share *= 1.5
    size, first = 0, len(kept)
    while first and size + kept[first - 1].size <= budget:
        first -= 1
        size += kept[first].size
    return kept[first:]


class _EntryBuffer:
    """Entries in order of arrival, with their total size in bytes."""

    def __init__(self) -> None:
        self.entries: deque[Entry] = deque()
        self.size = 0

    def put(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.size += entry.size

    def drop_while(self, condition: Callable[[Entry], bool]) -> Iterable[Entry]:
        while self.entries and condition(self.entries[0]):
            entry = self.entries.popleft()
            self.size -= entry.size
            yield entry

    def replace(self, entries: Iterable[Entry]) -> None:
        self.entries = deque(entries)
        self.size = sum(entry.size for entry in self.entries)


class Ring:
    """
    The newest entries of all topics; may be filled from several threads.

    pictures: topics that are thinned out when memory is short. lasting: topics whose newest message
    is kept although it is old.
    """

    def __init__(
        self,
        keep_s: float,
        max_bytes: int,
        pictures: Collection[str] = (),
        lasting: Collection[str] = (),
    ) -> None:
        self.keep_s, self.max_bytes = keep_s, max_bytes
        self._picture_topics, self._lasting_topics = frozenset(pictures), frozenset(lasting)
        self._pictures, self._others = _EntryBuffer(), _EntryBuffer()
        self._lasting: dict[str, Entry] = {}
        self._decided: dict[Stamp, float] = {}
        self._lock = threading.Lock()
        self.dropped_pictures = 0
        self.oversized = 0

    def add(self, at: float, topic: str, data: bytes) -> None:
        """Add a message, and drop entries that are too old or exceed the memory."""
        entry = Entry(at, topic, data)
        with self._lock:
            if entry.size > LARGEST * self.max_bytes:  # it would displace everything else
                self.oversized += 1
                return
            (self._pictures if topic in self._picture_topics else self._others).put(entry)
            self._forget(at)

    def decided_from(self, stamp: Stamp, now: float) -> None:
        """Record that a decision was made from the picture with this header stamp."""
        if stamp != (0, 0):  # (0, 0): a camera without stamps
            with self._lock:
                self._decided.pop(stamp, None)
                self._decided[stamp] = now

    def contents(self, now: float) -> RingContents:
        """Return a snapshot, sorted by receive time."""
        with self._lock:
            self._forget(now)
            entries = (*self._pictures.entries, *self._others.entries)
            lasting = tuple(self._lasting.values())
        # A picture that was encoded here is added later than it was received.
        return RingContents(tuple(sorted(entries, key=_by_time)), tuple(sorted(lasting, key=_by_time)))

    @property
    def size(self) -> int:
        """Return the memory taken, bytes."""
        return self._pictures.size + self._others.size

    @property
    def count(self) -> int:
        """Return the number of entries."""
        return len(self._pictures.entries) + len(self._others.entries)

    def span_s(self, now: float) -> float:
        """Return the age of the oldest entry, s."""
        with self._lock:
            firsts = [s.entries[0].at for s in (self._pictures, self._others) if s.entries]
        return now - min(firsts) if firsts else 0.0

    def _forget(self, now: float) -> None:
        oldest = now - self.keep_s
        for _ in self._pictures.drop_while(lambda entry: entry.at < oldest):
            pass
        self._retire(self._others.drop_while(lambda entry: entry.at < oldest))
        while self._decided and next(iter(self._decided.values())) < oldest:
            del self._decided[next(iter(self._decided))]
        if self.size > self.max_bytes:
            self._shorten(now)

    def _shorten(self, now: float) -> None:
        """Reduce the memory to SHORTEN_TO: thin out pictures, then drop the oldest other entries."""
        target = int(SHORTEN_TO * self.max_bytes)
        before = len(self._pictures.entries)
        budget = max(0, target - self._others.size)
        self._pictures.replace(thin(self._pictures.entries, now, budget, self._decided))
        self.dropped_pictures += before - len(self._pictures.entries)
        self._retire(self._others.drop_while(lambda entry: self._others.size > target))

    def _retire(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if entry.topic in self._lasting_topics and len(entry.data) <= LASTING_BYTES:
                self._lasting[entry.topic] = entry


def _by_time(entry: Entry) -> float:
    return entry.at
