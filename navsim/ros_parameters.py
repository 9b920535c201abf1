# SPDX-License-Identifier: Apache-2.0
"""The parameters of the simulator's node in one table: default, range, and whether they may change while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor, SetParametersResult
from rcl_interfaces.srv import SetParameters, SetParametersAtomically
from rclpy.node import Node
from rclpy.parameter import Parameter

from navsim.errors import BadRequest
from navsim.faults import BASE_FAULTS, CAMERA_FAULTS, ODOM_FAULTS


@dataclass(frozen=True, slots=True)
class ParameterSpec:
    """One parameter. `low` and `high` bound numbers, `choices` text; `live` ones may be set while the node runs."""

    name: str
    default: bool | int | float | str
    description: str
    low: float | None = None
    high: float | None = None
    live: bool = False
    choices: tuple[str, ...] = ()

    def check(self, value: object) -> None:
        """Raise BadRequest if the value is not one of the choices; rclpy itself checks types and ranges."""
        if self.choices and value not in self.choices:
            raise BadRequest(
                f"parameter {self.name} = {value!r} refused: allowed is one of {', '.join(self.choices)}"
            )


SETTINGS: tuple[ParameterSpec, ...] = (
    ParameterSpec("seed", 0, "episode to start with", 0, 2**31 - 1),
    ParameterSpec("split", "train", 'rooms to draw from: "train" or "heldout"'),
    ParameterSpec("absent", False, "start with an episode whose target is missing"),
    ParameterSpec("width", 224, "picture width in pixels", 32, 1280),
    ParameterSpec("height", 140, "picture height in pixels", 32, 960),
    ParameterSpec("camera_rate", 5.0, "pictures per simulated second", 0.2, 60.0, live=True),
    ParameterSpec("jpeg_quality", 92, "quality of the compressed pictures", 10, 100, live=True),
    ParameterSpec("publish_raw", False, "publish camera/image_raw as well", live=True),
    ParameterSpec("camera_fault", "none",
                  "fault of the camera: stopped (silent), frozen (repeats the last picture with its old "
                  "stamp), frozen_restamped (repeats it with new stamps), black",
                  live=True, choices=CAMERA_FAULTS),
    ParameterSpec("odom_fault", "none",
                  "fault of the odometry: stopped (silent), frozen (one pose with new stamps), jumping "
                  "(back and forth by 2 m), nan, mirrored (turns reversed), scaled (by odom_scale)",
                  live=True, choices=ODOM_FAULTS),
    ParameterSpec("odom_scale", 2.0, "factor of the odometry fault scaled", 0.05, 20.0, live=True),
    ParameterSpec("odom_noise_m", 0.0,
                  "odometry noise, m; of the yaw half as many radians", 0.0, 0.1, live=True),
    ParameterSpec("base_fault", "none",
                  "fault of the base: stuck (no forward motion), rear_blocked (no backward motion "
                  "either), pushed (at push_mps)", live=True, choices=BASE_FAULTS),
    ParameterSpec("push_mps", 0.4, "speed of the push to the robot's left, m/s", -2.0, 2.0, live=True),
    ParameterSpec("command_delay_s", 0.0, "seconds until a cmd_vel takes effect", 0.0, 3.0, live=True),
    ParameterSpec("drops_zeros", False,
                  "ignore a cmd_vel of zeros, as a public driver of the Go2 does", live=True),
    ParameterSpec("stamp_offset_s", 0.0,
                  "clock offset of camera and odometry stamps, s", -3600.0, 3600.0, live=True),
    ParameterSpec("odom_rate", 30.0, "odometry messages per simulated second", 1.0, 200.0, live=True),
    ParameterSpec("state_rate", 10.0, "~/state messages per simulated second", 0.5, 100.0, live=True),
    ParameterSpec("step_rate", 100.0, "steps of the base per second of wall time", 50.0, 500.0),
    ParameterSpec("command_hold", 1.0, "seconds a velocity command stays in force", 0.1, 5.0),
    ParameterSpec("publish_clock", False, "publish /clock and stamp everything with simulated time"),
    ParameterSpec("time_scale", 1.0, "simulated seconds per second of wall time", 0.1, 20.0, live=True),
    ParameterSpec("enable_stamped_cmd_vel", False, "cmd_vel is a TwistStamped instead of a Twist"),
    ParameterSpec("odom_frame", "odom", "frame of the odometry's pose"),
    ParameterSpec("base_frame", "base_link", "frame of the odometry's twist"),
    ParameterSpec("camera_frame", "front_camera", "frame of the pictures"),
)  # fmt: skip


TYPES = {kind.value for kind in Parameter.Type}


def _set_readable(set_them: Callable[[Any, Any], Any], request: Any, response: Any) -> Any:
    """Refuse values of an unknown type: rclpy raises, which would end the node."""
    if all(one.value.type in TYPES for one in request.parameters):
        return set_them(request, response)
    refused = SetParametersResult(successful=False, reason="a value is of an unknown type")
    if isinstance(request, SetParameters.Request):
        response.results = [refused] * len(request.parameters)
    else:
        response.result = refused
    return response


def declare(node: Node) -> None:
    """Declare the whole table. A start value of the wrong type or out of range raises rclpy's parameter exceptions."""
    for service in node.services:
        if service.srv_type in (SetParameters, SetParametersAtomically):
            service.callback = partial(_set_readable, service.callback)
    for setting in SETTINGS:
        descriptor = ParameterDescriptor(description=setting.description, read_only=not setting.live)
        if setting.choices:
            descriptor.additional_constraints = f"allowed: one of {', '.join(setting.choices)}"
        if setting.low is not None and setting.high is not None:
            if isinstance(setting.default, float):
                descriptor.floating_point_range = [
                    FloatingPointRange(from_value=setting.low, to_value=setting.high, step=0.0)
                ]
            else:
                descriptor.integer_range = [
                    IntegerRange(from_value=int(setting.low), to_value=int(setting.high), step=1)
                ]
        setting.check(node.declare_parameter(setting.name, setting.default, descriptor).value)
