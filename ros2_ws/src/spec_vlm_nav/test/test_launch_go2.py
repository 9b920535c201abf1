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
Starts `go2.launch.py` with real processes, in a namespace and without a verifier.

The nodes start, the robot stands, and they end cleanly.

Run it by launch_test FILE in a sourced workspace; colcon test runs it if launch_testing supports
the installed pytest.
"""

import os
from pathlib import Path
import time
import unittest

from geometry_msgs.msg import Twist
from launch import LaunchDescription
from launch.actions import IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource
import launch_testing
import launch_testing.actions
import launch_testing.asserts
import launch_testing.markers
import pytest
import rclpy

PACKAGE = Path(__file__).resolve().parent.parent
MODELS = Path(os.environ.get("SPECNAV_MODELS", PACKAGE.resolve().parents[2] / "default_models"))
START_S = 120.0
NODES = {"motion_node", "vlm_nav_node"}
TOPICS = {"camera/image_raw", "odom", "cmd_vel", "instruction", "motion_command", "motion_status"}


@pytest.mark.launch_test
@launch_testing.markers.keep_alive
def generate_test_description():
    """Start the nodes; no verifier listens on port 9."""
    if not (MODELS / "nav-draft" / "config.json").is_file():
        pytest.skip(f"no models at {MODELS}")
    arguments = {
        "namespace": "robot1",
        "draft_model": str(MODELS / "nav-draft"),
        "verifier": "tcp://127.0.0.1:9",
    }
    source = PythonLaunchDescriptionSource(str(PACKAGE / "launch" / "go2.launch.py"))
    return LaunchDescription(
        [
            IncludeLaunchDescription(source, launch_arguments=arguments.items()),
            launch_testing.actions.ReadyToTest(),
        ]
    )


class TestRunning(unittest.TestCase):
    """While it runs."""

    def test_the_nodes_and_their_topics_are_in_the_namespace_and_the_robot_stands(self, proc_output):
        for name in NODES:
            proc_output.assertWaitFor(f"{name} ready", timeout=START_S)
        rclpy.init()
        node = rclpy.create_node("launch_test")
        try:
            speeds = []
            node.create_subscription(
                Twist, "/robot1/cmd_vel", lambda m: speeds.append((m.linear.x, m.angular.z)), 10
            )
            until = time.monotonic() + START_S
            while len(speeds) < 10 and time.monotonic() < until:
                rclpy.spin_once(node, timeout_sec=0.1)
            self.assertEqual(set(speeds), {(0.0, 0.0)})
            names = {(namespace, name) for name, namespace in node.get_node_names_and_namespaces()}
            self.assertLessEqual({("/robot1", name) for name in NODES}, names)
            topics = {name for name, _ in node.get_topic_names_and_types()}
            self.assertLessEqual({f"/robot1/{name}" for name in TOPICS}, topics)
        finally:
            node.destroy_node()
            rclpy.try_shutdown()


@launch_testing.post_shutdown_test()
class TestEnded(unittest.TestCase):
    """After SIGINT."""

    def test_every_process_ended_by_itself_and_without_a_traceback(self, proc_info, proc_output):
        self.assertEqual(len(proc_info.process_names()), len(NODES))
        launch_testing.asserts.assertExitCodes(proc_info)
        for output in proc_output:
            self.assertNotIn(b"Traceback", output.text)
