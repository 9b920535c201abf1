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
What is subscribed to only while a page looks: the model's words as they come, a laser.

Without a reader they are neither made nor sent: the deciding node has no tokens to publish, a camera
without JPEGs a copy less to write. Made and destroyed in ROS's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import Image, LaserScan
from spec_vlm_nav.ros.polled import PolledTopic
from spec_vlm_nav.ros.throttled_executor import ThrottledExecutor
from std_msgs.msg import String


class CameraSubscriptions:
    """Of one robot, whose topics begin with `at`."""

    def __init__(
        self,
        node: Node,
        at: str,
        words: tuple[Callable[[String], None], Callable[[String], None]],
        encode: tuple[str, Callable[[Image], None], QoSProfile] | None,
        group: ThrottledExecutor,
    ) -> None:
        """
        Subscribe.

        words: called with tokens and of sentences at once: few, and in order with their decision.
        encode: topic, who makes JPEGs of its pictures, their quality; None: they are JPEGs.
        """
        self._node = node
        qos = QoSProfile(depth=20, reliability=ReliabilityPolicy.RELIABLE)
        self.scan = PolledTopic(node, LaserScan, f"{at}scan", ReliabilityPolicy.BEST_EFFORT)
        tokens, sentences = words
        self._woken: list[Any] = [
            node.create_subscription(
                String, f"{at}vlm_nav_node/tokens", tokens, qos, callback_group=group
            ),
            node.create_subscription(
                String, f"{at}vlm_nav_node/reasoning", sentences, qos, callback_group=group
            ),
        ]
        if encode is not None:
            image, act, quality = encode
            self._woken.append(
                node.create_subscription(Image, image, act, quality, callback_group=group)
            )

    def destroy(self) -> None:
        """Subscribe to nothing any longer."""
        self.scan.destroy()
        for woken in self._woken:
            self._node.destroy_subscription(woken)
