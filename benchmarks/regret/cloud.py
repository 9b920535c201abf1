# SPDX-License-Identifier: Apache-2.0
"""The simulated cloud of one edge. Like a real verifier, it does one thing at a time; its clock is the machine's.

Its replies follow from the text alone, the target's own answer. The world determines how long forwards take and wait.
Drafts that wait together are judged together; a draft of an older epoch is ignored.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import msgspec

from benchmarks.regret.language import VOCAB, SimulatedLanguage
from benchmarks.regret.worlds import SimulatedWorld
from specdec.drafting import Draft
from specdec.link.wire import (
    AloneUp,
    Close,
    Down,
    DraftUp,
    Hello,
    HintDown,
    Open,
    Opened,
    Ping,
    Pong,
    Tokens,
    Up,
    VerdictDown,
)
from specdec.verifying import Judgement, judge

NEVER = math.inf


@dataclass
class SimulatedForward:
    """A forward that waits or runs.

    wait_s: time until it begins; left_s: work that remains. ran_s: time it has run so far, more than the work done if
    it shares a core. drafted, draft_s: number of tokens drafted before it by the cloud's own draft model, and their
    part of whole_s. about: the message that asked for it; None if the cloud continues on its own.
    """

    about: DraftUp | Open | None
    wait_s: float
    left_s: float
    whole_s: float
    came_s: float
    rows: int
    drafted: int = 0
    draft_s: float = 0.0
    hint: HintDown | None = None
    ran_s: float = 0.0


class SimulatedCloud:
    """Receives messages and sends replies, each at its time, which is passed to `say`."""

    def __init__(
        self, world: SimulatedWorld, language: SimulatedLanguage, say: Callable[[float, Down], None]
    ) -> None:
        self._world = world
        self._text = language.text
        self._likeliest = language.likeliest
        self._say = say
        self._random = Random(world.seed + 1)
        self._now = 0.0
        self._job: SimulatedForward | None = None
        self._waiting: list[tuple[float, DraftUp]] = []
        self._session = -1
        self._begins = 0
        self._answer: list[int] = []
        self._limit = 0
        self._epoch = 0
        self._alone = False
        self._speculate = 0
        self._hints = 0
        self._received = self._answered = 0

    @property
    def computes(self) -> bool:
        """Whether a forward of this session is running, rather than waiting for those of others."""
        return self._job is not None and self._job.wait_s <= 0.0

    def next_change(self, rate: float) -> float:
        """The time of the next change if forwards run at this rate; infinity if there is none."""
        job = self._job
        if job is None:
            return NEVER
        if job.wait_s > 0.0:
            return self._now + job.wait_s
        left_s = job.left_s
        if job.hint is not None:
            left_s -= (1.0 - self._world.hint_at) * job.whole_s
        return self._now + max(0.0, left_s) / rate

    def run(self, until: float, rate: float) -> None:
        """Let time pass, at most to the next change; do what is then due."""
        passed, self._now = until - self._now, until
        job = self._job
        if job is None:
            return
        if job.wait_s > 0.0:
            job.wait_s -= passed
            if job.wait_s < 1e-12:
                job.wait_s = 0.0
            return
        job.left_s -= passed * rate
        job.ran_s += passed
        if job.hint is not None and job.left_s <= (1.0 - self._world.hint_at) * job.whole_s + 1e-12:
            self._say(until, job.hint)
            job.hint = None
        if job.left_s < 1e-12:
            self._job = None
            self._done(job)
            self._begin()

    def hear(self, message: Up) -> None:
        """Receive a message from the link."""
        if isinstance(message, Open):
            self._session, self._begins = message.session, message.ids[0]
            self._answer, self._limit = list(message.history), message.sampling.max_new_tokens
            self._alone, self._speculate = message.stream, message.speculate
            self._epoch = self._received = self._answered = 0
            self._hints = message.hints
            self._waiting.clear()
            self._job = self._new_job(message, 1, self._world.prompt)
        elif isinstance(message, Hello) or message.session != self._session:
            pass  # of a session that is over
        elif isinstance(message, Close):
            self._session, self._job = -1, None
        elif isinstance(message, Ping):
            self._say(self._now, Pong(message.session, self._received, self._answered, len(self._answer)))
        elif isinstance(message, AloneUp):
            self._received, self._alone, self._speculate = message.round, True, message.speculate
        elif isinstance(message, DraftUp):
            self._received, self._alone = message.round, False
            self._waiting.append((self._now, message))
        else:
            raise TypeError(f"the simulated cloud does not handle {type(message).__name__}")
        self._begin()

    def _begin(self) -> None:
        """Begin the next forward if there is anything to do."""
        if self._job is not None or self._session < 0:
            return
        self._waiting = [one for one in self._waiting if one[1].epoch >= self._epoch]
        if self._waiting:
            came_s, draft = self._waiting.pop(0)
            while self._waiting and (joined := _joined(draft, self._waiting[0][1])) is not None:
                self._waiting.pop(0)
                draft = joined
            rows = len(draft.ids) + 1
            self._job = self._new_job(draft, rows, 1.0, came_s)
            known = self._answer[draft.base : draft.base + 1]
            if known and draft.ids[:1] != known:  # no forward is needed to see that
                self._job.left_s = self._job.whole_s = 0.0
                self._job.wait_s = 0.0
            elif self._hints and self._world.hint_at > 0.0:
                self._job.hint = self._hint(draft)
        elif self._alone and len(self._answer) < self._limit:
            room = self._limit - len(self._answer) - 1
            drafted = min(self._speculate, room) if self._world.cloud_draft is not None else 0
            self._job = self._new_job(None, drafted + 1, 1.0)
            if drafted and self._world.cloud_draft is not None:
                more_s = drafted * self._world.cloud_draft.for_rows(1) / 1e3
                self._job.left_s += more_s
                self._job.whole_s += more_s
                self._job.drafted, self._job.draft_s = drafted, more_s

    def _new_job(
        self, about: DraftUp | Open | None, rows: int, times: float, came_s: float | None = None
    ) -> SimulatedForward:
        _, slower, wait_ms = self._world.phase(self._begins + len(self._answer))
        noise = math.exp(self._random.gauss(0.0, self._world.noise)) if self._world.noise else 1.0
        takes_s = self._world.verify.for_rows(rows) / 1e3 * times * slower * noise
        takes_s *= self._world.misjudged if rows > 1 else 1.0
        wait_s = self._random.expovariate(1e3 / wait_ms) if wait_ms else 0.0
        return SimulatedForward(
            about, wait_s, takes_s, takes_s, self._now if came_s is None else came_s, rows
        )

    def _done(self, job: SimulatedForward) -> None:
        compute_us = round(job.ran_s * 1e6)
        queue_us = max(0, round((self._now - job.came_s) * 1e6) - compute_us)
        about = job.about
        if isinstance(about, Open):
            self._answer.append(self._next(len(self._answer)))
            token = self._answer[-1]
            self._say(self._now, Opened(about.session, token, self._limit, compute_us, queue_us))
        elif isinstance(about, DraftUp):
            last, token = self._judge(about)
            self._answered = about.round
            verdict = VerdictDown(about.session, about.round, last, token, compute_us, queue_us)
            self._say(self._now, verdict)
        else:
            base = len(self._answer)
            ids = [self._next(base)]
            if job.drafted:
                ids = self._cloud_round(base, job.drafted)
            self._answer += ids
            share = job.draft_s / job.whole_s if job.drafted else 0.0
            tokens = Tokens(
                self._session, base, ids, compute_us, queue_us, job.drafted, 1, round(share * compute_us)
            )
            self._say(self._now, tokens)

    def _next(self, place: int) -> int:
        return self._text[self._begins + place]

    def _verdict(self, message: DraftUp) -> tuple[Draft, Judgement]:
        """Judge a draft by the target's tokens after the answer and every node; off the text, any token will do."""
        parents = None if message.parents is None else tuple(message.parents)
        draft = Draft(message.base, tuple(message.ids), parents)
        depths = [0, *(depth + 1 for depth in draft.depths())]
        picks = [self._next(min(draft.base + depth, self._limit - 1)) for depth in depths]
        return draft, judge(draft, picks, frozenset())

    def _judge(self, message: DraftUp) -> tuple[int, int]:
        draft, judgement = self._verdict(message)
        verified = [draft.ids[node] for node in judgement.path] + [judgement.token]
        if message.base + len(verified) > len(self._answer):
            self._answer = (self._answer[: message.base] + verified)[: self._limit]
        self._epoch += judgement.last < len(draft.ids)
        return judgement.last, judgement.token

    def _cloud_round(self, base: int, drafted: int) -> list[int]:
        """One round of the cloud's own draft model, which is the same as the edge's."""
        text = self._text[self._begins + base :]
        wrong = (at for at in range(drafted) if self._likeliest(self._begins + base + at) != text[at])
        return text[: next(wrong, drafted) + 1]

    def _hint(self, draft: DraftUp) -> HintDown:
        """The hint of an exit: the verdict or something else."""
        judgement = self._verdict(draft)[1]
        last, token = judgement.last, judgement.token
        if self._random.random() >= self._world.hint_right:
            last, token = self._random.randint(0, len(draft.ids)), self._random.randrange(1, VOCAB)
        sure = self._world.hint_right
        return HintDown(draft.session, draft.round, last, token, sure, 1, 0)


def _joined(first: DraftUp, second: DraftUp) -> DraftUp | None:
    """Both as one chain, or None if the second does not continue directly after the first."""
    if first.parents is not None or second.parents is not None or first.epoch != second.epoch:
        return None
    if second.base != first.base + len(first.ids):
        return None
    return msgspec.structs.replace(first, round=second.round, ids=[*first.ids, *second.ids])
