"""Engines on llama.cpp for the contract: the tests' targets as GGUF files, in float32 as torch has them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from io import StringIO
from pathlib import Path

from cloud_verifier.config import ServerConfig
from cloud_verifier.engine.engine import own_engine
from cloud_verifier.engine.interface import MakeEngine
from cloud_verifier.engine.work import Models
from cloud_verifier.engine_llamacpp.target import load_target
from cloud_verifier.logs import EventLog
from specdec.models import LoadedModel
from specdec.models.gguf.model import GgufModel
from tests.helpers import drafts


@cache
def target_of(path: str, **settings: object) -> GgufModel:
    """A folder's model on llama.cpp."""
    told = {"kv_type": "f32", "threads": 1, "kv_gb": 0.125, "max_sessions": 64} | settings
    config = ServerConfig(str(drafts.gguf_of(Path(path))), engine="llamacpp", **told)  # type: ignore[arg-type]
    return load_target(config, EventLog(StringIO()))


def makers() -> Callable[[LoadedModel], MakeEngine]:
    """See `make_for`."""

    def make_for(model: LoadedModel) -> MakeEngine:
        target = target_of(model.path)
        return own_engine(ServerConfig(model.path).policy, Models(target), kv_bytes=target.cache_bytes)

    return make_for
