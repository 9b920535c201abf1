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
Starting and ending a node.

One line for an error, exit code 0 for a signal that ends it, and a last word to the robot.

rclpy's own signal handlers shut the context down before a node can publish anything more, so they
are not used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import faulthandler
import gc
import os
import re
import signal
import sys
from types import FrameType
from typing import NoReturn, Protocol

import rclpy
from rclpy.action import ActionClient, ActionServer
from rclpy.exceptions import ParameterException
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from rclpy.utilities import remove_ros_args
from spec_vlm_nav.common.errors import NavigationError, ParameterError
from spec_vlm_nav.common.foreign_words import one_line

SPIN_S = 0.05  # how late a signal may be noticed
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # the last: the terminal was closed
END_S = 9.0  # after 10 s `ros2 launch` kills; before it does, a process says where it hangs


class Shell(Protocol):
    """A node with a last word; where it has a `failure`, the process ends with that."""

    @property
    def node(self) -> Node:
        """Return the node to spin."""
        ...

    def close(self) -> None:
        """Bring the robot to a stand and let go of everything; called on every way out."""
        ...


def destroy(node: Node) -> None:
    """
    Destroy a node and its action clients and servers.

    rclpy leaves those to the garbage collection, which crashes when the context is gone by then.
    """
    for waitable in list(node.waitables):
        if isinstance(waitable, (ActionClient, ActionServer)):
            waitable.destroy()
    node.destroy_node()


def leave(code: int) -> NoReturn:
    """
    End the process now.

    Taking apart torch's modules takes seconds, after which `ros2 launch` begins to kill.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def in_one_line(error: Exception) -> str:
    """Return what ROS says of its arguments without the places in its source."""
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


def run(
    make: Callable[[], Shell],
    args: Sequence[str] | None,
    user_errors: tuple[type[Exception], ...] = (),
) -> int:
    """Make the node, spin until a signal comes, close; returns the exit code."""
    asked_to_end = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal asked_to_end
        # A middleware that waits for ever keeps no process: stacks to stderr, exit code 1.
        if not asked_to_end:
            faulthandler.dump_traceback_later(END_S, exit=True)
        asked_to_end = True

    for number in ENDING:
        if signal.getsignal(number) != signal.SIG_IGN or number != signal.SIGHUP:  # nohup
            signal.signal(number, on_signal)
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
        # A lifecycle node's state machine keeps its DDS participant, and so files in shared
        # memory, until it is gone.
        del shell, executor
        gc.collect()
    if failure is not None:
        sys.stderr.write(f'error: {" ".join(str(failure).split())}\n')
    return 0 if failure is None else 1
