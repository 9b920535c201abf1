# SPDX-License-Identifier: Apache-2.0
"""Publishes a bag's messages and, on request, /clock. Needs rclpy."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

from builtin_interfaces.msg import Time
from rclpy.exceptions import NameValidationException
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rosgraph_msgs.msg import Clock

from spec_vlm_nav.blackbox.definitions import installed_definition
from spec_vlm_nav.ros.run import in_one_line
from specnav.bags.qos import latched_topics
from specnav.bags.source import Bag, open_bag
from specnav.errors import UsageError
from specnav.play.choice import PlayedTopic, check_definition, choose, left_out, may_move, parse_remaps
from specnav.play.config import PlayConfig
from specnav.play.pace import PlaybackPace
from specnav.ros_node import own_node
from specnav.signals import notes_signals

CLOCK_HZ = 100.0
POLL_S = 0.02
DRAIN_S = 0.2
LAST_S = 2**31 - 1  # builtin_interfaces/Time
MATCH_S = 0.3  # discovery is not symmetric: the other side may discover us later
# A reliable publisher matches reliable and best-effort subscribers.
QOS = QoSProfile(depth=100, reliability=ReliabilityPolicy.RELIABLE)


class Player:
    """Publishes messages when they are due. `ended` tells whether to stop."""

    def __init__(
        self, node: Node, bag: Bag, played: list[PlayedTopic], with_clock: bool, ended: Callable[[], bool]
    ) -> None:
        self._bag, self._ended = bag, ended
        latched = latched_topics(bag)
        self._publishers = {
            one.topic.name: _publisher(node, one, latched.get(one.topic.name, 0)) for one in played
        }
        self._clock = node.create_publisher(Clock, "/clock", QOS) if with_clock else None
        self._next_tick = 0.0
        self.counts = dict.fromkeys(self._publishers, 0)
        self.latest_s = 0.0

    @property
    def unheard(self) -> list[str]:
        """Topics without a subscriber."""
        return [p.topic_name for p in self._publishers.values() if p.get_subscription_count() == 0]

    def wait_for_listeners(self, wait_s: float) -> None:
        """Wait until every topic has a subscriber, or for wait_s."""
        until = time.monotonic() + wait_s
        while self.unheard and time.monotonic() < until and not self._ended():
            time.sleep(POLL_S)
        time.sleep(min(MATCH_S, wait_s))

    def play_once(self, rate: float) -> None:
        """Play the bag once."""
        pace: PlaybackPace | None = None
        for message in self._bag.messages(list(self._publishers)):
            if pace is None:
                pace = PlaybackPace(message.time_ns, time.monotonic(), rate, self._bag.timeline)
            due = pace.due(message.time_ns)
            while (now := time.monotonic()) < due and not self._ended():
                self._tick(pace, now)
                time.sleep(max(0.0, min(due - now, 1 / CLOCK_HZ)))
            if self._ended():
                return
            self._tick(pace, now)
            self._publishers[message.topic].publish(message.data)
            self.counts[message.topic] += 1
            self.latest_s = max(self.latest_s, time.monotonic() - due)

    def _tick(self, pace: PlaybackPace, now: float) -> None:
        if self._clock is not None and now >= self._next_tick:
            self._next_tick = now + 1 / CLOCK_HZ
            sec, nanosec = divmod(pace.bag_time_ns(now), 10**9)
            if not 0 <= sec <= LAST_S:
                return  # /clock cannot represent this time of recording
            self._clock.publish(Clock(clock=Time(sec=sec, nanosec=nanosec)))


def _publisher(node: Node, played: PlayedTopic, kept: int) -> Any:
    """kept: number of messages of a latched topic kept for late subscribers; 0: not latched."""
    package, _, kind = played.topic.kind.partition("/msg/")
    try:
        message = getattr(importlib.import_module(f"{package}.msg"), kind)
    except (ImportError, AttributeError, TypeError) as error:  # TypeError: no name of a package
        raise UsageError(
            f"{played.topic.name} cannot be played: {played.topic.kind} is not installed"
        ) from error
    check_definition(played.topic, installed_definition)
    qos = QOS
    if kept:  # a transient-local publisher matches subscriptions of either durability
        qos = QoSProfile(
            depth=kept, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL
        )
    try:
        return node.create_publisher(message, played.name, qos)
    except (NameValidationException, RuntimeError, AttributeError) as error:
        # A bag may hold any name and type. AttributeError: the type is no message.
        raise UsageError(
            f"{played.topic.name} ({played.topic.kind}) cannot be played as {played.name}: {in_one_line(error)[:200]}"
        ) from error


def play(config: PlayConfig, say: Callable[[str], None]) -> int:
    """Play until the end, SIGINT or SIGTERM; returns the exit code. Raises UsageError and EvaluationError."""
    bag = open_bag(config.bag)
    for words in dict.fromkeys((bag.summary, *bag.warnings, *bag.timeline.notes)):
        say(words)
    played = choose(bag, config.topics, parse_remaps(config.remaps), config.clock)
    with notes_signals() as ended, own_node("specnav_play") as (node, _):
        player = Player(node, bag, played, config.clock, ended)
        for one in played:
            if may_move(one.topic):
                say(f"playing {one.name}: a robot that obeys it will move")
        if others := left_out(bag, played):
            say(others)
        player.wait_for_listeners(config.wait_s)
        if unheard := player.unheard:
            say(f"no subscriber yet on {', '.join(unheard)}")
        say(f"playing {', '.join(one.name for one in played)} at {config.rate:g} times the bag's speed")
        while not ended():
            player.play_once(config.rate)
            if not config.loop:
                break
            time.sleep(POLL_S)  # a bag of one message would flood the graph
        time.sleep(DRAIN_S)  # let the last messages arrive
    counts = ", ".join(f"{name} {count}" for name, count in sorted(player.counts.items()))
    say(f"played {counts}; the latest message was {player.latest_s * 1e3:.0f} ms late")
    return 0
