# SPDX-License-Identifier: Apache-2.0
"""Turns findings into parameters of motion_node: medians, agreement of repetitions, and motion_node's own checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spec_vlm_nav.common.errors import ParameterError
from spec_vlm_nav.common.parameters import Value, check_all
from spec_vlm_nav.motion.parameters import MOTION, check_motion
from specnav.calibrate.core.measuring import LATER_S, obeys_zeros
from specnav.calibrate.core.procedure import CalibrationError, CalibrationFindings, middle

DELAYS_AGREE_S, SCALES_AGREE, STOPS_AGREE_M = 0.1, 0.1, 0.06  # repetitions that differ by more are reported
DELAY_ROOM_S = 0.3  # response_timeout_s exceeds the delay by at least this
DEFAULTS: dict[str, Value] = {parameter.name: parameter.default for parameter in MOTION}


@dataclass(frozen=True)
class MeasuredParameter:
    """One parameter: its value, and the measurements behind it."""

    name: str
    value: Value
    of: tuple[float, ...] = ()
    is_apart: bool = False  # its repetitions disagree

    @property
    def spread(self) -> str:
        """The repetitions in words."""
        if not self.of:
            return ""
        return f"{min(self.of):.3f} to {max(self.of):.3f} ({len(self.of)})"


@dataclass(frozen=True)
class CalibrationResult:
    """The result to write. `notes`: remarks for the user."""

    values: tuple[MeasuredParameter, ...]
    notes: tuple[str, ...] = ()

    def parameters(self) -> dict[str, Value]:
        """Values by the names of motion_node's parameters."""
        return {one.name: one.value for one in self.values}


def calibration(findings: CalibrationFindings, max_linear: float, stop_style: str = "") -> CalibrationResult:
    """Make parameters from the findings. stop_style: style of the stops, "" if the back-end has no styles."""
    turns, drives = [r.delay_s for r in findings.turns], [r.delay_s for r in findings.drives]
    linear, angular = [r.scale for r in findings.drives], [r.scale for r in findings.turns]
    stops = [stop.way for stop in findings.stops]
    delay = round((middle(turns) + middle(drives)) / 2, 3)
    made = [
        MeasuredParameter(
            "actuation_delay_s", delay, (*turns, *drives), _apart([*turns, *drives], DELAYS_AGREE_S)
        ),
        _scale("linear_scale", linear),
        _scale("angular_scale", angular),
        _slowest("min_linear", findings.slowest_drives),
        _slowest("min_angular", findings.slowest_turns),
        # The longest one counts, to be safe.
        MeasuredParameter(
            "stopping_distance_m", round(max(stops), 3), tuple(stops), _apart(stops, STOPS_AGREE_M)
        ),
    ]
    notes = [f"repetitions disagree: {one.name} {one.spread}" for one in made if one.is_apart]
    if (timeout := float(DEFAULTS["response_timeout_s"])) < delay + DELAY_ROOM_S:
        later = round(delay + DELAY_ROOM_S, 1)
        made.append(MeasuredParameter("response_timeout_s", max(later, timeout)))
        notes.append(f"the base responds so late that response_timeout_s must be {later:g} s")
    notes.append(
        f"the stopping distance is that of {max_linear:g} m/s: it is longer if motion_node's max_linear is higher"
    )
    if stop_style:
        style, said = suggest_style(findings, stop_style)
        made.append(MeasuredParameter("stop_style", style))
        notes.append(said)
    return CalibrationResult(tuple(made), tuple(notes))


def _scale(name: str, values: list[float]) -> MeasuredParameter:
    return MeasuredParameter(name, round(middle(values), 3), tuple(values), _apart(values, SCALES_AGREE))


def _slowest(name: str, values: list[float]) -> MeasuredParameter:
    return MeasuredParameter(name, round(max(values), 3), tuple(values))


def _apart(values: list[float], agree: float) -> bool:
    return max(values) - min(values) > agree


def suggest_style(findings: CalibrationFindings, used: str) -> tuple[str, str]:
    """A stop style and the reason, from turns stopped in both styles. used: style of the other stops."""
    zero, epsilon = findings.zero_stop, findings.epsilon_stop
    if zero is None or epsilon is None:
        return used, "stop styles were not compared"
    times = f"stopped {zero.seconds:.2f} s after plain zeros, {epsilon.seconds:.2f} s after a creep and zeros"
    if not obeys_zeros(zero, epsilon):
        style = "epsilon" if used == "zero" else used
        return style, f"plain zeros are not obeyed, the creep is needed: {times}"
    delay = middle([r.delay_s for r in findings.turns])
    if zero.seconds > delay + 2 * LATER_S:
        return used, f"no stop is obeyed at once, the base is stopped by its own timeout: {times}"
    return used, f"plain zeros are obeyed, the creep does no harm: {times}"


def check(found: CalibrationResult, given: Mapping[str, Value]) -> None:
    """Raise CalibrationError if motion_node would refuse the values. given: its other parameters."""
    values = found.parameters()
    try:
        check_all(MOTION, values)
        check_motion({**DEFAULTS, **given, **values})
    except ParameterError as error:
        raise CalibrationError(f"nothing is written, because motion_node would refuse it: {error}") from error
