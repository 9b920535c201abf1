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

"""The parameters of go2_state_node, and the configuration built from them."""

from __future__ import annotations

from collections.abc import Mapping

from spec_vlm_nav.common.parameters import (
    config_of,
    limit,
    Parameter,
    RELIABILITY,
    SAFETY_LOCKED,
    Tighter,
    Value,
)
from spec_vlm_nav.robot.go2_state import Go2Config, numbers_of

GO2_STATE: tuple[Parameter, ...] = (
    SAFETY_LOCKED,
    Parameter("odometry", "sportmodestate",
              "Publish `odom` from position and attitude in SportModeState, or none: another source is "
              "used, for example /utlidar/robot_odom.", choices=("sportmodestate", "none")),
    Parameter("odometry_stamp", "receive",
              "Stamp of that odometry: receive (this machine's clock) or message (the robot's, which may "
              "be seconds off).", choices=("receive", "message")),
    Parameter("odom_frame", "odom", "frame_id of that odometry."),
    Parameter("base_frame", "base_link", "child_frame_id of that odometry."),
    Parameter("rate_hz", 50.0,
              "At most this many SportModeStates a second are read (the robot sends 500); rate of odom.",
              5.0, 200.0),
    Parameter("state_reliability", "best_effort", "QoS of both subscriptions.", choices=RELIABILITY),
    limit(Tighter.LOWER_0_OFF, "state_timeout_s", 0.5,
          "No SportModeState for this long: not ready, s (receive time); 0: not watched.", 0.0, 10.0),
    limit(Tighter.LOWER_0_OFF, "battery_timeout_s", 5.0,
          "No LowState for this long: the battery is not known, s (receive time); 0: not watched.",
          0.0, 60.0),
    limit(Tighter.HIGHER, "min_battery", 0.15,
          "With less charge (0 to 1) the robot is not ready, until there is 0.05 more; 0: not watched.",
          0.0, 0.95),
    limit(Tighter.LOWER_0_OFF, "max_tilt_rad", 0.6,
          "With more roll or pitch the robot counts as fallen, rad; 0: not watched.", 0.0, 1.5),
    limit(Tighter.HIGHER, "min_body_height_m", 0.16,
          "With a lower body (body_height) the robot does not stand, m; 0: not watched.", 0.0, 0.5),
    limit(Tighter.FEWER, "ready_modes", "0,1,3",
          "The modes in which the robot can take motions, if error_code is 0 (firmware before MCF): idle, "
          "balanced, walking."),
    limit(Tighter.FEWER, "ready_codes", "100,1005,1013,1015,1016,1017,2007,2010",
          "The error_codes with which the robot can take motions; in MCF firmware they are states, not "
          "errors: balanced, walking, running."),
)  # fmt: skip


def go2_config(values: Mapping[str, Value]) -> Go2Config:
    """Return the limits. Raises ParameterError for lists that are not numbers."""
    modes, codes = (numbers_of(str(values[name]), name) for name in ("ready_modes", "ready_codes"))
    return config_of(Go2Config, values, ready_modes=modes, ready_codes=codes)


def check_go2(values: Mapping[str, Value]) -> None:
    """Raise ParameterError if a list of modes or codes is malformed."""
    go2_config(values)
