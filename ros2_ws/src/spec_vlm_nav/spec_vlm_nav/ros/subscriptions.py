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
Subscriptions to a topic whatever its publishers' QoS.

Once RELIABLE and once BEST_EFFORT; each message counts once.

A reliable subscription never hears a publisher of best effort (a button on a micro-controller),
and one of best effort alone may lose what comes over a bad network. What was said before the
start, by a publisher that keeps its last word (TRANSIENT_LOCAL), only a subscription of that kind
hears, which in turn hears no publisher of another kind: a state needs a third one.
"""

from __future__ import annotations

from collections.abc import Callable
import math
import time
from typing import Any

from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.subscription import Subscription

try:
    from rclpy.event_handler import SubscriptionEventCallbacks
except ImportError:  # Humble
    from rclpy.qos_event import SubscriptionEventCallbacks

ONCE_S = 0.1  # between both subscriptions, where the middleware does not report when it was sent
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
    Call `act` with every message of a topic; equal ones sent at the same time are one.

    raw: with its bytes, not decoded. latched: also with what was said before the start.
    """
    subscribe_stamped(
        node, kind, topic, lambda message, sent: act(message), raw=raw, latched=latched
    )


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
    Call `act` with every message and when it was sent, s, by its sender's clock.

    That is infinite where the middleware, or an old rclpy, does not report it.
    """
    heard: dict[tuple[int, str], float] = {}

    def once(message: Any, info: Any) -> None:
        sent, now = info.get("source_timestamp", 0) if info else 0, time.monotonic()
        key = (sent, str(message))
        # However late the second subscription is: a busy machine may take a while in between.
        again = key in heard if sent else heard.get(key, -math.inf) > now - ONCE_S
        heard[key] = now
        while len(heard) > KEPT:
            del heard[next(iter(heard))]
        if not again:
            act(message, sent * 1e-9 if sent else math.inf)

    tells = hasattr(Subscription, "CallbackType")
    callback = once if tells else lambda message: once(message, None)
    kinds = [
        QoSProfile(depth=20, reliability=ReliabilityPolicy.RELIABLE),
        QoSProfile(depth=20, reliability=ReliabilityPolicy.BEST_EFFORT),
    ]
    if latched:
        kinds.append(
            QoSProfile(
                depth=20,
                reliability=ReliabilityPolicy.RELIABLE,
                durability=DurabilityPolicy.TRANSIENT_LOCAL,
            )
        )
    for qos in kinds:
        # That one of them does not suit a publisher is as meant, and no warning.
        quiet = SubscriptionEventCallbacks(use_default_callbacks=False)
        node.create_subscription(kind, topic, callback, qos, raw=raw, event_callbacks=quiet)
