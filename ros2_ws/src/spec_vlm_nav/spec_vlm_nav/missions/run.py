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
A mission under way, as one object without ROS.

Its inputs are time, poses, results and orders; its outputs are steps, one at a time. An operator's
pause, stop or emergency stop and the loss of a node pause it: the robot stands until `resume`, and
the paused step then begins again. `now` is a steady clock, s. Every change calls
`MissionOutputs.changed`.
"""

from __future__ import annotations

from dataclasses import replace
import math
from typing import Protocol

from spec_vlm_nav.common.codes import ErrorCode
from spec_vlm_nav.common.errors import MissionError
from spec_vlm_nav.common.geometry import Pose, wrap
from spec_vlm_nav.missions.driving import (
    DrivingCourse,
    first_near,
    grow,
    index_back,
    JUMP_M,
    JUMP_RAD,
    nearest,
    Route,
    THERE_M,
    Turn,
    way_back,
)
from spec_vlm_nav.missions.record import (
    Item,
    MissionPhase,
    MissionPlan,
    MissionRecord,
    MissionStep,
    MOST_STEPS,
    OnFailure,
    Start,
    StartWhen,
    StepKind,
    StepProgress,
)

OTHERS_DOING = (ErrorCode.CANCELED, ErrorCode.ESTOPPED)  # caused by an operator: pause the mission
GRACE_S = 2.0  # extra time for vlm_nav_node to end an instruction by its own limit
DAY = 1440  # minutes
WAY_BACK = MissionStep(StepKind.RETURN)  # added after a failure
LEAST_M = 0.02  # driven at a time: the noise of odometry at rest must not add up
LATE_S = 600.0  # a blocked mission may still begin this long after its minute


class DueTime:
    """Decides when a mission is due; once due it stays due, also after its minute."""

    def __init__(self, start: Start, now: float) -> None:
        self._start, self._given = start, now
        self._minute: int | None = None
        self._since: float | None = None

    def is_due(self, now: float, minute: int) -> bool:
        """Return whether the mission is due by the clock; minute: of the day."""
        when = self._start.when
        if when is StartWhen.AT:
            if self._since is None and self._comes(minute):
                self._since = now
            self._minute = minute
            return self._since is not None
        if when is StartWhen.AFTER:
            return now - self._given >= self._start.after_s
        return when is not StartWhen.SIGNAL

    def is_late(self, now: float) -> bool:
        """Return whether its minute passed more than LATE_S ago."""
        return self._since is not None and now - self._since > LATE_S

    def _comes(self, minute: int) -> bool:
        """Return whether the minute has come, or a clock change has skipped it."""
        at = self._start.at_minute
        if self._minute is None:
            return minute == at
        leap = (minute - self._minute) % DAY
        return minute == at or (0 < (at - self._minute) % DAY <= leap <= LATE_S / 60)


def waits_for(start: Start) -> str:
    """Return in words what a mission waits for, or ""."""
    return {
        StartWhen.NOW: "",
        StartWhen.READY: "",
        StartWhen.SIGNAL: "waits for resume",
        StartWhen.AFTER: f"begins {start.after_s:g} s after it was received",
        StartWhen.AT: f"begins at {clock(start.at_minute)}",
    }[start.when]


def clock(minute: int) -> str:
    """Return a minute of the day as HH:MM."""
    return f"{minute // 60:02}:{minute % 60:02}"


class StopLatch:
    """
    Tells a new stop by the operator from the one in force, which motion_node reports repeatedly.

    Stamps are only compared for equality: clocks may jump.
    """

    def __init__(self) -> None:
        self._is_told = False  # whether motion_node has reported yet
        self._since: float | None = None

    def is_new(self, by_hand: bool, since: float) -> bool:
        """Record a status; returns whether it shows a new stop."""
        stopped = since if by_hand else None
        is_new = self._is_told and by_hand and stopped != self._since
        self._since, self._is_told = stopped, True
        return is_new


class MissionOutputs(Protocol):
    """Outputs of a mission. Results return by `Mission.on_result` with the token."""

    def instruct(self, token: int, step: MissionStep) -> None:
        """Send an instruction."""

    def drive(self, token: int, course: DrivingCourse) -> None:
        """Carry out a course."""

    def stand(self, why: str) -> None:
        """End the step under way; the robot stands. The step's result is ignored."""

    def changed(self) -> None:
        """Handle a change of the record."""

    def log(self, text: str) -> None:
        """Log a message for the operator."""


class Mission:
    """One mission, new or restored from a record."""

    def __init__(self, record: MissionRecord, outputs: MissionOutputs, now: float) -> None:
        self.record = record
        self._out = outputs
        self._token = 0
        self._began = self._last = now
        self._due = DueTime(record.plan.start, now)
        self._pose: Pose | None = None
        self._driven_to: tuple[float, float] | None = None  # where the distance driven was counted last
        self._step_m = 0.0
        self._ends_at = math.inf  # the end of a wait
        self._impossible = ""  # why the step under way cannot be carried out; it fails at the next tick

    @classmethod
    def begin(cls, plan: MissionPlan, outputs: MissionOutputs, now: float, wall: float) -> Mission:
        """Create a new mission; wall: Unix time, s."""
        items = [Item(i + 1, step) for i, step in enumerate(plan.steps)]
        mission = cls(MissionRecord(plan, items, given_at=wall), outputs, now)
        mission.record.why = waits_for(plan.start)
        return mission

    @classmethod
    def restored(cls, record: MissionRecord, outputs: MissionOutputs, now: float) -> Mission:
        """Restore a mission of an earlier process; it waits for `resume`."""
        mission = cls(record, outputs, now)
        if record.phase is not MissionPhase.ENDED:
            mission._put_back()
            record.phase = MissionPhase.PAUSED
            record.why = "mission_node was restarted; resume when the robot is ready"
        return mission

    @property
    def is_over(self) -> bool:
        """Whether the mission has ended."""
        return self.record.phase is MissionPhase.ENDED

    @property
    def running(self) -> Item | None:
        """Return the step under way."""
        return next((i for i in self.record.items if i.progress is StepProgress.RUNNING), None)

    # -- orders

    def pause(self, why: str) -> None:
        """Stop the robot and pause the mission until `resume`."""
        if self.record.phase in (MissionPhase.ENDED, MissionPhase.PAUSED):
            return
        self._stand(why)
        self._put_back()
        self._set(MissionPhase.PAUSED, why)

    def resume(self, objection: str, now: float) -> None:
        """Resume or begin the mission; objection: why it must not, or "". Raises MissionError."""
        if self.record.phase is MissionPhase.RUNNING:
            raise MissionError("the mission is running: there is nothing to resume")
        if self.is_over:
            raise MissionError("the mission has ended: start a new one")
        if objection:
            raise MissionError(f"not resumed: {objection}")
        self._set(MissionPhase.RUNNING, "")
        self._go_on(now)

    def skip(self, now: float) -> None:
        """Skip the step under way, or the next one. Raises MissionError."""
        item = self.record.current
        if self.is_over or item is None:
            raise MissionError("there is no step left to skip")
        self._stand("skipped")
        self._close(item, StepProgress.SKIPPED, ErrorCode.CANCELED, "skipped by the operator", now)
        self._out.changed()
        if self.record.phase is MissionPhase.RUNNING:
            self._go_on(now)
        elif self.record.current is None:
            self._finish()

    def move(self, number: int, place: int) -> None:
        """Move a pending step to the position `place`, from 1. Raises MissionError."""
        items = self.record.items
        if self.is_over:
            raise MissionError("the mission has ended")
        item = next((i for i in items if i.number == number), None)
        if item is None:
            raise MissionError(f"there is no step {number}: {_numbers(items)}")
        if item.progress is not StepProgress.PENDING:
            raise MissionError(f"step {number} is {item.progress.value}: only pending steps can be moved")
        free = next(i for i, each in enumerate(items) if each.progress is StepProgress.PENDING)
        if not free + 1 <= place <= len(items):
            raise MissionError(f"place must be {free + 1} to {len(items)}, got {place}")
        items.remove(item)
        items.insert(place - 1, item)
        self._out.changed()

    def append(self, steps: tuple[MissionStep, ...]) -> None:
        """Add steps at the end. Raises MissionError."""
        if self.is_over:
            raise MissionError("the mission has ended: start a new one")
        if len(self.record.items) + len(steps) > MOST_STEPS:
            raise MissionError(f"a mission has at most {MOST_STEPS} steps")
        self._add(steps)
        self._out.changed()

    def cancel(self, why: str) -> None:
        """End the mission; the robot stands."""
        if self.is_over:
            return
        self._stand(why)
        self._put_back()
        self._end(ErrorCode.CANCELED, why)

    # -- inputs

    def on_pose(self, pose: Pose) -> None:
        """Record odometry: the distance driven, and the path for the way back."""
        record, last, self._pose = self.record, self._pose, pose
        if self.is_over or not pose.is_finite:
            return
        point = (pose.x, pose.y)
        known = (last.x, last.y) if last else (record.path[-1] if record.path else point)
        step_m = math.dist(known, point)
        turned = abs(wrap(pose.yaw - last.yaw)) if last else 0.0
        if step_m > JUMP_M or turned > JUMP_RAD:
            if record.path:
                self._out.log("odometry was reset: the path driven so far is discarded")
            record.path.clear()
            self._driven_to = None
        if record.phase is not MissionPhase.RUNNING or self._driven_to is None:
            self._driven_to = point
        elif (driven_m := math.dist(self._driven_to, point)) >= LEAST_M:
            record.distance_m += driven_m
            self._step_m += driven_m
            self._driven_to = point
        if record.phase is not MissionPhase.WAITING:
            record.spacing_m = grow(record.path, point, record.spacing_m)

    def on_result(self, token: int, code: ErrorCode, message: str, now: float, decisions: int = 0) -> None:
        """Handle the result of the step under way; results of earlier attempts are ignored."""
        item = self.running
        if token != self._token or item is None:
            return
        item = self._counted(item, now, decisions)
        if code in OTHERS_DOING:
            self.pause(message or code.name)
        elif code is ErrorCode.NONE:
            self._close(item, StepProgress.DONE, code, message, now, counted=True)
            self._came_back(item)
            self._go_on(now)
        elif item.tries <= item.step.retries:
            said = f"{code.name} {message}".strip()
            self._replace(replace(item, progress=StepProgress.PENDING, code=code.name, message=message))
            self._out.log(f"step {item.number}: {said}; retrying")
            self._go_on(now)
        else:
            self._fail(item, code, message, now)

    def tick(self, now: float, minute: int, objection: str = "") -> None:
        """Check start time and bounds; minute: of the day; objection: why no step can begin, or ""."""
        record, item = self.record, self.running
        if record.phase is MissionPhase.WAITING and self._may_begin(now, minute, objection):
            self._set(MissionPhase.RUNNING, "")
            self._go_on(now)
        elif record.phase is MissionPhase.RUNNING:
            record.elapsed_s += now - self._last
            self._mind_bounds(item, now)
        self._last = now

    def _may_begin(self, now: float, minute: int, objection: str) -> bool:
        start = self.record.plan.start
        self.record.why = waits_for(start)
        due = self._due.is_due(now, minute)
        if start.when is StartWhen.NOW or not due or not objection:
            return due
        self.record.why = f"waits: {objection}"
        if self._due.is_late(now):
            late = f"could not begin at {clock(start.at_minute)}, nor within {LATE_S / 60:g} min"
            self._end(ErrorCode.TIMEOUT, f"{late}: {objection}")
        return False

    def _mind_bounds(self, item: Item | None, now: float) -> None:
        if item is None:
            return
        plan, step = self.record.plan, item.step
        spent = now - self._began
        if 0 < plan.max_s < self.record.elapsed_s:
            why = f"the mission took longer than {plan.max_s:g} s"
            self._give_up(item, ErrorCode.TIMEOUT, why)
        elif 0 < plan.max_m < self.record.distance_m:
            self._give_up(item, ErrorCode.TOO_FAR, f"the mission drove over {plan.max_m:g} m")
        elif self._impossible:
            self.on_result(self._token, ErrorCode.INVALID_INPUT, self._impossible, now)
        elif step.kind is StepKind.WAIT and now >= self._ends_at:
            self.on_result(self._token, ErrorCode.NONE, "", now)
        elif 0 < step.max_s < spent - (GRACE_S if step.kind is StepKind.INSTRUCTION else 0):
            self._overrun(ErrorCode.TIMEOUT, f"longer than {step.max_s:g} s", now)
        elif 0 < step.max_m < self._step_m:
            self._overrun(ErrorCode.TOO_FAR, f"farther than {step.max_m:g} m", now)

    def _overrun(self, code: ErrorCode, why: str, now: float) -> None:
        self._stand(why)
        self.on_result(self._token, code, why, now)

    def _give_up(self, item: Item, code: ErrorCode, why: str) -> None:
        self._stand(why)
        self._close(item, StepProgress.FAILED, code, why, self._last)
        self._end(code, why)

    # -- steps

    def _go_on(self, now: float) -> None:
        """Begin the next step, or end the mission."""
        item = self.record.current
        if item is None:
            self._finish()
            return
        self._token += 1
        self._began, self._step_m, self._impossible = now, 0.0, ""
        here = (self._pose.x, self._pose.y) if self._pose else None
        if here and not self.record.path:
            self.record.path.append(here)
        begun = replace(item, progress=StepProgress.RUNNING, tries=item.tries + 1, began_at=here)
        self._replace(begun)
        self._out.changed()
        self._out.log(f"step {item.number}: {item.step.shown}")
        self._begin_step(begun, now)

    def _begin_step(self, item: Item, now: float) -> None:
        step = item.step
        if step.kind is StepKind.INSTRUCTION:
            self._out.instruct(self._token, step)
        elif step.kind is StepKind.TURN:
            self._out.drive(self._token, Turn(math.radians(step.number)))
        elif step.kind is StepKind.WAIT:
            self._ends_at = now + step.number
        elif not self.record.path or self._pose is None:
            # Not ended here: the steps behind it may be the same, and each would end within the one before.
            self._impossible = "no path to return along: no odometry, or it was reset"
        else:
            way = way_back(self.record.path, self._destination(item))
            self._out.drive(self._token, Route(way))

    def _destination(self, item: Item) -> int:
        """Return the index of the path's point that a return leads to."""
        path, metres = self.record.path, item.step.number
        if metres > 0:
            return index_back(path, metres)
        if metres == 0:
            return 0
        items = self.record.items
        before = [i.began_at for i in items[: items.index(item)] if i.began_at is not None]
        return nearest(path, before[-1]) if before else 0

    def _came_back(self, item: Item) -> None:
        """After a return, cut the path off where the robot is now."""
        if item.step.kind is StepKind.RETURN and self._pose is not None and self.record.path:
            path = self.record.path
            cut = first_near(path, (self._pose.x, self._pose.y), 2 * THERE_M)
            del path[cut + 1 :]

    def _fail(self, item: Item, code: ErrorCode, message: str, now: float) -> None:
        self._close(item, StepProgress.FAILED, code, message, now, counted=True)
        said = f"step {item.number} ({item.step.shown}): {code.name} {message}".strip()
        self._out.log(said)
        if item.step.on_failure is OnFailure.NEXT:
            self._go_on(now)
        elif item.step.on_failure is OnFailure.RETURN and not self.record.returning:
            self._return_after(code, said, now)
        else:
            self._end(self._kept(code), self._kept_why(said))

    def _return_after(self, code: ErrorCode, said: str, now: float) -> None:
        """Skip the remaining steps, and drive back to where the mission began."""
        record = self.record
        record.returning, record.code = True, code.name
        record.why = record.failure = said
        for item in record.items:
            if not item.is_over:
                why = "skipped: the robot returned after a failure"
                self._close(item, StepProgress.SKIPPED, ErrorCode.CANCELED, why, now, counted=True)
        self._add((WAY_BACK,))  # also behind MOST_STEPS
        self._go_on(now)

    def _add(self, steps: tuple[MissionStep, ...]) -> None:
        number = max((i.number for i in self.record.items), default=0)
        self.record.items += [Item(number + 1 + i, step) for i, step in enumerate(steps)]

    def _kept(self, code: ErrorCode) -> ErrorCode:
        """Return the mission's code: a failed way back must not hide the first failure."""
        return ErrorCode[self.record.code] if self.record.returning else code

    def _kept_why(self, said: str) -> str:
        return f"{self.record.failure}; then {said}" if self.record.returning else said

    def _finish(self) -> None:
        record = self.record
        failed = [item for item in record.items if item.progress is StepProgress.FAILED]
        if record.returning:
            ways = [item.progress for item in record.items if item.step == WAY_BACK]
            is_back = StepProgress.DONE in ways[-1:]
            then = "returned to the start" if is_back else "the way back was skipped"
            self._end(ErrorCode[record.code], f"{record.failure}; {then}")
        elif failed:
            first = failed[0]
            words = f"{first.step.shown}: {first.code} {first.message}".strip()
            count = f"{len(failed)} of {len(record.items)} steps failed"
            why = f"{count}, first {first.number} ({words})"
            self._end(ErrorCode[first.code], why)
        else:
            self._end(ErrorCode.NONE, "")

    def _end(self, code: ErrorCode, why: str) -> None:
        self.record.code = code.name
        self._set(MissionPhase.ENDED, why)

    # -- the record

    def _set(self, phase: MissionPhase, why: str) -> None:
        self.record.phase, self.record.why = phase, why or self.record.failure
        self._out.log(f"mission {phase.value}{f': {why}' if why else ''}")
        self._out.changed()

    def _stand(self, why: str) -> None:
        if self.running is not None:
            self._token += 1  # later results of the step are ignored
            self._out.stand(why)

    def _put_back(self) -> None:
        """Make the step under way pending again; the attempt does not count."""
        if (item := self.running) is not None:
            self._replace(replace(item, progress=StepProgress.PENDING, tries=max(0, item.tries - 1)))

    def _counted(self, item: Item, now: float, decisions: int = 0) -> Item:
        spent = now - self._began if item.progress is StepProgress.RUNNING else 0.0
        counted = replace(
            item,
            elapsed_s=item.elapsed_s + spent,
            distance_m=item.distance_m + self._step_m,
            decisions=item.decisions + decisions,
        )
        self._began, self._step_m = now, 0.0
        self._replace(counted)
        return counted

    def _close(
        self,
        item: Item,
        progress: StepProgress,
        code: ErrorCode,
        message: str,
        now: float,
        counted: bool = False,
    ) -> None:
        if not counted and item.progress is StepProgress.RUNNING:
            item = self._counted(item, now)
        self._replace(replace(item, progress=progress, code=code.name, message=message))

    def _replace(self, item: Item) -> None:
        items = self.record.items
        place = next(i for i, each in enumerate(items) if each.number == item.number)
        items[place] = item


def _numbers(items: list[Item]) -> str:
    return "allowed " + ", ".join(str(i.number) for i in items)
