"""What `specnav doctor --robot` was asked for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RobotDoctorConfig:
    """Topics, the verifier's address, the key file for it: "" takes what our nodes use. seconds: how long to listen."""

    namespace: str = ""
    image: str = ""
    odom: str = ""
    cmd_vel: str = ""
    verifier: str = ""
    key: str = ""
    seconds: float = 4.0
    as_json: bool = False
