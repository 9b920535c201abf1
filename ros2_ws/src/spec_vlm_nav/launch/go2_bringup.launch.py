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

r"""
A Unitree Go2 through its own topics, without a driver: middleware, camera, state and lidar.

ros2 launch spec_vlm_nav go2_bringup.launch.py network_interface:=eth0 \
    verifier:=tcp://192.168.1.10:5555 verifier_key:=$HOME/robot-1.key

This file also accepts all arguments of go2.launch.py.
"""

from pathlib import Path

from launch.actions import GroupAction, IncludeLaunchDescription, LogInfo, SetEnvironmentVariable
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch_ros.actions import SetParametersFromFile, SetRemap
from spec_vlm_nav.ros.launching import description_of

# config/ lies beside launch/, in the package and where it is installed.
HERE = Path(__file__).resolve().parent
CONFIG = HERE.parent / "config"

ARGUMENTS = {
    "network_interface": ("",
                          "This machine's network interface towards the Go2, for example eth0; empty: "
                          "CYCLONEDDS_URI is left as it is."),
    "rmw": ("rmw_cyclonedds_cpp", "RMW_IMPLEMENTATION; the Go2 speaks CycloneDDS. Empty: left as it is."),
    "namespace": ("", "Namespace of the nodes; the Go2's own topics have none."),
    "use_sim_time": ("", "Stamp messages with /clock."),
    "log_level": ("info", "debug, info, warn or error."),
    "camera": ("topic_unitree",
               "The Go2's video: topic_unitree (its topic `video`), url (its multicast), or none (another "
               "camera on `image`).", ["topic_unitree", "url", "none"]),
    "video": ("/frontvideostream", "With camera topic_unitree: topic of the video."),
    "camera_interface": ("", "With camera url: this machine's address on the Go2's network."),
    "image": ("camera/image_raw/compressed", "Camera topic of vlm_nav_node."),
    "image_transport": ("", "Its type: raw or compressed.", ["", "raw", "compressed"]),
    "odometry": ("sportmodestate",
                 "Where odometry is from: sportmodestate (position and attitude in it), or utlidar "
                 "(/utlidar/robot_odom).", ["sportmodestate", "utlidar"]),
    "lidar": ("base",
              "Collision sensor: base (/utlidar/cloud_base, in base_link), raw (/utlidar/cloud, in the "
              "lidar's frame), none.", ["base", "raw", "none"]),
    "obstacles_avoid": ("false", "Send motions through the Go2's own obstacle avoidance.", ["true", "false"]),
    "motion_backend": ("", "go2_sport, twist or auto: go2_sport where unitree_api is installed."),
    "robot_params_file": (str(CONFIG / "go2_bringup.yaml"),
                          "Parameters that the Go2 needs, before yours; empty: none."),
}  # fmt: skip
PASSED_ON = (
    "namespace", "use_sim_time", "log_level", "image", "image_transport", "video", "camera_interface",
    "motion_backend", "robot_params_file",
)  # fmt: skip
CLOUDS = {"base": "/utlidar/cloud_base", "raw": "/utlidar/cloud"}
# Topics of the Go2 under the nodes' names. The battery does not need the fast LowState.
OF_THE_ROBOT = {
    "sportmodestate": "/sportmodestate",
    "lowstate": "/lf/lowstate",
    "api/sport/request": "/api/sport/request",
    "api/obstacles_avoid/request": "/api/obstacles_avoid/request",
}


def middleware(interface, rmw):
    """Return the actions that configure the middleware for the Go2; they precede all nodes."""
    chosen = [SetEnvironmentVariable("RMW_IMPLEMENTATION", rmw)] if rmw else []
    if not interface:
        kept = "network_interface is not given: CYCLONEDDS_URI is left as it is"
        return [*chosen, LogInfo(msg=kept)]
    # The file reads the interface's name from the environment.
    file = (CONFIG / "cyclonedds.xml").resolve()
    return [
        *chosen,
        SetEnvironmentVariable("GO2_INTERFACE", interface),
        SetEnvironmentVariable("CYCLONEDDS_URI", f"file://{file}"),
    ]


def bring_up(given):
    """Return the actions that the arguments ask for."""
    files = []
    remaps = dict(OF_THE_ROBOT)
    if given["lidar"] != "none":
        files.append(f"go2_lidar_{given['lidar']}.yaml")
        remaps["cloud"] = CLOUDS[given["lidar"]]
    if given["obstacles_avoid"] == "true":
        files.append("go2_obstacles_avoid.yaml")
    by_utlidar = given["odometry"] == "utlidar"
    passed_on = {name: given[name] for name in PASSED_ON}
    if given["camera"] != "none":
        passed_on["camera_decode"] = given["camera"]
    passed_on["go2_state"] = "none" if by_utlidar else "sportmodestate"
    passed_on["odom"] = "/utlidar/robot_odom" if by_utlidar else "odom"
    return [
        *middleware(given["network_interface"], given["rmw"]),
        GroupAction(
            [
                *(SetParametersFromFile(str(CONFIG / name)) for name in files),
                *(SetRemap(own, theirs) for own, theirs in remaps.items()),
                IncludeLaunchDescription(
                    PythonLaunchDescriptionSource(str(HERE / "go2.launch.py")),
                    launch_arguments=passed_on.items(),
                ),
            ]
        ),
    ]


def generate_launch_description():
    """Declare the arguments and start the nodes."""
    return description_of(ARGUMENTS, bring_up)
