"""Draft models for tests: one of the tiny pairs on each of the engines that draft."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path

import pytest

from specdec.models import GgufOptions, LoadedModel, load_draft, load_model
from tests.helpers import tiny_models as tiny

TORCH, GGUF = "torch", "gguf"
EXACT = GgufOptions(threads=1, gpu_layers=0, kv="f32")
BACKENDS = [TORCH, pytest.param(GGUF, marks=pytest.mark.gguf)]


@cache
def gguf_of(folder: Path, kind: str = "f32") -> Path:
    """A GGUF file of a folder, made once a process; its vision tower lies beside it."""
    from specnav.convert.run import ConvertConfig, run_convert

    place = Path(tempfile.mkdtemp(prefix="specnav-gguf-"))
    atexit.register(shutil.rmtree, place, True)
    out = place / f"{kind}.gguf"
    run_convert(ConvertConfig(folder, kind, out))
    return out


def without_epsilon(folder: Path) -> Path:
    """The same model with nothing added in its norms."""
    place = Path(tempfile.mkdtemp(prefix="specnav-epsilon-"))
    atexit.register(shutil.rmtree, place, True)
    shutil.copytree(folder, place, dirs_exist_ok=True)
    config = json.loads((place / "config.json").read_text())
    config["text_config"]["rms_norm_eps"] = 0.0
    (place / "config.json").write_text(json.dumps(config))
    return place


@cache
def draft_on(backend: str, which: str, options: GgufOptions = EXACT, kind: str = "f32") -> LoadedModel:
    """The draft of a tiny pair. which: text or vision."""
    folder = tiny.built_pairs() / f"{which}-draft"
    return load_model(folder) if backend == TORCH else load_draft(gguf_of(folder, kind), gguf=options)
