"""Engines on vLLM for the contract: one core a target, which takes seconds to start; its engines take turns."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from cloud_verifier.engine.interface import AnyEngine, EngineEnvironment, MakeEngine
from cloud_verifier.engine_vllm.core import CoreSettings, VllmCore
from cloud_verifier.engine_vllm.engine import VllmEngine
from cloud_verifier.engine_vllm.target import VllmTarget
from specdec.models import LoadedModel

KV_BYTES = 1 << 26


def makers() -> Callable[[LoadedModel], MakeEngine]:
    """See `make_for`."""
    cores: dict[str, tuple[VllmTarget, VllmCore]] = {}
    last: dict[str, VllmEngine] = {}
    numbers = count()

    def make_for(model: LoadedModel) -> MakeEngine:
        if model.path not in cores:
            target = VllmTarget(model.path)
            cores[model.path] = target, VllmCore(target, CoreSettings(KV_BYTES))

        def make(environment: EngineEnvironment) -> AnyEngine:
            if model.path in last:
                last[model.path].let_go()
            target, core = cores[model.path]
            engine = VllmEngine(core, target, environment, name=f"{next(numbers)}.")
            last[model.path] = engine
            return engine

        return make

    return make_for
