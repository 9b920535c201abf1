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
Records with rosbag2 the topics that `specnav replay` and config/rviz/navigation.rviz need.

ros2 launch spec_vlm_nav record.launch.py out:=kitchen
ros2 launch spec_vlm_nav record.launch.py namespace:=one image:=/one/front/compressed

End it with Ctrl-C. Raw pictures fill a disk: 640x480 at 30 Hz is 28 MB a second.
"""

from collections.abc import Mapping
import math

from launch.actions import ExecuteProcess
from spec_vlm_nav.ros.launching import amount, description_of

ARGUMENTS = {
    "namespace": ("", "Namespace of the nodes to record."),
    "out": ("", "Folder to write, which must not exist; empty: rosbag2_ and the time."),
    "image_transport": ("compressed", "What the camera topic carries.", ["compressed", "raw"]),
    "image": ("", "Camera topic; empty: camera/image_raw/compressed, or camera/image_raw with raw."),
    "odom": ("odom", "Odometry topic."),
    "cmd_vel": ("cmd_vel", "Topic of velocities."),
    "storage": ("mcap", "File format: mcap (rosbag2_storage_mcap) or sqlite3."),
    "max_size_mb": ("1000", "Begin a new file at this size, MB; 0: one file."),
    "max_duration_s": ("600", "Begin a new file after this long, s; 0: one file."),
    "use_sim_time": ("false", "Take times from /clock.", ["true", "false"]),
}  # fmt: skip
CAMERA = {"compressed": "camera/image_raw/compressed", "raw": "camera/image_raw"}
OURS = (
    "instruction", "stop", "e_stop", "e_stop_reset", "motion_command", "motion_status", "robot_state",
    "supervision", "safety_changes", "vlm_nav_node/action", "vlm_nav_node/metrics", "vlm_nav_node/outcome",
    "vlm_nav_node/reasoning",
)  # fmt: skip
SHARED = ("/diagnostics", "/tf", "/tf_static")


def topics(given: Mapping[str, str]) -> list[str]:
    """Return the full names of the topics to record."""
    camera = given["image"] or CAMERA[given["image_transport"]]
    names = [camera, given["odom"], given["cmd_vel"], *OURS, *SHARED]
    namespace = given["namespace"].strip("/")
    prefix = f"/{namespace}/" if namespace else "/"
    return [name if name.startswith("/") else prefix + name for name in names]


def record_command(given: Mapping[str, str]) -> list[str]:
    """Return the command line of rosbag2, as Humble's and later releases take it."""
    size, seconds = (amount(name, given[name]) for name in ("max_size_mb", "max_duration_s"))
    command = ["ros2", "bag", "record", "--storage", given["storage"]]
    if given["out"]:
        command += ["--output", given["out"]]
    if size:
        command += ["--max-bag-size", str(math.ceil(size * 1_000_000))]
    if seconds:
        command += ["--max-bag-duration", str(math.ceil(seconds))]
    if given["use_sim_time"] == "true":
        command.append("--use-sim-time")
    # Topics are positional, because Humble does not have --topics.
    return [*command, *topics(given)]


def record(given):
    """Return the process that records."""
    # Time after SIGINT to write buffered messages.
    process = ExecuteProcess(cmd=record_command(given), name="record", output="screen", sigterm_timeout="20")
    return [process]


def generate_launch_description():
    """Declare the arguments and start the recording."""
    return description_of(ARGUMENTS, record)
