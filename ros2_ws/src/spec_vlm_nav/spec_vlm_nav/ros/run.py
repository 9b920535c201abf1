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
Starts, spins and ends a node.

Errors print one line, a signal that ends the node gives exit code 0, and the node can stop the
robot before it ends.

rclpy's own signal handlers are not used: they shut down the context before a node can publish a
stop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import contextlib
import faulthandler
import gc
import os
import re
import signal
import sys
from types import FrameType
from typing import Any, NoReturn, Protocol

import rclpy
from rclpy.action import ActionClient, ActionServer
from rclpy.exceptions import ParameterException
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from rclpy.time_source import TimeSource
from rclpy.utilities import remove_ros_args
from spec_vlm_nav.common.errors import NavigationError, one_line, ParameterError
from spec_vlm_nav.common.signals import ENDING
from specdec.signals import unless_ignored

SPIN_S = 0.05  # longest delay until a signal is noticed
END_S = 9.0  # `ros2 launch` kills after 10 s; before that, a hanging process dumps its stacks


class Shell(Protocol):
    """A node and its clean-up; if it has a `failure`, the process ends with that error."""

    @property
    def node(self) -> Node:
        """Return the node to spin."""

    def close(self) -> None:
        """Stop the robot and release everything; called on every way out."""


def destroy(node: Node) -> None:
    """
    Destroy a node and its action clients and servers.

    rclpy leaves those to the garbage collector, which crashes if the context is already gone.
    """
    for waitable in list(node.waitables):
        if isinstance(waitable, (ActionClient, ActionServer)):
            waitable.destroy()
    node.destroy_node()


def leave(code: int) -> NoReturn:
    """
    End the process now, without interpreter shutdown.

    Unloading torch takes seconds, and `ros2 launch` would kill the process meanwhile.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def in_one_line(error: Exception) -> str:
    """Return a ROS error message in one line, without source locations."""
    said = re.sub(r", at \S+?:\d+", "", str(error)).replace("error not set", "")
    if type(error).__name__ == "UnknownROSArgsError":  # says no more than what they are
        said = f"unknown arguments behind --ros-args: {said}"
    return " ".join(said.split()) or type(error).__name__


def _refuse_rest(args: Sequence[str]) -> None:
    """Raise ParameterError for what is no argument of ROS: what an operator sets is never ignored."""
    if rest := remove_ros_args(list(args)):
        raise ParameterError(
            f"argument {one_line(rest[0])} refused: nodes take parameters as --ros-args -p NAME:=VALUE"
        )


def _ignore_impossible_times() -> None:
    """Have times that no clock can have ignored on /clock: rclpy raises, and that would end the node."""
    hear = TimeSource.clock_callback

    def hear_possible(source: TimeSource, message: Any) -> None:
        with contextlib.suppress(ValueError, OverflowError):
            hear(source, message)

    setattr(TimeSource, "clock_callback", hear_possible)  # noqa: B010  # a method, for mypy


def run(
    make: Callable[[], Shell],
    args: Sequence[str] | None,
    user_errors: tuple[type[Exception], ...] = (),
) -> int:
    """Make the node, spin until a signal arrives, and close it; returns the exit code."""
    asked_to_end = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal asked_to_end
        # If the middleware hangs, dump the stacks to stderr and end with exit code 1.
        if not asked_to_end:
            faulthandler.dump_traceback_later(END_S, exit=True)
        asked_to_end = True

    for number in unless_ignored(ENDING):
        signal.signal(number, on_signal)
    _ignore_impossible_times()
    try:
        rclpy.init(
            args=list(args) if args is not None else None,
            signal_handler_options=SignalHandlerOptions.NO,
        )
    except Exception as error:  # ROS arguments or a parameter file that cannot be read
        sys.stderr.write(f"error: {in_one_line(error)}\n")
        return 1
    expected: tuple[type[Exception], ...] = (NavigationError, ParameterException, *user_errors)
    refusal: str | None = None
    try:
        _refuse_rest(sys.argv[1:] if args is None else args)
        shell = make()
    except expected as error:
        refusal = str(error)
    except rclpy_implementation.RCLError as error:  # a namespace too long, a network that is not there
        refusal = in_one_line(error)
    if refusal is not None:
        sys.stderr.write(f"error: {refusal}\n")
        gc.collect()  # what was made of the node, before its context is gone
        rclpy.try_shutdown()
        gc.collect()
        return 1
    executor = SingleThreadedExecutor()
    executor.add_node(shell.node)
    failure: Exception | None = None
    try:
        while not asked_to_end and failure is None and rclpy.ok():
            executor.spin_once(timeout_sec=SPIN_S)
            failure = getattr(shell, "failure", None)
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        shell.close()
        executor.shutdown()
        destroy(shell.node)
        rclpy.try_shutdown()
        # A lifecycle node's state machine keeps its DDS participant, and so shared-memory files,
        # until it is collected.
        del shell, executor
        gc.collect()
    if failure is not None:
        sys.stderr.write(f"error: {' '.join(str(failure).split())}\n")
    return 0 if failure is None else 1
