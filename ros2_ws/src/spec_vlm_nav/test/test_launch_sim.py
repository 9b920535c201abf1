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
Starts `sim.launch.py` with real processes: an instruction moves the robot, and all end cleanly.

Run it by launch_test FILE in a sourced workspace; colcon test runs it if launch_testing supports
the installed pytest.
"""

import os
from pathlib import Path
import socket
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
from std_msgs.msg import String

pytest.importorskip("navsim", reason="the simulator is not installed")

PACKAGE = Path(__file__).resolve().parent.parent
MODELS = Path(os.environ.get("SPECNAV_MODELS", PACKAGE.resolve().parents[2] / "default_models"))
START_S, MOVE_S = 120.0, 60.0
# An ended `ros2 launch` sends SIGINT; a node that dies of it would leave the robot as it is.
NODES = ("motion_node", "vlm_nav_node", "navsim", "cloud_verifier")


def free_port() -> int:
    """Return a TCP port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.launch_test
@launch_testing.markers.keep_alive
def generate_test_description():
    """Start the simulator, the verifier and the robot's nodes."""
    if not (MODELS / "nav-target" / "config.json").is_file():
        pytest.skip(f"no models at {MODELS}")
    arguments = {
        "model": str(MODELS / "nav-target"),
        "draft_model": str(MODELS / "nav-draft"),
        "verifier": f"tcp://127.0.0.1:{free_port()}",
    }
    source = PythonLaunchDescriptionSource(str(PACKAGE / "launch" / "sim.launch.py"))
    return LaunchDescription(
        [
            IncludeLaunchDescription(source, launch_arguments=arguments.items()),
            launch_testing.actions.ReadyToTest(),
        ]
    )


class TestRunning(unittest.TestCase):
    """While it runs."""

    def test_everything_comes_up_and_an_instruction_moves_the_robot(self, proc_output):
        for words in (
            "motion_node ready",
            "vlm_nav_node ready",
            '"event": "ready"',
        ):
            proc_output.assertWaitFor(words, timeout=START_S)
        rclpy.init()
        node = rclpy.create_node("launch_test")
        try:
            speeds = []
            node.create_subscription(
                Twist, "/cmd_vel", lambda m: speeds.append((m.linear.x, m.angular.z)), 10
            )
            instruction = node.create_publisher(String, "/instruction", 10)
            wait(node, lambda: instruction.get_subscription_count() > 0, START_S)
            self.assertTrue(
                wait(node, lambda: speeds and not any(map(any, speeds)), START_S), "cmd_vel, zero"
            )
            instruction.publish(String(data="find the red table"))
            self.assertTrue(wait(node, lambda: any(map(any, speeds)), MOVE_S), "no motion")
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


def wait(node, done, seconds: float) -> bool:
    """Spin until `done` returns true; returns whether it did in time."""
    until = time.monotonic() + seconds
    while not done() and time.monotonic() < until:
        rclpy.spin_once(node, timeout_sec=0.1)
    return bool(done())
