# SPDX-License-Identifier: Apache-2.0
"""Starts vLLM from a server's settings; unsupported settings are refused before anything large is loaded."""

from __future__ import annotations

import os
from contextlib import suppress

import torch

from cloud_verifier.config import NO_EXITS, ServerConfig, refuse_settings
from cloud_verifier.engine.interface import MakeEngine
from cloud_verifier.engine.memory import SHARE, free_bytes
from cloud_verifier.engine.policy import Policy
from cloud_verifier.engine_vllm.checks import check_room, check_version
from cloud_verifier.engine_vllm.core import CoreSettings, VllmCore
from cloud_verifier.engine_vllm.engine import VllmEngine
from cloud_verifier.engine_vllm.target import VllmTarget
from cloud_verifier.logs import EventLog
from specdec.models.threads import set_threads

_KV_BYTES_ON_A_CPU = 4 << 30
"""vLLM allocates its whole cache at start; this bounds it on a CPU, unless configured otherwise."""


def start(config: ServerConfig, log: EventLog) -> tuple[VllmTarget, MakeEngine]:
    """Load the target into vLLM. Raises VerifierError or ModelError with one line."""
    refuse_what_is_not_done(config)
    check_version()
    workers = config.tensor_parallel
    check_room(workers, torch.cuda.device_count(), len(os.sched_getaffinity(0)))
    target = VllmTarget(config.model, config.pixels)
    with suppress(Exception):  # transformers may fail on a model that only vLLM supports: torch's thread count stays
        set_threads(config.threads, target)
    free = free_bytes(target.device)
    on_cpu = target.device.type == "cpu"
    kv_bytes = int(config.kv_gb * 2**30) or int(SHARE * free) * (1 if on_cpu else workers)  # free: of one GPU
    if on_cpu and not config.kv_gb:
        kv_bytes = min(kv_bytes, _KV_BYTES_ON_A_CPU)
    # Our own engine's default suits small models; vLLM has its own default.
    rows = CoreSettings.rows if config.forward_rows == Policy.rows else config.forward_rows
    images = max(1, config.max_images)
    settings = CoreSettings(kv_bytes, config.max_sessions, rows, config.dtype, config.share != "none", images, workers)
    core = VllmCore(target, settings)
    log.info("vllm", blocks=core.blocks, block_tokens=core.block_tokens, kv_mb=kv_bytes >> 20, workers=workers)
    return target, lambda environment: VllmEngine(core, target, environment)


def refuse_what_is_not_done(config: ServerConfig) -> None:
    """Raise VerifierError for settings that only our own engine supports."""
    asked = {
        "--quantize": config.quantize != "none",
        "--draft-model": bool(config.draft_model),
        "--draft-disturbed": bool(config.draft_disturbed),
        "--exits": config.exits not in ("", NO_EXITS),
        "--deterministic": config.deterministic,
        "--compile": config.compile,
        "--verify-ms": bool(config.verify_ms),
        "--draft-ms": bool(config.draft_ms),
        "--device": config.device != "auto",
        "--forward-latency-ms": bool(config.forward_latency_ms),
        "--groups": config.groups > 1,
    }
    refuse_settings("vllm", asked)
