# SPDX-License-Identifier: Apache-2.0
"""The words of a drill: what is injected when, what must happen, and what was heard; plain data, no ROS.

A robot *stops* when its last non-zero cmd_vel lies behind; it *stands* when it did not move before either. A *reason*
is a state or an error code on a topic. A *bound* is how long the robot may go on moving.
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
"""What is added to a watchdog: its own tick, the way to the topic, and ours."""


class Moment(enum.Enum):
    """When a fault strikes."""

    PREFILL = "prefill"
    MID_ROUND = "mid-round"
    BETWEEN_ROUNDS = "between rounds"
    MOVING = "moving"
    SETTLING = "settling"

    @property
    def point(self) -> DecisionPoint | None:
        """The point of a decision, for the moments that lie in one."""
        return DecisionPoint(self.value) if self.value in {p.value for p in DecisionPoint} else None


class ExpectedReaction(enum.Enum):
    """What the robot must do while the fault lasts."""

    STOPS = "stops"  # and stands until it is over
    HALTS = "halts"  # stops, and may go on at once
    GOES_ON = "goes on"  # the fault is none of its business
    KEEPS_FRESH = "moves on fresh frames only"  # never with a camera frame older than the bound


class ExpectedRecovery(enum.Enum):
    """What must happen when the fault is over."""

    BY_ITSELF = "by itself"
    NEXT_INSTRUCTION = "next instruction"


@dataclass(frozen=True)
class Reason:
    """A way of saying why: the name of a state, code or kind, on a topic, with some words in its text."""

    topic: str
    name: str
    words: str = ""


@dataclass(frozen=True)
class HeardReason:
    """Something that was said on a topic."""

    at: float
    topic: str
    name: str
    text: str = ""

    def is_a(self, reason: Reason) -> bool:
        """Whether this says that reason."""
        return (self.topic, self.name) == (reason.topic, reason.name) and reason.words in self.text


@dataclass(frozen=True)
class Term:
    """A time that a parameter of a node sets, s."""

    node: str
    parameter: str


@dataclass(frozen=True)
class TimeBound:
    """How long the robot may go on: parameters of the nodes and seconds, added up."""

    terms: tuple[Term, ...] = ()
    seconds: float = GRACE_S
    note: str = ""

    @property
    def words(self) -> str:
        """What it is made of."""
        parts = [f"{term.parameter} ({term.node})" for term in self.terms]
        if self.seconds:
            parts.append(f"{self.seconds * 1e3:.0f} ms" + (f" ({self.note})" if self.note else ""))
        return " + ".join(parts)


@dataclass(frozen=True)
class Drill:
    """One fault at one moment, and what must then happen.

    fault: see specnav.drill.faults. lasts_s: how long the fault lasts; None: as long as the bound and a little more.
    within_s: to recover. release_s: in a decision, how long its messages are held after the fault struck. prompt: the
    reason has to be said within the bound, too. tested: also in CI.
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
    by_odometry: bool = False  # no node publishes cmd_vel: the base's own speed is looked at
    never: tuple[Reason, ...] = ()  # what must not be said while it lasts
    policy: str = ""  # exploration policy; "": as config/robot.yaml has it
    present: bool = False  # the target is in the room: there is somewhere to walk to
    needs: str = ""  # kind of the motion that it strikes in: "forward" or "turn"; "": any


@dataclass
class Trace:
    """What was heard around one fault; times on the steady clock, speeds as the larger of m/s and rad/s."""

    struck: float
    ended: float
    speeds: list[tuple[float, float]] = field(default_factory=list)
    said: list[HeardReason] = field(default_factory=list)
    frames: list[float] = field(default_factory=list)  # camera frames received
    instructed: float | None = None  # the next instruction
    backwards: float = 0.0  # m/s, the fastest that was commanded, from a second before the fault on
