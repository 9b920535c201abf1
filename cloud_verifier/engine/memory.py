# SPDX-License-Identifier: Apache-2.0
"""The KV budget: the memory for all caches together, which sessions are admitted, and which are evicted.

A session is admitted before anything is allocated, with all it may come to hold (its prompt and its longest answer).
If that does not fit, idle sessions give up their caches, the longest idle first. The next request of an evicted session
computes its cache again from the prompt and the answer so far.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psutil
import torch

from cloud_verifier.engine.tasks import SessionKey
from cloud_verifier.errors import VerifierError

TREE_TOKENS = 128
"""Room for a draft's branches, in addition to a session's prompt and answer."""
SHARE = 0.5
"""Share of the memory that is free after loading; the rest is for activations, pictures and messages."""


class OverBudget(Exception):
    """The KV budget has no room; the message says how much there is."""


class OverWholeBudget(OverBudget):
    """More than the whole KV budget is needed: trying again will not help."""


def free_bytes(device: torch.device) -> int:
    """Free memory on the device that will hold the caches."""
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
"""Files of control groups v2 and v1: limit, usage, statistics, and the statistic that counts droppable pages."""


def left_in_container(root: Path = CONTROL_GROUPS) -> int | None:
    """Memory that the container's limit leaves; None without a limit. Above the limit the kernel kills the process."""
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
    """Raise VerifierError if a model folder cannot fit into the memory that the container's limit leaves.

    Only the weights are counted. Without this check the kernel would kill the process silently while it loads.
    """
    weights = sum(file.stat().st_size for file in Path(model).glob("*.safetensors"))
    if left is not None and weights > left:
        raise VerifierError(
            f"{model} has {weights / 1e6:.0f} MB of weights, and the memory limit of this container leaves "
            f"{left / 1e6:.0f} MB: raise the limit, or serve a smaller model"
        )


class KvBudget:
    """Admitted bytes by session; holds no caches itself."""

    def __init__(
        self, total: int, bytes_a_token: int, leave: Callable[[int], None] = lambda left: None
    ) -> None:
        """leave: called with the bytes that sessions leave free, whenever that changes."""
        self.total = total
        self.bytes_a_token = bytes_a_token
        self.admitted: dict[SessionKey, int] = {}
        self.evictions = 0
        self._leave = leave
        leave(total)

    @property
    def used(self) -> int:
        """Bytes admitted to all sessions together."""
        return sum(self.admitted.values())

    def gauges(self) -> dict[str, float]:
        """For the metrics; from any thread."""
        return {
            "kv_admitted_bytes": self.used,
            "kv_budget_bytes": self.total,
            "kv_session_max_bytes": max(self.admitted.copy().values(), default=0),
        }

    def needed(self, tokens: int, others: int = 0) -> int:
        """Bytes for this many tokens plus `others`. Raises OverWholeBudget if that exceeds the whole budget."""
        needed = (tokens + TREE_TOKENS) * self.bytes_a_token + others
        if needed > self.total:
            raise OverWholeBudget(
                f"a prompt and answer of {tokens} tokens take {needed / 2**20:.1f} MB of cache and the verifier has "
                f"{self.total / 2**20:.1f} MB: ask for less, or give it more with --kv-gb"
            )
        return needed

    def exhausted(self) -> OverBudget:
        """The error for a session that finds no room now."""
        return OverBudget(
            f"all {self.total / 2**20:.0f} MB of cache are in use: try again later, "
            "or give the verifier more with --kv-gb"
        )

    def fits(self, needed: int) -> bool:
        """Whether this many more bytes fit."""
        return self.used + needed <= self.total

    def take(self, key: SessionKey, needed: int) -> None:
        """Admit a session with this many bytes."""
        self.admitted[key] = needed
        self._leave(self.total - self.used)

    def give_back(self, key: SessionKey) -> None:
        """Release the bytes of a session that ended or was evicted."""
        if self.admitted.pop(key, None) is not None:
            self._leave(self.total - self.used)
