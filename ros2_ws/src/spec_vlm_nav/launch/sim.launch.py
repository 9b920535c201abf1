"""Simulator, cloud verifier and the two robot nodes on this machine (`specnav demo` runs the same without ros2 launch).

ros2 launch spec_vlm_nav sim.launch.py model:=$PWD/default_models/nav-target draft_model:=$PWD/default_models/nav-draft
ros2 topic pub -1 /instruction std_msgs/msg/String '{data: "find the silver bottle"}'
"""

import sys
from pathlib import Path

from launch.actions import DeclareLaunchArgument, ExecuteProcess, IncludeLaunchDescription
from launch.conditions import IfCondition
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration

from launch import LaunchDescription

HERE = Path(__file__).parent
CONFIG = HERE.parent / "config"

ARGUMENTS = {
    "namespace": ("", "Namespace of the robot and the simulator."),
    "params_file": (str(CONFIG / "robot.yaml"), "Parameters of the two robot nodes."),
    "sim_params_file": (str(CONFIG / "sim.yaml"), "Parameters of the simulator."),
    "use_sim_time": ("false", "The simulator publishes /clock and the nodes follow it."),
    "log_level": ("info", "debug, info, warn or error."),
    "start_verifier": ("true", "Start a cloud verifier here; false: use the one at `verifier`."),
    "verifier": ("tcp://127.0.0.1:5555", "Address of the cloud verifier."),
    "model": ("default_models/nav-target", "Target model of the verifier started here."),
    "exits": ("", "Its early exits; empty: NAME-exits beside a model NAME-target, none: no hints."),
    "draft_model": ("default_models/nav-draft", "Draft model: folder or hub id."),
    "method": ("fsd", "fsd, auto, sd, specedge, picospec or ar."),
    "on_link_loss": ("stop", "Without the verifier: stop, hold, or draft_only_slow."),
    "autostart": ("true", "false: vlm_nav_node waits for ros2 lifecycle set."),
    "view": ("false", "Also start view_node: annotated image, path, marker of the motion."),
}
PASSED_ON = (
    "namespace",
    "params_file",
    "use_sim_time",
    "log_level",
    "verifier",
    "draft_model",
    "method",
    "on_link_loss",
    "autostart",
    "view",
)


def generate_launch_description() -> LaunchDescription:
    """Declare the arguments and start everything."""
    given = {name: LaunchConfiguration(name) for name in ARGUMENTS}
    simulator = [
        sys.executable,
        "-m",
        "navsim.ros_node",
        "--ros-args",
        "--params-file",
        given["sim_params_file"],
    ]
    simulator += ["-p", ["publish_clock:=", given["use_sim_time"]], "-r", ["__ns:=/", given["namespace"]]]
    simulator += ["--log-level", given["log_level"]]
    verifier = [
        sys.executable,
        "-m",
        "cloud_verifier",
        "--bind",
        given["verifier"],
        "--model",
        given["model"],
        "--exits",
        given["exits"],
    ]
    return LaunchDescription(
        [
            *(
                DeclareLaunchArgument(name, default_value=default, description=description)
                for name, (default, description) in ARGUMENTS.items()
            ),
            ExecuteProcess(cmd=simulator, name="navsim", output="screen"),
            ExecuteProcess(
                cmd=verifier,
                name="cloud_verifier",
                output="screen",
                condition=IfCondition(given["start_verifier"]),
            ),
            IncludeLaunchDescription(
                PythonLaunchDescriptionSource(str(HERE / "go2.launch.py")),
                launch_arguments={
                    **{name: given[name] for name in PASSED_ON},
                    "image": "camera/image_raw/compressed",
                    "image_transport": "compressed",
                    "settle_s": "0.05",
                }.items(),
            ),
        ]
    )
