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
A callback group that reduces a node's idle CPU load.

For every message rclpy rebuilds, in Python, the set of all entities to wait for. With two QoS
events per topic and one client per service, this is most of an idle node's load.
"""

from __future__ import annotations

import time
from typing import Any

from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from rclpy.subscription import Subscription

EVERY_S, FOR_S = 2.0, 0.12  # FOR_S is longer than an executor sleeps
ANSWER_S = 5.0


class ThrottledExecutor(MutuallyExclusiveCallbackGroup):
    """
    Handles messages at once, but QoS events and late answers only every EVERY_S.

    An expected answer is handled in the executor's next cycle.
    """

    def __init__(self) -> None:
        super().__init__()
        self._until = 0.0

    def expect(self) -> None:
        """Announce that an answer is expected; may be called from any thread."""
        self._until = time.monotonic() + ANSWER_S

    def can_execute(self, entity: Any) -> bool:
        if not isinstance(entity, Subscription):
            now = time.monotonic()
            if now > self._until and now % EVERY_S > FOR_S:
                return False
        return super().can_execute(entity)
