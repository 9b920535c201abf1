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
Subscribes to a topic whatever its publishers' QoS.

It subscribes once RELIABLE and once BEST_EFFORT and drops duplicates.

A reliable subscription does not match a best-effort publisher (a button on a micro-controller), and
a best-effort one may lose messages on a bad network. Only a TRANSIENT_LOCAL subscription receives a
message that was published before it started, but it matches no volatile publisher. So a topic with
a lasting state needs a third subscription.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
import math
import time
from typing import Any

from rclpy.node import Node
from rclpy.subscription import Subscription
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
