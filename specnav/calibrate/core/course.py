# SPDX-License-Identifier: Apache-2.0
"""One calibration as a state machine: poses and times in, velocities out; on a robot and in simulated time alike."""

from __future__ import annotations

import enum

from spec_vlm_nav.common.geometry import ZERO, Velocity
from spec_vlm_nav.motion.limits import slew
from spec_vlm_nav.motion.response.comparing import NOWHERE, MeasuredHistory
from spec_vlm_nav.motion.stopping import RestDetector
from spec_vlm_nav.motion.watchdogs import OdometryReading
from specnav.calibrate.config import CalibrateConfig
from specnav.calibrate.core.guard import STOP_S, SafetyGuard
from specnav.calibrate.core.procedure import (
    CalibrationError,
    CalibrationFindings,
    Procedure,
    moved,
)
from specnav.calibrate.core.records import PoseSamplesSample, StepRecord
from specnav.calibrate.core.steps import ANGULAR_ACCELERATION, LINEAR_ACCELERATION, CalibrationStep

SEARCH_ON_S = 0.5  # a search continues for this long after the base has moved
STANDS_S = 0.1  # of being seen at rest, after every step
INSIST_S = 2.0  # if plain zeros are not obeyed for this long, the creep follows
LONGEST_GAP_S = 0.1  # a late tick must not cause a larger change of speed
STALLED_S = 0.5  # a longer gap between two ticks makes a step unmeasurable


class CalibrationPhase(enum.Enum):
    """What a calibration is doing."""

    WAITING = "waiting until the next step is allowed"
    MOVING = "carrying out a step"
    STOPPING = "commanded to stop"
    OVER = "over"


class CalibrationRun:
    """Runs a procedure. `fault`: why it was aborted, or ""; `findings`: set when it has ended well.

    Steps wait for `allow`. `style`: how to send a stop now, "" if the back-end has no styles.
    """

    def __init__(self, config: CalibrateConfig) -> None:
        self.guard = SafetyGuard(config.room_m)
        self.fault = ""
        self.findings: CalibrationFindings | None = None
        self.phase = CalibrationPhase.WAITING
        self.next: CalibrationStep | None = None  # waits for allow()
        self.records: list[StepRecord] = []
        self._style = config.style
        self._script = Procedure(config, self.guard).script()
        self._record: StepRecord | None = None
        self._measured, self._zero = MeasuredHistory(), NOWHERE
        self._sent = ZERO
        self._ticked_at = 0.0
        self._found_at: float | None = None
        self._stands_since: float | None = None
        self.next = next(self._script)

    # -- inputs

    def hear(self, reading: OdometryReading, now: float) -> None:
        """Handle odometry."""
        if self.guard.hear(reading, now):
            self._measured.add(reading.pose, now)
            if self._record is not None:
                self._record.samples.append(
                    PoseSamplesSample(now, reading.pose, self._measured.total - self._zero)
                )
        # Checked here and not in tick(), so that the robot stops at once.
        if self._record is not None and (reason := self.guard.fault(now)):
            self.end(reason)

    def allow(self, now: float) -> None:
        """Begin the waiting step."""
        step, self.next = self.next, None
        if step is None or self.phase is not CalibrationPhase.WAITING:
            return
        if reason := self.guard.fault(now):
            self.end(reason)
            return
        self._record, self._zero = StepRecord(step, now), self._measured.total
        self._found_at = self._stands_since = None
        self._ticked_at, self.phase = now, CalibrationPhase.MOVING
        self.guard.begin(step, now)

    def end(self, reason: str) -> None:
        """Abort the calibration."""
        self.fault = self.fault or reason
        self.phase, self.next, self._sent = CalibrationPhase.OVER, None, ZERO

    # -- outputs

    @property
    def is_over(self) -> bool:
        """Whether the calibration has ended."""
        return self.phase is CalibrationPhase.OVER

    @property
    def doing(self) -> str:
        """Description of the current step, "" between steps."""
        return self._record.step.words if self._record is not None else ""

    @property
    def style(self) -> str:
        """How to send a stop now."""
        record = self._record
        style = self._style if record is None else record.step.style or self._style
        if record is not None and style == "zero" and self._ticked_at - record.stopped_at > INSIST_S:
            return "epsilon"
        return style

    def rest(self, now: float) -> RestDetector:
        """What odometry shows while the robot is commanded to stand."""
        return self.guard.rest(now) if self.phase is not CalibrationPhase.MOVING else RestDetector.UNKNOWN

    def tick(self, now: float) -> Velocity:
        """The velocity to send now."""
        self._sent = self._next(now)
        self.guard.sent(self._sent, now)
        return self._sent

    def _next(self, now: float) -> Velocity:
        gap, self._ticked_at = now - self._ticked_at, now
        record = self._record
        if self.is_over or not self.guard.is_ready:
            return ZERO
        if reason := self.guard.fault(now):
            self.end(reason)
        elif record is None:
            return ZERO
        elif self.phase is CalibrationPhase.MOVING and gap > STALLED_S:
            self.end(f"this machine was busy for {gap:.1f} s in the middle of a step; try again")
        elif self.phase is CalibrationPhase.MOVING:
            return self._move(record, gap, now)
        elif now - record.stopped_at > STOP_S:
            self.end(f"the base still moves {STOP_S:g} s after the stop was sent")
        elif not record.step.amount or self._has_rested(now):
            self._finish(record, now)
        return ZERO

    def _move(self, record: StepRecord, gap: float, now: float) -> Velocity:
        step, after = record.step, now - record.began
        if after >= step.seconds or self._is_found(record, now):
            record.commands.add(ZERO, now)
            record.stopped_at, self.phase = now, CalibrationPhase.STOPPING
            self.guard.stopping()
            return ZERO
        wanted, last, gap = step.velocity(after), self._sent, min(gap, LONGEST_GAP_S)
        sent = Velocity(
            slew(last.linear, wanted.linear, LINEAR_ACCELERATION, 2 * LINEAR_ACCELERATION, gap),
            slew(last.angular, wanted.angular, ANGULAR_ACCELERATION, 2 * ANGULAR_ACCELERATION, gap),
        )
        record.commands.add(sent, now)
        return sent

    def _is_found(self, record: StepRecord, now: float) -> bool:
        """Whether a search has continued long enough since the base moved."""
        if not record.step.is_search:
            return False
        if self._found_at is None and record.total >= moved(record.step, self.guard.noise):
            self._found_at = now
        return self._found_at is not None and now - self._found_at >= SEARCH_ON_S

    def _has_rested(self, now: float) -> bool:
        if self.guard.rest(now) is not RestDetector.STANDS:
            self._stands_since = None
            return False
        self._stands_since = now if self._stands_since is None else self._stands_since
        return now - self._stands_since >= STANDS_S

    def _finish(self, record: StepRecord, now: float) -> None:
        self._record, self.phase = None, CalibrationPhase.WAITING
        self.guard.end()
        self.records.append(record)
        try:
            self.next = self._script.send(record)
        except StopIteration as end:
            self.findings, self.phase = end.value, CalibrationPhase.OVER
        except CalibrationError as error:
            self.end(str(error))
