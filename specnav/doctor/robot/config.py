# SPDX-License-Identifier: Apache-2.0
"""Settings of `specnav doctor --robot`."""

from __future__ import annotations

from dataclasses import dataclass

from specdec.settings import same_as, setting
from specnav.doctor.gpu.config import GpuDoctorConfig


@dataclass(frozen=True)
class RobotDoctorConfig:
    """Topics of the robot, and its verifier."""

    namespace: str = setting("", "With --robot: namespace of our nodes.", metavar="NS")
    image: str = setting(
        "", "With --robot: camera topic.", metavar="TOPIC", shown="what vlm_nav_node subscribes to"
    )
    odom: str = setting(
        "", "With --robot: odometry topic.", metavar="TOPIC", shown="what motion_node subscribes to"
    )
    cmd_vel: str = setting(
        "", "With --robot: topic of velocities.", metavar="TOPIC", shown="where motion_node publishes"
    )
    verifier: str = setting(
        "", "With --robot: verifier, tcp:// or fleet://HOST:PORT.", metavar="ADDRESS", shown="vlm_nav_node's"
    )
    key: str = setting("", "With --robot: key file for the verifier.", metavar="FILE", shown="vlm_nav_node's")
    seconds: float = same_as(GpuDoctorConfig, "seconds")
    json: bool = same_as(GpuDoctorConfig, "json")
