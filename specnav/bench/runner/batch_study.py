# SPDX-License-Identifier: Apache-2.0
"""`specnav bench study batch`: the cost of a shared forward on this machine, and how a long prompt delays others."""

from __future__ import annotations

import io
import queue
import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from PIL import Image
from rich.console import Console

from cloud_verifier.engine.engine import Engine
from cloud_verifier.engine.interface import EngineEnvironment
from cloud_verifier.engine.policy import Policy
from cloud_verifier.engine.scheduler import Scheduler
from cloud_verifier.engine.tasks import CloseTask, OpenTask, SessionKey, SessionTask
from cloud_verifier.engine.work import Models
from cloud_verifier.logs import EventLog
from specdec.link.convert import sampling_to_wire
from specdec.link.wire import Down, DraftUp, ErrorDown, Open, VerdictDown
from specdec.models import LoadedModel, Prompt, chat_prompt, load_model
from specdec.models.threads import set_threads
from specdec.options import GenerationOptions
from specnav.bench.records.capacity import BATCH_FILE, BatchCurve, CurvePoint, PromptDelay
from specnav.bench.records.study import StudyResults
from specnav.bench.runner.clients import numbers_of
from specnav.bench.runner.ending import noting_the_end
from specnav.bench.runner.forwards import CONTEXT, clock_of, measure_curve, plain_ids
from specnav.bench.runner.run import series_folder
from specnav.bench.runner.study import keep_study, show
from specnav.bench.settings import BenchConfig, flag_of, make_config
from specnav.bench.studies.batch import ROWS, SESSIONS
from specnav.errors import HarnessError, UsageError
from specnav.paths import DEFAULT_TARGET
from specnav.results.demo import SCHEMA, describe_machine
from specnav.run_folder import started_at
from specnav.terminal import say

NAME = "batch"
SECONDS = 30.0
WHOLE = 4096
"""A chunk size, in rows, that prefills a whole prompt in one forward."""
OTHERS, DRAFT = 4, 4
"""Sessions that verify during a prompt, and the tokens of their drafts."""
TOKENS = 1000
SHORT = "what is to the left of the red ball?"
PROMPTS = 8
ALONE, BETWEEN = 60, 5
"""Verdicts of each session before the first prompt, and between two prompts."""
TIMEOUT_S = 60.0
PICTURE = (448, 448)
_NEWCOMER = OTHERS + 1
_ANSWER = 1500
"""Tokens of an answer: so many that no session ends before it is closed."""
_TAKEN = frozenset({"target_model", "device", "quantize", "out", "resume"})


def run_batch_study(flags: Mapping[str, Any], clients: str | None, seconds: float | None) -> int:
    """Measure, draw and report. Returns the exit code: 130 if interrupted, in which case nothing is written.

    flags: of `specnav bench`, None where not given. clients: numbers of sessions, separated by commas. seconds: time
    for measuring forwards. Raises UsageError for wrong flags; the errors of other packages pass through.
    """
    _check(flags)
    counts = tuple(sorted(set(numbers_of(clients)))) if clients is not None else SESSIONS
    config = make_config({name: flags.get(name) for name in _TAKEN - {"out", "resume"}})
    console = Console(stderr=True)
    folder = series_folder(flags, "study") / NAME
    if (folder / BATCH_FILE).is_file():
        say(console, f"study {NAME} is done already: {folder / BATCH_FILE}")
        show(folder.parent, console)
        return 0
    began, when = time.monotonic(), started_at()
    psutil.cpu_percent()
    with noting_the_end() as ending:
        curve = _measure(config, flags, counts, seconds or SECONDS, console)
        curve.save(folder)
    if (folder / BATCH_FILE).is_file():
        results = StudyResults(
            schema=SCHEMA,
            name=NAME,
            settings=[],
            machine=describe_machine(),
            started_at=when,
            wall_s=time.monotonic() - began,
        )
        show(folder.parent, console, lambda: keep_study(folder, results))
        say(console, f"curve: {folder / BATCH_FILE}")
    return ending.exit_code()


def _check(flags: Mapping[str, Any]) -> None:
    if others := [name for name, value in flags.items() if value not in (None, False) and name not in _TAKEN]:
        raise UsageError(f"study {NAME} measures forwards of --target-model alone; leave {flag_of(others[0])} out")


def _measure(
    config: BenchConfig, flags: Mapping[str, Any], counts: tuple[int, ...], seconds: float, console: Console
) -> BatchCurve:
    say(console, f"study {NAME}: forwards of up to {max(counts)} sessions, about {seconds:.0f} s; then long prompts")
    target = _load(config, config.target_model)
    points = measure_curve(target, counts, ROWS, seconds)
    for one in points:
        say(console, f"  {in_one_line(one)}")
    models = [target]
    if not flags.get("target_model"):  # the text target takes no images, the robot's target does
        models.append(_load(config, str(DEFAULT_TARGET)))
    prompts: list[PromptDelay] = []
    for model in models:
        for chunk in (Policy.chunk, WHOLE):
            prompts.append(measure_prompt(model, chunk))
            say(console, f"  {prompts[-1].label}, {chunk} rows a forward: {_delay(prompts[-1])}")
    return BatchCurve(
        schema=SCHEMA,
        model=Path(target.path).name,
        device=str(target.device),
        threads=torch.get_num_threads(),
        context=CONTEXT,
        points=points,
        prompts=prompts,
        machine=describe_machine(),
        cores_busy=psutil.cpu_percent() / 100,
        clock="processor" if clock_of(target) is time.thread_time else "wall",
    )


def _load(config: BenchConfig, path: str) -> LoadedModel:
    model = load_model(path, config.device, config.dtype, config.quantize)
    set_threads(0, model)
    return model


def in_one_line(one: CurvePoint) -> str:
    """A point as text for the terminal."""
    words = f"{one.together_ms:.2f} ms together, {one.apart_ms:.2f} ms one after the other"
    return f"{one.sessions} × {one.rows} rows: {words}, {one.apart_ms / one.together_ms:.2f} times"


def _delay(one: PromptDelay) -> str:
    return (
        f"verdicts of {one.sessions} others {one.alone_ms:.1f} → {one.during_ms:.1f} ms "
        f"({one.during_ms / one.alone_ms:.1f} times, the longest {one.worst_ms / one.alone_ms:.1f})"
    )


@dataclass(frozen=True)
class _Said:
    session: int
    message: Down
    at_s: float


def measure_prompt(model: LoadedModel, chunk: int) -> PromptDelay:
    """Prefill prompts of about `TOKENS` tokens one after another, while other sessions verify without a pause.

    The prompt has an image if the model accepts one. chunk: most prompt rows per forward. Raises HarnessError.
    """
    said: queue.SimpleQueue[_Said] = queue.SimpleQueue()

    def outbox(key: SessionKey, message: Down, _: bool) -> None:
        said.put(_Said(key[1], message, time.perf_counter()))

    around = EngineEnvironment(outbox, EventLog(io.StringIO()))
    engine = Engine(Models(model), around, Scheduler(Policy(rows=4096, chunk=chunk)))
    thread = threading.Thread(target=engine.run, name="engine", daemon=True)
    thread.start()
    try:
        return _delays(engine, said, model, chunk)
    finally:
        engine.stop()
        thread.join(TIMEOUT_S)


def _delays(engine: Engine, said: queue.SimpleQueue[_Said], model: LoadedModel, chunk: int) -> PromptDelay:
    prompts = [long_prompt(model, number) for number in range(PROMPTS)]
    edges = _Edges(engine, said, chat_prompt(model, SHORT), plain_ids(model)[:DRAFT])
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
        sessions=OTHERS,
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
        self, engine: Engine, said: queue.SimpleQueue[_Said], prompt: Prompt, ids: Sequence[int]
    ) -> None:
        """Open the sessions and submit their first drafts. ids: the tokens of every draft."""
        self._engine, self._said = engine, said
        self._drafts: dict[int, DraftUp] = {}
        self._handed_s: dict[int, float] = {}
        for number in range(1, OTHERS + 1):
            engine.submit(_open(number, prompt))
        for opened in [self._take() for _ in range(OTHERS)]:
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
