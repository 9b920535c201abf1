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

"""The parameters of motion_node about the sensor that looks ahead."""

from __future__ import annotations

from spec_vlm_nav.common.parameters import Parameter, RELIABILITY, Tighter
from spec_vlm_nav.motion.ahead.collision import SOURCES

COLLISION: tuple[Parameter, ...] = (
    Parameter(
        "collision_source",
        "none",
        "What looks ahead: none, scan (LaserScan on `scan`), depth (Image on `depth`, 16UC1 or "
        "32FC1) or cloud (PointCloud2 on `cloud`).",
        choices=SOURCES,
    ),
    Parameter(
        "collision_reliability", "best_effort", "QoS of that subscription.", choices=RELIABILITY
    ),
    Parameter(
        "collision_distance_m",
        0.35,
        "Nothing may be nearer ahead in a forward motion, m: of the sensor, or with cloud of "
        "collision_cloud_front_m.",
        0.05,
        5.0,
        live=True,
        tighter=Tighter.HIGHER,
    ),
    Parameter(
        "stopping_distance_m",
        0.0,
        "Way that the robot goes on after a stop, m (specnav calibrate); added to that distance.",
        0.0,
        2.0,
        live=True,
        tighter=Tighter.HIGHER,
    ),
    Parameter(
        "collision_half_width_m",
        0.25,
        "Half the width of the way that is looked at, m.",
        0.02,
        2.0,
        live=True,
        tighter=Tighter.HIGHER,
    ),
    Parameter(
        "collision_min_points",
        3,
        "This many rays, pixels or points make an obstacle; fewer are a speck.",
        1,
        10000,
        live=True,
        tighter=Tighter.LOWER,
    ),
    Parameter(
        "collision_timeout_s",
        0.5,
        "Silence of the sensor that ends and refuses every motion, s (receive time).",
        0.05,
        10.0,
        live=True,
        tighter=Tighter.LOWER,
    ),
    Parameter(
        "collision_scan_yaw_rad",
        0.0,
        "Where the laser's x axis points on the robot, rad, left positive.",
        -3.15,
        3.15,
        live=True,
        tighter=Tighter.NONE,
    ),
    Parameter(
        "collision_depth_fov_rad",
        1.5,
        "Horizontal field of view of the depth image, rad.",
        0.1,
        3.0,
        live=True,
        tighter=Tighter.NONE,
    ),
    Parameter(
        "collision_depth_band",
        0.2,
        "Middle part of the depth image's rows that is looked at; more of it sees the floor.",
        0.005,
        1.0,
        live=True,
        tighter=Tighter.HIGHER,
    ),
    Parameter(
        "collision_cloud_x_m",
        0.0,
        "Where the cloud's frame is on the robot, m forward of its middle.",
        -5.0,
        5.0,
        live=True,
        tighter=Tighter.NONE,
    ),
    Parameter(
        "collision_cloud_y_m",
        0.0,
        "Where the cloud's frame is on the robot, m to the left of its middle.",
        -5.0,
        5.0,
        live=True,
        tighter=Tighter.NONE,
    ),
    Parameter(
        "collision_cloud_z_m",
        0.0,
        "Where the cloud's frame is on the robot, m over the floor; must be said with "
        "collision_source cloud (0.001 for a frame that lies on the floor).",
        0.0,
        5.0,
        live=True,
        tighter=Tighter.NONE,
    ),
    Parameter(
        "collision_cloud_roll_rad",
        0.0,
        "How the cloud's frame is turned on the robot: roll of a URDF's rpy, rad.",
        -3.15,
        3.15,
        live=True,
        tighter=Tighter.NONE,
    ),
    Parameter(
        "collision_cloud_pitch_rad",
        0.0,
        "How the cloud's frame is turned on the robot: pitch of a URDF's rpy, rad.",
        -3.15,
        3.15,
        live=True,
        tighter=Tighter.NONE,
    ),
    Parameter(
        "collision_cloud_yaw_rad",
        0.0,
        "How the cloud's frame is turned on the robot: yaw of a URDF's rpy, rad.",
        -3.15,
        3.15,
        live=True,
        tighter=Tighter.NONE,
    ),
    Parameter(
        "collision_cloud_min_z_m",
        0.08,
        "Points lower over the floor than this are floor, m.",
        0.01,
        2.0,
        live=True,
        tighter=Tighter.LOWER,
    ),
    Parameter(
        "collision_cloud_max_z_m",
        0.6,
        "Points higher over the floor than this pass over the robot, m.",
        0.02,
        5.0,
        live=True,
        tighter=Tighter.HIGHER,
    ),
    Parameter(
        "collision_cloud_front_m",
        0.0,
        "How far the robot's body reaches forward of its middle, m: a cloud's points in the body "
        "are its own, and distances ahead count from there.",
        0.0,
        3.0,
        live=True,
        tighter=Tighter.NONE,
    ),
    Parameter(
        "collision_cloud_rear_m",
        0.0,
        "How far the robot's body reaches to the rear of its middle, m.",
        0.0,
        3.0,
        live=True,
        tighter=Tighter.NONE,
    ),
    Parameter(
        "collision_cloud_side_m",
        0.0,
        "How far the robot's body reaches to either side of its middle, m.",
        0.0,
        3.0,
        live=True,
        tighter=Tighter.NONE,
    ),
)
