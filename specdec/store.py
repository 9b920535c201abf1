# SPDX-License-Identifier: Apache-2.0
"""A byte-bounded LRU cache of values that several sessions share."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any


class SharedStore:
    """Least-recently-used cache of at most `most_bytes`. Thread-safe."""

    def __init__(self, most_bytes: int) -> None:
        """most_bytes: 0 keeps nothing."""
        self.most_bytes = most_bytes
        self.bytes = 0
        self._room = most_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, key: Hashable) -> bool:
        """Whether the key is cached; does not count as a use."""
        return key in self._kept

    def get(self, key: Hashable) -> Any:
        """The value, or None."""
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found[0]

    def put(self, key: Hashable, value: Any, size: int) -> None:
        """Cache a value of `size` bytes, unless it exceeds the whole bound or the key is cached already."""
        with self._lock:
            if key in self._kept or size > self._room:
                return
            self._kept[key] = value, size
            self.bytes += size
            self._shrink()

    def leave(self, room: int) -> None:
        """Set the bound to `room` bytes, or to most_bytes if that is less, and evict accordingly."""
        with self._lock:
            self._room = max(0, min(room, self.most_bytes))
            self._shrink()

    def _shrink(self) -> None:
        while self.bytes > self._room:
            _, (_, size) = self._kept.popitem(last=False)
            self.bytes -= size
