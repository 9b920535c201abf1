"""Measures one loaded model: forwards against the floor, launches, reads, flips, exits."""

from __future__ import annotations

import io
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial

import torch
from PIL import Image
from torch import Tensor

from cloud_verifier.config import ServerConfig
from cloud_verifier.loading import load_hint_maker
from cloud_verifier.logs import EventLog
from evaluation.bench.near_ties import both_ways
from specdec.drafting import ChainDrafter, Draft, DraftModel
from specdec.models import LoadedModel, Prompt
from specdec.models.local import generate_local
from specdec.models.runner import LayerObserver
from specdec.models.session import ModelSession
from specdec.options import GenerationOptions
from specdec.verifying.hints.hints import HintMaker
from specdec.verifying.verifier import Verifier
from specnav.bench.serving.forwards import clock_of, plain_ids
from specnav.doctor.gpu.counting import Launches, Reads
from specnav.doctor.gpu.records import Exits, Flips, ForwardTime, Vision

CAMERA = (640, 480)
LEAST_TIMES = 5
MIB = 2**20
NOT_READ = ("visual.", "vision_tower.", "embed_tokens.")
"""Weights of which a forward of text reads nothing, or a row."""


def read_bytes(model: LoadedModel) -> int:
    """Of the weights in a forward of one row: without vision tower, and without embeddings that are not the head."""
    seen: set[int] = set()
    total = 0
    for name, parameter in model.network.named_parameters(remove_duplicate=False):
        if any(part in name for part in NOT_READ) or id(parameter) in seen:
            continue
        seen.add(id(parameter))
        total += parameter.numel() * parameter.element_size()
    return total


def bandwidth_of(device: torch.device, size: int, budget_s: float) -> float:
    """Bytes a second at which this device reads `size` bytes again and again, the best of some times."""
    numbers = torch.ones(max(size, MIB) // 4, device=device)
    best, until, times = float("inf"), time.monotonic() + budget_s, 0
    while times < LEAST_TIMES or time.monotonic() < until:
        began = time.perf_counter()
        numbers.sum()
        settle(device)
        best = min(best, time.perf_counter() - began)
        times += 1
    return numbers.numel() * 4 / best


def settle(device: torch.device) -> None:
    """Wait until the device has done all that it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@torch.inference_mode()
def time_forwards(
    model: LoadedModel, rows: Sequence[int], contexts: Sequence[int], bandwidth: float, budget_s: float
) -> list[ForwardTime]:
    """Medians of forwards of so many rows behind so many tokens, as far as the model's context goes."""
    ids = _text(model, max(contexts) + max(rows))
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
    """(operations of a forward of one row, reads of a verification, reads of a draft of `gamma` tokens)."""
    prompt = Prompt(tuple(_text(model, 16)))
    options = GenerationOptions(4 * gamma + 4, min_new_tokens=4 * gamma + 4)
    drafter = ChainDrafter(DraftModel(model, options))
    drafter.prefill(prompt)
    verifier = Verifier(model, options)
    verifier.open(prompt)
    reads = [0, 0]
    for _ in range(2):  # the first of each makes tables and caches
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
    """Picks of the model's own greedy answers, made one row at a time and all at once."""
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
    """Exits that lie beside the model; None where there are none of its own."""
    config = ServerConfig(model.path, device=str(model.device))
    return load_hint_maker(config, model, EventLog(io.StringIO()))


@torch.inference_mode()
def time_exits(model: LoadedModel, maker: HintMaker, gamma: int, context: int, budget_s: float) -> Exits:
    """A forward over a draft with and without hints, by turns."""
    context = min(context, model.context_limit - 2 * gamma - 2)
    ids = _text(model, context + gamma)
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
    return Exits(tuple(maker.layers), without, with_hints)


@torch.inference_mode()
def time_vision(model: LoadedModel) -> Vision | None:
    """A picture of a robot's camera; None for a model that takes none."""
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
    return statistics.median(taken[1:])  # the first makes room


def _timed(model: LoadedModel, work: Callable[[], object]) -> float:
    clock = clock_of(model)
    began = clock()
    work()
    settle(model.device)
    return clock() - began


def _text(model: LoadedModel, count: int) -> list[int]:
    """So many ids that stand for text."""
    some = plain_ids(model)
    return [some[(7919 * place) % len(some)] for place in range(count)]
