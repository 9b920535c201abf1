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

"""An action server whose goals stay active until `finish` is called with their result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rclpy.action import ActionServer
from rclpy.node import Node


class DeferringServer(ActionServer):
    """
    An action server that needs no thread per goal.

    In rclpy, an execute callback returns the result. That needs one thread per goal, or a coroutine,
    which older releases poll in a busy loop.
    """

    def __init__(
        self, node: Node, kind: type, name: str, begin: Callable[[Any], None], **callbacks: Any
    ) -> None:
        self._begin = begin
        super().__init__(node, kind, name, execute_callback=begin, **callbacks)

    def notify_execute(self, goal_handle: Any, execute_callback: Any) -> None:
        """Begin the goal; rclpy calls this when it is to be executed."""
        self._begin(goal_handle)

    def finish(self, goal_handle: Any, result: Any) -> None:
        """End a goal with its result; an `error_code` of 0 means success."""

        def end(handle: Any) -> Any:
            if handle.is_cancel_requested:
                handle.canceled()
            elif result.error_code == 0:
                handle.succeed()
            else:
                handle.abort()
            return result

        super().notify_execute(goal_handle, end)
