# SPDX-License-Identifier: Apache-2.0
"""The KV budget: what all caches may take together, who is admitted to it, and who gives back what they hold.

A session is admitted before anything is allocated, with all it may come to hold (its prompt and its longest answer).
Where that is too much, sessions that have nothing to do give their caches back, the longest idle first; what is asked
of them next finds the cache made anew from the prompt and the answer so far.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psutil
import torch

from cloud_verifier.engine.tasks import SessionKey
from cloud_verifier.errors import VerifierError

TREE_TOKENS = 128
"""Room for a draft's branches, beside a session's prompt and answer."""
SHARE = 0.5
"""Of the memory that is free when the verifier has loaded: the rest is for activations, pictures and messages."""


class OverBudget(Exception):
    """There is no room in the KV budget now; `message` says how much there is."""


def free_bytes(device: torch.device) -> int:
    """Memory that is free where the caches will be."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    available = int(psutil.virtual_memory().available)
    left = left_in_container()
    return available if left is None else min(available, left)


CONTROL_GROUPS = Path("/sys/fs/cgroup")
ACCOUNTS = (
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"),
)
"""Of a container, in versions 2 and 1 of control groups: limit, use, details, and which of those could be dropped."""


def left_in_container(root: Path = CONTROL_GROUPS) -> int | None:
    """What the memory limit of this container leaves; None without a limit. Beyond it the kernel kills the process."""
    for limit_file, used_file, details_file, droppable in ACCOUNTS:
        try:
            limit, used = int((root / limit_file).read_text()), int((root / used_file).read_text())
            details = dict(line.split() for line in (root / details_file).read_text().splitlines())
        except (OSError, ValueError):  # no such file, or "max"
            continue
        if limit < psutil.virtual_memory().total:
            return max(0, limit - used + int(details.get(droppable, 0)))
    return None


def check_room_for(model: str, left: int | None) -> None:
    """Raise VerifierError where a model in a folder cannot fit into what the container's limit leaves.

    Its weights alone are counted: the kernel would kill the process in the middle of loading, without a word.
    """
    weights = sum(file.stat().st_size for file in Path(model).glob("*.safetensors"))
    if left is not None and weights > left:
        raise VerifierError(
            f"{model} has {weights / 1e6:.0f} MB of weights, and the memory limit of this container leaves "
            f"{left / 1e6:.0f} MB: raise the limit, or serve a smaller model"
        )


class KvBudget:
    """Bytes admitted, by session; knows no caches."""

    def __init__(
        self, total: int, bytes_a_token: int, leave: Callable[[int], None] = lambda left: None
    ) -> None:
        """leave: called with how many bytes sessions leave, whenever that changes."""
        self.total = total
        self.bytes_a_token = bytes_a_token
        self.admitted: dict[SessionKey, int] = {}
        self.evictions = 0
        self._leave = leave
        leave(total)

    @property
    def used(self) -> int:
        """Bytes admitted in all."""
        return sum(self.admitted.values())

    def gauges(self) -> dict[str, float]:
        """For the metrics; from any thread."""
        return {
            "kv_admitted_bytes": self.used,
            "kv_budget_bytes": self.total,
            "kv_session_max_bytes": max(self.admitted.copy().values(), default=0),
        }

    def needed(self, tokens: int, others: int = 0) -> int:
        """Bytes of this many tokens and of what is kept beside them. Raises OverBudget for more than there ever is."""
        needed = (tokens + TREE_TOKENS) * self.bytes_a_token + others
        if needed > self.total:
            raise OverBudget(
                f"a prompt and answer of {tokens} tokens take {needed / 2**20:.1f} MB of cache and the verifier has "
                f"{self.total / 2**20:.1f} MB: ask for less, or give it more with --kv-gb"
            )
        return needed

    def exhausted(self) -> OverBudget:
        """The error of a session for which there is no room now."""
        return OverBudget(
            f"all {self.total / 2**20:.0f} MB of cache are in use: try again later, "
            "or give the verifier more with --kv-gb"
        )

    def fits(self, needed: int) -> bool:
        """Whether there is room for this many bytes more."""
        return self.used + needed <= self.total

    def take(self, key: SessionKey, needed: int) -> None:
        """Admit a session with this many bytes."""
        self.admitted[key] = needed
        self._leave(self.total - self.used)

    def give_back(self, key: SessionKey) -> None:
        """A session is over, or was evicted."""
        if self.admitted.pop(key, None) is not None:
            self._leave(self.total - self.used)
