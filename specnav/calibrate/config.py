# SPDX-License-Identifier: Apache-2.0
"""Settings of `specnav calibrate`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specdec.settings import check_settings, setting
from specnav.errors import UsageError

BACKENDS = ("twist", "go2_sport")
STYLES = ("epsilon", "zero", "brake")


@dataclass(frozen=True)
class CalibrateConfig:
    """`cmd_vel` and `odom` are topic names."""

    out: Path = setting(
        Path("calibration.yaml"), "File to write, for motion_node's --params-file.", metavar="FILE.yaml"
    )
    cmd_vel: str = setting("cmd_vel", "Topic on which the base receives velocities.", metavar="TOPIC")
    odom: str = setting("odom", "Odometry topic of the base.", metavar="TOPIC")
    namespace: str = setting("", "Namespace for topics that do not start with /.", metavar="NS")
    backend: str = setting(
        "twist",
        "twist (any driver), or go2_sport (Unitree's sport API, without a driver).",
        choices=BACKENDS,
    )
    stamped: bool = setting(False, "Send TwistStamped instead of Twist.")
    stop_style: str = setting("epsilon", "How to send a stop.", choices=STYLES)
    max_linear: float = setting(0.3, "Fastest forward speed to try.", 0.05, 1.0, unit="m/s")
    max_angular: float = setting(0.6, "Fastest yaw rate to try.", 0.1, 1.5, unit="rad/s")
    room_m: float = setting(
        1.0,
        "Free space straight ahead that the robot may use.",
        0.3,
        10.0,
        unit="m",
        flags=("--room",),
    )
    repetitions: int = setting(3, "Repetitions of every step.", 1, 10, metavar="N")
    params_file: Path | None = setting(
        None,
        "motion_node's parameter file; the new values are checked against it.",
        metavar="FILE",
        shown="its defaults",
    )
    yes: bool = setting(False, "Do not ask before each step (simulators, CI).")

    def __post_init__(self) -> None:
        check_settings(self, UsageError)

    @property
    def style(self) -> str:
        """How stop commands are sent, "" if the back-end has no styles."""
        return self.stop_style if self.backend == "twist" else ""
