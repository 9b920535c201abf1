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

"""The parameters of motion_node, and the limits they make."""

from __future__ import annotations

from collections.abc import Mapping

from spec_vlm_nav.backends import BACKENDS
from spec_vlm_nav.collision import CorridorConfig, SOURCES
from spec_vlm_nav.executor import ExecutorConfig
from spec_vlm_nav.parameters import Parameter, RELIABILITY, Value
from spec_vlm_nav.safety import SafetyConfig

MOTION: tuple[Parameter, ...] = (
    Parameter(
        'motion_backend',
        'twist',
        "How the robot is told to move: twist (cmd_vel, any robot), go2_sport (Unitree's sport "
        'API, no driver) or nav2 (its DriveOnHeading and Spin actions).',
        choices=BACKENDS,
    ),
    Parameter('rate_hz', 30.0, 'Rate of cmd_vel, Hz.', 20.0, 200.0),
    Parameter(
        'enable_stamped_cmd_vel',
        False,
        'Publish TwistStamped instead of Twist (as Nav2 names it).',
    ),
    Parameter('cmd_vel_frame', 'base_link', 'frame_id of TwistStamped.'),
    Parameter(
        'odom_reliability', 'best_effort', 'QoS of the odometry subscription.', choices=RELIABILITY
    ),
    Parameter(
        'max_linear',
        0.5,
        'Fastest forward speed, m/s; also the cruising speed.',
        0.05,
        1.5,
        live=True,
    ),
    Parameter(
        'max_angular', 0.8, 'Fastest yaw rate, rad/s; also the turning speed.', 0.1, 2.0, live=True
    ),
    Parameter(
        'unverified_max_linear',
        0.15,
        'Fastest forward speed of a command that the draft model alone decided, m/s.',
        0.05,
        1.5,
        live=True,
    ),
    Parameter(
        'unverified_max_angular',
        0.4,
        'Fastest yaw rate of a command that the draft model alone decided, rad/s.',
        0.1,
        2.0,
        live=True,
    ),
    Parameter(
        'linear_acceleration', 1.0, 'm/s2; slowing down may be twice that.', 0.1, 10.0, live=True
    ),
    Parameter(
        'angular_acceleration',
        3.0,
        'rad/s2; slowing down may be twice that.',
        0.2,
        30.0,
        live=True,
    ),
    Parameter(
        'linear_tolerance',
        0.02,
        'A distance counts as reached so close, m.',
        0.005,
        0.2,
        live=True,
    ),
    Parameter(
        'angular_tolerance',
        0.026,
        'An angle counts as reached so close, rad.',
        0.005,
        0.3,
        live=True,
    ),
    Parameter(
        'blocked_after_s',
        0.7,
        'Asked to move but no progress for so long: blocked, s.',
        0.2,
        5.0,
        live=True,
    ),
    Parameter(
        'odom_timeout_s',
        0.5,
        'No odometry for so long: stop, s (receive time).',
        0.05,
        5.0,
        live=True,
    ),
    Parameter(
        'supervisor_timeout_s',
        1.0,
        'Nothing heard of vlm_nav_node for so long: stop, s; 0: not watched.',
        0.0,
        60.0,
        live=True,
    ),
    Parameter(
        'camera_timeout_s',
        1.5,
        'vlm_nav_node has had no camera frame for so long: stop, s; 0: not watched.',
        0.0,
        60.0,
        live=True,
    ),
    Parameter(
        'verifier_timeout_s',
        2.0,
        'vlm_nav_node has not heard its verifier for so long: stop, s; 0: not watched.',
        0.0,
        600.0,
        live=True,
    ),
    Parameter(
        'max_command_s',
        8.0,
        'No command is carried out for longer, whatever its deadline, s.',
        0.2,
        30.0,
        live=True,
    ),
    Parameter(
        'max_frame_age_s',
        30.0,
        'A command decided from an older frame is refused, s.',
        0.1,
        600.0,
        live=True,
    ),
    Parameter(
        'collision_source',
        'none',
        'What looks ahead: none, scan (LaserScan on `scan`) or depth (Image on `depth`, '
        '16UC1 or 32FC1).',
        choices=SOURCES,
    ),
    Parameter(
        'collision_reliability', 'best_effort', 'QoS of that subscription.', choices=RELIABILITY
    ),
    Parameter(
        'collision_distance_m',
        0.35,
        'Nothing may be nearer ahead of the sensor in a forward motion, m.',
        0.05,
        5.0,
        live=True,
    ),
    Parameter(
        'collision_half_width_m',
        0.25,
        'Half the width of the way that is looked at, m.',
        0.02,
        2.0,
        live=True,
    ),
    Parameter(
        'collision_min_points',
        3,
        'So many rays or pixels make a thing; fewer are a speck.',
        1,
        10000,
        live=True,
    ),
    Parameter(
        'collision_timeout_s',
        0.5,
        'Silence of the sensor that ends and refuses forward motion, s (receive time).',
        0.05,
        10.0,
        live=True,
    ),
    Parameter(
        'collision_scan_yaw_rad',
        0.0,
        "Where the laser's x axis points on the robot, rad, left positive.",
        -3.15,
        3.15,
        live=True,
    ),
    Parameter(
        'collision_depth_fov_rad',
        1.5,
        'Horizontal field of view of the depth image, rad.',
        0.1,
        3.0,
        live=True,
    ),
    Parameter(
        'collision_depth_band',
        0.2,
        "Middle part of the depth image's rows that is looked at; more of it sees the floor.",
        0.005,
        1.0,
        live=True,
    ),
    Parameter('zero_burst', 5, 'Stops (zero velocities) sent when the node ends.', 1, 100),
)


def executor_config(values: Mapping[str, Value]) -> ExecutorConfig:
    """Return the executor's part of the parameters."""
    return ExecutorConfig(
        linear_speed=float(values['max_linear']),
        angular_speed=float(values['max_angular']),
        linear_tolerance=float(values['linear_tolerance']),
        angular_tolerance=float(values['angular_tolerance']),
        blocked_after_s=float(values['blocked_after_s']),
    )


def safety_config(values: Mapping[str, Value]) -> SafetyConfig:
    """Return the gate's part of the parameters."""
    linear, angular = float(values['linear_acceleration']), float(values['angular_acceleration'])
    return SafetyConfig(
        max_linear=float(values['max_linear']),
        max_angular=float(values['max_angular']),
        unverified_max_linear=float(values['unverified_max_linear']),
        unverified_max_angular=float(values['unverified_max_angular']),
        linear_acceleration=linear,
        angular_acceleration=angular,
        linear_deceleration=2 * linear,
        angular_deceleration=2 * angular,
        max_command_s=float(values['max_command_s']),
        max_frame_age_s=float(values['max_frame_age_s']),
        odom_timeout_s=float(values['odom_timeout_s']),
        supervisor_timeout_s=float(values['supervisor_timeout_s']),
        camera_timeout_s=float(values['camera_timeout_s']),
        verifier_timeout_s=float(values['verifier_timeout_s']),
        collision_watched=values['collision_source'] != 'none',
        collision_distance_m=float(values['collision_distance_m']),
        collision_timeout_s=float(values['collision_timeout_s']),
    )


def corridor_config(values: Mapping[str, Value]) -> CorridorConfig:
    """Return what the collision sensor looks at."""
    return CorridorConfig(
        half_width_m=float(values['collision_half_width_m']),
        reach_m=float(values['collision_distance_m']),
        min_points=int(values['collision_min_points']),
        scan_yaw_rad=float(values['collision_scan_yaw_rad']),
        depth_fov_rad=float(values['collision_depth_fov_rad']),
        depth_band=float(values['collision_depth_band']),
    )
