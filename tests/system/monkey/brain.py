"""The model's place in a monkey run: it answers after a while, mostly with an action, sometimes with nonsense."""

from __future__ import annotations

import random
from collections.abc import Callable

from spec_vlm_nav.camera.images import PictureOptions, prepare
from spec_vlm_nav.common.codes import ErrorCode
from spec_vlm_nav.common.errors import FrameError
from spec_vlm_nav.language.actions import ACTION_SENTENCES, STOP_SENTENCE, find_action
from spec_vlm_nav.model.decider import DecisionJob, ModelAnswer
from spec_vlm_nav.model.worker import ActionFound, Answered, Event, Failed, Reconciled
from tests.system.monkey.scenario import Setup

FORWARD = [s for s in ACTION_SENTENCES if "forward" in s]
TURNS = [s for s in ACTION_SENTENCES if "turn" in s]
NONSENSE = (
    "The next action is move backward 25 cm.",
    "I like trains.",
    "move forward 75",
    "The next action is move forward 500 cm.",
)
REST_S = 0.05  # from the action's sentence to the end of the answer


class Brain:
    """Decides one job at a time; events come out of `take` when they are due."""

    def __init__(self, setup: Setup, seed: int) -> None:
        self._setup, self._rng = setup, random.Random(f"brain/{seed}")
        self.link_up = True
        self._due: list[tuple[float, Callable[[], Event]]] = []
        self._job: DecisionJob | None = None
        self._open: int | None = None  # a job that only the draft model has answered

    def begin(self, job: DecisionJob, now: float, alone: bool) -> None:
        """Think about a job; alone: without the verifier, so that the answer is the draft model's."""
        self._job = job
        setup, rng = self._setup, self._rng
        slow = rng.random() < 0.02
        done = now + setup.think_s * rng.uniform(0.5, 2.0) + (rng.choice([3.0, 25.0]) if slow else 0.0)
        number = job.number
        try:
            prepare(job.frame.picture, PictureOptions())
        except FrameError as error:
            told = str(error)
            self._due.append((done, lambda: Failed(number, ErrorCode.INVALID_INPUT, told, ModelAnswer())))
            return
        if not self.link_up and not alone:
            self._due.append(
                (now + 1.0, lambda: Failed(number, ErrorCode.LINK_LOST, "no link", ModelAnswer()))
            )
            return
        if rng.random() < setup.blunders / 2:
            code = rng.choice([ErrorCode.INTERNAL, ErrorCode.INVALID_INPUT, ErrorCode.LINK_LOST])
            self._due.append((done, lambda: Failed(number, code, "it failed", ModelAnswer())))
            return
        text, bare = self._says(), alone and not self.link_up
        action = find_action(text)
        if action is not None:
            found = ActionFound(number, action, text, b"jpeg", done, bare)
            self._due.append((done, lambda: found))
        self._due.append((done + REST_S, lambda: Answered(number, ModelAnswer(text), bare)))
        self._open = number if bare else None

    def cancel(self, now: float) -> None:
        """Let go of the job under way."""
        if self._job is None:
            return
        number, self._job = self._job.number, None
        self._due = [(now, lambda: Failed(number, ErrorCode.CANCELED, "canceled", ModelAnswer()))]

    def link(self, up: bool, now: float) -> None:
        """The link goes or comes; what the draft said alone is then verified."""
        self.link_up = up
        if up and self._open is not None:
            number, self._open = self._open, None
            text = self._says()
            self._due.append((now + 0.1, lambda: Reconciled(number, find_action(text), ModelAnswer(text))))

    def take(self, now: float) -> list[Event]:
        """What is due now."""
        due = [make for at, make in self._due if at <= now]
        self._due = [(at, make) for at, make in self._due if at > now]
        return [make() for make in due]

    def _says(self) -> str:
        rng, setup = self._rng, self._setup
        if rng.random() < setup.blunders:
            return rng.choice(NONSENSE)
        sees = rng.random() < 0.5
        what = rng.choice(FORWARD) if rng.random() < 0.6 else rng.choice(TURNS)
        if rng.random() < setup.stops:
            what = STOP_SENTENCE
        if not setup.speaks:
            return f"The chair is ahead. {what}"
        way = rng.choice(["clear", "blocked"])
        return f"{'I see it, ahead' if sees else 'I do not see it'}, {way}. {what}"
