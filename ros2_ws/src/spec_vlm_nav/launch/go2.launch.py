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
The robot's nodes on a Unitree Go2 whose driver publishes a camera and odom and accepts cmd_vel.

ros2 launch spec_vlm_nav go2.launch.py \
    verifier:=tcp://192.168.1.10:5555 verifier_key:=$HOME/robot-1.key
ros2 action send_goal --feedback /navigate_instruction \
    spec_vlm_nav_interfaces/action/NavigateInstruction \
    '{instruction: "find the silver bottle", time_allowance: {sec: 120}}'

Parameters are set in this order, and the last one counts: the nodes' defaults, robot_params_file
(this kind of robot), params_file (yours), given arguments. Without a driver use
go2_bringup.launch.py.
"""

from pathlib import Path

from launch.actions import LogInfo
from launch_ros.actions import Node
from spec_vlm_nav.common.parameters import Parameter
from spec_vlm_nav.parameters.files import said_in
from spec_vlm_nav.parameters.nodes import parameter_of
from spec_vlm_nav.ros.launching import description_of, is_true, parameter_files, values_of

# config/ lies beside launch/, in the package and where it is installed.
CONFIG = Path(__file__).resolve().parent.parent / "config"
AGAIN_AFTER_S = 3.0  # delay before a node that died is restarted

PLACES = {
    "namespace": ("", "Namespace of the nodes."),
    "params_file": (str(CONFIG / "robot.yaml"), "Your parameters of the nodes."),
    "robot_params_file": (
        str(CONFIG / "go2.yaml"),
        "Parameters that this kind of robot needs, before yours; empty: none.",
    ),
    "log_level": ("info", "debug, info, warn or error."),
    "image": ("camera/image_raw", "Camera topic."),
    "odom": ("odom", "Odometry topic."),
    "cmd_vel": (
        "cmd_vel",
        "Topic of the velocities; cmd_vel_nav if twist_mux or a collision monitor follows.",
    ),
    "motion": ("true", "false: without motion_node (for bags that contain its topics)."),
    "view": ("false", "Gone with view_node: console:=true shows it, or rqt and RViz."),
    "blackbox": ("true", "Also start blackbox_node, which writes the last minute to a file at a fault."),
    "mission": ("false", "Also start mission_node, for sequences of instructions."),
    "console": ("false", "Also start console_node: the operator's page, on this machine."),
    "go2_state": (
        "",
        "Also start go2_state_node; its source of odometry: sportmodestate, or none (another node).",
    ),
    "camera_decode": (
        "",
        "Also start camera_decode_node for a Go2's H.264: url (its multicast) or topic_unitree; "
        "image is its output.",
    ),
    "video": ("/frontvideostream", "With camera_decode topic_unitree: topic of the video."),
    "camera_interface": ("", "With camera_decode url: this machine's address on the robot's network."),
}
# Node parameters that can also be given as arguments; an empty argument is not passed on.
DECIDING, MOVING, RECORDING = "vlm_nav_node", "motion_node", "blackbox_node"
DECODING, STATE = "camera_decode_node", "go2_state_node"
MISSIONS, CONSOLE = "mission_node", "console_node"
EVERY = (DECIDING, MOVING, RECORDING, DECODING, STATE, MISSIONS, CONSOLE)
OWNERS = {
    "dry_run": (DECIDING, MOVING),
    "verifier": (DECIDING,),
    "verifier_key": (DECIDING,),
    "draft_model": (DECIDING,),
    "gguf": (DECIDING,),
    "quantize": (DECIDING,),
    "threads": (DECIDING,),
    "pixels": (DECIDING,),
    "method": (DECIDING,),
    "exploration": (DECIDING,),
    "on_link_loss": (DECIDING,),
    "autostart": (DECIDING,),
    "settle_s": (DECIDING,),
    "image_transport": (DECIDING, RECORDING, CONSOLE),
    "require_operator": (MOVING, CONSOLE),
    "simulator": (CONSOLE,),
    "motion_backend": (MOVING,),
    "enable_stamped_cmd_vel": (MOVING, RECORDING),
}
PARAMETERS = {name: parameter_of(nodes[0], name) for name, nodes in OWNERS.items()}
OWNERS["use_sim_time"] = EVERY
PARAMETERS["use_sim_time"] = Parameter("use_sim_time", False, "Stamp messages with /clock.")
ARGUMENTS = {name: ("", parameter.description) for name, parameter in PARAMETERS.items()}


def make_nodes(given):
    """Return the nodes that the arguments ask for."""
    files = parameter_files([given["robot_params_file"], given["params_file"]])
    switches = ("motion", "view", "mission", "console", "blackbox")
    on = {name: is_true(name, given[name]) for name in switches}
    values = values_of(PARAMETERS, given)

    def said(node, parameter):
        return said_in(files, node, parameter, given["namespace"])

    def node(name, remaps, own=None, respawn=True):
        said = {key: value for key, value in values.items() if name in OWNERS[key]} | (own or {})
        return Node(
            package="spec_vlm_nav",
            executable=name,
            name=name,
            namespace=given["namespace"],
            output="screen",
            parameters=[*files, *([said] if said else [])],
            remappings=[(topic, given[argument]) for topic, argument in remaps.items()],
            # The enclave is only used by SROS 2: config/sros2/policy.xml.
            arguments=[
                *("--ros-args", "--log-level", given["log_level"]),
                *("--enclave", f"/spec_vlm_nav/{name}"),
            ],
            respawn=respawn,
            respawn_delay=AGAIN_AFTER_S,
        )

    nodes = []
    if on["motion"]:
        # It remembers an e-stop, but what ended it has to be looked at: a person starts it again.
        own = {}
        if not given["dry_run"] and said(DECIDING, "dry_run") is True:
            own = {"dry_run": True}
        nodes.append(node(MOVING, {"odom": "odom", "cmd_vel": "cmd_vel"}, own, respawn=False))
    nodes.append(node(DECIDING, {"image": "image"}))
    if given["go2_state"]:
        nodes.append(node(STATE, {}, {"odometry": given["go2_state"]}))
    if given["camera_decode"]:
        transport = given["image_transport"] or said(DECIDING, "image_transport")
        own = {"source": given["camera_decode"], "output": transport or "compressed"}
        if given["camera_interface"]:
            own["interface"] = given["camera_interface"]
        camera = {"camera/image_raw": "image", "camera/image_raw/compressed": "image"}
        nodes.append(node(DECODING, {"video": "video", **camera}, own))
    if on["view"]:
        nodes.append(LogInfo(msg="view_node is gone: console:=true shows it, or rqt and RViz"))
    if on["mission"] or on["console"]:
        nodes.append(node(MISSIONS, {"odom": "odom"}))
    if on["console"]:
        nodes.append(node(CONSOLE, {"image": "image", "odom": "odom"}))
    if on["blackbox"]:
        nodes.append(node(RECORDING, {name: name for name in ("image", "odom", "cmd_vel")}))
    return nodes


def generate_launch_description():
    """Declare the arguments and start the nodes."""
    return description_of(PLACES | ARGUMENTS, make_nodes)
