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
Simulator, cloud verifier and the robot's nodes on this machine.

`specnav demo` runs the same without ros2 launch.

ros2 launch spec_vlm_nav sim.launch.py
ros2 topic pub -1 /instruction std_msgs/msg/String '{data: "find the silver bottle"}'
"""

from pathlib import Path
import sys

from launch.actions import ExecuteProcess, IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource
from spec_vlm_nav.model.folders import find_model
from spec_vlm_nav.parameters.files import said_in
from spec_vlm_nav.parameters.nodes import parameter_of
from spec_vlm_nav.ros.launching import description_of, is_true, parameter_files

# config/ lies beside launch/, in the package and where it is installed.
HERE = Path(__file__).resolve().parent
CONFIG = HERE.parent / "config"

ADDRESS = parameter_of("vlm_nav_node", "verifier").default

ARGUMENTS = {
    "namespace": ("", "Namespace of the robot and the simulator."),
    "params_file": (str(CONFIG / "robot.yaml"), "Your parameters of the robot's nodes."),
    "sim_params_file": (str(CONFIG / "sim.yaml"), "Parameters of the simulator and its robot."),
    "use_sim_time": ("", "true: the simulator publishes /clock and the nodes follow it."),
    "log_level": ("info", "debug, info, warn or error."),
    "start_verifier": ("true", "Start a cloud verifier here; false: use the one at `verifier`."),
    "verifier": ("", f"Address of the cloud verifier; else as params_file says, or {ADDRESS}."),
    "verifier_key": ("", "Key file for a verifier with keys that runs elsewhere."),
    "model": ("default_models/nav-target",
              "Target model of the verifier started here: folder (absolute or the package's) or hub id."),
    "exits": ("", "Its early exits; empty: NAME-exits beside a model NAME-target, none: no hints."),
    # Arguments of the robot's nodes; an empty argument leaves the parameter files in effect.
    **{
        name: ("", parameter_of("vlm_nav_node", name).description)
        for name in ("draft_model", "gguf", "quantize", "threads", "pixels", "method", "exploration",
                     "on_link_loss", "autostart")
    },
    "dry_run": ("", "true: decide, but move nothing."),
    "view": ("false", "Gone with view_node: console:=true shows it, or rqt and RViz."),
    "mission": ("false", "Also start mission_node, for sequences of instructions."),
    "console": ("false", "Also start console_node: the operator's page, on this machine."),
    "require_operator": ("",
                         "true: the robot moves only while an operator's console holds control (dead "
                         "man's switch)."),
    "blackbox": ("true", "Also start blackbox_node, which writes the last minute to a file at a fault."),
}  # fmt: skip
OWN = ("sim_params_file", "start_verifier", "model", "exits")
PASSED_ON = tuple(name for name in ARGUMENTS if name not in OWN)


def start_all(given):
    """Return the actions that the arguments ask for."""
    yours, of_simulator = (parameter_files([given[f"{kind}params_file"]]) for kind in ("", "sim_"))
    namespace = given["namespace"].strip("/")
    said = said_in([*of_simulator, *yours], "vlm_nav_node", "verifier", namespace)
    address = given["verifier"] or said or ADDRESS
    simulator = ["-m", "navsim.ros_node", "--ros-args"]
    for file in of_simulator:
        simulator += ["--params-file", file]
    if given["use_sim_time"]:
        with_clock = is_true("use_sim_time", given["use_sim_time"])
        simulator += ["-p", f"publish_clock:={str(with_clock).lower()}"]
    simulator += ["-r", f"__ns:=/{namespace}", "--log-level", given["log_level"]]
    passed_on = {name: given[name] for name in PASSED_ON}
    robot = {
        "image": "camera/image_raw/compressed",
        "robot_params_file": given["sim_params_file"],
        "simulator": "true",
    }
    source = PythonLaunchDescriptionSource(str(HERE / "go2.launch.py"))
    # First: an argument that it refuses ends the launch, and what was starting would be left behind.
    started = [
        IncludeLaunchDescription(source, launch_arguments={**passed_on, **robot}.items()),
        ExecuteProcess(cmd=[sys.executable, *simulator], name="navsim", output="screen"),
    ]
    if is_true("start_verifier", given["start_verifier"]):
        model = find_model(given["model"])
        verifier = ["--bind", address, "--model", model, "--exits", given["exits"]]
        cmd = [sys.executable, "-m", "cloud_verifier", *verifier]
        started.append(ExecuteProcess(cmd=cmd, name="cloud_verifier", output="screen"))
    return started


def generate_launch_description():
    """Declare the arguments and start everything."""
    return description_of(ARGUMENTS, start_all)
