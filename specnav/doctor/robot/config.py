"""What `specnav doctor --robot` was asked for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RobotDoctorConfig:
    """Topics and the verifier's address: "" takes what our own nodes use. seconds: how long to listen."""

    namespace: str = ""
    image: str = ""
    odom: str = ""
    cmd_vel: str = ""
    verifier: str = ""
    seconds: float = 4.0
    as_json: bool = False
