# SPDX-License-Identifier: Apache-2.0
"""Chooses the steps and learns from each: a generator that is sent the record of every step.

It decides by what it knows of the base so far; it neither moves anything nor reads a clock.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, field
from statistics import median

from spec_vlm_nav.common.geometry import wrap
from specnav.calibrate.config import CalibrateConfig
from specnav.calibrate.core.guard import SafetyGuard
from specnav.calibrate.core.measuring import (
    EDGE_S,
    NOISES,
    ONSET_M,
    ONSET_RAD,
    RAMP_S,
    MeasuredStop,
    Noise,
    Response,
    noise_of,
    obeys_zeros,
    response_of,
    slowest_of,
    stop_of,
)
from specnav.calibrate.core.records import StepRecord
from specnav.calibrate.core.steps import (
    LINEAR_ACCELERATION,
    SLOWEST_ANGULAR,
    SLOWEST_LINEAR,
    STAIR_FACTOR,
    CalibrationStep,
    forward,
    resting,
    search_forward,
    search_turn,
    turn,
)
from specnav.errors import UsageError

TURN_RAD, SLOW_TURN_RAD = math.radians(60), math.radians(35)
SLOW = 0.5  # share of the fastest speeds
STEADY_S, LEAST_STEADY_S = 1.0, 0.35  # constant-speed time of a forward step
AFTER_STOP_S, SPARE_M = 0.5, 0.05  # kept free ahead of a step, in addition to the delay
ALIGNED_RAD = 0.2  # a heading error below this counts as along the line
TURNS_A_STEP, WALKS_A_STEP = 3, 3  # attempts to face along the line, and to find room ahead
NOISIEST_M, NOISIEST_RAD = 0.003, 0.006  # of odometry at rest: with more noise, rest cannot be detected

Script = Generator[CalibrationStep, StepRecord, "CalibrationFindings"]


class CalibrationError(UsageError):
    """The base cannot be calibrated; the message says why, and what to do."""


@dataclass
class CalibrationFindings:
    """Results of the steps. `stops`: at max_linear, metres; zero_stop and epsilon_stop: of turns, radians."""

    noise: Noise = field(default_factory=lambda: Noise(0.0, 0.0, 0.0))
    turns: list[Response] = field(default_factory=list)
    drives: list[Response] = field(default_factory=list)
    slowest_turns: list[float] = field(default_factory=list)
    slowest_drives: list[float] = field(default_factory=list)
    stops: list[MeasuredStop] = field(default_factory=list)
    zero_stop: MeasuredStop | None = None
    epsilon_stop: MeasuredStop | None = None


def middle(values: list[float]) -> float:
    """The median; 0 for an empty list."""
    return median(values) if values else 0.0


class Procedure:
    """The script of one calibration; `guard` knows the robot's position."""

    def __init__(self, config: CalibrateConfig, guard: SafetyGuard) -> None:
        self._config, self._guard = config, guard
        self.findings = CalibrationFindings()
        self._searches: list[StepRecord] = []
        self._style = ""  # stop style: the user's, unless it turns out not to work
        self._linear_scale = 1.0  # for the room that a step needs: at least 1

    def script(self) -> Script:
        """Yield steps, receive their records, return the findings. Raises CalibrationError."""
        self.findings.noise = self._guard.noise = noise = noise_of((yield resting()))
        if noise.metres > NOISIEST_M or noise.radians > NOISIEST_RAD:
            raise CalibrationError(
                f"odometry of the standing robot is too noisy: {noise.metres * 1e3:.1f} mm, "
                f"{math.degrees(noise.radians):.2f} degrees (standard deviation); at most {NOISIEST_M * 1e3:g} mm, "
                f"{math.degrees(NOISIEST_RAD):.1f} degrees: is it standing still?"
            )
        self._check_room()
        yield from self._search_turns()
        for number in range(self._config.repetitions):
            yield from self._turn_about(tests_stops=number == 0 and bool(self._config.style))
        # Forward steps come last: the delay, and so the stopping distance, is known by now.
        self._check_room()
        yield from self._search_forward()
        for _ in range(self._config.repetitions):
            for speed in (self._config.max_linear * SLOW, self._config.max_linear):
                yield from self._go_forward(speed)
        self._judge_searches()
        return self.findings

    # -- parts of the script

    def _search_turns(self) -> Generator[CalibrationStep, StepRecord, None]:
        fastest, slowest = self._config.max_angular, SLOWEST_ANGULAR
        for left in (True, False):
            record = yield search_turn(left, slowest, fastest)
            self._check_moved(record, f"{fastest:.2f} rad/s")
            # The second search can begin two stairs below the rate that moved the base.
            reached = abs(record.step.velocity(record.stopped_at - record.began - 1e-6).angular)
            slowest = max(SLOWEST_ANGULAR, reached / STAIR_FACTOR**3)

    def _search_forward(self) -> Generator[CalibrationStep, StepRecord, None]:
        yield from self._face(ahead=True)
        limit = self._config.max_linear
        # The distance is bounded even if odometry shows no motion.
        step = search_forward(SLOWEST_LINEAR, limit, self._free(True) - self._reserve(limit), self._style)
        record = yield step
        self._check_moved(record, f"{step.speed:.2f} m/s")
        self._linear_scale = max(1.0, record.total / record.told(record.began, record.stopped_at))

    def _check_moved(self, record: StepRecord, fastest: str) -> None:
        step = record.step
        self._searches.append(record)
        if record.total >= moved(step, self._guard.noise):
            return
        shown = f"{math.degrees(record.total):.1f} degrees" if step.turns else f"{record.total * 100:.1f} cm"
        raise CalibrationError(
            f"the base does not {'turn' if step.turns else 'go forward'}: up to {fastest} were commanded and "
            f"odometry shows {shown}; is it standing and free to move, and is this the odometry of the same robot?"
        )

    def _turn_about(self, tests_stops: bool) -> Generator[CalibrationStep, StepRecord, None]:
        """Turn left and right at both rates. tests_stops: stop the slow turns in the two styles."""
        fast = self._config.max_angular
        slow = fast * SLOW
        for angle in (SLOW_TURN_RAD, -SLOW_TURN_RAD):
            if tests_stops:
                yield from self._test_stop(angle, slow)
            else:
                self._learn_turn(self._response((yield turn(angle, slow, style=self._style))))
        for angle in (TURN_RAD, -TURN_RAD):
            self._learn_turn(self._response((yield turn(angle, fast, style=self._style))))

    def _test_stop(self, angle: float, rate: float) -> Generator[CalibrationStep, StepRecord, None]:
        """Turn one way and stop: the left turn by plain zeros, the right one by a creep and zeros."""
        found, plain = self.findings, angle > 0
        why = ", stopped by plain zeros" if plain else ", stopped by a creep and zeros"
        record = yield turn(angle, rate, why, "zero" if plain else "epsilon")
        self._learn_turn(self._response(record))
        stop = stop_of(record, self._guard.noise)
        if plain:
            found.zero_stop = stop
            return
        found.epsilon_stop = stop
        assert found.zero_stop is not None  # the left turn comes first
        if self._config.style == "zero" and not obeys_zeros(found.zero_stop, stop):
            self._style = "epsilon"

    def _learn_turn(self, response: Response) -> None:
        self.findings.turns.append(response)
        self._guard.learn(middle([r.delay_s for r in self.findings.turns]))

    def _response(self, record: StepRecord) -> Response:
        found = response_of(record, self._guard.noise)
        if record.total < moved(record.step, self._guard.noise):
            raise CalibrationError(
                f"the base did not respond to a step (the robot {record.step.words}): is something in its way?"
            )
        if found is None:
            raise CalibrationError(
                f"odometry showed too little of a step ({record.step.words}: {record.total:.2f} "
                f"{'rad' if record.step.turns else 'm'} within {record.step.seconds:.1f} s) to measure anything"
            )
        return found

    def _go_forward(self, speed: float) -> Generator[CalibrationStep, StepRecord, None]:
        step = yield from self._place_for(speed)
        record = yield step
        self.findings.drives.append(self._response(record))
        self._linear_scale = max(1.0, middle([r.scale for r in self.findings.drives]))
        if speed == self._config.max_linear:
            self.findings.stops.append(stop_of(record, self._guard.noise))

    def _place_for(self, speed: float) -> Generator[CalibrationStep, StepRecord, CalibrationStep]:
        """Face along the line in the direction with room, and return the forward step."""
        wanted, scale = speed * STEADY_S + _ramp_m(speed), self._linear_scale
        reserve = self._reserve(speed)
        for _ in range(WALKS_A_STEP):
            ahead = self._is_ahead()
            if self._free(ahead) < wanted * scale + reserve and self._free(not ahead) > self._free(ahead):
                ahead = not ahead
            yield from self._face(ahead)
            distance = min(wanted, (self._free(ahead) - reserve) / scale)
            if distance >= _shortest_m(speed):
                return forward(distance, speed, self._style)
            self._check_room()
            yield from self._walk_on()
        raise self._too_little_room()

    def _check_room(self) -> None:
        """Raise CalibrationError if the fastest step has too little room, as far as the base is known."""
        if self._guard.room_m < self._needed_m():
            raise self._too_little_room()

    def _needed_m(self) -> float:
        speed = self._config.max_linear
        return _shortest_m(speed) * self._linear_scale + self._reserve(speed) + SPARE_M

    def _too_little_room(self) -> CalibrationError:
        return CalibrationError(
            f"{self._guard.room_m:g} m of room is too little for {self._config.max_linear:g} m/s: more than "
            f"{self._needed_m():.2f} m are needed; give more (--room), or go slower (--max-linear)"
        )

    def _reserve(self, speed: float) -> float:
        """Distance kept free ahead of a step for stopping, m."""
        return speed * self._linear_scale * (self._guard.delay_s + AFTER_STOP_S) + SPARE_M

    def _is_ahead(self) -> bool:
        """Whether the robot faces its initial direction, and not back."""
        return abs(self._guard.heading) < math.pi / 2

    def _free(self, ahead: bool) -> float:
        """Room left ahead, or back along the line, m."""
        return self._guard.room_m - self._guard.along_m if ahead else self._guard.along_m

    def _walk_on(self) -> Generator[CalibrationStep, StepRecord, None]:
        """In the middle of the room neither direction is long enough: drive slowly to its end."""
        speed = self._config.max_linear * SLOW
        left = self._free(self._is_ahead()) - self._reserve(speed)
        if left > SPARE_M:
            yield forward(left / self._linear_scale, speed, self._style)

    def _face(self, ahead: bool) -> Generator[CalibrationStep, StepRecord, None]:
        fast, along = self._config.max_angular, "along the line" if ahead else "back along the line"
        for _ in range(TURNS_A_STEP):
            error = wrap((0.0 if ahead else math.pi) - self._guard.heading)
            if abs(error) <= ALIGNED_RAD:
                return
            scale = middle([r.scale for r in self.findings.turns]) or 1.0
            rate = fast if abs(error) > TURN_RAD else fast * SLOW
            record = yield turn(error / scale, rate, f", to face {along}", self._style)
            # Long turns are as good for measuring as the planned ones.
            if abs(error) > SLOW_TURN_RAD and (response := response_of(record, self._guard.noise)):
                self._learn_turn(response)
        raise CalibrationError(f"the robot could not be turned to face {along}: its turns miss by too much")

    def _judge_searches(self) -> None:
        """Evaluate the searches last: which speed moved the base depends on its delay."""
        found = self.findings
        for record in self._searches:
            responses = found.turns if record.step.turns else found.drives
            response = Response(
                middle([r.delay_s for r in responses]), middle([r.scale for r in responses]) or 1.0
            )
            slowest = slowest_of(record, response, self._guard.noise)
            (found.slowest_turns if record.step.turns else found.slowest_drives).append(slowest)


def _ramp_m(speed: float) -> float:
    """Distance lost while accelerating, m."""
    return speed**2 / (2 * LINEAR_ACCELERATION)


def _shortest_m(speed: float) -> float:
    """Length of the shortest forward step that can be measured, m."""
    return speed * (LEAST_STEADY_S + RAMP_S + EDGE_S) + _ramp_m(speed)


def moved(step: CalibrationStep, noise: Noise) -> float:
    """Smallest motion of a step that is not noise, m or rad."""
    return max((ONSET_RAD if step.turns else ONSET_M) / 2, NOISES * noise.for_motion(step.turns))
