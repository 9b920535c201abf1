# SPDX-License-Identifier: Apache-2.0
"""What vLLM takes for a draft model: it proposes nothing, and so turns on the path that judges drafts. They come from
the edges, through the scheduler.
"""

from __future__ import annotations

from typing import Any


class NoProposer:
    """Named in vLLM's `speculative_config`."""

    def __init__(self, vllm_config: Any) -> None:
        """vllm_config: not looked at."""

    def load_model(self, model: Any) -> None:
        """There is none to load."""

    def propose(self, sampled_token_ids: list[list[int]], *others: Any, **more: Any) -> list[list[int]]:
        """Nothing, for each request."""
        return [[] for _ in sampled_token_ids]
