# SPDX-License-Identifier: Apache-2.0
"""Measures how a long prompt delays others: sessions verify drafts on the verifier's engine during its prefill."""

from __future__ import annotations

import io
import queue
import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO

import numpy as np
from PIL import Image

from cloud_verifier.engine.engine import Engine
from cloud_verifier.engine.interface import EngineEnvironment
from cloud_verifier.engine.policy import Policy
from cloud_verifier.engine.scheduler import Scheduler
from cloud_verifier.engine.tasks import CloseTask, OpenTask, SessionKey, SessionTask
from cloud_verifier.engine.work import Models
from cloud_verifier.logs import EventLog
from specdec.link.convert import sampling_to_wire
from specdec.link.wire import Down, DraftUp, ErrorDown, Open, VerdictDown
from specdec.models import LoadedModel, Prompt, chat_prompt
from specdec.options import GenerationOptions
from specnav.bench.records.batch import PromptDelay
from specnav.bench.runner.forwards import plain_ids
from specnav.errors import HarnessError

SESSIONS = 4
DRAFT = 4
TOKENS = 1000
SHORT = "what is to the left of the red ball?"
PROMPTS = 8
ALONE, BETWEEN = 60, 5
"""Verdicts of each session before the first prompt, and between two prompts."""
TIMEOUT_S = 60.0
PICTURE = (448, 448)
_NEWCOMER = SESSIONS + 1
_ANSWER = 1500
"""Tokens of an answer: so many that no session ends before it is closed."""


@dataclass(frozen=True)
class _Said:
    session: int
    message: Down
    at_s: float


def measure_prompt(model: LoadedModel, chunk: int, sessions: int = SESSIONS) -> PromptDelay:
    """Prefill prompts of about `TOKENS` tokens one after another, while other sessions verify without a pause.

    The prompt has an image if the model accepts one. chunk: most prompt rows per forward. Raises HarnessError.
    """
    said: queue.SimpleQueue[_Said] = queue.SimpleQueue()

    def outbox(key: SessionKey, message: Down, _: bool) -> None:
        said.put(_Said(key[1], message, time.perf_counter()))

    around = EngineEnvironment(outbox, EventLog(StringIO()))
    engine = Engine(Models(model), around, Scheduler(Policy(rows=4096, chunk=chunk)))
    thread = threading.Thread(target=engine.run, name="engine", daemon=True)
    thread.start()
    try:
        return _measure(engine, said, model, chunk, sessions)
    finally:
        engine.stop()
        thread.join(TIMEOUT_S)


def _measure(
    engine: Engine, said: queue.SimpleQueue[_Said], model: LoadedModel, chunk: int, sessions: int
) -> PromptDelay:
    prompts = [long_prompt(model, number) for number in range(PROMPTS)]
    edges = _Edges(engine, said, chat_prompt(model, SHORT), plain_ids(model)[:DRAFT], sessions)
    edges.verdicts(BETWEEN)
    alone = edges.verdicts(ALONE)
    during: list[float] = []
    opened: list[float] = []
    for prompt in prompts:
        began = time.perf_counter()
        engine.submit(_open(_NEWCOMER, prompt))
        more, ended = edges.until_opened(_NEWCOMER)
        during += more
        opened.append(ended - began)
        engine.submit(CloseTask(_key(_NEWCOMER)))
        edges.verdicts(BETWEEN)
    tokens = model.prompt_length(prompts[0])
    what = "and a picture " * bool(prompts[0].images)
    return PromptDelay(
        label=f"A prompt of {tokens} tokens {what}on {model.path.rstrip('/').rpartition('/')[2]}",
        tokens=tokens,
        pictures=len(prompts[0].images),
        chunk=chunk,
        sessions=sessions,
        alone_ms=1e3 * statistics.median(alone),
        during_ms=1e3 * statistics.median(during),
        worst_ms=1e3 * max(during),
        opened_ms=1e3 * statistics.median(opened),
        verdicts=len(during),
    )


def long_prompt(model: LoadedModel, number: int) -> Prompt:
    """A prompt of about `TOKENS` tokens (fewer in a short context), with an image first if the model accepts one.

    number: prompts with different numbers share no prefix that a cache could reuse.
    """
    images = [picture(number)] if model.is_multimodal else []
    most = min(TOKENS, model.context_limit - 64)
    text = f"{number}: {SHORT}"
    while model.prompt_length(chat_prompt(model, f"{text} {SHORT}", images)) <= most:
        text = f"{text} {SHORT}"
    return chat_prompt(model, text, images)


def picture(seed: int) -> bytes:
    """A JPEG image of coloured blocks."""
    width, height = PICTURE
    blocks = np.random.default_rng(seed).integers(0, 256, size=(8, 8, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(np.kron(blocks, np.ones((height // 8, width // 8, 1), dtype=np.uint8))).save(buffer, "JPEG")
    return buffer.getvalue()


class _Edges:
    """Sessions that submit the next draft as soon as the previous verdict arrives."""

    def __init__(
        self, engine: Engine, said: queue.SimpleQueue[_Said], prompt: Prompt, ids: Sequence[int], sessions: int
    ) -> None:
        """Open the sessions and submit their first drafts. ids: the tokens of every draft."""
        self._engine, self._said = engine, said
        self._drafts: dict[int, DraftUp] = {}
        self._handed_s: dict[int, float] = {}
        for number in range(1, sessions + 1):
            engine.submit(_open(number, prompt))
        for opened in [self._take() for _ in range(sessions)]:
            self._hand_in(DraftUp(opened.session, 1, 1, list(ids)))

    def verdicts(self, each: int) -> list[float]:
        """Seconds from draft to verdict, for `each` verdicts per session on average."""
        return [self._one(self._take()) for _ in range(each * len(self._drafts))]

    def until_opened(self, session: int) -> tuple[list[float], float]:
        """(seconds from draft to verdict until a prompt is prefilled, time at which it was)."""
        took: list[float] = []
        while True:
            one = self._take()
            if one.session == session:
                return took, one.at_s
            took.append(self._one(one))

    def _one(self, said: _Said) -> float:
        took = said.at_s - self._handed_s[said.session]
        before, verdict = self._drafts[said.session], said.message
        assert isinstance(verdict, VerdictDown)
        epoch = before.epoch + (verdict.last < len(before.ids))
        self._hand_in(
            DraftUp(said.session, before.round + 1, before.base + verdict.last + 1, before.ids, None, epoch)
        )
        return took

    def _hand_in(self, draft: DraftUp) -> None:
        self._drafts[draft.session] = draft
        self._handed_s[draft.session] = time.perf_counter()
        self._engine.submit(SessionTask(_key(draft.session), draft, self._handed_s[draft.session]))

    def _take(self) -> _Said:
        try:
            said = self._said.get(timeout=TIMEOUT_S)
        except queue.Empty:
            raise HarnessError(f"the engine sent no message for {TIMEOUT_S:g} s") from None
        if isinstance(said.message, ErrorDown):
            raise HarnessError(f"the engine refused: {said.message.message}")
        return said


def _key(session: int) -> SessionKey:
    return b"bench", session


def _open(session: int, prompt: Prompt) -> OpenTask:
    sampling = sampling_to_wire(GenerationOptions(_ANSWER, min_new_tokens=_ANSWER))
    message = Open(session, False, sampling, list(prompt.ids), list(prompt.images))
    return OpenTask(_key(session), message, time.perf_counter())
