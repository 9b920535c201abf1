# SPDX-License-Identifier: Apache-2.0
"""`specnav calibrate`: from flags to the written file."""

from __future__ import annotations

from datetime import datetime, timezone

from specnav.calibrate.config import CalibrateConfig
from specnav.calibrate.core.result import calibration, check
from specnav.calibrate.files import check_out, given_parameters, text_of, write
from specnav.calibrate.view import show
from specnav.errors import needs_ros


def _say(words: str) -> None:
    print(words, flush=True)


def run_calibrate(config: CalibrateConfig) -> int:
    """Measure, print and write; returns the exit code. Raises UsageError, and KeyboardInterrupt for Ctrl-C."""
    check_out(config.out)
    given = given_parameters(config.params_file)
    with needs_ros("calibrating a robot"):
        from specnav.calibrate.live import calibrate_live
    if not config.yes:
        _say(
            f"The robot will turn on the spot and move up to {config.room_m:g} m ahead and back, never backwards."
        )
        _say("Stand next to it, with its remote control or emergency stop at hand.")
    try:
        findings, wire = calibrate_live(config, _say)
    except KeyboardInterrupt:
        _say("\ninterrupted: the robot was stopped, nothing is written")
        raise
    found = calibration(findings, config.max_linear, config.style)
    show(found, given)
    check(found, given)
    now = datetime.now(timezone.utc)
    write(config.out, text_of(found, config, findings.noise, wire.commands, wire.odom_topic, now))
    _say(f"{config.out}: written; give it to motion_node with --params-file, after your own file")
    return 0
