"""Weights are laid out for a processor's tiles only where it can be relied on; no llama.cpp is needed to see that."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from specdec.models import ModelError
from specdec.models.gguf import binding


@pytest.mark.parametrize(
    ("flags", "laid_out"),
    [("flags : avx512f amx_bf16 amx_tile amx_int8", False), ("flags : avx2 avx512_vnni", True), (None, True)],
)
def test_a_processor_that_says_it_has_tiles_is_not_believed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flags: str | None, laid_out: bool
) -> None:
    asked: list[bool] = []

    def load(path: bytes, settings: SimpleNamespace) -> None:
        asked.append(settings.use_extra_bufts)

    found = SimpleNamespace(
        llama_model_default_params=lambda: SimpleNamespace(use_extra_bufts=True), llama_model_load_from_file=load
    )
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    said = tmp_path / "cpuinfo"
    if flags is not None:
        said.write_text(flags)
    monkeypatch.setattr(binding, "_CPU_FLAGS", said)
    monkeypatch.setattr(binding, "library", lambda: found)
    binding._says_amx.cache_clear()
    try:
        with pytest.raises(ModelError, match="cannot be loaded"):
            binding.LlamaModel(tmp_path / "a.gguf")
    finally:
        binding._says_amx.cache_clear()
    assert asked == [laid_out]
