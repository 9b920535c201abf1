# SPDX-License-Identifier: Apache-2.0
"""Commands and measurements of one step. Times are receive times on a steady clock, s."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from spec_vlm_nav.common.geometry import Pose
from spec_vlm_nav.motion.response.comparing import CommandHistory, Travel
from specnav.calibrate.core.steps import CalibrationStep

TOTAL_OF = 5  # poses that `total` is the median of


@dataclass(frozen=True)
class PoseSamplesSample:
    """A pose, its receive time, and the movement since the step began."""

    at: float
    pose: Pose
    moved: Travel


@dataclass
class StepRecord:
    """The record of one step. `stopped_at`: when the stop was sent."""

    step: CalibrationStep
    began: float
    commands: CommandHistory = field(default_factory=CommandHistory)
    samples: list[PoseSamplesSample] = field(default_factory=list)
    stopped_at: float = math.inf

    def told(self, begin: float, end: float) -> float:
        """Commanded part of the step between two times, m or rad."""
        return self.step.progress(self.commands.between(begin, end))

    def when_told(self, amount: float) -> float:
        """Time at which `amount` of the step had been commanded."""
        low = self.began
        high = min(self.stopped_at, self.samples[-1].at if self.samples else low)
        for _ in range(24):  # the speeds of a step have one sign: bisect
            middle = (low + high) / 2
            low, high = (low, middle) if self.told(self.began, middle) > amount else (middle, high)
        return (low + high) / 2

    def done(self, moment: float) -> float:
        """Measured part of the step at a time, m or rad, interpolated linearly between poses."""
        times = [self.began, *(sample.at for sample in self.samples)]
        return float(np.interp(moment, times, [0.0, *(self.step.progress(s.moved) for s in self.samples)]))

    @property
    def total(self) -> float:
        """Measured part of the step so far: a median, so that one noisy pose does not count."""
        return median([self.step.progress(s.moved) for s in self.samples[-TOTAL_OF:]]) if self.samples else 0.0
