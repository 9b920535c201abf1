"""The deciding side as one object without ROS: which frame to decide from, what to ask of motion_node, when to stand.

One decision at a time: look (wait for a frame newer than the end of the last motion), think, move. Whatever goes wrong
the robot is told to stand still first and the reason is given once. It never blocks: decisions run elsewhere and come
back as events; `now` is a steady clock in seconds. Every instruction ends exactly once, with `Outputs.concluded`.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace

from spec_vlm_nav.actions import STOP, Action, ahead_clear, reasoning_of, sees_target
from spec_vlm_nav.camera_watch import CameraWatch
from spec_vlm_nav.decider import LinkHealth
from spec_vlm_nav.decision import Answer, ErrorCode, Frame, Job, Report, Verification
from spec_vlm_nav.errors import InstructionError
from spec_vlm_nav.executor import NO_MOTION, Motion
from spec_vlm_nav.exploration import ActionSource, ExplorationPolicy, Move
from spec_vlm_nav.motion_core import OPERATOR_STOP, MotionState, Status
from spec_vlm_nav.orders import SUPERVISOR, Errand, NavigatorConfig, Order, Outcome, Outputs, Phase, View
from spec_vlm_nav.prefetch import same_scene
from spec_vlm_nav.prompting import clean_instruction
from spec_vlm_nav.rollback import OpenDecision
from spec_vlm_nav.safety import CommandKind
from spec_vlm_nav.setbacks import Setbacks
from spec_vlm_nav.worker import ActionFound, Answered, Event, Failed, Reconciled

STOP_WORDS = frozenset({"stop", "halt", "stop now", "stop here"})
OLD_STOP_S = 0.2
SLOW_FACTOR = 2.0  # unverified motions are slower: they get so much longer
PAST_FRAMES = 256  # kept for prompts with history
GOING_ON = (MotionState.IDLE, MotionState.MOVING, MotionState.SETTLING)
SENSES = {
    MotionState.STALE_ODOM: ErrorCode.STALE_ODOM,
    MotionState.STALE_CAMERA: ErrorCode.STALE_CAMERA,
    MotionState.LINK_LOST: ErrorCode.LINK_LOST,
}
GONE = {
    ErrorCode.STALE_CAMERA: "no camera frames",
    ErrorCode.STALE_ODOM: "no odometry that can be trusted",
    ErrorCode.LINK_LOST: "the verifier was not heard",
}


def is_stop_word(text: str) -> bool:
    """Whether an instruction means nothing but: stop."""
    return " ".join(text[:100].lower().split()).rstrip(" .!") in STOP_WORDS


@dataclass
class _Thought:
    """The decision under way and what has come of it."""

    job: Job
    began: float
    report: Report
    ahead: bool = False  # begun before the motion's end; nothing is done about it until that has come
    found: ActionFound | None = None
    answered: Answered | None = None
    action: Action | None = None


def _met_something(status: Status, action: Action) -> bool:
    """Whether a motion ended against something: no progress at all, or too slow along it to get even half the way."""
    slid = abs(status.done.distance_m) < abs(action.distance_m) / 2
    against = status.state in (MotionState.BLOCKED, MotionState.COLLISION_AHEAD)
    return against or (status.state is MotionState.EXPIRED and slid)


class Navigator:
    """The state machine of one robot; every input method takes `now`."""

    def __init__(
        self,
        outputs: Outputs,
        config: NavigatorConfig | None = None,
        policy: ExplorationPolicy | None = None,
        keep_frames: int = PAST_FRAMES,
    ) -> None:
        self.config = config or NavigatorConfig()
        self.policy = policy or ExplorationPolicy()
        self.phase = Phase.IDLE
        self.camera = CameraWatch()
        self.setbacks = Setbacks(outputs.log)
        self.number = 0  # of the instruction
        self._out = outputs
        self._errand = Errand(0, "", -math.inf)
        self._jobs = 0
        self._look_after = 0.0
        self._retry_at = 0.0
        self._thought: _Thought | None = None
        self._sequence = 0  # of the motion under way
        self._unverified_motion = False
        self._settling_since: float | None = None
        self._give_up_at = 0.0
        self._contact = False
        self._past: deque[bytes] = deque(maxlen=max(1, keep_frames))
        self._actions: deque[Action] = deque(maxlen=16)
        self._link = LinkHealth.UNKNOWN
        self._open: OpenDecision | None = None
        self._view = View(Phase.IDLE)

    # -- what the operator wants

    def on_instruction(self, text: str, now: float, allowance_s: float = 0.0, hint: str = "") -> int:
        """Stand still, forget the old instruction and begin this one; returns its number.

        allowance_s: it may take so long, 0: as long as it takes. hint: words that the last reasoning should hold.
        A bad instruction ends at once, with the robot standing.
        """
        if is_stop_word(text):
            self.on_cancel(now)
            return self.number
        try:
            words = clean_instruction(text, self.config.max_instruction_chars)
        except InstructionError as error:
            self._end(SUPERVISOR, "bad instruction", ErrorCode.CANCELED, now, "another instruction came")
            self.number += 1
            self._out.log("error", str(error))
            self._out.report(Report(instruction=self.number, code=ErrorCode.INVALID_INPUT, error=str(error)))
            self._out.concluded(Outcome(self.number, ErrorCode.INVALID_INPUT, str(error)))
            return self.number
        self._abandon(ErrorCode.CANCELED, "a new instruction came")
        self.number += 1
        self._stand(CommandKind.HOLD, SUPERVISOR, "new instruction")
        self._over(ErrorCode.CANCELED, "another instruction came", now)
        self._errand = Errand(
            self.number, words, now, now + allowance_s if allowance_s > 0 else math.inf, hint
        )
        self.policy.reset()
        self.setbacks.begin(now)
        self._past.clear()
        self._actions.clear()
        self._contact = False
        self._view = View(Phase.LOOKING)
        self._look(now, now)
        self._out.log("info", f"instruction {self.number}: {words}")
        return self.number

    def on_cancel(self, now: float, why: str = "stopped by the operator") -> None:
        """Stop and idle until the next instruction."""
        self._abandon(ErrorCode.CANCELED, why)
        self._end(SUPERVISOR, "stop", ErrorCode.CANCELED, now, why)
        self._out.log("info", f"{why}; waiting for the next instruction")

    # -- what the robot perceives

    def on_frame(self, frame: Frame) -> None:
        """Keep the newest camera frame; decide from it if that is what is waited for."""
        if not self.camera.take(frame):
            return
        self.setbacks.recovered(ErrorCode.STALE_CAMERA, frame.received, "camera frames arrive again")
        self._maybe_think(frame.received)

    def on_link(self, health: LinkHealth, now: float, reason: str = "") -> None:
        """Take note of the link; without a verifier nothing but a declared degraded mode moves the robot."""
        was, self._link = self._link, health
        if health is LinkHealth.UP and was is not LinkHealth.UP:
            self.setbacks.recovered(ErrorCode.LINK_LOST, now, "the verifier answers again")
        if health is not LinkHealth.LOST or self.phase is Phase.IDLE:
            return
        what = (
            "the draft model decides alone, slowly" if self.config.is_degradable else "the robot stands still"
        )
        why = f": {reason}" if reason else ""
        self._complain(ErrorCode.LINK_LOST, f"the verifier is not heard{why}; {what} until it is back", now)
        if self.phase is Phase.MOVING and not (self._unverified_motion and self.config.is_degradable):
            self._stand(CommandKind.HOLD, SUPERVISOR, "link lost")
            self._look(now, now)

    def on_status(self, status: Status, now: float) -> None:
        """Take note of what became of the motion under way (of this node's session), or of the operator's stop."""
        if status.state is MotionState.STOPPED and status.reason.startswith(OPERATOR_STOP):
            # One that was sent before motion_node heard of this instruction is about the one before; it is repeated.
            if self.phase is not Phase.IDLE and now - self._errand.began > OLD_STOP_S:
                self.on_cancel(now)
            return
        if self.phase is not Phase.MOVING or status.sequence != self._sequence:
            return
        self.camera.robot_moved(status.done)
        self._view = replace(self._view, left=status.left)
        if status.state is MotionState.SETTLING and self._settling_since is None:
            self._settling_since = now
        if status.state in GOING_ON:
            return
        self._contact = _met_something(status, self._actions[-1])
        retry = now
        refused = status.state is MotionState.REFUSED
        sense = SENSES.get(status.state)
        if refused and "odometry" in status.reason:
            sense = ErrorCode.STALE_ODOM
        if sense is not None:
            self._complain(sense, f"motion ended: {status.reason}", now)
            retry = now + self.config.first_retry_s
        elif refused or status.state is MotionState.SUPERVISOR_LOST:
            self._out.log("warn", f"motion {status.sequence} {status.state.name.lower()}: {status.reason}")
            retry = now + self.config.first_retry_s
        else:
            self.setbacks.recovered(ErrorCode.STALE_ODOM, now, "odometry is back")
            if status.state is not MotionState.REACHED:
                self._out.log("info", f"motion ended {status.state.name}: {status.reason}")
        if status.state is not MotionState.REACHED:
            self._drop_ahead("the motion ended early")
        self._look(now + self.config.settle_s, retry)
        self._mind_collisions(status, now)

    def _mind_collisions(self, status: Status, now: float) -> None:
        if status.state is not MotionState.COLLISION_AHEAD:
            self.setbacks.clear(ErrorCode.COLLISION_AHEAD)
        elif self.setbacks.count(ErrorCode.COLLISION_AHEAD) >= self.config.collision_limit:
            self._give_up(ErrorCode.COLLISION_AHEAD, f"something stays in the way: {status.reason}", now)

    # -- what came of a decision

    def on_event(self, event: Event, now: float) -> None:
        """Take an event of the worker; those of abandoned jobs are ignored."""
        if isinstance(event, Reconciled):
            self._reconciled(event, now)
            return
        thought = self._thought
        if thought is None or event.job != thought.job.number:
            return
        if isinstance(event, Failed):
            self._failed(thought, event, now)
            return
        if isinstance(event, ActionFound):
            thought.found = event
        else:
            thought.answered = event
        self._advance(thought, now)

    def tick(self, now: float) -> None:
        """Watch the clocks; call at 10 Hz or more."""
        if self.phase is Phase.IDLE:
            return
        if self._camera_is_stale(now):
            if self.phase is Phase.MOVING:
                self._stand(CommandKind.HOLD, SUPERVISOR, "camera stale")
                self._look(now, now)
            said = "the picture does not change although the robot moves"
            what = said if self.camera.is_frozen else GONE[ErrorCode.STALE_CAMERA]
            self._complain(ErrorCode.STALE_CAMERA, f"{what}: the robot stands still until they are back", now)
        if self._thought is not None and now - self._thought.began > self.config.decision_timeout_s:
            text = f"no answer within {self.config.decision_timeout_s:g} s"
            self._out.cancel()
            self._failed(self._thought, Failed(0, ErrorCode.TIMEOUT, text, Answer()), now)
        if self.phase is Phase.MOVING and now > self._give_up_at:
            self._out.log("error", "motion_node does not say what became of the motion: is it running?")
            self._stand(CommandKind.HOLD, SUPERVISOR, "motion_node is silent")
            self._drop_ahead("motion_node is silent")
            self._look(now, now + self.config.first_retry_s)
        self._mind_patience(now)
        self._maybe_think(now)

    def _mind_patience(self, now: float) -> None:
        if now >= self._errand.ends_at:
            self._give_up(ErrorCode.TIMEOUT, f"not done within {now - self._errand.began:.1f} s", now)
            return
        for code, what in GONE.items():
            waits = code is not ErrorCode.LINK_LOST or self.config.on_link_loss == "stop"
            lasting = self.setbacks.lasting(code, now)
            if waits and 0 < self.config.patience_s < lasting:
                self._give_up(code, f"{what} for {lasting:.0f} s", now)
                return
        if self._open is not None and self._stop_is_open and 0 < self.config.patience_s < now - self._open.at:
            what = "the draft model says that it is done, and the verifier did not answer"
            self._give_up(ErrorCode.LINK_LOST, f"{what} for {now - self._open.at:.0f} s", now)

    @property
    def view(self) -> View:
        """What can be told of the instruction under way."""
        return replace(self._view, phase=self.phase, decisions=self._errand.decisions)

    @property
    def _stop_is_open(self) -> bool:
        """Whether the draft model alone said that the instruction is done: the target must say so, too."""
        return self._open is not None and self._open.action.is_stop

    # -- inside: looking and thinking

    def _camera_is_stale(self, now: float) -> bool:
        if self.camera.frame is None:
            return now - self._look_after > self.config.camera_timeout_s
        return self.camera.age(now) > self.config.camera_timeout_s

    def _look(self, after: float, retry_at: float) -> None:
        self.phase, self._look_after, self._retry_at = Phase.LOOKING, after, retry_at
        self._settling_since = None

    def _may_begin(self, now: float) -> bool:
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
            if same_scene(thought.job.frame.picture, frame.picture, self.config.prefetch_tolerance):
                thought.ahead, self.phase = False, Phase.THINKING
                self._advance(thought, now)
                return
            self._drop_ahead("the scene has changed")
        if self._thought is not None:
            return
        if self._limit_reached:
            self._give_up(ErrorCode.TIMEOUT, f"gave up after {self._errand.decisions} decisions", now)
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
        report = Report(frame=frame, instruction=self.number, instruction_text=words, prefetched=ahead)
        self._thought = _Thought(job, now, report, ahead)
        self._out.begin(job)

    def _drop_ahead(self, why: str) -> None:
        """A decision that was begun early is of no use."""
        if self._thought is not None and self._thought.ahead:
            self._errand.decisions -= 1
            self._out.cancel(keep_open=True)
            self._finish(self._thought, Answer(), ErrorCode.CANCELED, why)

    # -- inside: acting

    def _advance(self, thought: _Thought, now: float) -> None:
        """Do what is due: the action once its sentence is there (or the answer complete), and the bookkeeping."""
        if thought.ahead:
            return
        due = thought.found is not None and (self.config.early_action or thought.answered is not None)
        if due and thought.action is None and thought.found is not None:
            self._act(thought, thought.found, now)
        if thought.answered is not None:
            self._answered(thought, thought.answered, now)

    def _act(self, thought: _Thought, event: ActionFound, now: float) -> None:
        """The action sentence is there: move now, whatever else the model may still say."""
        thought.action = event.action
        if (objection := self._objection(event, now)) is not None:
            code, error = objection
            thought.report = replace(thought.report, code=code, error=error)
            self._look(now, now)
            return
        before = self.policy.state
        if event.action.is_stop:
            move = Move(STOP, ActionSource.MODEL)
        else:
            move = self.policy.decide(
                event.action, sees_target(event.text), self._contact, ahead_clear(event.text)
            )
        self._contact = False
        self._past.append(event.jpeg)
        self._actions.append(move.action)
        said = Verification.UNVERIFIED if event.unverified else Verification.VERIFIED
        thought.report = replace(
            thought.report,
            action=move.action.short,
            source=move.source.value,
            rule=move.rule,
            verification=said,
            decision_ms=(event.at - thought.began) * 1e3,
            camera_to_action_ms=(now - thought.job.frame.received) * 1e3,
        )
        words = move.action.sentence or move.action.short
        self._view = View(
            self.phase,
            reasoning_of(event.text),
            words,
            event.unverified,
            NO_MOTION,
            thought.report.decision_ms,
        )
        sequence = self._carry_out(thought, move, event.unverified, now)
        thought.report = replace(thought.report, sequence=sequence)
        if event.unverified:
            self._open = OpenDecision(thought.job.number, event.action, sequence, thought.report, before, now)
            self._out.log("warn", f"UNVERIFIED, the draft model alone: {words}")
        self._out.spoke(reasoning_of(event.text), words, event.unverified)

    def _objection(self, event: ActionFound, now: float) -> tuple[ErrorCode, str] | None:
        """Why nothing may be done about an action although it was found."""
        if self._camera_is_stale(now):
            return ErrorCode.STALE_CAMERA, "camera went stale while thinking"
        if event.unverified and not self.config.is_degradable:
            return ErrorCode.LINK_LOST, "only the draft model says so, and it may no longer decide alone"
        return None

    def _carry_out(self, thought: _Thought, move: Move, unverified: bool, now: float) -> int:
        frame, action = thought.job.frame, move.action
        if action.is_stop and unverified:
            sequence = self._stand(CommandKind.HOLD, move.source.value, action.sentence)
            self._look(now, now)
            return sequence
        if action.is_stop:
            return self._end(move.source.value, action.sentence, ErrorCode.NONE, now, keep_thought=True)
        motion = Motion(action.distance_m, action.angle_rad)
        deadline = self.config.motion_deadline_s * (SLOW_FACTOR if unverified else 1)
        order = Order(
            CommandKind.MOVE,
            self.number,
            move.source.value,
            action.short,
            motion,
            frame,
            deadline,
            unverified,
        )
        sequence = self._out.send(order)
        self._errand.motions += 1
        self._unverified_motion = unverified
        if self.config.dry_run:
            self._look(now, now)
            return sequence
        self.phase, self._sequence, self._settling_since = Phase.MOVING, sequence, None
        self._give_up_at = now + deadline + self.config.status_grace_s
        return sequence

    def _answered(self, thought: _Thought, event: Answered, now: float) -> None:
        answer = event.answer
        if not event.unverified:
            self.setbacks.recovered(ErrorCode.LINK_LOST, now, "the verifier answers again")
        self.setbacks.recovered(ErrorCode.TIMEOUT, now, "answers come in time again")
        self.setbacks.recovered(ErrorCode.INVALID_INPUT, now, "usable camera frames again")
        self.setbacks.recovered(ErrorCode.INTERNAL, now, "decisions work again")
        if thought.action is not None:
            for code in (ErrorCode.PARSE_FAILED, ErrorCode.INTERNAL, ErrorCode.LINK_LOST, ErrorCode.TIMEOUT):
                self.setbacks.clear(code)
            self._say_late_reasoning(answer, event.unverified)
            self._finish(thought, answer)
            return
        self._stand(CommandKind.HOLD, SUPERVISOR, "no action in the answer")
        self._finish(
            thought, answer, ErrorCode.PARSE_FAILED, "the answer holds no action sentence: not moving"
        )
        self._out.log("warn", f"no action in the answer, not moving: {answer.text[:120]!r}")
        if self.setbacks.count(ErrorCode.PARSE_FAILED) >= self.config.parse_failure_limit:
            self._give_up(ErrorCode.PARSE_FAILED, "too many answers in a row without an action", now)
            return
        self._look(now, now)

    def _say_late_reasoning(self, answer: Answer, unverified: bool) -> None:
        """Where the action comes first, what stands behind it is the reasoning."""
        reasoning = reasoning_of(answer.text)
        if reasoning and not self._view.reasoning:
            self._view = replace(self._view, reasoning=reasoning)
            self._out.spoke(reasoning, "", unverified)

    def _failed(self, thought: _Thought, failed: Failed, now: float) -> None:
        if thought.ahead:  # the motion goes on, and the next try is made after it
            self._finish(thought, failed.answer, failed.code, failed.message)
            return
        # STOP is out already, or whoever canceled has seen to the robot; else it stands before anything is told.
        seen_to = self.phase is Phase.IDLE or failed.code is ErrorCode.CANCELED
        if not seen_to:
            self._stand(CommandKind.HOLD, SUPERVISOR, failed.code.name)
        self._finish(thought, failed.answer, failed.code, failed.message)
        if seen_to:
            return
        count = self.setbacks.count(failed.code)
        pause = min(self.config.first_retry_s * 2 ** (count - 1), self.config.last_retry_s)
        self.setbacks.complain(failed.code, f"{failed.message}; the robot stands still and tries again", now)
        if failed.code is ErrorCode.INTERNAL and count >= self.config.internal_failure_limit:
            self._give_up(ErrorCode.INTERNAL, f"too many internal errors in a row: {failed.message}", now)
            return
        lasting = self.setbacks.lasting(failed.code, now)
        if failed.code is not ErrorCode.LINK_LOST and 0 < self.config.patience_s < lasting:
            self._give_up(failed.code, f"no answer for {lasting:.0f} s: {failed.message}", now)
            return
        self._look(now, now + pause)

    def _reconciled(self, event: Reconciled, now: float) -> None:
        """The target's word on the last unverified decision."""
        decision = self._open
        if decision is None or event.job != decision.job:
            return
        self._open = None
        if decision.action == event.action:
            self._out.report(decision.told(Verification.CONFIRMED, event))
            self._out.log("info", f"confirmed by the verifier: {decision.action.short}")
            self._unverified_motion = self._unverified_motion and self._sequence != decision.sequence
            if decision.action.is_stop:
                self._end(ActionSource.MODEL.value, decision.action.sentence, ErrorCode.NONE, now)
            return
        self._abandon(ErrorCode.CANCELED, "rolled back")
        self._stand(CommandKind.HOLD, SUPERVISOR, "rolled back")
        if self._actions:
            self._actions.pop()
            self._past.pop()
        self.policy.state = decision.policy_before
        self._out.report(decision.told(Verification.ROLLED_BACK, event))
        instead = event.action.short if event.action is not None else "no action"
        self._out.log("warn", f"rolled back {decision.action.short}: the verifier says {instead}")
        self._look(now, now)

    # -- inside: ending

    def _finish(
        self, thought: _Thought, answer: Answer, code: ErrorCode = ErrorCode.NONE, error: str = ""
    ) -> None:
        """Publish what a decision cost; it is over."""
        self._thought = None
        report = replace(
            thought.report,
            answer=answer,
            reasoning=reasoning_of(answer.text),
            model_action=thought.action.sentence if thought.action else "",
        )
        if code is not ErrorCode.NONE:
            report = replace(report, code=code, error=error)
        self._out.report(report)

    def _abandon(self, code: ErrorCode, why: str) -> None:
        """Give up the decision under way and the one that is still open, if there are any."""
        if self._thought is not None or self._open is not None:
            self._out.cancel()
        self._open = None
        if self._thought is not None:
            self._finish(self._thought, Answer(), code, why)

    def _give_up(self, code: ErrorCode, message: str, now: float) -> None:
        """STOP because it makes no sense to go on."""
        self._out.log("error", f"gave up: {message}")
        if code is ErrorCode.TIMEOUT:
            self._out.report(self._blank(code, message))
        self._end(SUPERVISOR, message, code, now)

    def _end(
        self,
        source: str,
        text: str,
        code: ErrorCode,
        now: float,
        message: str = "",
        keep_thought: bool = False,
    ) -> int:
        """STOP: latches until the next instruction. Returns the sequence number."""
        if not keep_thought:
            self._abandon(ErrorCode.CANCELED, text)
        self._open = None
        sequence = self._stand(CommandKind.STOP, source, text)
        self._over(code, message or ("" if code is ErrorCode.NONE else text), now)
        return sequence

    def _over(self, code: ErrorCode, message: str, now: float) -> None:
        """Tell how the instruction ended, if one was under way."""
        was, self.phase = self.phase, Phase.IDLE
        if was is Phase.IDLE:
            return
        e = self._errand
        met = code is ErrorCode.NONE and e.hint.lower() in self._view.reasoning.lower()
        self._out.concluded(Outcome(e.number, code, message, e.decisions, e.motions, now - e.began, met))

    def _stand(self, kind: CommandKind, source: str, text: str) -> int:
        frame = self._thought.job.frame if self._thought is not None else None
        return self._out.send(Order(kind, self.number, source, text, frame=frame))

    def _complain(self, code: ErrorCode, text: str, now: float) -> None:
        """Say it once, until it is over, and publish it."""
        if self.setbacks.complain(code, text, now):
            self._out.report(self._blank(code, text))

    def _blank(self, code: ErrorCode, text: str) -> Report:
        return Report(instruction=self.number, instruction_text=self._errand.words, code=code, error=text)
