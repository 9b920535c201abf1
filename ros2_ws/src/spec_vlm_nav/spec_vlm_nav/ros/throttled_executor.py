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
A callback group for a node that is to cost little: the executor waits for as little as it can.

rclpy puts together anew, in Python and for every message, all that it waits for: with two QoS
events a topic and a client a service that is most of what an idle node costs.
"""

from __future__ import annotations

import time
from typing import Any

from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from rclpy.subscription import Subscription

EVERY_S, FOR_S = 2.0, 0.12  # longer than an executor sleeps
ANSWER_S = 5.0


class ThrottledExecutor(MutuallyExclusiveCallbackGroup):
    """
    Messages at once; QoS events and late answers once every two seconds.

    An answer that is expected is noticed at the executor's next turn.
    """

    def __init__(self) -> None:
        super().__init__()
        self._until = 0.0

    def expect(self) -> None:
        """Take note that an answer is asked for; may be called by any thread."""
        self._until = time.monotonic() + ANSWER_S

    def can_execute(self, entity: Any) -> bool:
        if not isinstance(entity, Subscription):
            now = time.monotonic()
            if now > self._until and now % EVERY_S > FOR_S:
                return False
        return super().can_execute(entity)
