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

"""The parameters of motion_node, the limits they make, and what they must not say together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from spec_vlm_nav.common.errors import ParameterError
from spec_vlm_nav.common.parameters import Parameter, Value
from spec_vlm_nav.motion.ahead.corridor import CloudConfig, CorridorConfig, Mounting
from spec_vlm_nav.motion.executor import ExecutorConfig
from spec_vlm_nav.motion.limits import SafetyConfig
from spec_vlm_nav.motion.parameters.collision import COLLISION
from spec_vlm_nav.motion.parameters.tables import BOUNDS, OUTPUT, RESPONSE, SPEEDS, WATCHDOGS
from spec_vlm_nav.motion.stopping import StopConfig

MOTION: tuple[Parameter, ...] = (
    *OUTPUT,
    *SPEEDS,
    *RESPONSE,
    *WATCHDOGS,
    *BOUNDS,
    *COLLISION,
)
SHORTEST_M = 0.25  # of the motions that the model can ask for


def check_motion(values: Mapping[str, Value]) -> None:
    """Raise ParameterError where parameters, each right by itself, contradict each other."""

    def above(low: str, high: str, why: str) -> None:
        if float(values[low]) > float(values[high]):
            raise ParameterError(
                f"{low} = {values[low]} and {high} = {values[high]} contradict each other: {why}"
            )

    for axis in ("linear", "angular"):
        for limit in ("max", "unverified_max", "unanswered_max"):
            above(f"min_{axis}", f"{limit}_{axis}", "the base would not move at all")
    above(
        "actuation_delay_s",
        "response_timeout_s",
        "every response would come too late",
    )
    above(
        "collision_cloud_min_z_m",
        "collision_cloud_max_z_m",
        "no point of a cloud would count",
    )
    if values["collision_source"] == "cloud" and not values["collision_cloud_z_m"]:
        raise ParameterError(
            "collision_source cloud needs collision_cloud_z_m, how high the cloud's frame is over "
            "the floor, m: floor and things could not be distinguished (0.001 for a frame that lies "
            "on the floor)"
        )
    if values["go2_obstacles_avoid"] and values["motion_backend"] not in ("go2_sport", "auto"):
        raise ParameterError(
            'go2_obstacles_avoid needs motion_backend go2_sport, not '
            f'{values["motion_backend"]}: only there are motions sent to the Go2 itself'
        )
    fence = float(values["geofence_m"])
    if 0 < fence < SHORTEST_M:
        raise ParameterError(
            f"geofence_m = {fence:g} is smaller than the shortest motion, {SHORTEST_M} m: "
            "the robot could not move; 0 means no fence"
        )


def executor_config(values: Mapping[str, Value]) -> ExecutorConfig:
    """Return the executor's part of the parameters."""
    return ExecutorConfig(
        linear_speed=float(values["max_linear"]),
        angular_speed=float(values["max_angular"]),
        linear_tolerance=float(values["linear_tolerance"]),
        angular_tolerance=float(values["angular_tolerance"]),
        slowest_linear=float(values["min_linear"]),
        slowest_angular=float(values["min_angular"]),
        blocked_after_s=float(values["blocked_after_s"]),
        response_timeout_s=float(values["response_timeout_s"]),
    )


def safety_config(values: Mapping[str, Value]) -> SafetyConfig:
    """Return the gate's part of the parameters; most of them have the names of its fields."""
    linear, angular = float(values["linear_acceleration"]), float(values["angular_acceleration"])
    same = {
        field.name: values[field.name] for field in fields(SafetyConfig) if field.name in values
    }
    reach = float(values["collision_distance_m"]) + float(values["stopping_distance_m"])
    made = {
        "linear_deceleration": 2 * linear,
        "angular_deceleration": 2 * angular,
        "collision_watched": values["collision_source"] != "none",
        "collision_distance_m": reach,
    }
    return SafetyConfig(**{**same, **made})  # type: ignore[arg-type]


def stop_config(values: Mapping[str, Value]) -> StopConfig:
    """Return how Twists say stop."""
    return StopConfig(
        style=str(values["stop_style"]),
        epsilon_mps=float(values["stop_epsilon_mps"]),
        linear_deceleration=2 * float(values["linear_acceleration"]),
        angular_deceleration=2 * float(values["angular_acceleration"]),
        rate_hz=float(values["rate_hz"]),
    )


def corridor_config(values: Mapping[str, Value]) -> CorridorConfig:
    """Return what the collision sensor looks at."""
    return CorridorConfig(
        half_width_m=float(values["collision_half_width_m"]),
        reach_m=float(values["collision_distance_m"]) + float(values["stopping_distance_m"]),
        min_points=int(values["collision_min_points"]),
        scan_yaw_rad=float(values["collision_scan_yaw_rad"]),
        depth_fov_rad=float(values["collision_depth_fov_rad"]),
        depth_band=float(values["collision_depth_band"]),
        cloud=_cloud_config(values),
    )


def _cloud_config(values: Mapping[str, Value]) -> CloudConfig:
    def number(name: str) -> float:
        return float(values[f"collision_cloud_{name}"])

    return CloudConfig(
        mounting=Mounting(
            number("x_m"),
            number("y_m"),
            number("z_m"),
            number("roll_rad"),
            number("pitch_rad"),
            number("yaw_rad"),
        ),
        min_z_m=number("min_z_m"),
        max_z_m=number("max_z_m"),
        front_m=number("front_m"),
        rear_m=number("rear_m"),
        side_m=number("side_m"),
    )
