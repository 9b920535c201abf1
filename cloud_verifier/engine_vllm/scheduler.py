# SPDX-License-Identifier: Apache-2.0
"""vLLM's scheduler, told from outside who goes on: with which draft, or alone. All others keep what they have and wait.

Loaded by vLLM by name; leans on fields that are not public, which `checks` looks for at start-up.
"""

from __future__ import annotations

from typing import Any

from vllm.v1.core.sched.scheduler import Scheduler

_NEVER = 1 << 60
"""A step that does not come."""


class HoldingScheduler(Scheduler):  # type: ignore[misc]
    """`offers`: by request, the draft that is judged next, empty for one token alone. Of others nothing is computed
    once they have their first token.

    rows, sessions: of the step that was scheduled last. preempted: how often a request lost its cache so far.
    """

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.offers: dict[str, list[int]] = {}
        self.rows = 0
        self.sessions = 0
        self.preempted = 0

    def schedule(self, throttle_prefills: bool = False) -> Any:
        """One step: prompts, and those with an offer."""
        for request in self.running:
            if request.is_prefill_chunk or not request.num_output_tokens:
                request.next_decode_eligible_step = 0
                continue
            draft = self.offers.get(request.request_id)
            request.next_decode_eligible_step = _NEVER if draft is None else 0
            request.spec_token_ids = list(draft or ())
        step = super().schedule(throttle_prefills)
        self.rows = step.total_num_scheduled_tokens
        self.sessions = len(step.num_scheduled_tokens)
        return step

    def update_draft_token_ids(self, draft_token_ids: Any) -> None:
        """What the worker proposes is nothing."""

    def _preempt_request(self, *arguments: Any, **more: Any) -> None:
        self.preempted += 1
        super()._preempt_request(*arguments, **more)
