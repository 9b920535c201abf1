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
The deciding side as one object without ROS.

Which frame to decide from, what to ask of motion_node, when to stand.

One decision at a time: look (wait for a frame newer than the end of the last motion), think, move.
Whatever goes wrong the robot is told to stand still first and the reason is given once. It never
blocks: decisions run elsewhere and come back as events; `now` is a steady clock in seconds. Every
instruction ends exactly once, with `Outputs.concluded`.
"""

from __future__ import annotations

from dataclasses import replace
import math

from spec_vlm_nav.common.errors import InstructionError
from spec_vlm_nav.common.status import MotionState, Status
from spec_vlm_nav.deciding.acting import Acting
from spec_vlm_nav.deciding.bounds import CODE_OF, fell_short, is_obstruction
from spec_vlm_nav.deciding.conduct import Thought
from spec_vlm_nav.deciding.decision import Answer, ErrorCode, Frame, Job, Report
from spec_vlm_nav.deciding.orders import Errand, Outcome, Phase, SUPERVISOR, View
from spec_vlm_nav.deciding.prefetch import same_scene
from spec_vlm_nav.language.prompting import clean_instruction
from spec_vlm_nav.language.stop_words import is_stop
from spec_vlm_nav.model.decider import LinkHealth
from spec_vlm_nav.model.worker import Failed
from spec_vlm_nav.motion.command import CommandKind, OPERATOR_STOP
from spec_vlm_nav.motion.executor import Motion

OLD_STOP_S = 0.2
GOING_ON = (MotionState.IDLE, MotionState.MOVING, MotionState.SETTLING)
SENSES = {
    MotionState.STALE_ODOM: ErrorCode.STALE_ODOM,
    MotionState.STALE_CAMERA: ErrorCode.STALE_CAMERA,
    MotionState.LINK_LOST: ErrorCode.LINK_LOST,
    MotionState.STALE_SENSOR: ErrorCode.STALE_SENSOR,
    MotionState.NOT_READY: ErrorCode.NOT_READY,
}
AGAINST = (
    MotionState.BLOCKED,
    MotionState.COLLISION_AHEAD,
    MotionState.NO_RESPONSE,
    MotionState.GEOFENCE,
)
BACK_WITH_MOTION = {  # what a motion shows to be over that got as far as the base
    ErrorCode.STALE_ODOM: 'odometry is back',
    ErrorCode.STALE_SENSOR: 'the sensor that looks ahead is back',
    ErrorCode.NOT_READY: 'the robot is ready again',
}
UNMOVED = (
    MotionState.REFUSED,
    MotionState.NO_RESPONSE,
    MotionState.WRONG_RESPONSE,
    MotionState.UNCOMMANDED_MOTION,
)
GONE = {
    ErrorCode.STALE_CAMERA: 'no camera frames',
    ErrorCode.STALE_ODOM: 'no odometry that can be trusted',
    ErrorCode.LINK_LOST: 'the verifier was not heard',
    ErrorCode.STALE_SENSOR: 'the sensor that looks ahead was blind',
    ErrorCode.NOT_READY: 'the robot could not move',
}


def _met_something(status: Status, asked: Motion) -> bool:
    """Return whether a motion ended against something, be it a wall or the geofence."""
    against = status.state in AGAINST or status.state is MotionState.EXPIRED
    return against and asked.distance_m != 0 and is_obstruction(status, asked)


class Navigator(Acting):
    """The state machine of one robot; every input method takes `now`."""

    # -- what the operator wants

    def on_instruction(
        self,
        text: str,
        now: float,
        allowance_s: float = 0.0,
        hint: str = '',
        stamp: float = math.inf,
    ) -> int:
        """
        Stand still, forget the old instruction and begin this one; returns its number.

        allowance_s: it may take so long, 0: as long as max_duration_s. hint: words that the last
        reasoning should hold. stamp: when it was given, s, by the clock of motion_node's stamps:
        an operator's stop after that is about it. A bad instruction ends at once, with the robot
        standing.
        """
        if is_stop(text):
            self.on_cancel(now)
            return self.number
        try:
            words = clean_instruction(text, self.config.max_instruction_chars)
        except InstructionError as error:
            return self._turn_down(text, ErrorCode.INVALID_INPUT, str(error), now)
        if self._estopped_by:
            why = f'{self._estopped_by} is latched: reset it first'
            return self._turn_down(words, ErrorCode.ESTOPPED, why, now)
        self._abandon(ErrorCode.CANCELED, 'a new instruction came')
        self.number += 1
        self._stand(CommandKind.HOLD, SUPERVISOR, 'new instruction')
        self._over(ErrorCode.CANCELED, 'another instruction came', now)
        longest = min(d for d in (allowance_s, self.config.max_duration_s, math.inf) if d > 0)
        self._errand = Errand(self.number, words, now, now + longest, hint, stamp)
        self.policy.reset()
        self.setbacks.begin(now)
        self._odometer.restart()
        self._obstructions.restart()
        self._past.clear()
        self._actions.clear()
        self._contact = False
        self._view = View(Phase.LOOKING)
        self._look(now, now)
        self._out.log('info', f'instruction {self.number}: {words}')
        return self.number

    def _turn_down(self, text: str, code: ErrorCode, why: str, now: float) -> int:
        """Do not even begin an instruction; the robot stands, as for any other."""
        self._end(SUPERVISOR, 'stop', ErrorCode.CANCELED, now, 'another instruction came')
        self.number += 1
        self._out.log('error', why)
        self._out.report(Report(instruction=self.number, code=code, error=why))
        shown = text[: self.config.max_instruction_chars]
        self._out.concluded(Outcome(self.number, code, why, words=shown))
        return self.number

    def on_cancel(self, now: float, why: str = 'stopped by the operator') -> None:
        """Stop and idle until the next instruction."""
        self._abandon(ErrorCode.CANCELED, why)
        self._end(SUPERVISOR, 'stop', ErrorCode.CANCELED, now, why)
        self._out.log('info', f'{why}; waiting for the next instruction')

    # -- what the robot perceives

    def on_frame(self, frame: Frame) -> None:
        """Keep the newest camera frame; decide from it if that is what is waited for."""
        if not self.camera.take(frame):
            return
        self.setbacks.recovered(
            ErrorCode.STALE_CAMERA, frame.received, 'camera frames arrive again'
        )
        self._maybe_think(frame.received)

    def on_link(self, health: LinkHealth, now: float, reason: str = '') -> None:
        """
        Take note of the link.

        Without a verifier nothing but a declared degraded mode moves the robot.
        """
        was, self._link = self._link, health
        if health is LinkHealth.UP and was is not LinkHealth.UP:
            self.setbacks.recovered(ErrorCode.LINK_LOST, now, 'the verifier answers again')
        if health is not LinkHealth.LOST or self.phase is Phase.IDLE:
            return
        what = (
            'the draft model decides alone, slowly'
            if self.config.is_degradable
            else 'the robot stands still'
        )
        why = f': {reason}' if reason else ''
        self._complain(
            ErrorCode.LINK_LOST, f'the verifier is not heard{why}; {what} until it is back', now
        )
        if self.phase is Phase.MOVING and not (
            self._unverified_motion and self.config.is_degradable
        ):
            self._stand(CommandKind.HOLD, SUPERVISOR, 'link lost')
            self._look(now, now)

    def on_estop(self, held_by: str, now: float) -> None:
        """Take note of the emergency stop, as motion_node tells it; "": it is not latched."""
        was, self._estopped_by = self._estopped_by, held_by
        if held_by and self.phase is not Phase.IDLE:
            self._give_up(ErrorCode.ESTOPPED, held_by, now)
        elif was and not held_by:
            self._out.log('info', 'the emergency stop was reset')

    def on_status(self, status: Status, now: float) -> None:
        """
        Take note of what became of the motion under way, or of the operator's stop.

        The motion has to be of this node's session.
        """
        if status.state is MotionState.STOPPED and status.reason.startswith(OPERATOR_STOP):
            # One that came before this instruction was given is about the one before.
            newer = status.since >= self._errand.stamp or now - self._errand.began > OLD_STOP_S
            if self.phase is not Phase.IDLE and newer:
                self.on_cancel(now)
            return
        if status.sequence == self._sequence:
            self._odometer.hear(status.sequence, status.done)
        if self.phase is not Phase.MOVING or status.sequence != self._sequence:
            return
        self._silent_at = now + self.config.status_timeout_s
        self.camera.robot_moved(status.sequence, status.done)
        self._view = replace(self._view, left=status.left)
        if status.state is MotionState.SETTLING and self._settling_since is None:
            self._settling_since = now
        if status.state in GOING_ON:
            return
        self._contact = _met_something(status, self._asked)
        retry = now + self.config.first_retry_s
        sense = SENSES.get(status.state)
        lost = status.state is MotionState.SUPERVISOR_LOST
        if sense is not None:
            self._complain(sense, f'motion ended: {status.reason}', now)
        elif status.state in (*UNMOVED, MotionState.SUPERVISOR_LOST):
            self._out.log(
                'warn', f'motion {status.sequence} {status.state.name.lower()}: {status.reason}'
            )
        else:
            retry = now
            self._errand.refused_since = math.inf
            for code, text in BACK_WITH_MOTION.items():
                self.setbacks.recovered(code, now, text)
            if status.state is not MotionState.REACHED:
                self._out.log('info', f'motion ended {status.state.name}: {status.reason}')
        if status.state is not MotionState.REACHED:
            self._drop_ahead('the motion ended early')
        self._look(now + self.config.settle_s, retry)
        self._mind_obstructions(status, now)
        if lost:
            self._mind_refusals(status.reason, now)

    def _mind_refusals(self, why: str, now: float) -> None:
        self._errand.refused_since = min(self._errand.refused_since, now)
        lasting = now - self._errand.refused_since
        if 0 < self.config.patience_s < lasting:
            self._give_up(
                ErrorCode.INTERNAL, f'motion_node moves nothing for {lasting:.0f} s: {why}', now
            )

    def _mind_obstructions(self, status: Status, now: float) -> None:
        if not is_obstruction(status, self._asked):
            if self._asked.distance_m > 0 and not fell_short(status.done, self._asked):
                self._obstructions.progressed(self._odometer.place)
            return
        count = self._obstructions.add(self._odometer.place, bool(status.held_by), now)
        if self._obstructions.are_final(self.config.max_obstructions, now):
            what = f'{count} motions came to nothing, without progress: {status.reason}'
            self._give_up(CODE_OF[status.state], what, now)

    def tick(self, now: float) -> None:
        """Watch the clocks; call at 10 Hz or more."""
        if self.phase is Phase.IDLE:
            return
        if self._camera_is_stale(now):
            if self.phase is Phase.MOVING:
                self._stand(CommandKind.HOLD, SUPERVISOR, 'camera stale')
                self._look(now, now)
            said = 'the picture does not change although the robot moves'
            what = said if self.camera.is_frozen else GONE[ErrorCode.STALE_CAMERA]
            self._complain(
                ErrorCode.STALE_CAMERA, f'{what}: the robot stands still until they are back', now
            )
        if (
            self._thought is not None
            and now - self._thought.began > self.config.decision_timeout_s
        ):
            text = f'no answer within {self.config.decision_timeout_s:g} s'
            self._out.cancel()
            self._failed(self._thought, Failed(0, ErrorCode.TIMEOUT, text, Answer()), now)
        if self.phase is Phase.MOVING and now > min(self._give_up_at, self._silent_at):
            self._out.log(
                'error', 'motion_node does not say what became of the motion: is it running?'
            )
            self._stand(CommandKind.HOLD, SUPERVISOR, 'motion_node is silent')
            self._drop_ahead('motion_node is silent')
            self._look(now, now + self.config.first_retry_s)
            self._mind_refusals('it does not answer', now)
        if self.phase is not Phase.IDLE:
            self._mind_patience(now)
        self._maybe_think(now)

    def _mind_patience(self, now: float) -> None:
        if now >= self._errand.ends_at:
            self._give_up(
                ErrorCode.TIMEOUT, f'not done within {now - self._errand.began:.1f} s', now
            )
            return
        if 0 < self.config.max_distance_m <= self._odometer.distance_m:
            gone = f'{self._odometer.distance_m:.1f} m were travelled without getting there'
            self._give_up(ErrorCode.TOO_FAR, gone, now)
            return
        for code, what in GONE.items():
            waits = code is not ErrorCode.LINK_LOST or self.config.on_link_loss == 'stop'
            lasting = self.setbacks.lasting(code, now)
            if waits and 0 < self.config.patience_s < lasting:
                self._give_up(code, f'{what} for {lasting:.0f} s', now)
                return
        if (
            self._open is not None
            and self._stop_is_open
            and 0 < self.config.patience_s < now - self._open.at
        ):
            what = 'the draft model says that it is done, and the verifier did not answer'
            self._give_up(ErrorCode.LINK_LOST, f'{what} for {now - self._open.at:.0f} s', now)

    # -- inside: looking and thinking

    def _may_begin(self, now: float) -> bool:
        if not self.model_is_ready:
            return False
        if self._link is LinkHealth.LOST and not self.config.is_degradable:
            return False
        return now >= self._retry_at and not self._stop_is_open and not self._camera_is_stale(now)

    def _maybe_think(self, now: float) -> None:
        frame, thought = self.camera.frame, self._thought
        if frame is None or self.phase is Phase.IDLE or not self._may_begin(now):
            return
        if self.phase is Phase.MOVING:
            since = self._settling_since
            # An answer may still be streaming although its motion is nearly over.
            ready = self.config.prefetch and since is not None and frame.received > since
            if ready and thought is None and not self._limit_reached:
                self._begin(frame, now, ahead=True)
            return
        if self.phase is not Phase.LOOKING or frame.received <= self._look_after:
            return
        if thought is not None and thought.ahead:
            if same_scene(
                thought.job.frame.picture, frame.picture, self.config.prefetch_tolerance
            ):
                thought.ahead, self.phase = False, Phase.THINKING
                self._advance(thought, now)
                return
            self._drop_ahead('the scene has changed')
        if self._thought is not None:
            return
        if self._limit_reached:
            self._give_up(
                ErrorCode.TOO_MANY_DECISIONS,
                f'gave up after {self._errand.decisions} decisions',
                now,
            )
            return
        self.phase = Phase.THINKING
        self._begin(frame, now)

    @property
    def _limit_reached(self) -> bool:
        return 0 < self.config.max_decisions <= self._errand.decisions

    def _begin(self, frame: Frame, now: float, ahead: bool = False) -> None:
        self._jobs += 1
        self._errand.decisions += 1
        words = self._errand.words
        job = Job(self._jobs, words, frame, tuple(self._past), tuple(self._actions))
        report = Report(
            frame=frame, instruction=self.number, instruction_text=words, prefetched=ahead
        )
        self._thought = Thought(job, now, report, ahead)
        self._out.begin(job)

    def _drop_ahead(self, why: str) -> None:
        """Drop a decision that was begun early and is of no use."""
        if self._thought is not None and self._thought.ahead:
            self._errand.decisions -= 1
            self._out.cancel(keep_open=True)
            self._finish(self._thought, Answer(), ErrorCode.CANCELED, why)
