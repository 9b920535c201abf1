"""The deciding side as one object without ROS: which frame to decide from, what to ask of motion_node, when to stand.

One decision at a time: look (wait for a frame newer than the end of the last motion), think, move. Whatever goes wrong
the robot is told to stand still first and the reason is given once. It never blocks: decisions run elsewhere and come
back as events; `now` is a steady clock in seconds.
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass, replace
from typing import Protocol

from spec_vlm_nav.actions import STOP, Action, ahead_clear, reasoning_of, sees_target
from spec_vlm_nav.decision import Answer, ErrorCode, Frame, Job, Report
from spec_vlm_nav.errors import InstructionError
from spec_vlm_nav.executor import NO_MOTION, Motion
from spec_vlm_nav.exploration import ActionSource, ExplorationPolicy, Move
from spec_vlm_nav.motion_core import MotionState, Status
from spec_vlm_nav.prompting import MAX_INSTRUCTION_CHARS, clean_instruction
from spec_vlm_nav.safety import CommandKind
from spec_vlm_nav.worker import ActionFound, Answered, Event, Failed

STOP_WORDS = frozenset({"stop", "halt", "stop now", "stop here"})
SUPERVISOR = "SUPERVISOR"
PAST_FRAMES = 256  # kept for prompts with history
FINAL_STATES = (
    MotionState.REACHED,
    MotionState.STOPPED,
    MotionState.BLOCKED,
    MotionState.EXPIRED,
    MotionState.REFUSED,
    MotionState.STALE_ODOM,
)


class Phase(enum.Enum):
    """What the robot is doing about its instruction."""

    IDLE = "idle"  # no instruction, or it is over
    LOOKING = "looking"  # waiting for a frame that may be used
    THINKING = "thinking"
    MOVING = "moving"


@dataclass(frozen=True)
class NavigatorConfig:
    """Times and limits of the deciding side; seconds."""

    camera_timeout_s: float = 1.0
    decision_timeout_s: float = 20.0
    motion_deadline_s: float = 4.0
    status_grace_s: float = 1.0  # after a motion's deadline, until motion_node counts as silent
    settle_s: float = 0.05  # a frame counts as taken after the motion when received so long after its end
    first_retry_s: float = 0.5
    last_retry_s: float = 4.0
    parse_failure_limit: int = 3
    internal_failure_limit: int = 3
    max_decisions: int = 0  # 0: no limit
    max_instruction_chars: int = MAX_INSTRUCTION_CHARS


@dataclass(frozen=True)
class Order:
    """A motion command to send; number and session are the sender's."""

    kind: CommandKind
    instruction: int
    source: str
    text: str
    motion: Motion = NO_MOTION
    frame: Frame | None = None
    deadline_s: float = 0.0
    unverified: bool = False


class Outputs(Protocol):
    """What the navigator can do to the world."""

    def send(self, order: Order) -> int:
        """Send a motion command; returns its sequence number."""
        ...

    def begin(self, job: Job) -> None:
        """Have a job decided."""
        ...

    def cancel(self) -> None:
        """Give up the job under way."""
        ...

    def spoke(self, text: str, action: str) -> None:
        """Publish the reasoning and the action of a decision."""
        ...

    def report(self, report: Report) -> None:
        """Publish the measurements of a decision."""
        ...

    def log(self, level: str, text: str) -> None:
        """Say something to the operator: level is "info", "warn" or "error"."""
        ...


@dataclass
class _Thought:
    """The decision under way and what has come of it."""

    job: Job
    began: float
    report: Report
    action: Action | None = None


def _met_something(status: Status, action: Action) -> bool:
    """Whether a motion ended against something: no progress at all, or too slow along it to get even half the way."""
    slid = abs(status.done.distance_m) < abs(action.distance_m) / 2
    return status.state is MotionState.BLOCKED or (status.state is MotionState.EXPIRED and slid)


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
        self.instruction = ""
        self._out = outputs
        self.number = 0  # of the instruction
        self._jobs = 0
        self._frame: Frame | None = None
        self._look_after = 0.0
        self._retry_at = 0.0
        self._thought: _Thought | None = None
        self._sequence = 0  # of the motion under way
        self._give_up_at = 0.0
        self._contact = False
        self._past: deque[bytes] = deque(maxlen=max(1, keep_frames))
        self._actions: deque[Action] = deque(maxlen=16)
        self._decisions = 0
        self._failures: dict[ErrorCode, int] = {}
        self._trouble: dict[ErrorCode, float] = {}  # said once, since when

    # -- what the operator wants

    def on_instruction(self, text: str, now: float) -> None:
        """Stand still, forget the old instruction and begin this one; a bad one leaves the robot standing."""
        if " ".join(text[:100].lower().split()).rstrip(" .!") in STOP_WORDS:
            self.on_cancel(now)
            return
        try:
            words = clean_instruction(text, self.config.max_instruction_chars)
        except InstructionError as error:
            self._end(SUPERVISOR, "bad instruction")
            self._out.log("error", str(error))
            self._out.report(Report(instruction=self.number, code=ErrorCode.INVALID_INPUT, error=str(error)))
            return
        self._abandon(ErrorCode.CANCELED, "a new instruction came", now)
        self._stand(CommandKind.HOLD, SUPERVISOR, "new instruction")
        self.number += 1
        self.instruction = words
        self.policy.reset()
        self._past.clear()
        self._actions.clear()
        self._failures.clear()
        self._decisions = 0
        self._contact = False
        self.phase, self._look_after, self._retry_at = Phase.LOOKING, now, now
        self._out.log("info", f"instruction {self.number}: {words}")

    def on_cancel(self, now: float) -> None:
        """Stop and idle until the next instruction."""
        self._abandon(ErrorCode.CANCELED, "stopped by the operator", now)
        self._end(SUPERVISOR, "stop")
        self._out.log("info", "stopped by the operator; waiting for the next instruction")

    # -- what the robot perceives

    def on_frame(self, frame: Frame) -> None:
        """Keep the newest camera frame; decide from it if that is what is waited for."""
        self._frame = frame
        self._recovered(ErrorCode.STALE_CAMERA, frame.received, "camera frames arrive again")
        self._maybe_think(frame.received)

    def on_status(self, status: Status, now: float) -> None:
        """Take note of what became of the motion under way (of this node's session)."""
        if (
            self.phase is not Phase.MOVING
            or status.sequence != self._sequence
            or status.state not in FINAL_STATES
        ):
            return
        self._contact = _met_something(status, self._actions[-1])
        retry = now
        refused = status.state is MotionState.REFUSED
        if status.state is MotionState.STALE_ODOM or (refused and "odometry" in status.reason):
            self._complain(ErrorCode.STALE_ODOM, f"motion ended: {status.reason}", now)
            retry = now + self.config.first_retry_s
        elif refused:
            self._out.log("warn", f"motion {status.sequence} refused: {status.reason}")
            retry = now + self.config.first_retry_s
        else:
            self._recovered(ErrorCode.STALE_ODOM, now, "odometry is back")
            if status.state is not MotionState.REACHED:
                self._out.log("info", f"motion ended {status.state.name}: {status.reason}")
        self._look(now + self.config.settle_s, retry)

    # -- what came of a decision

    def on_event(self, event: Event, now: float) -> None:
        """Take an event of the worker; those of abandoned jobs are ignored."""
        thought = self._thought
        if thought is None or event.job != thought.job.number:
            return
        if isinstance(event, ActionFound):
            self._act(thought, event, now)
        elif isinstance(event, Answered):
            self._answered(thought, event.answer, now)
        else:
            self._failed(thought, event, now)

    def tick(self, now: float) -> None:
        """Watch the clocks; call at 10 Hz or more."""
        if self.phase is Phase.IDLE:
            return
        if self._camera_is_stale(now):
            if self.phase is Phase.MOVING:
                self._stand(CommandKind.HOLD, SUPERVISOR, "camera stale")
                self._look(now, now)
            self._complain(
                ErrorCode.STALE_CAMERA, "no camera frames: the robot stands still until they are back", now
            )
        if self._thought is not None and now - self._thought.began > self.config.decision_timeout_s:
            text = f"no answer within {self.config.decision_timeout_s:g} s"
            self._out.cancel()
            self._failed(self._thought, Failed(0, ErrorCode.TIMEOUT, text, Answer()), now)
        if self.phase is Phase.MOVING and now > self._give_up_at:
            self._out.log("error", "motion_node does not say what became of the motion: is it running?")
            self._stand(CommandKind.HOLD, SUPERVISOR, "motion_node is silent")
            self._look(now, now + self.config.first_retry_s)
        self._maybe_think(now)

    # -- inside

    def _camera_is_stale(self, now: float) -> bool:
        since = self._frame.received if self._frame is not None else self._look_after
        return now - since > self.config.camera_timeout_s

    def _look(self, after: float, retry_at: float) -> None:
        self.phase, self._look_after, self._retry_at = Phase.LOOKING, after, retry_at

    def _maybe_think(self, now: float) -> None:
        frame = self._frame
        # An answer may still be streaming although its motion is over.
        ready = self.phase is Phase.LOOKING and self._thought is None and now >= self._retry_at
        if not ready or frame is None or frame.received <= self._look_after or self._camera_is_stale(now):
            return
        if self.config.max_decisions and self._decisions >= self.config.max_decisions:
            self._end(SUPERVISOR, "decision limit")
            text = f"gave up after {self._decisions} decisions"
            self._out.log("warn", text)
            self._out.report(self._blank(ErrorCode.TIMEOUT, text))
            return
        self._jobs += 1
        self._decisions += 1
        job = Job(self._jobs, self.instruction, frame, tuple(self._past), tuple(self._actions))
        report = Report(frame=frame, instruction=self.number, instruction_text=self.instruction)
        self.phase, self._thought = Phase.THINKING, _Thought(job, now, report)
        self._out.begin(job)

    def _act(self, thought: _Thought, event: ActionFound, now: float) -> None:
        """The action sentence is verified: move now, whatever else the model may still say."""
        thought.action = event.action
        if self._camera_is_stale(now):
            thought.report = replace(
                thought.report, code=ErrorCode.STALE_CAMERA, error="camera went stale while thinking"
            )
            self._look(now, now)
            return
        if event.action.is_stop:
            move = Move(STOP, ActionSource.MODEL)
        else:
            move = self.policy.decide(
                event.action, sees_target(event.text), self._contact, ahead_clear(event.text)
            )
        self._contact = False
        self._past.append(event.jpeg)
        self._actions.append(move.action)
        frame, action = thought.job.frame, move.action
        if action.is_stop:
            sequence = self._end(move.source.value, action.sentence, keep_thought=True)
        else:
            motion = Motion(action.distance_m, action.angle_rad)
            deadline = self.config.motion_deadline_s
            sequence = self._out.send(
                Order(CommandKind.MOVE, self.number, move.source.value, action.short, motion, frame, deadline)
            )
            self.phase, self._sequence = Phase.MOVING, sequence
            self._give_up_at = now + deadline + self.config.status_grace_s
        thought.report = replace(
            thought.report,
            sequence=sequence,
            action=action.short,
            source=move.source.value,
            rule=move.rule,
            decision_ms=(event.at - thought.began) * 1e3,
            camera_to_action_ms=(now - frame.received) * 1e3,
        )
        self._out.spoke(reasoning_of(event.text), action.sentence or action.short)

    def _answered(self, thought: _Thought, answer: Answer, now: float) -> None:
        self._recovered(ErrorCode.LINK_LOST, now, "the verifier answers again")
        self._recovered(ErrorCode.INVALID_INPUT, now, "usable camera frames again")
        self._recovered(ErrorCode.INTERNAL, now, "decisions work again")
        if thought.action is not None:
            self._failures.clear()
            self._finish(thought, answer)
            return
        self._stand(CommandKind.HOLD, SUPERVISOR, "no action in the answer")
        self._finish(
            thought, answer, ErrorCode.PARSE_FAILED, "the answer holds no action sentence: not moving"
        )
        self._out.log("warn", f"no action in the answer, not moving: {answer.text[:120]!r}")
        if self._count(ErrorCode.PARSE_FAILED) >= self.config.parse_failure_limit:
            self._end(SUPERVISOR, "too many answers without an action")
            self._out.log("error", "gave up: too many answers in a row without an action")
            return
        self._look(now, now)

    def _failed(self, thought: _Thought, failed: Failed, now: float) -> None:
        # STOP is out already, or whoever canceled has seen to the robot; else it stands before anything is told.
        seen_to = self.phase is Phase.IDLE or failed.code is ErrorCode.CANCELED
        if not seen_to:
            self._stand(CommandKind.HOLD, SUPERVISOR, failed.code.name)
        self._finish(thought, failed.answer, failed.code, failed.message)
        if seen_to:
            return
        count = self._count(failed.code)
        pause = min(self.config.first_retry_s * 2 ** (count - 1), self.config.last_retry_s)
        self._complain(
            failed.code, f"{failed.message}; the robot stands still and tries again", now, report=False
        )
        if failed.code is ErrorCode.INTERNAL and count >= self.config.internal_failure_limit:
            self._end(SUPERVISOR, "too many internal errors")
            self._out.log("error", "gave up: too many internal errors in a row")
            return
        self._look(now, now + pause)

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

    def _abandon(self, code: ErrorCode, why: str, now: float) -> None:
        """Give up the decision under way, if there is one."""
        if self._thought is not None:
            self._out.cancel()
            self._finish(self._thought, Answer(), code, why)

    def _end(self, source: str, text: str, keep_thought: bool = False) -> int:
        """STOP: latches until the next instruction. Returns the sequence number."""
        if self._thought is not None and not keep_thought:
            self._out.cancel()
            self._finish(self._thought, Answer(), ErrorCode.CANCELED, text)
        self.phase = Phase.IDLE
        return self._stand(CommandKind.STOP, source, text)

    def _stand(self, kind: CommandKind, source: str, text: str) -> int:
        frame = self._thought.job.frame if self._thought is not None else None
        return self._out.send(Order(kind, self.number, source, text, frame=frame))

    def _count(self, code: ErrorCode) -> int:
        self._failures[code] = self._failures.get(code, 0) + 1
        return self._failures[code]

    def _complain(self, code: ErrorCode, text: str, now: float, report: bool = True) -> None:
        """Say it once, until it is over."""
        if code in self._trouble:
            return
        self._trouble[code] = now
        self._out.log("warn", text)
        if report:
            self._out.report(self._blank(code, text))

    def _recovered(self, code: ErrorCode, now: float, text: str) -> None:
        since = self._trouble.pop(code, None)
        if since is not None:
            self._out.log("info", f"{text} (after {now - since:.1f} s)")

    def _blank(self, code: ErrorCode, text: str) -> Report:
        return Report(instruction=self.number, instruction_text=self.instruction, code=code, error=text)
