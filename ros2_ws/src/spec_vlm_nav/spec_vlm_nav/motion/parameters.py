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

"""The parameters of motion_node: their table, consistency checks, and the configurations."""

from __future__ import annotations

from collections.abc import Mapping

from spec_vlm_nav.common.errors import ParameterError
from spec_vlm_nav.common.parameters import (
    config_of,
    limit,
    live,
    Parameter,
    RELIABILITY,
    SAFETY_LOCKED,
    Tighter,
    Value,
)
from spec_vlm_nav.motion.ahead.collision import SOURCES
from spec_vlm_nav.motion.ahead.corridor import CloudConfig, CorridorConfig, Mounting
from spec_vlm_nav.motion.backends.velocity import BACKENDS
from spec_vlm_nav.motion.executor import ExecutorConfig
from spec_vlm_nav.motion.limits import SafetyConfig
from spec_vlm_nav.motion.stopping import StopConfig, STYLES

MOTION: tuple[Parameter, ...] = (
    # -- output
    Parameter("motion_backend", "twist",
              "How the robot is commanded to move: twist (cmd_vel, any robot), go2_sport (Unitree's sport "
              "API, no driver), nav2 (its DriveOnHeading and Spin actions), or auto (go2_sport where "
              "unitree_api is installed, else twist).", choices=BACKENDS),
    Parameter("rate_hz", 30.0, "Rate of cmd_vel, Hz.", 20.0, 200.0),
    Parameter("enable_stamped_cmd_vel", False, "Publish TwistStamped instead of Twist (as Nav2 names it)."),
    Parameter("cmd_vel_frame", "base_link", "frame_id of TwistStamped."),
    Parameter("zero_burst", 5, "Stops (zero velocities) sent when the node ends.", 1, 100),
    Parameter("stop_style", "epsilon",
              "How stops are sent as Twists: epsilon (one tiny speed, then zeros; works with drivers that "
              "drop zero Twists), zero, or brake (slow down first, then as epsilon).", choices=STYLES),
    Parameter("stop_epsilon_mps", 0.001,
              "The tiny speed of stop_style, m/s: larger than the driver's threshold for zero.",
              0.0001, 0.05),
    Parameter("go2_obstacles_avoid", False,
              "With go2_sport: switch the Go2's own obstacle avoidance on, and send motions through it."),
    SAFETY_LOCKED,
    Parameter("dry_run", False, "Refuse every motion: nothing moves.", tighter=Tighter.TRUE),
    Parameter("state_file", "",
              "File that keeps e-stop, lost odometry, stop and geofence across a restart; empty: "
              "spec_vlm_nav/motion_node.json in ROS_HOME or ~/.ros, in a subfolder for the namespace if "
              "there is one."),
    # -- speeds
    limit(Tighter.LOWER, "max_linear", 0.5,
          "Fastest forward speed, m/s; also the cruising speed.", 0.05, 1.5),
    limit(Tighter.LOWER, "max_angular", 0.8, "Fastest yaw rate, rad/s; also the turning speed.", 0.1, 2.0),
    limit(Tighter.LOWER, "unverified_max_linear", 0.15,
          "Fastest forward speed of a command that the draft model alone decided, m/s.", 0.05, 1.5),
    limit(Tighter.LOWER, "unverified_max_angular", 0.4,
          "Fastest yaw rate of a command that the draft model alone decided, rad/s.", 0.1, 2.0),
    limit(Tighter.NONE, "linear_acceleration", 1.0, "m/s2; the deceleration is twice that.", 0.1, 10.0),
    limit(Tighter.NONE, "angular_acceleration", 3.0, "rad/s2; the deceleration is twice that.", 0.2, 30.0),
    live("linear_tolerance", 0.02, "A distance counts as reached within this, m.", 0.005, 0.2),
    live("angular_tolerance", 0.026, "An angle counts as reached within this, rad.", 0.005, 0.3),
    limit(Tighter.LOWER, "blocked_after_s", 0.7,
          "Commanded to move but no progress for this long: blocked, s.", 0.2, 5.0),
    # -- response of the base
    limit(Tighter.TRUE, "response_watched", True,
          "Compare commanded with measured motion, and stop if they do not match."),
    limit(Tighter.LOWER, "response_timeout_s", 0.7,
          "Longest delay between a command and odometry that is not a fault, s.", 0.1, 5.0),
    limit(Tighter.HIGHER, "response_low", 0.5,
          "A measured motion below this share of the commanded one is a fault.", 0.05, 0.95),
    limit(Tighter.LOWER, "response_high", 1.7,
          "A measured motion above this multiple of the commanded one is a fault.", 1.05, 10.0),
    limit(Tighter.LOWER, "unanswered_max_linear", 0.2,
          "Fastest forward speed until odometry shows the start of a motion, m/s.", 0.02, 1.5),
    limit(Tighter.LOWER, "unanswered_max_angular", 0.4,
          "Fastest yaw rate until odometry shows the start of a motion, rad/s.", 0.05, 2.0),
    limit(Tighter.NONE, "actuation_delay_s", 0.0,
          "Usual delay between a command and odometry, s (specnav calibrate measures it); each motion "
          "replaces it by the delay it observes.", 0.0, 3.0),
    limit(Tighter.NONE, "linear_scale", 1.0,
          "Ratio of measured to commanded forward speed (specnav calibrate).", 0.2, 3.0),
    limit(Tighter.NONE, "angular_scale", 1.0,
          "Ratio of measured to commanded yaw rate (specnav calibrate).", 0.2, 3.0),
    limit(Tighter.LOWER, "min_linear", 0.06,
          "Slowest forward speed that moves the base, m/s (specnav calibrate).", 0.005, 0.5),
    limit(Tighter.LOWER, "min_angular", 0.12,
          "Slowest yaw rate that moves the base, rad/s (specnav calibrate).", 0.01, 1.0),
    # -- watchdogs
    limit(Tighter.LOWER, "presence_timeout_s", 0.7,
          "A console in control (with its require_operator) or a running mission is silent for this long: "
          "stop, s.", 0.1, 10.0),
    Parameter("require_operator", False,
              "Move only while an operator's console holds control (dead man's switch).",
              tighter=Tighter.TRUE),
    Parameter("odom_reliability", "best_effort", "QoS of the odometry subscription.", choices=RELIABILITY),
    limit(Tighter.LOWER, "odom_timeout_s", 0.5,
          "No odometry for this long: stop, s (receive time).", 0.05, 5.0),
    limit(Tighter.LOWER_0_OFF, "supervisor_timeout_s", 1.0,
          "Nothing heard from vlm_nav_node for this long: stop, s; 0: not watched.", 0.0, 60.0),
    limit(Tighter.LOWER_0_OFF, "camera_timeout_s", 1.5,
          "vlm_nav_node has had no camera frame for this long: stop, s; 0: not watched.", 0.0, 60.0),
    limit(Tighter.LOWER_0_OFF, "verifier_timeout_s", 2.0,
          "vlm_nav_node has not heard its verifier for this long: stop, s; 0: not watched.", 0.0, 600.0),
    limit(Tighter.LOWER, "max_command_s", 8.0,
          "Longest execution of one command, whatever its deadline, s.", 0.2, 30.0),
    limit(Tighter.LOWER, "max_frame_age_s", 30.0,
          "A command decided from an older frame is refused, s.", 0.1, 600.0),
    Parameter("odom_frame", "", "Expected frame_id of odometry; empty: that of the first message."),
    Parameter("base_frame", "", "Expected child_frame_id of odometry; empty: that of the first message."),
    limit(Tighter.LOWER_0_OFF, "robot_state_timeout_s", 0.0,
          "The robot has not reported ready on `robot_state` for this long: nothing moves, s; 0: not "
          "watched.", 0.0, 60.0),
    # -- bounds
    limit(Tighter.LOWER_0_OFF, "geofence_m", 15.0,
          "Farthest distance from where the instruction began, m; 0: no fence.", 0.0, 10000.0),
    limit(Tighter.LOWER, "rear_known_s", 20.0,
          "Where no sensor sees the way behind, drive backward only over places where the robot was within "
          "this time, s; 0: never.", 0.0, 600.0),
    limit(Tighter.LOWER, "rear_max_m", 0.5, "Longest backward drive over these places, m.", 0.0, 5.0),
    # -- collision sensor
    Parameter("collision_source", "none",
              "Collision sensor: none, scan (LaserScan on `scan`), depth (Image on `depth`, 16UC1 or "
              "32FC1) or cloud (PointCloud2 on `cloud`).", choices=SOURCES),
    Parameter("collision_reliability", "best_effort", "QoS of that subscription.", choices=RELIABILITY),
    limit(Tighter.HIGHER, "collision_distance_m", 0.35,
          "Least distance to an obstacle ahead in a forward motion, m: from the sensor, or with cloud "
          "from collision_cloud_front_m.", 0.05, 5.0),
    limit(Tighter.HIGHER, "stopping_distance_m", 0.0,
          "Distance that the robot rolls on after a stop, m (specnav calibrate); added to "
          "collision_distance_m.", 0.0, 2.0),
    limit(Tighter.HIGHER, "collision_half_width_m", 0.25,
          "Half the width of the watched corridor, m.", 0.02, 2.0),
    limit(Tighter.LOWER, "collision_min_points", 3,
          "This many rays, pixels or points make an obstacle; fewer are ignored.", 1, 10000),
    limit(Tighter.LOWER, "collision_timeout_s", 0.5,
          "After this silence of the sensor every motion ends or is refused, s (receive time).", 0.05, 10.0),
    limit(Tighter.NONE, "collision_scan_yaw_rad", 0.0,
          "Yaw of the laser's x axis on the robot, rad, left positive.", -3.15, 3.15),
    limit(Tighter.NONE, "collision_depth_fov_rad", 1.5,
          "Horizontal field of view of the depth image, rad.", 0.1, 3.0),
    limit(Tighter.HIGHER, "collision_depth_band", 0.2,
          "Share of the depth image's rows that is read, around the middle; too much sees the floor.",
          0.005, 1.0),
    limit(Tighter.NONE, "collision_cloud_x_m", 0.0,
          "Position of the cloud's frame on the robot, m forward of its middle.", -5.0, 5.0),
    limit(Tighter.NONE, "collision_cloud_y_m", 0.0,
          "Position of the cloud's frame on the robot, m to the left of its middle.", -5.0, 5.0),
    limit(Tighter.NONE, "collision_cloud_z_m", 0.0,
          "Height of the cloud's frame above the floor, m; required with collision_source cloud (0.001 "
          "for a frame on the floor).", 0.0, 5.0),
    *(limit(Tighter.NONE, f"collision_cloud_{turn}_rad", 0.0,
            f"{turn.capitalize()} of the cloud's frame on the robot, as in a URDF's rpy, rad.", -3.15, 3.15)
      for turn in ("roll", "pitch", "yaw")),
    limit(Tighter.LOWER, "collision_cloud_min_z_m", 0.08,
          "Points lower than this above the floor are floor, m.", 0.01, 2.0),
    limit(Tighter.HIGHER, "collision_cloud_max_z_m", 0.6,
          "Points higher than this above the floor are above the robot, m.", 0.02, 5.0),
    limit(Tighter.NONE, "collision_cloud_front_m", 0.0,
          "Extent of the robot's body forward of its middle, m: a cloud's points inside the body are "
          "ignored, and distances ahead count from its front.", 0.0, 3.0),
    limit(Tighter.NONE, "collision_cloud_rear_m", 0.0,
          "Extent of the robot's body behind its middle, m.", 0.0, 3.0),
    limit(Tighter.NONE, "collision_cloud_side_m", 0.0,
          "Extent of the robot's body to either side of its middle, m.", 0.0, 3.0),
)  # fmt: skip
SHORTEST_M = 0.25  # the shortest drive that the model can ask for


def check_motion(values: Mapping[str, Value]) -> None:
    """Raise ParameterError if parameters that are valid on their own contradict each other."""

    def above(low: str, high: str, why: str) -> None:
        if float(values[low]) > float(values[high]):
            raise ParameterError(
                f"{low} = {values[low]} and {high} = {values[high]} contradict each other: {why}"
            )

    for axis in ("linear", "angular"):
        for most in ("max", "unverified_max", "unanswered_max"):
            above(f"min_{axis}", f"{most}_{axis}", "the base would not move at all")
    above("actuation_delay_s", "response_timeout_s", "every response would arrive too late")
    above("collision_cloud_min_z_m", "collision_cloud_max_z_m", "no point of a cloud would count")
    if values["collision_source"] == "cloud" and not values["collision_cloud_z_m"]:
        raise ParameterError(
            "collision_source cloud needs collision_cloud_z_m, the height of the cloud's frame above "
            "the floor, m: without it floor and obstacles cannot be distinguished (0.001 for a frame "
            "on the floor)"
        )
    if values["go2_obstacles_avoid"] and values["motion_backend"] not in ("go2_sport", "auto"):
        raise ParameterError(
            "go2_obstacles_avoid needs motion_backend go2_sport, not "
            f"{values['motion_backend']}: no other back-end sends motions to the Go2 itself"
        )
    fence = float(values["geofence_m"])
    if 0 < fence < SHORTEST_M:
        raise ParameterError(
            f"geofence_m = {fence:g} is smaller than the shortest motion, {SHORTEST_M} m: "
            "the robot could not move; 0 means no fence"
        )


def executor_config(values: Mapping[str, Value]) -> ExecutorConfig:
    """Return the executor's configuration."""
    return config_of(
        ExecutorConfig,
        values,
        linear_speed=values["max_linear"],
        angular_speed=values["max_angular"],
        slowest_linear=values["min_linear"],
        slowest_angular=values["min_angular"],
    )


def safety_config(values: Mapping[str, Value]) -> SafetyConfig:
    """Return the gate's configuration."""
    return config_of(
        SafetyConfig,
        values,
        linear_deceleration=2 * float(values["linear_acceleration"]),
        angular_deceleration=2 * float(values["angular_acceleration"]),
        collision_watched=values["collision_source"] != "none",
        collision_distance_m=_reach_m(values),
    )


def stop_config(values: Mapping[str, Value]) -> StopConfig:
    """Return how stops are sent as Twists."""
    return config_of(
        StopConfig,
        values,
        style=values["stop_style"],
        epsilon_mps=values["stop_epsilon_mps"],
        linear_deceleration=2 * float(values["linear_acceleration"]),
        angular_deceleration=2 * float(values["angular_acceleration"]),
    )


def corridor_config(values: Mapping[str, Value]) -> CorridorConfig:
    """Return the corridor that the collision sensor watches."""
    axes = ("x_m", "y_m", "z_m", "roll_rad", "pitch_rad", "yaw_rad")
    mounting = Mounting(*(float(values[f"collision_cloud_{axis}"]) for axis in axes))
    cloud = config_of(CloudConfig, values, "collision_cloud_", mounting=mounting)
    return config_of(CorridorConfig, values, "collision_", reach_m=_reach_m(values), cloud=cloud)


def _reach_m(values: Mapping[str, Value]) -> float:
    return float(values["collision_distance_m"]) + float(values["stopping_distance_m"])
