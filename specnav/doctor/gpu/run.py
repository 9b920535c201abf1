# SPDX-License-Identifier: Apache-2.0
"""`specnav doctor --gpu`: loads a pair in each variant, measures it, and reports the choice of `auto`."""

from __future__ import annotations

import gc
import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import psutil
import torch
from rich.console import Console

from specdec.errors import SpecdecError
from specdec.models import LoadedModel, chat_prompt, load_model
from specdec.models.loading import DTYPES
from specdec.models.threads import set_threads
from specnav.doctor.gpu import measuring
from specnav.doctor.gpu.choosing import agreement_of, choices
from specnav.doctor.gpu.config import QUANTISED, GpuDoctorConfig
from specnav.doctor.gpu.records import Device, GpuFindings, ModelFindings
from specnav.doctor.gpu.view import as_json, show
from specnav.errors import UsageError
from specnav.plan.memory import ModelMemory, memory_of
from specnav.terminal import progress_bar, say

ON_CPU, ON_CUDA = ("float32", "bfloat16"), ("bfloat16", "8bit", "4bit")
ASKED = (
    "go to the red ball and stop in front of it",
    "turn around and look for the door",
    "what do you see on the left?",
    "walk to the silver bottle behind the chair",
)
ANSWER_TOKENS = 48


def run_gpu_doctor(config: GpuDoctorConfig) -> int:
    """Measure and print; returns 1 if a model could not be measured or a pick flipped that is not a near-tie.

    Raises UsageError for a missing device, and ModelError for a folder that is not a model.
    """
    device = _device(config.device)
    console = Console(stderr=True)
    config = replace(config, rows=tuple(sorted({*config.rows, 1, config.gamma + 1})))
    variants = config.variants or (ON_CUDA if device.type == "cuda" else ON_CPU)
    findings = GpuFindings(_describe(device), config.gamma)
    with progress_bar(console) as bar:
        work = bar.add_task("", total=2 * len(variants) + 1)
        for role, path in (("target", config.model), ("draft", config.draft)):
            for variant in variants:
                bar.update(work, description=f"{role} {path.rstrip('/').rsplit('/')[-1]} {variant}")
                one = measure_model(path, role, variant, config, device)
                findings = replace(findings, models=(*findings.models, one))
                bar.advance(work)
        bar.update(work, description="the pair")
        try:
            findings = _with_the_pair(findings, config, device, variants)
        except SpecdecError as error:
            findings = replace(findings, notes=(*findings.notes, f"no pair: {error}"))
        except torch.OutOfMemoryError:
            notes = (*findings.notes, "no pair: target and draft do not fit on the device together")
            findings = replace(findings, notes=notes)
        bar.advance(work)
    if config.json:
        print(json.dumps(as_json(findings), indent=1))
    else:
        show(findings, Console(width=None if sys.stdout.isatty() else 130))
    bad = [one for one in findings.models if one.error or (one.flips is not None and not one.flips.sound)]
    for one in bad:
        say(console, f"{one.role} {one.variant}: {one.error or 'a pick flipped that is not a near-tie'}")
    return int(bool(bad))


def measure_model(
    path: str, role: str, variant: str, config: GpuDoctorConfig, device: torch.device
) -> ModelFindings:
    """All figures of one model in one variant; problems are in `error`. Raises ModelError if it is not a model."""
    found = ModelFindings(path, role, variant)
    plan = plan_of(path, variant, device)
    found = replace(found, planned_bytes=plan.weights)
    needed = plan.weights + plan.head + plan.forward + max(config.contexts) * plan.kv_a_token
    free = _free_bytes(device)
    if needed > free:
        return replace(
            found,
            error=f"needs {needed / 2**30:.1f} GiB and {free / 2**30:.1f} GiB are free: quantise it, or free memory",
        )
    try:
        with _loaded(path, variant, device) as (model, load_s):
            return replace(_measured(found, model, role, config), load_s=load_s)
    except torch.OutOfMemoryError as error:
        return replace(
            found, error=f"out of memory ({str(error).splitlines()[0][:120]}): give shorter --contexts"
        )
    except SpecdecError as error:
        return replace(found, error=str(error))


def _measured(found: ModelFindings, model: LoadedModel, role: str, config: GpuDoctorConfig) -> ModelFindings:
    read = measuring.read_bytes(model)
    size = min(read, _free_bytes(model.device) // 2)  # beside the model
    bandwidth = measuring.bandwidth_of(model.device, size, config.seconds / 8)
    forwards = measuring.time_forwards(model, config.rows, config.contexts, bandwidth, config.seconds)
    if not forwards:
        raise UsageError(
            f"{found.model} has a context of {model.context_limit} tokens: give shorter --contexts"
        )
    launches, verify_reads, draft_reads = measuring.count_work(model, config.gamma)
    prompts = [chat_prompt(model, words) for words in ASKED]
    maker = measuring.hint_maker_of(model) if role == "target" else None
    context = min(one.context for one in forwards)
    exits = (
        None
        if maker is None
        else measuring.time_exits(model, maker, config.gamma, context, config.seconds / 4)
    )
    return replace(
        found, read_bytes=read, bandwidth=bandwidth, forwards=tuple(forwards), launches=launches,
        loaded_bytes=sum(one.numel() * one.element_size() for one in model.network.parameters()),
        verify_reads=verify_reads, draft_reads=draft_reads,
        flips=measuring.find_flips(model, prompts, ANSWER_TOKENS), exits=exits, vision=measuring.time_vision(model),
        growing=measuring.time_growing(model, context, bandwidth),
    )  # fmt: skip


def plan_of(path: str, variant: str, device: torch.device) -> ModelMemory:
    """The memory plan of a model in one variant. Raises ModelError."""
    dtype = variant if variant in DTYPES else "bfloat16" if device.type == "cuda" else "float32"
    return memory_of(path, dtype, variant if variant in QUANTISED else "none", device.type)


@contextmanager
def _loaded(path: str, variant: str, device: torch.device) -> Iterator[tuple[LoadedModel, float]]:
    """A model and its loading time in seconds; its memory is freed afterwards. Raises ModelError."""
    began = time.perf_counter()
    dtype, quantize = ("auto", variant) if variant in QUANTISED else (variant, "none")
    model = load_model(path, str(device), dtype, quantize)
    load_s = time.perf_counter() - began
    set_threads(0, model)
    try:
        yield model, load_s
    finally:
        del model
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()


def _with_the_pair(
    findings: GpuFindings, config: GpuDoctorConfig, device: torch.device, variants: tuple[str, ...]
) -> GpuFindings:
    """Add the agreement and the choice of `auto`, for the fastest measured variants of target and draft."""
    best = {}
    for role in ("target", "draft"):
        sound = [one for one in findings.models if one.role == role and not one.error]
        if not sound:
            return findings
        best[role] = min(sound, key=lambda one: next(f.ms for f in one.forwards if f.rows == 1))
    target, draft = best["target"], best["draft"]
    with _loaded(target.model, target.variant, device) as (model, _):
        prompts = [chat_prompt(model, words) for words in ASKED]
        with _loaded(draft.model, draft.variant, device) as (draft_model, _):
            said = agreement_of(model, draft_model, prompts, ANSWER_TOKENS)
    auto = choices(target, draft, said, config.gamma, config.rtts_ms)
    share = sum(map(sum, said)) / max(1, sum(map(len, said)))
    note = f"auto: {target.variant} target, {draft.variant} draft, chains only"
    return replace(findings, agreement=share, auto=auto, notes=(*findings.notes, note))


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"device {name!r} is unknown: choose auto, cpu, cuda or cuda:1") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UsageError("there is no CUDA device here: choose --device cpu, or run `specnav doctor`")
    return device


def _free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available)


def _describe(device: torch.device) -> Device:
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return Device(torch.cuda.get_device_name(device), "cuda", total, free, torch.__version__, 0)
    memory = psutil.virtual_memory()
    name = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"
    return Device(
        name, device.type, memory.total, memory.available, torch.__version__, torch.get_num_threads()
    )
