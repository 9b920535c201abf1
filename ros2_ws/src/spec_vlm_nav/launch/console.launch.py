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
The operator's console for robots that are running: a page in the browser.

ros2 launch spec_vlm_nav console.launch.py
ros2 launch spec_vlm_nav console.launch.py require_operator:=true port:=8800
ros2 launch spec_vlm_nav console.launch.py image:=camera/image_raw/compressed simulator:=true

Access from other machines needs tokens and a certificate: docs/console.md.
"""

from launch_ros.actions import Node
from spec_vlm_nav.parameters.files import said_in
from spec_vlm_nav.parameters.nodes import parameter_of
from spec_vlm_nav.ros.launching import description_of, parameter_files, values_of

PLACES = {
    "namespace": ("", "Namespace of the console; robots of other namespaces are found, too."),
    "params_file": ("", "Parameters of console_node; empty: its own defaults."),
    "image": ("camera/image_raw", "Camera topic."),
    "odom": ("odom", "Odometry topic."),
    "log_level": ("info", "debug, info, warn or error."),
}
# An empty argument is not passed on.
NAMES = (
    "host", "port", "certificate", "key", "require_operator", "templates", "blackbox_folder",
    "simulator", "image_transport",
)  # fmt: skip
PARAMETERS = {name: parameter_of("console_node", name) for name in NAMES}
ARGUMENTS = {name: ("", parameter.description) for name, parameter in PARAMETERS.items()}


def make_nodes(given):
    """Return the console node."""
    values = values_of(PARAMETERS, given)
    files = parameter_files([given["params_file"]])
    said = said_in(files, "console_node", "image_transport", given["namespace"])
    if not given["image_transport"] and said is None:
        # As image_transport names its topics.
        is_compressed = given["image"].endswith("/compressed")
        values["image_transport"] = "compressed" if is_compressed else "raw"
    return [
        Node(
            package="spec_vlm_nav",
            executable="console_node",
            name="console_node",
            namespace=given["namespace"],
            output="screen",
            parameters=[*files, *([values] if values else [])],
            remappings=[("image", given["image"]), ("odom", given["odom"])],
            arguments=[
                *("--ros-args", "--log-level", given["log_level"]),
                *("--enclave", "/spec_vlm_nav/console_node"),
            ],
        )
    ]


def generate_launch_description():
    """Declare the arguments and start the node."""
    return description_of(PLACES | ARGUMENTS, make_nodes)
