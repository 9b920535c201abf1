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
A mission's plan and its progress, stored on disk so that it can be resumed after a restart, and its results.

A file is written under another name and renamed, so that it is never incomplete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
import enum
import json
from pathlib import Path
from typing import Any

import msgspec
from spec_vlm_nav.common.codes import ErrorCode
from spec_vlm_nav.common.kept_file import read_small, write_whole

MOST_STEPS = 500  # with repetitions expanded


class StepKind(enum.Enum):
    """Kind of a step."""

    INSTRUCTION = "instruction"
    WAIT = "wait_s"
    TURN = "turn_deg"
    RETURN = "return"


class OnFailure(enum.Enum):
    """What follows after a step has failed, including its retries."""

    NEXT = "next"
    STOP = "stop"
    RETURN = "return"


class StartWhen(enum.Enum):
    """What a mission waits for before its first step."""

    NOW = "now"
    READY = "ready"  # both nodes and odometry are heard, and no emergency stop is latched
    SIGNAL = "signal"  # the order resume
    AFTER = "after_s"
    AT = "at"


@dataclass(frozen=True)
class Start:
    """When to begin. after_s: since receipt; at_minute: minutes since midnight, local time."""

    when: StartWhen = StartWhen.READY
    after_s: float = 0.0
    at_minute: int = 0


@dataclass(frozen=True)
class MissionStep:
    """
    One step.

    number: of a wait: seconds. Of a turn: degrees, left positive. Of a return: metres back along
    the driven path; 0: to where the mission began; negative: to where the previous step began.
    hint: words expected in the last reasoning; the result says whether they occurred.
    max_s, max_m: bounds of one attempt; 0: none (vlm_nav_node bounds an instruction, too).
    retries: attempts after the first.
    """

    kind: StepKind
    words: str = ""
    number: float = 0.0
    hint: str = ""
    max_s: float = 0.0
    max_m: float = 0.0
    retries: int = 0
    on_failure: OnFailure = OnFailure.STOP

    @property
    def shown(self) -> str:
        """Return the step in words."""
        if self.kind is StepKind.INSTRUCTION:
            return self.words
        if self.kind is StepKind.WAIT:
            return f"wait {self.number:g} s"
        if self.kind is StepKind.TURN:
            side = "left" if self.number > 0 else "right"
            return f"turn {side} {abs(self.number):g}°"
        if self.number > 0:
            return f"return {self.number:g} m along the path"
        return "return to the start" if self.number == 0 else "return to where the last step began"


PREVIOUS = -1.0


@dataclass(frozen=True)
class MissionPlan:
    """A mission. max_s: bound of its time without pauses; max_m: of its distance; 0: none."""

    name: str
    steps: tuple[MissionStep, ...]
    start: Start = Start()
    max_s: float = 0.0
    max_m: float = 0.0


Point = tuple[float, float]  # in the odometry frame, m
MOST_BYTES = 1 << 24  # of a file; the longest mission needs a few MB
MOST_NUMBER = 1e10  # of any field of a record; squares of it are still finite


class StepProgress(enum.Enum):
    """State of a step."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"


class MissionPhase(enum.Enum):
    """State of the mission."""

    WAITING = "waiting"  # for its start condition
    RUNNING = "running"
    PAUSED = "paused"
    ENDED = "ended"


@dataclass(frozen=True)
class Item:
    """A step with its progress. code, message: the result of its last attempt."""

    number: int  # stays the same when the step is moved
    step: MissionStep
    progress: StepProgress = StepProgress.PENDING
    tries: int = 0
    code: str = ""  # name of an ErrorCode
    message: str = ""
    elapsed_s: float = 0.0
    distance_m: float = 0.0
    decisions: int = 0
    began_at: Point | None = None

    @property
    def is_over(self) -> bool:
        """Whether the step has ended."""
        return self.progress in (StepProgress.DONE, StepProgress.FAILED, StepProgress.SKIPPED)


@dataclass
class MissionRecord:
    """A mission under way. path: the driven path, for the way back; given_at: Unix time, s."""

    plan: MissionPlan
    items: list[Item]
    phase: MissionPhase = MissionPhase.WAITING
    why: str = ""  # why it waits or pauses, or how it ended
    code: str = ErrorCode.NONE.name
    elapsed_s: float = 0.0
    distance_m: float = 0.0
    given_at: float = 0.0
    returning: bool = False  # it is on the way back after a failure
    failure: str = ""  # that failure
    path: list[Point] = field(default_factory=list)
    spacing_m: float = 0.05

    @property
    def current(self) -> Item | None:
        """Return the first step that is not over."""
        return next((item for item in self.items if not item.is_over), None)


def encode(record: MissionRecord) -> bytes:
    """Return a record as it is stored."""
    return msgspec.json.encode(record)


def save(data: bytes, file: Path) -> None:
    """Write an encoded record. Raises OSError."""
    write_whole(file, data)


def load(file: Path) -> MissionRecord | None:
    """
    Return the record in a file; None if there is no file.

    Raises ValueError for a file that is not a mission, and OSError.
    """
    try:
        if (data := read_small(file, MOST_BYTES)) is None:
            return None
        record = msgspec.json.decode(data, type=MissionRecord)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"{file} holds no mission: {error}") from error
    if wrong := _contradiction(record):
        raise ValueError(f"{file} holds no mission that can go on: {wrong}")
    return record


def _contradiction(record: MissionRecord) -> str:
    """Return what no mission under way can hold, or ""; a file may have been edited by hand."""
    codes = [record.code, *(item.code for item in record.items if item.code)]
    if unknown := [code for code in codes if code not in ErrorCode.__members__]:
        return f"unknown code {unknown[0][:40]!r}"
    for item in record.items:
        if item.progress is StepProgress.FAILED and not item.code:
            return f"step {item.number} has failed without a code"
    if len({item.number for item in record.items}) != len(record.items):
        return "two steps have the same number"
    if record.spacing_m <= 0:
        return f"spacing_m must be above 0, got {record.spacing_m:g}"
    huge = [one for one in _numbers(msgspec.to_builtins(record)) if abs(one) > MOST_NUMBER]
    return f"the number {huge[0]:g} is too large" if huge else ""


def _numbers(value: Any) -> Iterator[float]:
    """Yield all numbers in nested lists and dictionaries."""
    if isinstance(value, (int, float)):
        yield value
    elif isinstance(value, (list, tuple, dict)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _numbers(one)


def results(record: MissionRecord) -> dict[str, Any]:
    """Return the results of a mission with all its steps."""
    counts = Counter(item.progress for item in record.items)
    return {
        "schema": 1,
        "name": record.plan.name,
        "phase": record.phase.value,
        "why": record.why,
        "code": record.code,
        "elapsed_s": round(record.elapsed_s, 2),
        "distance_m": round(record.distance_m, 3),
        "done": counts[StepProgress.DONE],
        "failed": counts[StepProgress.FAILED],
        "skipped": counts[StepProgress.SKIPPED],
        "steps": [_step(item) for item in record.items],
    }


def _step(item: Item) -> dict[str, Any]:
    step = item.step
    return {
        "number": item.number,
        "kind": step.kind.value,
        "words": step.shown,
        "progress": item.progress.value,
        "tries": item.tries,
        "code": item.code,
        "message": item.message,
        "elapsed_s": round(item.elapsed_s, 2),
        "distance_m": round(item.distance_m, 3),
        "decisions": item.decisions,
        "max_s": step.max_s,
        "max_m": step.max_m,
        "retries": step.retries,
        "on_failure": step.on_failure.value,
    }


def results_json(record: MissionRecord) -> str:
    """Return a mission's results as JSON."""
    return json.dumps(results(record), ensure_ascii=False)


def plan_json(plan: MissionPlan) -> str:
    """Return the results of a mission that has not begun, as JSON."""
    items = [Item(i + 1, step) for i, step in enumerate(plan.steps)]
    return results_json(MissionRecord(plan, items))
