# SPDX-License-Identifier: Apache-2.0
"""One simulated decision: the prompt is sent, then edge and verifier exchange rounds until the answer is complete."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from specdec.link.shaping import Direction, LinkProfile
from specnav.plan.simulated.pair import TOKEN_BYTES, MethodModel, SimulatedPair, accepted
from specnav.plan.simulated.replica import Counted, SimulatedReplica, SimulatedRows


class SimulatedEdge:
    """A robot with its link, shaped as by the link emulator in each direction, and its waiting decisions."""

    def __init__(self, number: int, profile: LinkProfile, seed: int) -> None:
        self.number = number
        self.profile = profile
        self._up = Direction(profile, seed * 2)
        self._down = Direction(profile, seed * 2 + 1)
        self.busy = False
        self.waiting: list[float] = []

    def up_ms(self, now_ms: float, size: int) -> float:
        """The time at which a message of `size` bytes, sent at `now_ms`, arrives at the verifier."""
        return 1e3 * self._up.arrival(now_ms / 1e3, size)

    def down_ms(self, now_ms: float, size: int) -> float:
        """The time at which a message of `size` bytes, sent at `now_ms`, arrives at the robot."""
        return 1e3 * self._down.arrival(now_ms / 1e3, size)


@dataclass
class SimulatedDecision:
    """The record of one decision.

    due_ms: when the robot requested it. began_ms: when its prompt was sent. ended_ms: when the answer was complete at
    the robot; -1 before. prompt, answer: lengths in tokens. way: the method that answered. chunks: (ms, tokens) in
    order of arrival at the robot.
    """

    robot: int
    due_ms: float
    began_ms: float
    prompt: int
    answer: int
    way: str
    ended_ms: float = -1.0
    chunks: list[tuple[float, int]] = field(default_factory=list)


@dataclass(eq=False)
class RobotSession:
    """Sends a prompt and drafts to a verifier, round after round, according to its method's model.

    done: called with the time at which the answer will be complete at the robot. keep: whether to record the time of
    each chunk. rank, number, owner: read by the scheduler.
    """

    decision: SimulatedDecision
    edge: SimulatedEdge
    way: MethodModel
    pair: SimulatedPair
    replica: SimulatedReplica
    drawn: Random
    done: Callable[[RobotSession, float], None]
    counted: Counted
    keep: bool
    rank: int = 0
    _opened: bool = False
    _drafting: int = 0
    _sent_ms: float = 0.0
    _whole: bool = False

    def __post_init__(self) -> None:
        self.tokens = self.decision.prompt + self.decision.answer
        self.number, self.owner = self.edge.number, self.edge.number.to_bytes(4, "big")
        self._left = self.decision.answer

    def open(self, now_ms: float, picture_bytes: int, known_rows: int, picture_ms: float) -> None:
        """Send the prompt. known_rows: rows that the verifier has cached. picture_ms: time to prepare its picture."""
        size = picture_bytes + TOKEN_BYTES * self.decision.prompt
        at_ms = self.edge.up_ms(now_ms, size) + picture_ms
        self.replica.admit(SimulatedRows(self, max(1, self.decision.prompt - known_rows), prompt=True), at_ms)

    def ran(self, now_ms: float) -> None:
        """Continue after a forward that this session requested."""
        if not self._opened:  # the last row of a prompt gives the first token
            self._opened = True
            if self.way.cloud_drafts:  # the draft model prefills the prompt, too
                self._drafting = -(-self.decision.prompt // 64)
            self._gain(1, now_ms)
        elif self._drafting:
            self._drafting -= 1
            self._ask_streaming(now_ms)
        else:
            self._verified(now_ms)

    def _verified(self, now_ms: float) -> None:
        way, pair = self.way, self.pair
        size = min(way.size, self._left - 1)
        kept = accepted(self.drawn, pair.tree_alpha if way.tree else pair.alpha, size) if size > 0 else 0
        self._whole = kept == way.size
        self.counted.rounds += 1
        self.counted.gained += kept + 1
        if way.cloud_drafts:
            self._drafting = min(way.size, max(0, self._left - kept - 2))
        self._gain(kept + 1, now_ms)

    def _gain(self, tokens: int, now_ms: float) -> None:
        """Send tokens from the verifier, then begin the next round or end the decision."""
        self._left -= tokens
        way = self.way
        if self._left > 0 and way.streams and not self.keep:
            self._ask_streaming(now_ms)
            return
        there_ms = self.edge.down_ms(now_ms, way.down)
        if self.keep:
            self.decision.chunks.append((there_ms, tokens))
        if self._left <= 0:
            self.decision.ended_ms = there_ms
            self.done(self, there_ms)
        elif way.streams:
            self._ask_streaming(now_ms)
        else:
            self._send(there_ms)

    def _ask_streaming(self, now_ms: float) -> None:
        if self._drafting:
            self.replica.wants(SimulatedRows(self, 1, drafts=True), now_ms)
        else:
            self.replica.wants(SimulatedRows(self, 1 + max(0, min(self.way.size, self._left - 1))), now_ms)

    def _send(self, there_ms: float) -> None:
        """After a verdict at the robot: finish the next draft, and send it."""
        way = self.way
        leaves_ms = there_ms + self.pair.overhead_ms + self._drafting_ms(there_ms)
        self._sent_ms = leaves_ms
        rows = way.rows if way.tree else 1 + max(0, min(way.size, self._left - 1))
        self.replica.comes(SimulatedRows(self, rows), self.edge.up_ms(leaves_ms, way.up))

    def _drafting_ms(self, there_ms: float) -> float:
        way, pair, away_ms = self.way, self.pair, there_ms - self._sent_ms
        size = way.size if way.tree else max(0, min(way.size, self._left - 1))
        if way.predrafts and self._sent_ms and self.drawn.random() >= pair.miss:
            return max(0.0, way.prepare_ms - away_ms)
        if way.tree and self._sent_ms and self._whole and self.drawn.random() < pair.alpha:
            # The branch drafted meanwhile agrees with the verdict and its token (SpecEdge).
            return max(0.0, size * way.draft_ms - away_ms)
        return size * way.draft_ms
