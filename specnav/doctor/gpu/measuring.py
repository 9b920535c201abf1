# SPDX-License-Identifier: Apache-2.0
"""Measures one loaded model: forward passes compared with the memory floor, launches, reads, flips and exits."""

from __future__ import annotations

import io
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import torch
from PIL import Image
from torch import Tensor

from cloud_verifier.config import ServerConfig
from cloud_verifier.engine.engine import Engine
from cloud_verifier.engine.interface import EngineEnvironment
from cloud_verifier.engine.tasks import OpenTask, SessionKey
from cloud_verifier.engine.work import Models
from cloud_verifier.loading import load_hint_maker
from cloud_verifier.logs import EventLog
from specdec.drafting import ChainDrafter, Draft, DraftModel
from specdec.link.convert import sampling_to_wire
from specdec.link.wire import Down, Open
from specdec.models import LoadedModel, Prompt
from specdec.models.loaded import record_forwards
from specdec.models.local import generate_local
from specdec.models.runner import LayerObserver
from specdec.models.session import ModelSession
from specdec.options import GenerationOptions
from specdec.verifying.hints.hints import HintMaker
from specdec.verifying.verifier import Verifier
from specnav.bench.runner.forwards import clock_of, settle, text_ids
from specnav.bench.runner.near_ties import both_ways
from specnav.doctor.gpu.counting import Launches, Reads
from specnav.doctor.gpu.records import ExitsCost, Flips, ForwardTime, Growing, Vision

CAMERA = (640, 480)
LEAST_TIMES = 5
GROWING = 48
"""Tokens of an answer that grows by one token per forward pass."""
MIB = 2**20
NOT_READ = ("visual.", "vision_tower.", "embed_tokens.")
"""Weights that a forward pass over text does not read, or of which it reads only a row."""


def read_bytes(model: LoadedModel) -> int:
    """Bytes of weights read by a forward pass of one row: without vision tower, and without untied embeddings."""
    seen: set[int] = set()
    total = 0
    for name, parameter in model.network.named_parameters(remove_duplicate=False):
        if any(part in name for part in NOT_READ) or id(parameter) in seen:
            continue
        seen.add(id(parameter))
        total += parameter.numel() * parameter.element_size()
    return total


def bandwidth_of(device: torch.device, size: int, budget_s: float) -> float:
    """Bytes per second at which this device reads `size` bytes repeatedly; the best of several times."""
    numbers = torch.ones(max(size, MIB) // 4, device=device)
    best, until, times = float("inf"), time.monotonic() + budget_s, 0
    while times < LEAST_TIMES or time.monotonic() < until:
        began = time.perf_counter()
        numbers.sum()
        settle(device)
        best = min(best, time.perf_counter() - began)
        times += 1
    return numbers.numel() * 4 / best


@torch.inference_mode()
def time_forwards(
    model: LoadedModel, rows: Sequence[int], contexts: Sequence[int], bandwidth: float, budget_s: float
) -> list[ForwardTime]:
    """Median times of forward passes by rows and context, as far as the model's context length allows."""
    ids = text_ids(model, max(contexts) + max(rows))
    fitting = [context for context in contexts if context + max(rows) < model.context_limit]
    share_s = budget_s / max(1, len(fitting) * len(rows))
    read = read_bytes(model)
    found = []
    for context in fitting:
        session = model.new_session()
        session.prefill(model.encode(Prompt(tuple(ids[:context]))))
        for count in rows:
            seconds = _median_s(model, partial(session.extend, ids[:count]), session, context, share_s)
            floor_s = (read + context * model.runner.kv_bytes_a_token) / bandwidth
            found.append(ForwardTime(count, context, 1e3 * seconds, 1e3 * floor_s))
    return found


@torch.inference_mode()
def count_work(model: LoadedModel, gamma: int) -> tuple[int, int, int]:
    """(operations of a forward pass of one row, reads of a verification, reads of a draft of `gamma` tokens)."""
    prompt = Prompt(tuple(text_ids(model, 16)))
    options = GenerationOptions(4 * gamma + 4, min_new_tokens=4 * gamma + 4)
    drafter = ChainDrafter(DraftModel(model, options))
    drafter.prefill(prompt)
    verifier = Verifier(model, options)
    verifier.open(prompt)
    reads = [0, 0]
    for _ in range(2):  # the first run builds tables and caches
        with Reads() as drafting:
            proposal = drafter.chain(verifier.answer, gamma)
        with Reads() as verifying:
            verifier.verify(proposal.draft)
        reads = [verifying.count, drafting.count]
    session = model.new_session()
    session.prefill(model.encode(prompt))
    session.extend(prompt.ids[:1])
    with Launches() as launches:
        session.extend(prompt.ids[:1])
    return launches.count, reads[0], reads[1]


def find_flips(model: LoadedModel, prompts: Sequence[Prompt], tokens: int) -> Flips:
    """Compare the picks of the model's own greedy answers when computed row by row and all at once."""
    options = GenerationOptions(tokens)
    positions = picks = 0
    noise = margin = 0.0
    with torch.inference_mode():
        for prompt in prompts:
            ids = generate_local(model, prompt, options)
            steps, at_once = both_ways(model, prompt, ids, options)
            one, other = steps.argmax(-1), at_once.argmax(-1)
            won = (steps.gather(1, one[:, None]) - steps.gather(1, other[:, None])).abs()
            positions += len(ids) + 1
            picks += int((one != other).sum())
            noise = max(noise, float((steps - at_once).abs().max()))
            margin = max(margin, float(won.max()))
    return Flips(positions, picks, noise, margin)


def hint_maker_of(model: LoadedModel) -> HintMaker | None:
    """The hint maker of the exits next to the model; None if it has none."""
    config = ServerConfig(model.path, device=str(model.device))
    return load_hint_maker(config, model, EventLog(io.StringIO()))


@torch.inference_mode()
def time_exits(model: LoadedModel, maker: HintMaker, gamma: int, context: int, budget_s: float) -> ExitsCost:
    """Time a forward pass over a draft with and without hints, alternately."""
    context = min(context, model.context_limit - 2 * gamma - 2)
    ids = text_ids(model, context + gamma)
    session = model.new_session()
    session.prefill(model.encode(Prompt(tuple(ids[:context]))))
    hints = maker.session(ids[:context], GenerationOptions(64, min_new_tokens=64))

    def observer() -> LayerObserver:
        watched = hints.watch(Draft(0, tuple(ids[:gamma])), [], 64)

        def after(layer: int, hidden: Tensor) -> None:
            if maker.beside is None:
                watched.after(layer, hidden)
            elif watched.watches(layer, hidden):
                read = partial(watched.outcomes, layer)
                maker.beside.start(hidden, partial(watched.chances, layer), read)

        return after

    def extended(observer: LayerObserver | None) -> None:
        session.extend(ids[: gamma + 1], observer=observer)
        if maker.beside is not None:
            maker.beside.finish()

    took: dict[bool, list[float]] = {False: [], True: []}
    until = time.monotonic() + budget_s
    while len(took[True]) <= LEAST_TIMES or time.monotonic() < until:
        for on in took:
            took[on].append(_timed(model, partial(extended, observer() if on else None)))
            session.rollback(context)
    without, with_hints = (1e3 * statistics.median(took[on][1:]) for on in (False, True))
    return ExitsCost(tuple(maker.layers), without, with_hints)


@torch.inference_mode()
def time_growing(model: LoadedModel, context: int, bandwidth: float) -> Growing:
    """Time the tokens of a growing answer after `context` tokens, alone and through the verifier's engine."""
    context = min(context, model.context_limit - GROWING - 2)
    ids, more = text_ids(model, context), text_ids(model, GROWING)
    session = model.new_session()
    session.most_tokens, session.at_once = context + GROWING, True
    session.prefill(model.encode(Prompt(tuple(ids))))
    session.extend(ids[:1])
    medians = []
    for _ in range(2):
        session.rollback(context)
        taken = [_timed(model, partial(session.extend, more[place : place + 1])) for place in range(GROWING)]
        medians.append(1e3 * statistics.median(taken))
    floor_s = (read_bytes(model) + context * model.runner.kv_bytes_a_token) / bandwidth
    first_ms, later_ms = medians
    return Growing(context, first_ms, later_ms, 1e3 * _served_s(model, ids), 1e3 * floor_s)


def _served_s(model: LoadedModel, ids: Sequence[int]) -> float:
    """Median seconds between tokens streamed by an engine that runs in its own thread, as in the verifier."""
    told: list[float] = []
    ended = threading.Event()

    def outbox(key: SessionKey, message: Down, last: bool) -> None:
        told.append(time.perf_counter())
        if last or len(told) >= GROWING:
            ended.set()

    engine = Engine(Models(model), EngineEnvironment(outbox, EventLog(io.StringIO())))
    sampling = sampling_to_wire(GenerationOptions(GROWING + 1, min_new_tokens=GROWING + 1))
    engine.submit(OpenTask((b"doctor", 1), Open(1, True, sampling, list(ids)), time.perf_counter()))
    thread = threading.Thread(target=engine.run)
    thread.start()
    ended.wait(60)
    engine.stop()
    thread.join()
    record_forwards(model)  # undo the recording of the engine's thread
    return statistics.median(after - before for before, after in pairwise(told[1:])) if len(told) > 2 else 0.0


@torch.inference_mode()
def time_vision(model: LoadedModel) -> Vision | None:
    """Time a picture of a robot's camera; None for a model that takes no pictures."""
    if not model.is_multimodal:
        return None
    buffer = io.BytesIO()
    Image.effect_noise(CAMERA, 64).convert("RGB").save(buffer, "JPEG")
    prepare, tower = [], []
    for _ in range(LEAST_TIMES):
        began = time.perf_counter()
        prepared = model.decode(buffer.getvalue())
        looked = time.perf_counter()
        (seen,) = model.look([prepared])
        settle(model.device)
        prepare.append(looked - began)
        tower.append(time.perf_counter() - looked)
    prepare_ms, tower_ms = (1e3 * statistics.median(taken[1:]) for taken in (prepare, tower))
    return Vision(*CAMERA, seen.features.shape[0], prepare_ms, tower_ms)


def _median_s(
    model: LoadedModel, work: Callable[[], object], session: ModelSession, length: int, budget_s: float
) -> float:
    taken: list[float] = []
    until = time.monotonic() + budget_s
    while len(taken) <= LEAST_TIMES or time.monotonic() < until:
        taken.append(_timed(model, work))
        session.rollback(length)
    return statistics.median(taken[1:])  # the first one allocates memory


def _timed(model: LoadedModel, work: Callable[[], object]) -> float:
    clock = clock_of(model)
    began = clock()
    work()
    settle(model.device)
    return clock() - began
