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
Sparing use of the executor: in Python, 500 callbacks a second occupy a CPU core.

A polled subscription is for messages that arrive much faster than they are needed: the middleware
keeps the newest ones and wakes no thread. A callback group reduces a node's idle load.
"""

from __future__ import annotations

import time
from typing import Any

from rclpy.callback_groups import CallbackGroup, MutuallyExclusiveCallbackGroup
from rclpy.node import Node
from rclpy.serialization import deserialize_message
from rclpy.subscription import Subscription
from spec_vlm_nav.common.foreign_words import one_line
from spec_vlm_nav.common.parameters import Value
from spec_vlm_nav.ros.basics import qos

EVERY_S, FOR_S = 2.0, 0.12  # FOR_S is longer than an executor sleeps
ANSWER_S = 5.0


class _Never(CallbackGroup):
    """Keeps its subscriptions out of the executor."""

    def can_execute(self, entity: Any) -> bool:
        return False

    def beginning_execution(self, entity: Any) -> bool:
        return False

    def ending_execution(self, entity: Any) -> None:
        return None


class PolledTopic:
    """Keeps the newest messages of a topic until they are taken; those with invalid bytes are dropped."""

    def __init__(
        self, node: Node, kind: Any, topic: str, reliability: Value = "reliable", depth: int = 1
    ) -> None:
        """depth: how many messages are kept for `take_all`."""
        self._node, self._kind, self._topic, self._depth = node, kind, topic, depth
        self._group = _Never()
        self._subscription = node.create_subscription(
            kind,
            topic,
            lambda message: None,
            qos(reliability, depth),
            callback_group=self._group,
            raw=True,
        )

    def take(self) -> Any:
        """Return the oldest message not taken before (with a depth of 1: the newest), else None."""
        taken = self._take()
        return None if taken is None else self._read(taken[0])

    def take_all(self) -> list[tuple[float, Any]]:
        """Return the messages not taken before, oldest first, with receive times (Unix, s)."""
        found: list[tuple[float, Any]] = []
        for _ in range(self._depth):
            if (taken := self._take()) is None:
                break
            # A middleware without receive times reports 0.
            at = taken[1]["received_timestamp"] * 1e-9 or time.time()
            if (message := self._read(taken[0])) is not None:
                found.append((at, message))
        return found

    def _read(self, data: bytes) -> Any:
        try:
            return deserialize_message(data, self._kind)
        except Exception as error:  # any sender may publish invalid bytes
            said = f"a message on {self._topic} cannot be read: {one_line(str(error))}"
            self._node.get_logger().warning(said, throttle_duration_sec=10.0)
            return None

    def _take(self) -> Any:
        handle = self._subscription.handle
        with handle:
            return handle.take_message(self._kind, True)

    def destroy(self) -> None:
        """Destroy the subscription; call it in the executor's thread."""
        self._node.destroy_subscription(self._subscription)


class ThrottledExecutor(MutuallyExclusiveCallbackGroup):
    """
    Handles messages at once, but QoS events and late answers only every EVERY_S.

    For every message rclpy rebuilds, in Python, the set of all entities to wait for. With two QoS
    events per topic and one client per service, this is most of an idle node's load. An expected
    answer is handled in the executor's next cycle.
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
