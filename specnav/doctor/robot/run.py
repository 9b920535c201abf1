"""`specnav doctor --robot`, from its flags to its exit code."""

from __future__ import annotations

from specnav.doctor.robot.checks import Verdict, examine
from specnav.doctor.robot.config import RobotDoctorConfig
from specnav.doctor.robot.view import show
from specnav.errors import UsageError


def run_robot_doctor(config: RobotDoctorConfig) -> int:
    """Print a line a check; 0 when none of them is FAIL, else 1. Raises UsageError without ROS."""
    try:
        from specnav.doctor.robot.gather import gather
    except ImportError as error:
        raise UsageError(
            f"a look at a robot needs ROS 2 (rclpy): source an installation, or make setup ({error})"
        ) from error
    lines = examine(gather(config))
    show(lines, config.as_json)
    return 1 if any(line.verdict is Verdict.FAIL for line in lines) else 0
