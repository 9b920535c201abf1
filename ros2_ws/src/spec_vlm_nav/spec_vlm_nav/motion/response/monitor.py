# Copyright 2026 spec_vlm_nav maintainers
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

"""
The progress monitor: compares commanded with measured motion over sliding windows.

A timeout cannot detect a pose repeated with fresh stamps, a stuck base, or mirrored odometry; only
this comparison can.

Terms: a motion is *answered* when odometry first shows it. Soon after, it makes odometry *proven*. A
discrepancy puts it *in doubt* (its state at the start, too). No response while in doubt, or a second
wrong response of the same kind (turn or straight motion), makes it *lost*, and then nothing moves.
Only a correct response of that kind, or an operator, clears a wrong one. Odometry that is certainly
alive does not become lost because the base does not move: the *direction* that did not respond is
shut, until another responds. If another one does not respond either, odometry is lost.
"""

from __future__ import annotations

import enum
import math

from spec_vlm_nav.common.geometry import Motion, Pose, Velocity, wrap
from spec_vlm_nav.motion.response.comparing import (
    CommandHistory,
    compare,
    DeviationKind,
    Discrepancy,
    expected,
    LITTLE,
    MeasuredHistory,
    Range,
    ResponseConfig,
    Travel,
)
from spec_vlm_nav.motion.response.liveness import Liveness

WINDOWS_S = (0.6, 1.2, 2.4)  # the longer ones are for slow motions
SHORTEST_S = 0.25
ANSWER_M, ANSWER_RAD = 0.02, 0.04  # measured part of a motion that counts as its answer
PROOF_M, PROOF_RAD = 0.06, 0.12
PATIENCE_M, PATIENCE_RAD = 0.25, 0.5  # most motion commanded without response, over all motions
STALL_M, STALL_RAD = 0.1, 0.2  # most that an answered, then stalled motion adds to that
DELAY_TAKEN_UP_TO = 2.5  # in answers: further on, an unknown scale would be mistaken for delay
IDLE_M, IDLE_RAD = 0.10, 0.20  # most movement within the shortest window without a command
SEEN_M, SEEN_RAD, SEEN_WITHIN_S = 0.03, 0.06, 1.0  # movement that restores lost odometry
STILL_M, STILL_RAD, STILL_FOR_S = 0.01, 0.02, 0.3  # most movement of a standing robot
SEES_FOR_S = 0.5  # how long the last pose proves that the robot stands
RESISTS_AFTER_S, OBEYED_WITHIN_S = 0.2, 5.0  # after the last commanded motion
RESISTS_FOR_S, RESISTS_SHARE = 0.15, 0.7  # window, and share of the way commanded in it
RESISTS_M, RESISTS_RAD = 0.01, 0.02  # and at least this much
STUCK = "odometry repeated one pose, which it never did before: is its driver stuck?"
STALLED_S = 0.2  # a base that stands for this long has stalled, whatever it did before
ASTRAY_M = 0.08  # a straight motion that has moved this far, nearly all of it sideways ...
ASTRAY_RATIO, ASTRAY_SHARE = 0.35, 0.42  # ... ahead over aside, and share of the commanded way


class Trust(enum.Enum):
    """How far odometry and base can be trusted."""

    DOUBTED = "in doubt"
    PROVEN = "proven"
    LOST = "lost"


def sign_of(motion: Motion) -> float:
    """Return 1 for forward and left, -1 for backward and right."""
    return math.copysign(1.0, motion.angle_rad or motion.distance_m)


class ResponseMonitor:
    """Watches one robot through the histories of sent velocities and measured poses."""

    def __init__(self, config: ResponseConfig | None = None) -> None:
        self.config = config or ResponseConfig()
        self.commands = CommandHistory()
        self.measured = MeasuredHistory()
        self.liveness = Liveness()
        self.lost: Discrepancy | None = None  # why odometry is lost
        self._shut: tuple[bool, float] | None = None  # the shut direction: is it a turn, and its sign
        self._is_proven = False
        self._wrong = {True: 0, False: 0}  # consecutive wrong responses of turns and straight motions
        self.is_answered = False  # whether the motion under way is answered
        self._motion: Motion | None = None
        self._began = -math.inf
        self._delay: float | None = None  # observed delay of the motion under way
        self._in_vain = Travel()  # motion commanded by ended motions since odometry last moved
        self._seen: Pose | None = None  # pose at the last observed movement
        self._seen_at = -math.inf

    # -- inputs

    def sent(self, velocity: Velocity, now: float) -> None:
        """Record a velocity sent now."""
        self.commands.add(velocity, now)

    def hear(self, pose: Pose, now: float) -> None:
        """Record a valid pose."""
        self.measured.add(pose, now)
        self._look_for_movement(pose, now)
        self.liveness.hear(pose, now, self.commands.since_moving_s(now))
        self._look_for_an_answer(now)
        lost = self.lost
        stuck = self._shut is not None if lost is None else lost.kind is DeviationKind.NONE
        if stuck and self._motion is None and self._is_seen_to_move(now):
            self._open()

    def jumped(self) -> None:
        """Discard the measured history: poses before and after a jump are unrelated."""
        self.measured, self._seen = MeasuredHistory(), None
        self._is_proven = False

    def begin(self, motion: Motion, now: float) -> None:
        """Begin to watch a motion."""
        self._motion, self._began, self._delay, self.is_answered = motion, now, None, False

    def end(self, reached: bool = False) -> None:
        """Stop watching the motion; reached: it was completed."""
        if reached and self._motion is not None:
            self._wrong[self._turns] = 0
        if self._motion is not None:
            unseen = self._unseen(self.commands.last_at)
            if self.is_answered:
                along, turned = min(unseen.along_m, STALL_M), min(unseen.turned_rad, STALL_RAD)
                unseen = Travel(along, 0.0, turned)
            self._in_vain += unseen
        self._motion = None

    def reset(self) -> None:
        """Clear lost odometry, the shut direction and wrong responses, on the operator's order."""
        self._open()
        self._wrong = {True: 0, False: 0}

    def _open(self) -> None:
        """Clear lost odometry and the shut direction; wrong responses still count."""
        self.lost, self._shut, self._is_proven = None, None, False
        self._in_vain = Travel()

    def blame(self, discrepancy: Discrepancy) -> None:
        """Lower the trust after a discrepancy of the motion under way."""
        if discrepancy.kind is DeviationKind.WRONG:
            self._wrong[self._turns] += 1
            if self._wrong[self._turns] > 1:
                self.lost = discrepancy
        elif not self._is_proven and self.liveness.is_alive and self._shut is None:
            self._shut = (self._turns, self._sign())
        elif not self._is_proven:
            self.lost = discrepancy
        self._is_proven = False

    # -- state that survives a restart

    @property
    def memory(self) -> tuple[Discrepancy | None, tuple[int, int], tuple[bool, float] | None]:
        """Return why odometry is lost, the counts of wrong responses, and the shut direction."""
        lost = self.lost
        if lost is None and self.liveness.is_dead:
            lost = Discrepancy(DeviationKind.NONE, STUCK)  # constant: liveness.reason has a running time
        return lost, (self._wrong[True], self._wrong[False]), self._shut

    def restore(
        self,
        lost: Discrepancy | None,
        wrong: tuple[int, int],
        shut: tuple[bool, float] | None,
    ) -> None:
        """Restore the memory of an earlier process."""
        self.lost, self._shut = lost, shut
        self._wrong = {True: wrong[0], False: wrong[1]}

    # -- queries

    @property
    def is_proven(self) -> bool:
        """Return whether odometry can be trusted: it is proven, or not watched."""
        return not self.config.response_watched or self.trust is Trust.PROVEN

    @property
    def trust(self) -> Trust:
        """Return how far odometry can be trusted."""
        if self.lost is not None:
            return Trust.LOST
        return Trust.PROVEN if self._is_proven and not any(self._wrong.values()) else Trust.DOUBTED

    @property
    def held_by(self) -> str:
        """Return why no motion at all may be carried out, or ""."""
        if self.liveness.is_dead:
            return self.liveness.reason
        return self.lost.reason if self.lost is not None else ""

    def objection(self, motion: Motion) -> Discrepancy | None:
        """Return why this motion may not be carried out now, or None."""
        if self.liveness.is_dead:
            return Discrepancy(DeviationKind.NONE, self.liveness.reason)
        if not self.config.response_watched:
            return None
        if self.lost is not None:
            by_itself = "odometry moves, or " if self.lost.kind is DeviationKind.NONE else ""
            reason = f"{self.lost.reason}; nothing moves until {by_itself}~/reset"
            return Discrepancy(self.lost.kind, reason)
        if self._shut == (bool(motion.angle_rad), sign_of(motion)):
            reason = "the base does not move in this direction; another motion must succeed first"
            return Discrepancy(DeviationKind.NONE, reason)
        return None

    @property
    def delay_s(self) -> float:
        """Delay from a command to odometry, s: observed in this motion, else as calibrated."""
        return self.config.actuation_delay_s if self._delay is None else self._delay

    def in_flight(self, now: float) -> Travel:
        """Return the commanded motion that odometry cannot show yet."""
        if not self.config.response_watched:
            return Travel()
        return self._told(now - self.delay_s, now)

    def overdue(self, now: float) -> bool:
        """Return whether the motion under way should have been answered by now."""
        waited = now - self._began > self.config.response_timeout_s + SHORTEST_S
        return self._motion is not None and not self.is_answered and waited

    def discrepancy(self, now: float) -> Discrepancy | None:
        """Return the discrepancy of the motion under way, as of the last pose, or None."""
        if not self.config.response_watched or self._motion is None:
            return None
        found = self._astray(now) or self._vainly(now)
        if found is not None:
            return found
        for window in WINDOWS_S:
            begin = max(self._began, now - window)
            if now - begin < SHORTEST_S:
                return None
            along, turned = expected(self.commands, begin, now, self.config)
            found = compare(along, turned, self.measured.since(begin), self.config)
            if found is not None:
                return self._stalled(found, now)
            if begin == self._began:
                return None
        return None

    def verdict(self, now: float) -> Discrepancy | None:
        """
        Return the discrepancy of the whole motion, now that it is over and the base stands.

        No delay can explain a difference any more, so this also works for short motions.
        """
        if not self.config.response_watched or self._motion is None:
            return None
        told, seen = self._told(self._began, now), self.measured.since(self._began)
        # Movement on the other axis was checked while the motion was under way.
        if self._turns:
            told, seen = Travel(0.0, 0.0, told.turned_rad), Travel(0.0, 0.0, seen.turned_rad)
        else:
            told, seen = Travel(told.along_m, 0.0, 0.0), Travel(seen.along_m, 0.0, 0.0)
        along, turned = told.along_m, told.turned_rad
        return compare(Range(along, along), Range(turned, turned), seen, self.config)

    def _astray(self, now: float) -> Discrepancy | None:
        """
        Return the discrepancy of a straight motion that goes sideways, or None.

        It must be faster than sliding along a wall, which slows down the more it leads aside.
        """
        if self._turns:
            return None
        seen = self.measured.since(self._began)
        told = self._told(self._began, now).along_m
        if (
            seen.distance_m < ASTRAY_M
            or abs(seen.along_m) > ASTRAY_RATIO * abs(seen.aside_m)
            or seen.distance_m < ASTRAY_SHARE * abs(told)
        ):
            return None
        where = math.degrees(math.atan2(seen.aside_m, seen.along_m))
        return Discrepancy(
            DeviationKind.WRONG,
            f"moves {where:+.0f} degrees off its heading: pushed, or another frame of odometry?",
        )

    def _vainly(self, now: float) -> Discrepancy | None:
        """Return a discrepancy if several short motions together had no response."""
        vain = self._in_vain + self._unseen(now - self.config.response_timeout_s)
        along, turned = vain.along_m, vain.turned_rad
        if (turned <= PATIENCE_RAD) if self._turns else (along <= PATIENCE_M):
            return None
        what = f"{math.degrees(turned):.0f} degrees" if self._turns else f"{along:.2f} m"
        return Discrepancy(DeviationKind.NONE, f"no response to {what} of the last motions")

    def _stalled(self, found: Discrepancy, now: float) -> Discrepancy:
        """Return `found`, as "no response" if it is a shortfall and the base stands now."""
        recent = self.measured.since(now - STALLED_S)
        # Commands of the last moments, and commands one usual delay ago.
        asked = [self.commands.between(until - STALLED_S, until) for until in (now, now - self.delay_s)]
        told, moves = min(abs(self._of(a)) for a in asked), abs(self._of(recent))
        if found.kind is DeviationKind.WRONG and "enough" in found.reason and moves < LITTLE * told:
            return Discrepancy(DeviationKind.NONE, f"has come to a stand: {found.reason}")
        return found

    def uncommanded(self, now: float) -> Discrepancy | None:
        """Return a discrepancy if the robot moves without a command."""
        window = WINDOWS_S[0]
        if not self.config.response_watched or self.measured.covers_s(now) < window:
            return None
        along, turned = expected(self.commands, now - window, now, self.config)
        high, seen = self.config.response_high, self.measured.since(now - window)
        moved = max(0.0, seen.distance_m - high * max(abs(along.least), abs(along.most)))
        swung = max(0.0, abs(seen.turned_rad) - high * max(abs(turned.least), abs(turned.most)))
        if moved <= IDLE_M and swung <= IDLE_RAD:
            return None
        what = f"{seen.distance_m:.2f} m, {math.degrees(seen.turned_rad):+.0f} degrees"
        return Discrepancy(
            DeviationKind.UNCOMMANDED,
            f"moved {what} within {window:g} s without a command: pushed?",
        )

    def stands(self, now: float) -> bool:
        """Return whether trusted odometry shows that the robot stands still."""
        # A command that is not answered yet may still be on its way to the wheels.
        delay = self.delay_s if self.is_answered else self.config.response_timeout_s
        as_of = self.measured.last_at  # nothing is known after the last pose
        rested = self.commands.since_moving_s(now) - (now - as_of) >= STILL_FOR_S + delay
        if not rested or now - as_of > SEES_FOR_S:
            return False
        if self.trust is Trust.LOST or self.liveness.is_dead:
            return False
        seen = self.measured.since(as_of - STILL_FOR_S)
        moved = seen.distance_m > STILL_M or abs(seen.turned_rad) > STILL_RAD
        return self.measured.covers_s(as_of) >= STILL_FOR_S and not moved

    def resists(self, now: float) -> bool:
        """Return whether the robot keeps moving although it was commanded to stand."""
        rested = self.commands.since_moving_s(now)
        if not RESISTS_AFTER_S + self.delay_s < rested < OBEYED_WITHIN_S:
            return False
        # Compared with the last commanded speed.
        before = self.commands.between(now - rested - RESISTS_FOR_S, now - rested)
        seen, share = self.measured.since(now - RESISTS_FOR_S), RESISTS_SHARE
        goes_on = max(RESISTS_M, share * abs(before.along_m)) < abs(seen.along_m)
        turns_on = max(RESISTS_RAD, share * abs(before.turned_rad)) < abs(seen.turned_rad)
        return goes_on or turns_on

    # -- internals

    @property
    def _turns(self) -> bool:
        return self._motion is not None and bool(self._motion.angle_rad)

    def _of(self, travel: Travel) -> float:
        """Return the component of the motion under way: radians of a turn, metres of a drive."""
        return travel.turned_rad if self._turns else travel.along_m

    def _told(self, begin: float, end: float) -> Travel:
        """Return the commanded movement, scaled by the calibration."""
        c, moved = self.config, self.commands.between(begin, end)
        return Travel(moved.along_m * c.linear_scale, 0.0, moved.turned_rad * c.angular_scale)

    def _unseen(self, until: float) -> Travel:
        """Return the absolute movement that this motion commanded since odometry last moved."""
        begin = max(self._began, self._seen_at)
        told = self.commands.between(begin, max(begin, until))
        return Travel(abs(told.along_m), 0.0, abs(told.turned_rad))

    def _sign(self) -> float:
        return sign_of(self._motion or Motion())

    def _look_for_movement(self, pose: Pose, now: float) -> None:
        seen, self._seen = self._seen, self._seen or pose
        if seen is None:
            return
        if pose.distance(seen) >= ANSWER_M or abs(wrap(pose.yaw - seen.yaw)) >= ANSWER_RAD:
            self._seen, self._seen_at, self._in_vain = pose, now, Travel()

    def _look_for_an_answer(self, now: float) -> None:
        if self._motion is None:
            return
        done = self._sign() * self._of(self.measured.since(self._began))
        answer, proof = (ANSWER_RAD, PROOF_RAD) if self._turns else (ANSWER_M, PROOF_M)
        if done < answer:
            return
        self.is_answered = True
        if done < DELAY_TAKEN_UP_TO * answer:
            self._delay = self._delay_of(done, now)
        if done >= proof:
            self._is_proven, self._shut = True, None

    def _delay_of(self, done: float, now: float) -> float:
        """Return how long ago the commanded part of the motion had reached `done`, s."""
        low, high = 0.0, min(now - self._began, self.config.response_timeout_s)
        for _ in range(8):  # commands of a motion have one sign: bisect
            middle = (low + high) / 2
            told = self._sign() * self._of(self._told(self._began, now - middle))
            low, high = (middle, high) if told > done else (low, middle)
        return (low + high) / 2

    def _is_seen_to_move(self, now: float) -> bool:
        seen = self.measured.since(now - SEEN_WITHIN_S)
        return seen.distance_m > SEEN_M or abs(seen.turned_rad) > SEEN_RAD
