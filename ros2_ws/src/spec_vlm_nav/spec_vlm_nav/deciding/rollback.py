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

"""A decision that the draft model took alone, kept until the target has spoken."""

from __future__ import annotations

from dataclasses import dataclass, replace

from spec_vlm_nav.deciding.decision import Report, Verification
from spec_vlm_nav.language.actions import Action, reasoning_of
from spec_vlm_nav.language.exploration import SearchState
from spec_vlm_nav.model.worker import Reconciled


@dataclass(frozen=True)
class OpenDecision:
    """
    What has to be known to confirm it, or to take it back. at: when it was taken, s.

    action: the draft model's own. policy_before: the exploration policy's memory before this
    decision.
    """

    job: int
    action: Action
    sequence: int
    report: Report
    policy_before: SearchState
    at: float

    def told(self, verdict: Verification, event: Reconciled) -> Report:
        """Return the report that is sent again, with the target's answer."""
        return replace(
            self.report,
            verification=verdict,
            answer=event.answer,
            reasoning=reasoning_of(event.answer.text),
            model_action=event.action.sentence if event.action is not None else '',
        )
