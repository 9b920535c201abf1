"""The robot's nodes on a Unitree Go2 whose driver gives a camera, odom and takes cmd_vel (for example go2_ros2_sdk).

ros2 launch spec_vlm_nav go2.launch.py verifier:=tcp://192.168.1.10:5555 draft_model:=/models/nav-draft
ros2 action send_goal --feedback /navigate_instruction spec_vlm_nav_interfaces/action/NavigateInstruction \\
    '{instruction: "find the silver bottle", time_allowance: {sec: 120}}'
"""

from pathlib import Path

from launch.actions import DeclareLaunchArgument
from launch.condition import Condition
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
    "video": ("/frontvideostream", "With camera_decode topic_unitree: where the video is."),
    "camera_interface": ("", "With camera_decode url: this machine's address on the robot's network."),
    "settle_s": ("0.3", "Latency of the camera: only frames received so long after a motion are used, s."),
}


def generate_launch_description() -> LaunchDescription:
    """Declare the arguments and start the nodes."""
    given = {name: LaunchConfiguration(name) for name in ARGUMENTS}

    def parameters(**kinds: type) -> dict[str, ParameterValue]:
        return {name: ParameterValue(given[name], value_type=kind) for name, kind in kinds.items()}

    def node(
        name: str, own: dict[str, ParameterValue], remaps: dict[str, str], condition: Condition | None = None
    ) -> Node:
        return Node(
            package="spec_vlm_nav",
            executable=name,
            name=name,
            namespace=given["namespace"],
            output="screen",
            condition=condition,
            parameters=[given["params_file"], {**parameters(use_sim_time=bool), **own}],
            remappings=[(topic, given[argument]) for topic, argument in remaps.items()],
            arguments=["--ros-args", "--log-level", given["log_level"]],
        )

    decode = {
        "source": ParameterValue(given["camera_decode"], value_type=str),
        "interface": ParameterValue(given["camera_interface"], value_type=str),
        "output": ParameterValue(given["image_transport"], value_type=str),
    }
    return LaunchDescription(
        [
            *(
                DeclareLaunchArgument(name, default_value=default, description=description)
                for name, (default, description) in ARGUMENTS.items()
            ),
            node(
                "motion_node",
                parameters(motion_backend=str, enable_stamped_cmd_vel=bool),
                {"odom": "odom", "cmd_vel": "cmd_vel"},
                UnlessCondition(given["dry_run"]),
            ),
            node(
                "vlm_nav_node",
                parameters(
                    verifier=str,
                    draft_model=str,
                    method=str,
                    image_transport=str,
                    settle_s=float,
                    exploration=str,
                    on_link_loss=str,
                    autostart=bool,
                    dry_run=bool,
                ),
                {"image": "image"},
            ),
            node(
                "camera_decode_node",
                decode,
                {"video": "video", "camera/image_raw": "image", "camera/image_raw/compressed": "image"},
                IfCondition(PythonExpression(["'", given["camera_decode"], "' != ''"])),
            ),
            node(
                "view_node",
                parameters(image_transport=str),
                {"image": "image", "odom": "odom"},
                IfCondition(given["view"]),
            ),
        ]
    )
