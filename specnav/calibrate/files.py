# SPDX-License-Identifier: Apache-2.0
"""The parameter file that a calibration writes, and the ones it reads. The file is written whole or not at all."""

from __future__ import annotations

import math
from datetime import datetime
from pathlib import Path

import yaml

from spec_vlm_nav.common.parameters import Value
from spec_vlm_nav.parameters.files import all_said_in
from specdec.whole_files import check_replaceable
from specnav.calibrate.config import CalibrateConfig
from specnav.calibrate.core.measuring import Noise
from specnav.calibrate.core.result import DEFAULTS, CalibrationResult
from specnav.errors import UsageError
from specnav.results.files import write_bytes_atomic
from specnav.settings import read_yaml

FIRST_LINE = "# Written by specnav calibrate"


def check_out(path: Path) -> None:
    """Raise UsageError if the file cannot be written, or would replace something else."""
    folder = path.absolute().parent
    if path.is_dir():
        raise UsageError(f"--out {path} is a folder; give the name of a file in it")
    check_replaceable(path)
    if not folder.is_dir():
        raise UsageError(f"--out {path}: there is no folder {folder}")
    if not path.exists():
        return
    try:
        is_ours = path.read_text(encoding="utf-8").startswith(FIRST_LINE)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--out {path} cannot be replaced: {error}") from error
    if not is_ours:
        raise UsageError(f"--out {path} exists and was not written by specnav calibrate; give another name")


def text_of(
    found: CalibrationResult, config: CalibrateConfig, noise: Noise, commands: str, odometry: str, now: datetime
) -> str:
    """The file's text, headed by how it was measured. commands, odometry: topics, with the type of commands."""
    head = [
        f"{FIRST_LINE}, {now:%Y-%m-%d %H:%M} UTC. Give it to motion_node after your own parameters:",
        "#   ros2 run spec_vlm_nav motion_node --ros-args --params-file robot.yaml --params-file calibration.yaml",
        f"# Commands: {commands}, up to {config.max_linear:g} m/s and {config.max_angular:g} rad/s. "
        f"Odometry: {odometry}, {noise.rate_hz:.0f} Hz,",
        f"# noise {noise.metres * 1e3:.1f} mm and {math.degrees(noise.radians):.2f} degrees at rest. "
        f"Repetitions: {config.repetitions}; their range follows each value.",
    ]
    lines = [*head, *(f"# {note}" for note in found.notes), "/**/motion_node:", "  ros__parameters:"]
    for one in found.values:
        said = yaml.safe_dump(one.value, default_flow_style=True).splitlines()[0]
        lines.append(f"    {one.name}: {said}" + (f"  # {one.spread}" if one.spread else ""))
    return "\n".join(lines) + "\n"


def write(path: Path, text: str) -> None:
    """Replace the file atomically. Raises UsageError."""
    try:
        write_bytes_atomic(path, text.encode())
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error


def given_parameters(path: Path | None) -> dict[str, Value]:
    """A parameter file's values for motion_node; unknown names are ignored. Raises UsageError."""
    if path is None:
        return {}
    read_yaml(path)  # reports an invalid file
    return {name: value for name, value in all_said_in([path], "motion_node").items() if name in DEFAULTS}
