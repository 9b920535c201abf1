# SPDX-License-Identifier: Apache-2.0
"""Records a live robot: writes the bytes of every wanted topic into one mcap file as they arrive. Needs rclpy.

Messages are never decoded. Topics that appear later are joined later. A signal ends the recording and closes the file.
If the process is killed instead, the part on disk can still be replayed.
"""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Callable
from typing import Any

from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy

from spec_vlm_nav.blackbox.definitions import installed_definition
from specnav.bags.types import Types
from specnav.bags.writing import McapFile
from specnav.record.config import RecordConfig
from specnav.record.types import is_wanted, own_types
from specnav.results.errors import EvaluationError, one_line
from specnav.ros_node import checked_namespace, own_node
from specnav.signals import notes_signals

LOOK_S, SPIN_S, SAY_S = 0.5, 0.1, 10.0
DEPTH = 100


class TopicRecorder:
    """Subscribes to the wanted topics and writes their messages.

    `warn` is called once for every topic that cannot be recorded.
    """

    def __init__(
        self, node: Node, file: McapFile, types: Types, names: tuple[str, ...], warn: Callable[[str], None]
    ) -> None:
        self._node, self._file, self._types, self._warn = node, file, types, warn
        self._names = frozenset(node.resolve_topic_name(name) for name in names)
        self._joined: dict[str, Any] = {}
        self._refused: set[str] = set()
        self.count = 0

    @property
    def missing(self) -> list[str]:
        """Named topics that have not appeared."""
        return sorted(self._names - set(self._joined))

    @property
    def joined(self) -> list[str]:
        """Topics that are being recorded."""
        return sorted(self._joined)

    def look(self) -> None:
        """Subscribe to wanted topics that have appeared."""
        for name, kinds in self._node.get_topic_names_and_types():
            wanted = name in self._names if self._names else is_wanted(name, kinds[0])
            if not wanted or name in self._joined or name in self._refused:
                continue
            # A topic that has only subscribers, like the instruction's, is joined before its first message.
            ends = self._node.get_publishers_info_by_topic(
                name
            ) or self._node.get_subscriptions_info_by_topic(name)
            if not ends:
                continue
            try:
                self._join(name, kinds[0], ends)
            except (EvaluationError, ImportError, AttributeError) as error:
                self._refused.add(name)
                self._warn(f"{name} is not recorded: {one_line(error)}")

    def _join(self, name: str, kind: str, ends: list[Any]) -> None:
        self._types.add_missing(kind, installed_definition)
        package, _, message = kind.partition("/msg/")
        # A best-effort subscription receives from every publisher, a reliable one only from reliable publishers.
        reliable = all(end.qos_profile.reliability == ReliabilityPolicy.RELIABLE for end in ends)
        lasting = all(end.qos_profile.durability == DurabilityPolicy.TRANSIENT_LOCAL for end in ends)
        # Discovery does not always report the depth (0: unknown).
        kept = sum(max(1, end.qos_profile.depth) for end in ends) if lasting else 0
        self._file.add_topic(name, kind, kept)
        qos = QoSProfile(
            depth=DEPTH,
            reliability=ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT,
            durability=DurabilityPolicy.TRANSIENT_LOCAL if lasting else DurabilityPolicy.VOLATILE,
        )

        def take(data: bytes) -> None:
            self._file.write(name, time.time_ns(), data)
            self.count += 1

        message_class = getattr(importlib.import_module(f"{package}.msg"), message)
        self._joined[name] = self._node.create_subscription(message_class, name, take, qos, raw=True)


def record_live(config: RecordConfig, say: Callable[[str], None]) -> int:
    """Record until SIGINT, SIGTERM or the end of the time; returns the exit code. Raises UsageError, EvaluationError.

    Without any message no file is written and the exit code is 1.
    """
    checked_namespace("", config.topics)
    types = own_types()
    file = McapFile(config.out, types, config.force)
    try:
        with notes_signals() as ended, own_node("specnav_record") as (node, executor):
            recorder = TopicRecorder(node, file, types, config.topics, say)
            say(f"recording into {config.out} ({file.partial} until it ends); Ctrl-C ends the recording")
            with contextlib.suppress(KeyboardInterrupt, ExternalShutdownException):
                _record(recorder, executor, config.duration_s, ended, say)
    except BaseException:
        file.keep_partial()
        raise
    if not recorder.count:
        file.discard()
        there = f": {', '.join(recorder.missing)} did not appear" if recorder.missing else ""
        say(f"no message was received{there}; no file was written")
        return 1
    file.finish()
    counts = ", ".join(f"{name} {count}" for name, count in sorted(file.counts.items()))
    say(f"{config.out}: {recorder.count} messages ({counts})")
    if recorder.missing:
        say(f"never appeared: {', '.join(recorder.missing)}")
    return 0


def _record(
    recorder: TopicRecorder,
    executor: SingleThreadedExecutor,
    duration_s: float | None,
    ended: Callable[[], bool],
    say: Callable[[str], None],
) -> None:
    began = next_look = next_word = time.monotonic()
    while not ended():
        now = time.monotonic()
        if duration_s is not None and now - began >= duration_s:
            return
        if now >= next_look:
            before = recorder.joined
            recorder.look()
            if new := sorted(set(recorder.joined) - set(before)):
                say(f"joined {', '.join(new)}")
            next_look = now + LOOK_S
        if now >= next_word + SAY_S:
            next_word = now
            say(f"{now - began:.0f} s: {recorder.count} messages of {len(recorder.joined)} topics")
        executor.spin_once(timeout_sec=SPIN_S)
