"""GGUF files of every family that is converted, and files that no draft can be made of: one clear line each."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from specdec.errors import OptionsError
from specdec.models import GgufOptions, ModelError, Prompt, load_draft, load_draft_tokenizer, load_model
from specdec.models.gguf import binding
from specdec.models.gguf.binding import LlamaModel
from specnav.convert.run import ConvertConfig, run_convert
from tests.helpers import drafts, shrunken
from tests.helpers import tiny_models as tiny
from tests.helpers.servers import Pair

pytestmark = [pytest.mark.slow, pytest.mark.gguf]

def converted(folder: Path, out: Path, kind: str = "f32") -> Path:
    run_convert(ConvertConfig(folder, kind, out))
    return out


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3", "gemma3_text"])
def test_every_family_drafts_as_on_torch(family: str, tmp_path: Path) -> None:
    """Chains longer than windows, trees, and rollback to before a window began."""
    folder = shrunken.build(family, tmp_path / family)
    torchs = load_model(folder)
    ours = load_draft(converted(folder, tmp_path / "model.gguf"), gguf=drafts.EXACT)
    window = any(layer.window for layer in torchs.runner.layers)
    long = [(5 * place) % 250 for place in range(40)]
    if window and family != "gemma3_text":  # llama.cpp has windows for Gemma alone: said when it is converted
        long = long[:10]
    one, other = ours.new_session(), torchs.new_session()
    for session in (one, other):
        session.prefill(session.model.encode(Prompt((1, 2, 3))))  # type: ignore[attr-defined]
    steps: list[Callable[[Any], torch.Tensor]] = [
        lambda session: session.extend(long),
        lambda session: session.extend_tree([7, 8, 9, 10], [-1, 0, 0, 1]),
        lambda session: (session.keep_path([0, 1], [3]), session.extend_tree([11], [0]))[1],
        lambda session: (session.rollback(5), session.extend([12, 13]))[1],
    ]
    for step in steps:
        mine, theirs = step(one), step(other)
        assert float((mine - theirs).abs().max()) < 2e-3 * max(1.0, float(theirs.std()))


def text_draft() -> bytes:
    return drafts.gguf_of(tiny.built_pairs() / "text-draft").read_bytes()


def refused(path: Path) -> str:
    with pytest.raises(ModelError) as error:
        load_draft(path)
    said = str(error.value)
    assert "\n" not in said and len(said) < 600
    return said


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.999])
def test_a_file_cut_short_is_told(share: float, tmp_path: Path) -> None:
    whole = text_draft()
    (tmp_path / "cut.gguf").write_bytes(whole[: int(share * len(whole))])
    assert "cut.gguf" in refused(tmp_path / "cut.gguf")


def test_a_file_with_wrong_bytes_loads_or_is_told(tmp_path: Path) -> None:
    whole = text_draft()
    drawn = random.Random(5)
    for number in range(30):
        wrong = bytearray(whole)
        for _ in range(drawn.choice([1, 10])):
            wrong[drawn.randrange(4, 6000 if number % 2 else len(wrong))] = drawn.randrange(256)
        path = tmp_path / f"{number}.gguf"
        path.write_bytes(wrong)
        try:
            session = load_draft(path).new_session()
            session.prefill(session.model.encode(Prompt((1, 2, 3))))  # type: ignore[attr-defined]
        except ModelError as error:
            assert "\n" not in str(error)


def test_an_unknown_architecture_is_told(tmp_path: Path) -> None:
    (tmp_path / "odd.gguf").write_bytes(text_draft().replace(b"llama", b"zzzzz"))
    assert "zzzzz" in refused(tmp_path / "odd.gguf")


def test_what_is_not_there_or_no_gguf_file_is_told(tmp_path: Path) -> None:
    assert "cannot be read" in refused(tmp_path / "none.gguf")
    (tmp_path / "text.gguf").write_text("hello")
    assert "is not a GGUF file" in refused(tmp_path / "text.gguf")
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / "two").mkdir(exist_ok=True)
        (tmp_path / "two" / name).write_bytes(b"GGUF")
    assert "name the one to use" in refused(tmp_path / "two")


@pytest.mark.parametrize("kind", ["recurrent", "hybrid", "diffusion"])
def test_a_model_whose_cache_cannot_be_cut_back_is_refused(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binding.library(), f"llama_model_is_{kind}", lambda handle: True)
    assert "cropped" in refused(drafts.gguf_of(tiny.built_pairs() / "text-draft"))


def test_a_missing_binding_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    file = drafts.gguf_of(tiny.built_pairs() / "text-draft")
    monkeypatch.setitem(__import__("sys").modules, "llama_cpp", None)
    binding.library.cache_clear()
    try:
        assert not binding.available()
        assert "make setup-gguf" in refused(file)
    finally:
        monkeypatch.undo()
        binding.library.cache_clear()
        assert binding.available()


def test_another_vocabulary_is_refused_before_anything_is_drafted(text_pair: Pair, tmp_path: Path) -> None:
    """The tokenizer beside a file without one of its own counts only where it has the file's tokens."""
    whole = text_draft().replace(b"tokenizer.huggingface.json", b"tokenizer.huggingface.none")
    (tmp_path / "model.gguf").write_bytes(whole)
    source = Path(text_pair.draft.path)
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        (tmp_path / name).write_bytes((source / name).read_bytes())
    assert load_draft(tmp_path / "model.gguf").vocabulary_fingerprint == text_pair.target.vocabulary_fingerprint
    tokenizer = (tmp_path / "tokenizer.json").read_text()
    assert '"<|im_end|>"' in tokenizer
    for name in ("tokenizer.json", "tokenizer_config.json"):
        text = (source / name).read_text().replace("<|im_end|>", "<|the_end|>")
        (tmp_path / name).write_text(text)
    assert "belong to two models" in refused(tmp_path / "model.gguf")


def test_a_picture_without_a_vision_tower_is_refused(tmp_path: Path) -> None:
    file = drafts.gguf_of(tiny.built_pairs() / "vision-draft")
    (tmp_path / "alone.gguf").write_bytes(file.read_bytes())
    model = load_draft(tmp_path / "alone.gguf")
    with pytest.raises(ModelError, match="mmproj") as error:
        model.encode(Prompt((1, 2), (tiny.picture(1),)))
    assert "\n" not in str(error.value)
    session = model.new_session()
    assert session.prefill(model.encode(Prompt((1, 2, 3)))).shape == (model.vocab_size,)


def test_a_tokenizer_comes_without_the_weights() -> None:
    file = drafts.gguf_of(tiny.built_pairs() / "text-draft")
    tokenizer = load_draft_tokenizer(file)
    assert tokenizer("hello")["input_ids"] == load_draft(file).tokenizer("hello")["input_ids"]


def test_long_metadata_is_read_whole() -> None:
    file = drafts.gguf_of(Path(__file__).resolve().parents[2] / "default_models" / "text-draft")
    assert len(LlamaModel(file, vocabulary_only=True).metadata("tokenizer.huggingface.json")) > 1 << 16


@pytest.mark.parametrize(
    "said",
    ["threads=-1", "kv=q4", "context=x", "colour=red", "kv", "gpu_layers=5000", "threads=--5", f"context={'9' * 5000}"],
)
def test_options_that_cannot_be_are_told(said: str) -> None:
    with pytest.raises(OptionsError, match="gguf"):
        GgufOptions.read(said)


def test_options_are_read_as_written() -> None:
    assert GgufOptions.read(" threads=2, kv=q8_0,context=4096 ,mmproj=/a/b.gguf") == GgufOptions(
        threads=2, kv="q8_0", context=4096, mmproj="/a/b.gguf"
    )
    assert GgufOptions.read("") == GgufOptions()
