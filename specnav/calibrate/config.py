"""What `specnav calibrate` was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

BACKENDS = ("twist", "go2_sport")
STYLES = ("epsilon", "zero", "brake")


@dataclass(frozen=True)
class CalibrateConfig:
    """`cmd_vel` and `odom` are topics; speeds in m/s and rad/s, room in metres ahead; yes: do not ask before a step."""

    out: Path = Path("calibration.yaml")
    cmd_vel: str = "cmd_vel"
    odom: str = "odom"
    namespace: str = ""
    backend: str = "twist"
    stamped: bool = False
    stop_style: str = "epsilon"
    max_linear: float = 0.3
    max_angular: float = 0.6
    room_m: float = 1.0
    repetitions: int = 3
    params_file: Path | None = None
    yes: bool = False
