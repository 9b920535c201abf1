# SPDX-License-Identifier: Apache-2.0
"""Stands in for a draft model in vLLM. It proposes nothing, but its presence turns on the code that verifies drafts.
The drafts come from the edges, through the scheduler.
"""

from __future__ import annotations

from typing import Any


class NoProposer:
    """Named in vLLM's `speculative_config`."""

    def __init__(self, vllm_config: Any) -> None:
        """vllm_config: ignored."""

    def load_model(self, model: Any) -> None:
        """Does nothing: there is no model."""

    def propose(self, sampled_token_ids: list[list[int]], *others: Any, **more: Any) -> list[list[int]]:
        """An empty draft for each request."""
        return [[] for _ in sampled_token_ids]
