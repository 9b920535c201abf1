"""One edge of `soak_verifier.py`: a process of its own that asks one question after the other, and says how each went.

It may be killed at any moment. What it says travels over a pipe as one `SoakAnswer` each, so that the one who hears
it always
knows whether an answer was under way.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Literal

from cloud_verifier.serving import settle_memory
from specdec.edge.decoder import EdgeDecoder, connect
from specdec.link.channel import Link
from specdec.methods import get_method
from specdec.models import LoadedModel, Prompt, load_model
from specdec.models.threads import set_threads
from specdec.options import GenerationOptions

REPLY_TIMEOUT_S = 2.0
CANCELLED = 0.05
"""Share of the answers that are broken off in the middle."""

What = Literal["ready", "answering", "right", "wrong", "unchecked", "cancelled", "lost"]


@dataclass(frozen=True)
class SoakQuestion:
    """What is asked, and what the target alone answers."""

    prompt: Prompt
    options: GenerationOptions
    expected: tuple[int, ...]


@dataclass(frozen=True)
class SoakClientJob:
    """What one client does. methods: one of them for each answer, by chance. target: for a method that runs its first
    layers on the edge, "" without one. pause_s: between answers, on average. resume_s: how long to try after a loss.
    """

    number: int
    address: str
    methods: tuple[str, ...]
    draft: str
    target: str
    questions: tuple[SoakQuestion, ...]
    seed: int
    pause_s: float
    resume_s: float


@dataclass(frozen=True)
class SoakAnswer:
    """How an answer went, or that one has begun to come. gap_s: the longest time between two chunks of it, from its
    question on. text: what was wrong.
    """

    what: What
    method: str = ""
    resumes: int = 0
    seconds: float = 0.0
    gap_s: float = 0.0
    text: str = ""


def run_client(job: SoakClientJob, pipe: Connection) -> None:
    """Ask until something comes through the pipe, or its other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to everybody: the parent tells us
    draft = load_model(job.draft)
    target = load_model(job.target) if job.target else None
    set_threads(0, draft)
    settle_memory()
    pipe.send(SoakAnswer("ready"))
    with connect(job.address, reply_timeout_s=REPLY_TIMEOUT_S) as link:
        client = _SoakClient(job, pipe, link, draft, target)
        while not pipe.poll(client.pause_s()):
            client.ask()


class _SoakClient:
    """Asks. A decoder for each method lives as long as the process, as an edge's does."""

    def __init__(
        self, job: SoakClientJob, pipe: Connection, link: Link, draft: LoadedModel, target: LoadedModel | None
    ) -> None:
        self._job = job
        self._pipe = pipe
        self._chance = random.Random(job.seed)
        self._gap_s = 0.0
        self._decoders = {
            name: EdgeDecoder(link, draft, name, resume_timeout_s=job.resume_s, front_model=target)
            for name in job.methods
        }

    def pause_s(self) -> float:
        """How long to wait before the next question."""
        return self._job.pause_s * (0.5 + self._chance.random())

    def ask(self) -> None:
        """One question, with one method."""
        method = self._chance.choice(self._job.methods)
        question = self._chance.choice(self._job.questions)
        break_off = self._chance.random() < CANCELLED
        decoder = self._decoders[method]
        cancel = threading.Event()
        ids: list[int] = []
        self._gap_s, last_s = 0.0, time.monotonic()
        try:
            for chunk in decoder.generate(question.prompt, question.options, cancel):
                if not ids:
                    self._pipe.send(SoakAnswer("answering", method))
                ids += chunk
                now_s = time.monotonic()
                self._gap_s, last_s = max(self._gap_s, now_s - last_s), now_s
                if break_off:
                    cancel.set()
        except Exception as error:
            self._say("lost", method, decoder, f"{type(error).__name__}: {error}")
            return
        comparable = get_method(method).recovery_at(question.options.temperature).name == "NOISE"
        expected = question.expected[: len(ids)] if cancel.is_set() else question.expected
        if comparable and tuple(ids) != expected:
            self._say("wrong", method, decoder, f"{ids} for {list(expected)}, {question.options}")
        elif cancel.is_set():
            self._say("cancelled", method, decoder)
        else:
            self._say("right" if comparable else "unchecked", method, decoder)

    def _say(self, what: What, method: str, decoder: EdgeDecoder, text: str = "") -> None:
        stats = decoder.stats
        self._pipe.send(SoakAnswer(what, method, stats.resumes, stats.total_ms / 1e3, self._gap_s, text))
