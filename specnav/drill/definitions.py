# SPDX-License-Identifier: Apache-2.0
"""Terms of a drill: what is injected when, what must happen, and what was received. Plain data, no ROS.

A robot *stops* when its last non-zero cmd_vel is past; it *stands* if it did not move before either. A *reason* is a
state or an error code on a topic. A *bound* is how long the robot may continue to move.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from specnav.supervise.points import DecisionPoint

if TYPE_CHECKING:
    from specnav.supervise.robot_stack import Stack

GRACE_S = 0.1
"""Added to a watchdog's timeout: its own tick, the way to the topic, and our tick."""


class Moment(enum.Enum):
    """When a fault is injected."""

    PREFILL = "prefill"
    MID_ROUND = "mid-round"
    BETWEEN_ROUNDS = "between rounds"
    MOVING = "moving"
    SETTLING = "settling"

    @property
    def point(self) -> DecisionPoint | None:
        """The point within a decision, for moments during one."""
        return DecisionPoint(self.value) if self.value in {p.value for p in DecisionPoint} else None


class ExpectedReaction(enum.Enum):
    """What the robot must do during the fault."""

    STOPS = "stops"  # and stands until the fault is over
    HALTS = "halts"  # stops, and may go on immediately
    GOES_ON = "goes on"  # the fault must not affect it
    KEEPS_FRESH = "moves on fresh frames only"  # never on a camera frame older than the bound


class ExpectedRecovery(enum.Enum):
    """What must happen after the fault."""

    BY_ITSELF = "by itself"
    NEXT_INSTRUCTION = "next instruction"


@dataclass(frozen=True)
class Reason:
    """An expected reason: name of a state, code or kind on a topic, and words that its text must contain."""

    topic: str
    name: str
    words: str = ""


@dataclass(frozen=True)
class HeardReason:
    """A reason that was received on a topic."""

    at: float
    topic: str
    name: str
    text: str = ""

    def is_a(self, reason: Reason) -> bool:
        """Whether this message gives that reason."""
        return (self.topic, self.name) == (reason.topic, reason.name) and reason.words in self.text


@dataclass(frozen=True)
class Term:
    """A time in seconds that is set by a node's parameter."""

    node: str
    parameter: str


@dataclass(frozen=True)
class TimeBound:
    """How long the robot may continue to move: the sum of node parameters and seconds."""

    terms: tuple[Term, ...] = ()
    seconds: float = GRACE_S
    note: str = ""

    @property
    def words(self) -> str:
        """What the bound consists of."""
        parts = [f"{term.parameter} ({term.node})" for term in self.terms]
        if self.seconds:
            parts.append(f"{self.seconds * 1e3:.0f} ms" + (f" ({self.note})" if self.note else ""))
        return " + ".join(parts)


@dataclass(frozen=True)
class Drill:
    """One fault at one moment, and what must then happen.

    fault: see specnav.drill.faults. lasts_s: duration of the fault; None: the bound and a little more. within_s: time
    to recover. release_s: in a decision, how long its messages are held after the fault. prompt: the reason must also
    be reported within the bound. tested: also runs in CI.
    """

    name: str
    what: str
    fault: Callable[[Stack], AbstractContextManager[float]]
    bound: TimeBound
    reasons: tuple[Reason, ...] = ()
    reaction: ExpectedReaction = ExpectedReaction.STOPS
    recovery: ExpectedRecovery = ExpectedRecovery.BY_ITSELF
    moment: Moment = Moment.MOVING
    lasts_s: float | None = None
    within_s: float = 8.0
    release_s: float = 0.0
    prompt: bool = False
    tested: bool = True
    by_odometry: bool = False  # no node publishes cmd_vel: the base's own speed is measured
    never: tuple[Reason, ...] = ()  # reasons that must not be reported during the fault
    policy: str = ""  # exploration policy; "": that of config/robot.yaml
    present: bool = False  # the target is in the room, so there is a place to go
    needs: str = ""  # kind of motion during which it is injected: "forward" or "turn"; "": any


@dataclass
class Trace:
    """What was received around one fault. Times on the steady clock; speeds: the larger of m/s and rad/s."""

    struck: float
    ended: float
    speeds: list[tuple[float, float]] = field(default_factory=list)
    said: list[HeardReason] = field(default_factory=list)
    frames: list[float] = field(default_factory=list)  # camera frames received
    instructed: float | None = None  # the next instruction
    backwards: float = 0.0  # m/s, the highest commanded, from one second before the fault on
