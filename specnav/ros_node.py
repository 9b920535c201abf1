# SPDX-License-Identifier: Apache-2.0
"""A command's ROS node, and checks of ROS names given by a user. Needs rclpy."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import rclpy
from rclpy.context import Context
from rclpy.exceptions import NameValidationException
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.expand_topic_name import expand_topic_name
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from rclpy.validate_full_topic_name import validate_full_topic_name
from rclpy.validate_namespace import validate_namespace

from spec_vlm_nav.ros.run import destroy, in_one_line
from specnav.errors import UsageError
from specnav.results.errors import one_line


def checked_namespace(given: str, topics: Iterable[str]) -> str:
    """The namespace with its leading slash. Raises UsageError if it or one of the topics is not a valid ROS name."""
    namespace = f"/{given.strip('/')}"
    try:
        validate_namespace(namespace)
        for topic in topics:
            validate_full_topic_name(expand_topic_name(topic, "node", namespace))
    except (ValueError, NameValidationException) as error:
        raise UsageError(f"not a valid ROS name: {one_line(error)}") from error
    return namespace


@contextlib.contextmanager
def _start_told() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # base of all that rcl raises
        raise UsageError(
            f"ROS 2 does not start: {in_one_line(error)}: check ROS_DOMAIN_ID, RMW_IMPLEMENTATION and the other "
            "variables of ROS"
        ) from error


@contextlib.contextmanager
def own_node(
    name: str, *, domain: int | None = None, **given: Any
) -> Iterator[tuple[Node, SingleThreadedExecutor]]:
    """A node in its own context, and its executor. Signals are left to the command. given: options of create_node.

    Raises UsageError if ROS does not start.
    """
    context = Context()
    try:
        with _start_told():
            rclpy.init(context=context, args=[], domain_id=domain, signal_handler_options=SignalHandlerOptions.NO)
            node = rclpy.create_node(name, context=context, **given)
        executor = SingleThreadedExecutor(context=context)
        executor.add_node(node)
        try:
            yield node, executor
        finally:
            executor.shutdown()
            destroy(node)
    finally:
        rclpy.try_shutdown(context=context)


@contextlib.contextmanager
def spinning_node(name: str, domain: int) -> Iterator[Node]:
    """Like own_node, with the callbacks run in a thread."""
    with own_node(name, domain=domain) as (node, executor):

        def spin() -> None:
            with contextlib.suppress(ExternalShutdownException):
                executor.spin()

        thread = threading.Thread(target=spin, name=name, daemon=True)
        thread.start()
        try:
            yield node
        finally:  # the thread must end before the context, otherwise the process aborts
            executor.shutdown()
            thread.join(5.0)
