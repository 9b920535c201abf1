# SPDX-License-Identifier: Apache-2.0
"""`specnav calibrate`, from its flags to the written file."""

from __future__ import annotations

from datetime import datetime, timezone

from specnav.calibrate.config import CalibrateConfig
from specnav.calibrate.core.result import calibration, check
from specnav.calibrate.files import Circumstances, check_out, given_parameters, text_of, write
from specnav.calibrate.view import show
from specnav.errors import UsageError


def _say(words: str) -> None:
    print(words, flush=True)


def run_calibrate(config: CalibrateConfig) -> int:
    """Measure, print, write; returns the exit code. Raises UsageError, and KeyboardInterrupt for Ctrl-C."""
    check_out(config.out)
    given = given_parameters(config.params_file)
    try:
        from specnav.calibrate.live import calibrate_live
    except ImportError as error:
        raise UsageError(
            f"calibrating a robot needs ROS 2 (rclpy): source an installation, or make setup ({error})"
        ) from error
    if not config.yes:
        _say(
            f"The robot will turn on the spot and walk up to {config.room_m:g} m ahead and back, never backwards."
        )
        _say("Stand beside it, with its remote control or emergency stop at hand.")
    try:
        findings, wire = calibrate_live(config, _say)
    except KeyboardInterrupt:
        _say("\ninterrupted: the robot was stopped, nothing is written")
        raise
    style = config.stop_style if config.backend == "twist" else ""
    found = calibration(findings, config.max_linear, style)
    show(found, given)
    check(found, given)
    kind = "TwistStamped" if config.stamped else "Twist"
    about = Circumstances(
        when=datetime.now(timezone.utc),
        commands=f"{wire.topic} ({kind if config.backend == 'twist' else 'Request'})",
        odometry=wire.odom_topic,
        noise=findings.noise,
        max_linear=config.max_linear,
        max_angular=config.max_angular,
        repetitions=config.repetitions,
    )
    write(config.out, text_of(found, about))
    _say(f"{config.out}: written; give it to motion_node with --params-file, after your own file")
    return 0
