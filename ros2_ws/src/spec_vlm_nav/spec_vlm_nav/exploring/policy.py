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
The exploration policy: a named policy that may replace a memoryless model's action.

Every motion that is not exactly the model's own is marked EXPLORATION, with the rule that made it.
A policy must never turn a STOP into a motion.
"""

from __future__ import annotations

from spec_vlm_nav.common.codes import ActionSource
from spec_vlm_nav.common.errors import ParameterError
from spec_vlm_nav.exploring.frontier_search import frontier_search, FrontierState
from spec_vlm_nav.exploring.moves import Move, Observation
from spec_vlm_nav.language.prompting import FRONTIER_SEARCH, NONE, POLICIES

Memory = FrontierState
"""Memory of a policy; immutable, so that a rolled-back decision leaves no trace."""


class ExplorationPolicy:
    """A policy by name, with its memory; one per robot, `reset` at every new instruction."""

    def __init__(self, name: str = FRONTIER_SEARCH) -> None:
        if name not in POLICIES:
            raise ParameterError(f"exploration policy must be one of {', '.join(POLICIES)}, got '{name}'")
        self.name = name
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.state: Memory = FrontierState()

    @property
    def looks(self) -> bool:
        """Whether the policy uses the camera picture in addition to the model's answer."""
        return self.name == FRONTIER_SEARCH

    def decide(self, seen: Observation) -> Move:
        """Return the move for this decision, and update the memory."""
        if self.name == NONE:
            return Move(seen.proposed, ActionSource.MODEL)
        self.state, move = frontier_search(self.state, seen)
        return move
