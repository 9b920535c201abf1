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

"""An unverified decision of the draft model, kept until the target confirms or refutes it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from spec_vlm_nav.common.codes import Verification
from spec_vlm_nav.deciding.parts.interfaces import DecisionReport
from spec_vlm_nav.exploring.policy import ExplorationPolicy, Memory
from spec_vlm_nav.language.actions import Action, reasoning_of
from spec_vlm_nav.model.worker import Reconciled


@dataclass(frozen=True)
class OpenDecision:
    """
    An unverified decision with the data to confirm it or roll it back.

    action: the draft model's action. policy, policy_before: the exploration policy that was used,
    and its memory before this decision. at: time of the decision, s.
    """

    job: int
    action: Action
    sequence: int
    report: DecisionReport
    policy: ExplorationPolicy
    policy_before: Memory
    at: float

    def told(self, verdict: Verification, event: Reconciled) -> DecisionReport:
        """Return the decision's report, updated with the target's answer, to publish again."""
        return replace(
            self.report,
            verification=verdict,
            answer=event.answer,
            reasoning=reasoning_of(event.answer.text),
            model_action=event.action.sentence if event.action is not None else "",
        )


class Unverified:
    """The open unverified decision, if there is one."""

    def __init__(self) -> None:
        self.decision: OpenDecision | None = None

    def take(self, job: int) -> OpenDecision | None:
        """Return and close the open decision if it belongs to this job."""
        if self.decision is None or self.decision.job != job:
            return None
        decision, self.decision = self.decision, None
        return decision

    def close(self) -> None:
        """Discard the open decision: the target will not be asked."""
        self.decision = None

    @property
    def says_stop(self) -> bool:
        """
        Whether the open decision is the draft model's STOP.

        Only a confirmed STOP ends the instruction.
        """
        return self.decision is not None and self.decision.action.is_stop

    def stop_waits_for(self, now: float) -> float:
        """Return how long an unverified STOP has waited for the target, s; 0 if there is none."""
        if self.decision is None or not self.says_stop:
            return 0.0
        return now - self.decision.at
