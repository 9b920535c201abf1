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

"""The parameters of motion_node by what they are about; `motion` joins them."""

from __future__ import annotations

from spec_vlm_nav.common.parameters import (
    limit,
    live,
    Parameter,
    RELIABILITY,
    SAFETY_LOCKED,
    Tighter,
)
from spec_vlm_nav.motion.ahead.collision import SOURCES
from spec_vlm_nav.motion.backends.velocity import BACKENDS
from spec_vlm_nav.motion.stopping import STYLES

OUTPUT: tuple[Parameter, ...] = (
    Parameter(
        "motion_backend",
        "twist",
        "How the robot is commanded to move: twist (cmd_vel, any robot), go2_sport (Unitree's sport "
        "API, no driver), nav2 (its DriveOnHeading and Spin actions), or auto (go2_sport where "
        "unitree_api is installed, else twist).",
        choices=BACKENDS,
    ),
    Parameter("rate_hz", 30.0, "Rate of cmd_vel, Hz.", 20.0, 200.0),
    Parameter(
        "enable_stamped_cmd_vel",
        False,
        "Publish TwistStamped instead of Twist (as Nav2 names it).",
    ),
    Parameter("cmd_vel_frame", "base_link", "frame_id of TwistStamped."),
    Parameter("zero_burst", 5, "Stops (zero velocities) sent when the node ends.", 1, 100),
    Parameter(
        "stop_style",
        "epsilon",
        "How Twists say stop: epsilon (one creep, then zeros: also for drivers that drop Twists "
        "of zeros), zero, or brake (slowing down first, then the same).",
        choices=STYLES,
    ),
    Parameter(
        "stop_epsilon_mps",
        0.001,
        "That creep, m/s: above what the driver takes for zero.",
        0.0001,
        0.05,
    ),
    Parameter(
        "go2_obstacles_avoid",
        False,
        "With go2_sport: switch the Go2's own obstacle avoidance on, and send motions through it.",
    ),
    SAFETY_LOCKED,
    Parameter(
        "dry_run",
        False,
        "Refuse every motion: nothing moves.",
        tighter=Tighter.TRUE,
    ),
    Parameter(
        "state_file",
        "",
        "Where e-stop, lost odometry, stop and geofence are kept, to hold after a restart; empty: "
        "spec_vlm_nav/motion_node.json in ROS_HOME or ~/.ros, and in a folder of the namespace if "
        "there is one.",
    ),
)

SPEEDS: tuple[Parameter, ...] = (
    limit(
        Tighter.LOWER, "max_linear", 0.5, "Fastest forward speed, m/s; also the cruising speed.", 0.05, 1.5
    ),
    limit(Tighter.LOWER, "max_angular", 0.8, "Fastest yaw rate, rad/s; also the turning speed.", 0.1, 2.0),
    limit(
        Tighter.LOWER,
        "unverified_max_linear",
        0.15,
        "Fastest forward speed of a command that the draft model alone decided, m/s.",
        0.05,
        1.5,
    ),
    limit(
        Tighter.LOWER,
        "unverified_max_angular",
        0.4,
        "Fastest yaw rate of a command that the draft model alone decided, rad/s.",
        0.1,
        2.0,
    ),
    limit(Tighter.NONE, "linear_acceleration", 1.0, "m/s2; slowing down may be twice that.", 0.1, 10.0),
    limit(Tighter.NONE, "angular_acceleration", 3.0, "rad/s2; slowing down may be twice that.", 0.2, 30.0),
    live("linear_tolerance", 0.02, "A distance counts as reached within this, m.", 0.005, 0.2),
    live("angular_tolerance", 0.026, "An angle counts as reached within this, rad.", 0.005, 0.3),
    limit(
        Tighter.LOWER,
        "blocked_after_s",
        0.7,
        "Asked to move but no progress for this long: blocked, s.",
        0.2,
        5.0,
    ),
)

RESPONSE: tuple[Parameter, ...] = (
    limit(
        Tighter.TRUE,
        "response_watched",
        True,
        "Compare commanded with measured motion, and stop where they do not fit.",
    ),
    limit(
        Tighter.LOWER,
        "response_timeout_s",
        0.7,
        "The longest delay between a command and odometry that is not a fault, s.",
        0.1,
        5.0,
    ),
    limit(
        Tighter.HIGHER,
        "response_low",
        0.5,
        "Less than this share of the commanded motion measured is a fault.",
        0.05,
        0.95,
    ),
    limit(
        Tighter.LOWER,
        "response_high",
        1.7,
        "More than this many times the commanded motion measured is a fault.",
        1.05,
        10.0,
    ),
    limit(
        Tighter.LOWER,
        "unanswered_max_linear",
        0.2,
        "Fastest forward speed until odometry shows the first of a motion, m/s.",
        0.02,
        1.5,
    ),
    limit(
        Tighter.LOWER,
        "unanswered_max_angular",
        0.4,
        "Fastest yaw rate until odometry shows the first of a motion, rad/s.",
        0.05,
        2.0,
    ),
    limit(
        Tighter.NONE,
        "actuation_delay_s",
        0.0,
        "Usual delay between a command and odometry, s (specnav calibrate measures it); each "
        "motion corrects it by what it sees.",
        0.0,
        3.0,
    ),
    limit(
        Tighter.NONE,
        "linear_scale",
        1.0,
        "What the base makes of a forward speed, measured over commanded (specnav calibrate).",
        0.2,
        3.0,
    ),
    limit(
        Tighter.NONE,
        "angular_scale",
        1.0,
        "What the base makes of a yaw rate, measured over commanded (specnav calibrate).",
        0.2,
        3.0,
    ),
    limit(
        Tighter.LOWER,
        "min_linear",
        0.06,
        "Slowest forward speed that moves the base, m/s (specnav calibrate).",
        0.005,
        0.5,
    ),
    limit(
        Tighter.LOWER,
        "min_angular",
        0.12,
        "Slowest yaw rate that moves the base, rad/s (specnav calibrate).",
        0.01,
        1.0,
    ),
)

WATCHDOGS: tuple[Parameter, ...] = (
    limit(
        Tighter.LOWER,
        "presence_timeout_s",
        0.7,
        "A console that holds control, or a running mission, is silent for this long: stop, s.",
        0.1,
        10.0,
    ),
    Parameter(
        "require_operator",
        False,
        "Move only while the console of an operator holds control (dead man).",
        tighter=Tighter.TRUE,
    ),
    Parameter("odom_reliability", "best_effort", "QoS of the odometry subscription.", choices=RELIABILITY),
    limit(
        Tighter.LOWER, "odom_timeout_s", 0.5, "No odometry for this long: stop, s (receive time).", 0.05, 5.0
    ),
    limit(
        Tighter.LOWER_0_OFF,
        "supervisor_timeout_s",
        1.0,
        "Nothing heard of vlm_nav_node for this long: stop, s; 0: not watched.",
        0.0,
        60.0,
    ),
    limit(
        Tighter.LOWER_0_OFF,
        "camera_timeout_s",
        1.5,
        "vlm_nav_node has had no camera frame for this long: stop, s; 0: not watched.",
        0.0,
        60.0,
    ),
    limit(
        Tighter.LOWER_0_OFF,
        "verifier_timeout_s",
        2.0,
        "vlm_nav_node has not heard its verifier for this long: stop, s; 0: not watched.",
        0.0,
        600.0,
    ),
    limit(
        Tighter.LOWER,
        "max_command_s",
        8.0,
        "No command is carried out for longer, whatever its deadline, s.",
        0.2,
        30.0,
    ),
    limit(
        Tighter.LOWER,
        "max_frame_age_s",
        30.0,
        "A command decided from an older frame is refused, s.",
        0.1,
        600.0,
    ),
    Parameter("odom_frame", "", "Expected frame_id of odometry; empty: that of the first message."),
    Parameter("base_frame", "", "Expected child_frame_id of odometry; empty: that of the first message."),
    limit(
        Tighter.LOWER_0_OFF,
        "robot_state_timeout_s",
        0.0,
        "The robot has not said on `robot_state` for this long that it is ready: nothing moves, "
        "s; 0: not watched.",
        0.0,
        60.0,
    ),
)

BOUNDS: tuple[Parameter, ...] = (
    limit(
        Tighter.LOWER_0_OFF,
        "geofence_m",
        15.0,
        "No motion leads further than this from where the instruction began, m; 0: no fence.",
        0.0,
        10000.0,
    ),
    limit(
        Tighter.LOWER,
        "rear_known_s",
        20.0,
        "Backwards only over places where the robot was within this time, s; 0: never by that.",
        0.0,
        600.0,
    ),
    limit(Tighter.LOWER, "rear_max_m", 0.5, "Longest way back over such places, m.", 0.0, 5.0),
)

COLLISION: tuple[Parameter, ...] = (
    Parameter(
        "collision_source",
        "none",
        "What looks ahead: none, scan (LaserScan on `scan`), depth (Image on `depth`, 16UC1 or "
        "32FC1) or cloud (PointCloud2 on `cloud`).",
        choices=SOURCES,
    ),
    Parameter("collision_reliability", "best_effort", "QoS of that subscription.", choices=RELIABILITY),
    limit(
        Tighter.HIGHER,
        "collision_distance_m",
        0.35,
        "Nothing may be nearer ahead in a forward motion, m: of the sensor, or with cloud of "
        "collision_cloud_front_m.",
        0.05,
        5.0,
    ),
    limit(
        Tighter.HIGHER,
        "stopping_distance_m",
        0.0,
        "Way that the robot goes on after a stop, m (specnav calibrate); added to that distance.",
        0.0,
        2.0,
    ),
    limit(
        Tighter.HIGHER,
        "collision_half_width_m",
        0.25,
        "Half the width of the way that is looked at, m.",
        0.02,
        2.0,
    ),
    limit(
        Tighter.LOWER,
        "collision_min_points",
        3,
        "This many rays, pixels or points make an obstacle; fewer are a speck.",
        1,
        10000,
    ),
    limit(
        Tighter.LOWER,
        "collision_timeout_s",
        0.5,
        "Silence of the sensor that ends and refuses every motion, s (receive time).",
        0.05,
        10.0,
    ),
    limit(
        Tighter.NONE,
        "collision_scan_yaw_rad",
        0.0,
        "Where the laser's x axis points on the robot, rad, left positive.",
        -3.15,
        3.15,
    ),
    limit(
        Tighter.NONE,
        "collision_depth_fov_rad",
        1.5,
        "Horizontal field of view of the depth image, rad.",
        0.1,
        3.0,
    ),
    limit(
        Tighter.HIGHER,
        "collision_depth_band",
        0.2,
        "Middle part of the depth image's rows that is looked at; more of it sees the floor.",
        0.005,
        1.0,
    ),
    limit(
        Tighter.NONE,
        "collision_cloud_x_m",
        0.0,
        "Where the cloud's frame is on the robot, m forward of its middle.",
        -5.0,
        5.0,
    ),
    limit(
        Tighter.NONE,
        "collision_cloud_y_m",
        0.0,
        "Where the cloud's frame is on the robot, m to the left of its middle.",
        -5.0,
        5.0,
    ),
    limit(
        Tighter.NONE,
        "collision_cloud_z_m",
        0.0,
        "Where the cloud's frame is on the robot, m over the floor; must be said with "
        "collision_source cloud (0.001 for a frame that lies on the floor).",
        0.0,
        5.0,
    ),
    limit(
        Tighter.NONE,
        "collision_cloud_roll_rad",
        0.0,
        "How the cloud's frame is turned on the robot: roll of a URDF's rpy, rad.",
        -3.15,
        3.15,
    ),
    limit(
        Tighter.NONE,
        "collision_cloud_pitch_rad",
        0.0,
        "How the cloud's frame is turned on the robot: pitch of a URDF's rpy, rad.",
        -3.15,
        3.15,
    ),
    limit(
        Tighter.NONE,
        "collision_cloud_yaw_rad",
        0.0,
        "How the cloud's frame is turned on the robot: yaw of a URDF's rpy, rad.",
        -3.15,
        3.15,
    ),
    limit(
        Tighter.LOWER,
        "collision_cloud_min_z_m",
        0.08,
        "Points lower over the floor than this are floor, m.",
        0.01,
        2.0,
    ),
    limit(
        Tighter.HIGHER,
        "collision_cloud_max_z_m",
        0.6,
        "Points higher over the floor than this pass over the robot, m.",
        0.02,
        5.0,
    ),
    limit(
        Tighter.NONE,
        "collision_cloud_front_m",
        0.0,
        "How far the robot's body reaches forward of its middle, m: a cloud's points in the body "
        "are its own, and distances ahead count from there.",
        0.0,
        3.0,
    ),
    limit(
        Tighter.NONE,
        "collision_cloud_rear_m",
        0.0,
        "How far the robot's body reaches to the rear of its middle, m.",
        0.0,
        3.0,
    ),
    limit(
        Tighter.NONE,
        "collision_cloud_side_m",
        0.0,
        "How far the robot's body reaches to either side of its middle, m.",
        0.0,
        3.0,
    ),
)
