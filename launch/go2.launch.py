"""The robot's nodes on a Unitree Go2 whose driver gives a camera, odom and takes cmd_vel (for example go2_ros2_sdk).

ros2 launch spec_vlm_nav go2.launch.py verifier:=tcp://192.168.1.10:5555 draft_model:=/models/nav-draft
ros2 action send_goal --feedback /navigate_instruction spec_vlm_nav_interfaces/action/NavigateInstruction \\
    '{instruction: "find the silver bottle", time_allowance: {sec: 120}}'
"""

from pathlib import Path

from launch.actions import DeclareLaunchArgument
from launch.conditions import IfCondition, UnlessCondition
from launch.substitutions import LaunchConfiguration, PythonExpression
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue

from launch import LaunchDescription

# This file is linked into the package: beside it lies launch/, and config/ beside that, also after installation.
CONFIG = Path(__file__).parent.parent / "config"

ARGUMENTS = {
    "namespace": ("", "Namespace of the nodes."),
    "params_file": (str(CONFIG / "robot.yaml"), "Parameters of the nodes."),
    "use_sim_time": ("false", "Stamp messages with /clock."),
    "log_level": ("info", "debug, info, warn or error."),
    "verifier": ("tcp://127.0.0.1:5555", "Address of the cloud verifier."),
    "draft_model": ("default_models/nav-draft", "Draft model: folder or hub id."),
    "method": ("fsd", "fsd, auto, sd, specedge, picospec or ar."),
    "image": ("camera/image_raw", "Camera topic."),
    "image_transport": ("raw", "Its type: raw or compressed."),
    "odom": ("odom", "Odometry topic."),
    "cmd_vel": (
        "cmd_vel",
        "Where velocities go; cmd_vel_nav where twist_mux or a collision monitor follows.",
    ),
    "motion_backend": (
        "twist",
        "twist (cmd_vel, for a driver), go2_sport (api/sport/request, needs unitree_api) or nav2 (needs nav2_msgs).",
    ),
    "enable_stamped_cmd_vel": ("false", "TwistStamped instead of Twist."),
    "exploration": ("damped_search", "Exploration policy around the model, or none."),
    "on_link_loss": ("stop", "Without the verifier: stop, hold, or draft_only_slow."),
    "autostart": ("true", "false: vlm_nav_node waits for ros2 lifecycle set."),
    "dry_run": ("false", "Decide, but move nothing; motion_node is not started (for bags)."),
    "view": ("false", "Also start view_node: annotated image, path, marker of the motion."),
    "camera_decode": (
        "",
        "Also start camera_decode_node for a Go2's H.264: url (its multicast) or topic_unitree; image is its output.",
    ),
    "camera_interface": ("", "With camera_decode url: this machine's address on the robot's network."),
    "settle_s": ("0.3", "Latency of the camera: only frames received so long after a motion are used, s."),
}


def generate_launch_description() -> LaunchDescription:
    """Declare the arguments and start the nodes."""
    given = {name: LaunchConfiguration(name) for name in ARGUMENTS}
    use_sim_time = ParameterValue(given["use_sim_time"], value_type=bool)
    log_level = ["--ros-args", "--log-level", given["log_level"]]
    return LaunchDescription(
        [
            *(
                DeclareLaunchArgument(name, default_value=default, description=description)
                for name, (default, description) in ARGUMENTS.items()
            ),
            Node(
                package="spec_vlm_nav",
                executable="motion_node",
                name="motion_node",
                namespace=given["namespace"],
                output="screen",
                condition=UnlessCondition(given["dry_run"]),
                parameters=[
                    given["params_file"],
                    {
                        "use_sim_time": use_sim_time,
                        "motion_backend": ParameterValue(given["motion_backend"], value_type=str),
                        "enable_stamped_cmd_vel": ParameterValue(
                            given["enable_stamped_cmd_vel"], value_type=bool
                        ),
                    },
                ],
                remappings=[("odom", given["odom"]), ("cmd_vel", given["cmd_vel"])],
                arguments=log_level,
            ),
            Node(
                package="spec_vlm_nav",
                executable="vlm_nav_node",
                name="vlm_nav_node",
                namespace=given["namespace"],
                output="screen",
                parameters=[
                    given["params_file"],
                    {
                        "use_sim_time": use_sim_time,
                        "verifier": ParameterValue(given["verifier"], value_type=str),
                        "draft_model": ParameterValue(given["draft_model"], value_type=str),
                        "method": ParameterValue(given["method"], value_type=str),
                        "image_transport": ParameterValue(given["image_transport"], value_type=str),
                        "settle_s": ParameterValue(given["settle_s"], value_type=float),
                        "exploration": ParameterValue(given["exploration"], value_type=str),
                        "on_link_loss": ParameterValue(given["on_link_loss"], value_type=str),
                        "autostart": ParameterValue(given["autostart"], value_type=bool),
                        "dry_run": ParameterValue(given["dry_run"], value_type=bool),
                    },
                ],
                remappings=[("image", given["image"])],
                arguments=log_level,
            ),
            Node(
                package="spec_vlm_nav",
                executable="camera_decode_node",
                name="camera_decode_node",
                namespace=given["namespace"],
                output="screen",
                condition=IfCondition(PythonExpression(["'", given["camera_decode"], "' != ''"])),
                parameters=[
                    given["params_file"],
                    {
                        "use_sim_time": use_sim_time,
                        "source": ParameterValue(given["camera_decode"], value_type=str),
                        "interface": ParameterValue(given["camera_interface"], value_type=str),
                        "output": ParameterValue(given["image_transport"], value_type=str),
                    },
                ],
                remappings=[
                    ("video", "/frontvideostream"),
                    ("camera/image_raw", given["image"]),
                    ("camera/image_raw/compressed", given["image"]),
                ],
                arguments=log_level,
            ),
            Node(
                package="spec_vlm_nav",
                executable="view_node",
                name="view_node",
                namespace=given["namespace"],
                output="screen",
                condition=IfCondition(given["view"]),
                parameters=[
                    given["params_file"],
                    {
                        "use_sim_time": use_sim_time,
                        "image_transport": ParameterValue(given["image_transport"], value_type=str),
                    },
                ],
                remappings=[("image", given["image"]), ("odom", given["odom"])],
                arguments=log_level,
            ),
        ]
    )
