# SPDX-License-Identifier: Apache-2.0
"""The target of a bench run: the verifier's settings for it, and the same model loaded here to answer alone."""

from __future__ import annotations

import io

from cloud_verifier.config import ServerConfig
from cloud_verifier.logs import EventLog
from specdec.models import LoadedModel, load_model
from specnav.bench.settings import BenchConfig
from specnav.supervise.children import LOOPBACK


def served_target(config: BenchConfig) -> ServerConfig:
    """The verifier's settings that affect its answers."""
    return ServerConfig(
        model=config.target_model,
        bind=f"{LOOPBACK}:0",
        engine=config.engine,
        gpu_layers=config.gpu_layers,
        kv_type=config.kv_type,
        device=config.device,
        dtype=config.dtype,
        quantize=config.quantize,
        deterministic=config.deterministic,
        compile=config.compile,
        exits=config.exits,
        exit_layers=config.exit_layers,
        share="none",  # a method must not reuse what an earlier one computed
    )


def load_target(config: BenchConfig) -> LoadedModel:
    """Load the target on the verifier's engine; for vLLM, on our own. Raises ModelError, VerifierError."""
    if config.engine == "llamacpp":
        from cloud_verifier.engine_llamacpp.target import load_target as load_on_llamacpp

        return load_on_llamacpp(served_target(config), EventLog(io.StringIO()))
    return load_model(
        config.target_model, config.device, config.dtype, config.quantize, deterministic=config.deterministic,
        compile=config.compile,
    )  # fmt: skip


def may_round(config: BenchConfig, target: LoadedModel) -> bool:
    """Whether a token's logits may depend on the other rows of its forward, so that near-ties may flip."""
    return config.engine == "llamacpp" or target.dtype.itemsize < 4
