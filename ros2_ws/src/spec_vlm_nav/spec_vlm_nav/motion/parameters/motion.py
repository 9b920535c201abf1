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
from spec_vlm_nav.common.parameters import config_of, Parameter, Value
from spec_vlm_nav.motion.ahead.corridor import CloudConfig, CorridorConfig, Mounting
from spec_vlm_nav.motion.executor import ExecutorConfig
from spec_vlm_nav.motion.limits import SafetyConfig
from spec_vlm_nav.motion.parameters.tables import (
    BOUNDS,
    COLLISION,
    OUTPUT,
    RESPONSE,
    SPEEDS,
    WATCHDOGS,
)
from spec_vlm_nav.motion.stopping import StopConfig

MOTION: tuple[Parameter, ...] = (
    *OUTPUT,
    *SPEEDS,
    *RESPONSE,
    *WATCHDOGS,
    *BOUNDS,
    *COLLISION,
)
SHORTEST_M = 0.25  # the shortest drive that the model can ask for


def check_motion(values: Mapping[str, Value]) -> None:
    """Raise ParameterError if parameters that are valid on their own contradict each other."""

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
        "every response would arrive too late",
    )
    above(
        "collision_cloud_min_z_m",
        "collision_cloud_max_z_m",
        "no point of a cloud would count",
    )
    if values["collision_source"] == "cloud" and not values["collision_cloud_z_m"]:
        raise ParameterError(
            "collision_source cloud needs collision_cloud_z_m, the height of the cloud's frame above "
            "the floor, m: without it floor and obstacles cannot be distinguished (0.001 for a frame "
            "on the floor)"
        )
    if values["go2_obstacles_avoid"] and values["motion_backend"] not in ("go2_sport", "auto"):
        raise ParameterError(
            'go2_obstacles_avoid needs motion_backend go2_sport, not '
            f'{values["motion_backend"]}: no other back-end sends motions to the Go2 itself'
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
