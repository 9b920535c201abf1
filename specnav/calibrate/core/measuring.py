# SPDX-License-Identifier: Apache-2.0
"""Pure functions from a step's record to figures: noise, delay, scale, stopping distance, slowest speed.

The measured motion is compared with the commanded one a delay earlier: `done(t) = scale * told(t - delay)`. The delay
is taken from the onset and the scale from the steady part; each is computed twice, with the other's value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import linear_regression, median, pstdev

from spec_vlm_nav.common.geometry import wrap
from specnav.calibrate.core.records import StepRecord
from specnav.calibrate.core.steps import STAIR_S, acceleration_of, speed_of

ONSET_M, ONSET_RAD = 0.02, 0.04  # with this much measured motion the base has responded
ONSET_ENDS = 3.0  # up to this many times that motion belongs to the onset
NOISES = 5.0  # more standard deviations than this are not noise
RAMP_S, EDGE_S = 0.15, 0.05  # excluded from the steady part: the base's own ramp, and the end
FEWEST = 4  # samples needed for a figure
LATER_S = 0.25  # a stop that takes this much longer than the other was not obeyed at once
MOVES = 0.5  # below this share of the commanded motion the base does not move yet


@dataclass(frozen=True)
class Noise:
    """Odometry at rest: standard deviations (m, rad) and message rate (Hz)."""

    metres: float
    radians: float
    rate_hz: float

    def for_motion(self, turns: bool) -> float:
        """The standard deviation in the unit of a step."""
        return self.radians if turns else self.metres


@dataclass(frozen=True)
class Response:
    """How a base responded to one step; delay_s and scale as in the module docstring."""

    delay_s: float
    scale: float


@dataclass(frozen=True)
class MeasuredStop:
    """Motion after a stop was sent: metres or radians, and seconds until rest."""

    way: float
    seconds: float


def noise_of(record: StepRecord) -> Noise:
    """Noise and rate of odometry, from the record of a base at rest."""
    poses = [sample.pose for sample in record.samples]
    if len(poses) < FEWEST:
        return Noise(0.0, 0.0, 0.0)
    yaws = [wrap(pose.yaw - poses[0].yaw) for pose in poses]
    span = record.samples[-1].at - record.samples[0].at
    metres = math.hypot(pstdev([p.x for p in poses]), pstdev([p.y for p in poses])) / math.sqrt(2)
    return Noise(metres, pstdev(yaws), (len(poses) - 1) / max(1e-9, span))


def response_of(record: StepRecord, noise: Noise) -> Response | None:
    """Delay and scale; None if it did not respond, or if there was too little odometry."""
    scale = 1.0
    delay: float | None = None
    for _ in range(2):
        delay = delay_of(record, scale, noise)
        if delay is None or (found := scale_of(record, delay)) is None:
            return None
        scale = found
    delay = delay_of(record, scale, noise)
    return None if delay is None else Response(delay, scale)


def delay_of(record: StepRecord, scale: float, noise: Noise) -> float | None:
    """Median delay of the onset: from when motion was commanded to when odometry showed it, s."""
    turns = record.step.turns
    least = max(ONSET_RAD if turns else ONSET_M, NOISES * noise.for_motion(turns))
    most = min(ONSET_ENDS * least, scale * record.told(record.began, record.stopped_at))
    found = []
    for sample in record.samples:
        amount = record.step.progress(sample.moved)
        if amount > most:
            break
        if amount >= least:
            found.append(sample.at - record.when_told(amount / scale))
    return max(0.0, median(found)) if found else None


def scale_of(record: StepRecord, delay: float) -> float | None:
    """Measured over commanded speed in the steady part; None if that is too short."""
    step = record.step
    rise = step.speed / acceleration_of(step.turns)
    begin = record.began + rise + delay + RAMP_S
    end = record.stopped_at + delay - EDGE_S
    steady = [(s.at, step.progress(s.moved)) for s in record.samples if begin <= s.at <= end]
    if len(steady) < FEWEST or steady[-1][0] - steady[0][0] < RAMP_S:
        return None
    speed = linear_regression([at for at, _ in steady], [done for _, done in steady]).slope
    return speed / step.speed if speed > 0 else None


def stop_of(record: StepRecord, noise: Noise) -> MeasuredStop:
    """Stopping distance and time after the stop was sent."""
    turns, last = record.step.turns, record.total
    near = max((ONSET_RAD if turns else ONSET_M) / 5, NOISES * noise.for_motion(turns))
    moving = [s.at for s in record.samples if abs(record.step.progress(s.moved) - last) > near]
    seconds = moving[-1] - record.stopped_at if moving else 0.0
    return MeasuredStop(max(0.0, last - record.done(record.stopped_at)), max(0.0, seconds))


def obeys_zeros(zero: MeasuredStop, epsilon: MeasuredStop) -> bool:
    """Whether plain zeros stop a base as soon as a creep followed by zeros."""
    return zero.seconds <= epsilon.seconds + LATER_S


def slowest_of(record: StepRecord, response: Response, noise: Noise) -> float:
    """The slowest speed of a search that the base followed, m/s or rad/s.

    The motion of each speed is measured one delay later.
    """
    step, delay = record.step, response.delay_s
    begin = record.began
    for stretch in step.stretches:
        end = min(begin + STAIR_S, record.stopped_at)
        told = record.told(begin, end) * response.scale
        done = record.done(end + delay) - record.done(begin + delay)
        if end - begin > STAIR_S / 2 and done > max(MOVES * told, NOISES / 2 * noise.for_motion(step.turns)):
            return abs(speed_of(stretch.velocity, step.turns))
        begin += STAIR_S
    sent = step.velocity(min(record.stopped_at, record.began + step.seconds) - record.began - 1e-6)
    return abs(speed_of(sent, step.turns))
