# SPDX-License-Identifier: Apache-2.0
"""vLLM's scheduler with outside control: we say which requests go on, and with which draft. The others are held.

vLLM loads it by name. It depends on private fields, which `checks` looks for at start-up.
"""

from __future__ import annotations

from typing import Any

from vllm.v1.core.sched.scheduler import Scheduler

_NEVER = 1 << 60
"""A step that is never reached."""


class HoldingScheduler(Scheduler):  # type: ignore[misc]
    """`offers` maps a request to the draft to verify next; an empty draft yields one plain token. Requests without an
    offer are held once they have their first token.

    rows, sessions: of the last scheduled step. preempted: how often a request has lost its cache.
    """

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.offers: dict[str, list[int]] = {}
        self.rows = 0
        self.sessions = 0
        self.preempted = 0

    def schedule(self, throttle_prefills: bool = False) -> Any:
        """Schedule one step: prefills, and the requests with an offer."""
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
        """Ignored: the worker proposes nothing."""

    def _preempt_request(self, *arguments: Any, **more: Any) -> None:
        self.preempted += 1
        super()._preempt_request(*arguments, **more)
