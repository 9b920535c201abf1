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
Subscriptions beyond rclpy's own: to any publisher, read by polling, and sparing the executor.

A reliable subscription does not match a best-effort publisher (a button on a micro-controller), and
a best-effort one may lose messages on a bad network. Only a TRANSIENT_LOCAL subscription receives a
message that was published before it started, but it matches no volatile publisher. So `subscribe`
makes one of each, a third one for a topic with a lasting state, and drops duplicates.

In Python, 500 callbacks a second occupy a CPU core. A polled subscription is for messages that
arrive much faster than they are needed: the middleware keeps the newest ones and wakes no thread. A
callback group reduces a node's idle load.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
import math
import time
from typing import Any

from rclpy.callback_groups import CallbackGroup, MutuallyExclusiveCallbackGroup
from rclpy.node import Node
from rclpy.serialization import deserialize_message
from rclpy.subscription import Subscription
from spec_vlm_nav.common.errors import one_line
from spec_vlm_nav.common.parameters import Value
from spec_vlm_nav.ros.basics import qos

try:
    from rclpy.event_handler import SubscriptionEventCallbacks
except ImportError:  # Humble
    from rclpy.qos_event import SubscriptionEventCallbacks

ONCE_S = 0.1  # equal messages within this time are duplicates if no send time is reported
KEPT = 16


def subscribe(
    node: Node,
    kind: type,
    topic: str,
    act: Callable[[Any], None],
    *,
    raw: bool = False,
    latched: bool = False,
) -> None:
    """
    Call `act` with every message of a topic; equal messages with one send time count once.

    raw: pass undecoded bytes. latched: also pass the last message from before the start.
    """
    subscribe_stamped(node, kind, topic, lambda message, sent: act(message), raw=raw, latched=latched)


def subscribe_stamped(
    node: Node,
    kind: type,
    topic: str,
    act: Callable[[Any, float], None],
    *,
    raw: bool = False,
    latched: bool = False,
) -> None:
    """
    Call `act` with every message and its send time, s, by the sender's clock.

    The time is infinite if the middleware, or an old rclpy, does not report it.
    """
    # When a message was heard last, and how often by each subscription.
    heard: dict[tuple[int, int], tuple[float, Counter[int]]] = {}

    def once(subscription: int, message: Any, info: Any) -> None:
        sent, now = info.get("source_timestamp", 0) if info else 0, time.monotonic()
        key = (sent, hash(str(message)))  # not the message itself: it may be large
        last, counts = heard.pop(key, (now, Counter[int]()))
        if not sent and last <= now - ONCE_S:
            counts.clear()
        most = max(counts.values(), default=0)
        counts[subscription] += 1
        # With a send time, however late the duplicate arrives: a busy machine may delay it. Without
        # one, what the same subscription hears again is another message: a second stop must count.
        again = bool(most) if sent else counts[subscription] <= most
        heard[key] = now, counts
        while len(heard) > KEPT:
            del heard[next(iter(heard))]
        if not again:
            act(message, sent * 1e-9 if sent else math.inf)

    tells = hasattr(Subscription, "CallbackType")
    kinds = [qos("reliable", 20), qos("best_effort", 20)]
    if latched:
        kinds.append(qos("reliable", 20, latched=True))
    for number, kept in enumerate(kinds):
        told = partial(once, number)
        callback = told if tells else partial(_without_info, told)
        # No warning about incompatible QoS: one of the subscriptions is expected not to match.
        quiet = SubscriptionEventCallbacks(use_default_callbacks=False)
        node.create_subscription(kind, topic, callback, kept, raw=raw, event_callbacks=quiet)


def _without_info(told: Callable[[Any, Any], None], message: Any) -> None:
    told(message, None)


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
        """
        Return the oldest kept message that was not taken before, else None.

        With a depth of 1 it is the newest.
        """
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
