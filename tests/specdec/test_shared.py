"""Drafts that store only their own layers: they compute what whole ones compute, and take no other target."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from specdec.downloads import models_folder
from specdec.errors import ModelError
from specdec.models import LoadedModel, load_model
from specdec.models.drafts import load_draft, load_draft_tokenizer
from specdec.models.loading import load_tokenizer
from specdec.models.shared import FILE, digest, share, shared_of
from specnav.convert.source import Source
from tests.helpers.tiny_models import build_llama
from tests.helpers.tuned import tuned

ENDS = ("model.embed_tokens.weight", "lm_head.weight")
IDS = torch.tensor([5, 60, 7, 80, 9])


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return build_llama(tmp_path / "target", layers=2)


@pytest.fixture
def whole(target: Path, tmp_path: Path) -> Path:
    """A draft with the target's ends and layers of its own, all stored."""
    folder = build_llama(tmp_path / "whole", layers=1, seed=3)
    weights = load_file(folder / "model.safetensors") | {
        name: tensor for name, tensor in load_file(target / "model.safetensors").items() if name in ENDS
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture
def sharing(whole: Path, target: Path, tmp_path: Path) -> Path:
    """The same draft, without what it shares."""
    folder = tmp_path / "draft"
    folder.mkdir()
    for name in ("config.json", "generation_config.json"):
        shutil.copy(whole / name, folder / name)
    own = {
        name: tensor for name, tensor in load_file(whole / "model.safetensors").items() if name not in ENDS
    }
    save_file(own, folder / "model.safetensors", metadata={"format": "pt"})
    share(folder, str(target), ENDS)
    return folder


@pytest.fixture
def moved(whole: Path, target: Path, tmp_path: Path) -> Path:
    """A draft whose only layer is the target's second; `whole` then stores that layer, too."""
    theirs = load_file(target / "model.safetensors")
    names = {name.replace(".layers.1.", ".layers.0."): name for name in theirs if ".layers.1." in name}
    weights = load_file(whole / "model.safetensors") | {name: theirs[there] for name, there in names.items()}
    save_file(weights, whole / "model.safetensors", metadata={"format": "pt"})
    folder = tmp_path / "moved"
    folder.mkdir()
    for name in ("config.json", "generation_config.json"):
        shutil.copy(whole / name, folder / name)
    shared = {*ENDS, *names}
    own = {name: tensor for name, tensor in weights.items() if name not in shared}
    save_file(own, folder / "model.safetensors", metadata={"format": "pt"})
    share(folder, str(target), shared, layers=[1])
    return folder


def retrained_ends(target: Path, folder: Path) -> Path:
    """The target with other embeddings, in another folder."""
    shutil.copytree(target, folder)
    weights = load_file(folder / "model.safetensors")
    weights[ENDS[0]] += 1e-3
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def replace(folder: Path, other: Path) -> None:
    """Put another folder in a folder's place."""
    shutil.rmtree(folder)
    shutil.move(other, folder)


def logits(path: Path, dtype: str = "auto") -> torch.Tensor:
    return logits_of(load_model(path, dtype=dtype))


def logits_of(model: LoadedModel) -> torch.Tensor:
    session = model.new_session()
    from specdec.models import Prompt

    with torch.inference_mode():
        return session.prefill(model.encode(Prompt(tuple(IDS.tolist())))).float()


@pytest.mark.parametrize("dtype", ["auto", "bfloat16"])
def test_what_is_shared_is_computed_as_if_it_were_stored(whole: Path, sharing: Path, dtype: str) -> None:
    """float32 is read without the library, other types by it."""
    assert torch.equal(logits(sharing, dtype), logits(whole, dtype))
    assert load_model(sharing).vocabulary_fingerprint == load_model(whole).vocabulary_fingerprint


@pytest.mark.parametrize("dtype", ["auto", "bfloat16"])
def test_a_shared_layer_may_have_another_number_in_the_target(whole: Path, moved: Path, dtype: str) -> None:
    assert torch.equal(logits(moved, dtype), logits(whole, dtype))
    source = Source(moved)
    assert all(torch.equal(source.read(name), one) for name, one in load_file(whole / "model.safetensors").items())


def test_a_note_with_too_few_layers_is_told_in_one_line(moved: Path) -> None:
    note = (moved / FILE).read_text().replace(".layers.0.mlp.up", ".layers.7.mlp.up")
    (moved / FILE).write_text(note)
    with pytest.raises(ModelError, match="fewer layers than it shares") as caught:
        load_model(moved)
    assert "\n" not in str(caught.value)


def test_the_library_model_of_it_is_whole(whole: Path, sharing: Path) -> None:
    with torch.inference_mode():
        said = [load_model(path).hf_model(IDS[None]).logits for path in (sharing, whole)]
    assert torch.equal(*said)


def test_it_can_be_named_wherever_a_draft_can(whole: Path, sharing: Path) -> None:
    draft = load_draft(sharing)
    assert draft.row_us and draft.name == "draft"
    text = "one two"
    for tokenizer in (load_tokenizer(sharing), load_draft_tokenizer(sharing)):
        assert tokenizer(text) == load_tokenizer(whole)(text)
        assert tokenizer.chat_template == load_tokenizer(whole).chat_template


def test_a_target_beside_the_draft_or_in_the_cache_is_found_by_its_name(
    sharing: Path, target: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    about = json.loads((sharing / FILE).read_text())
    (sharing / FILE).write_text(json.dumps(about | {"target": "target"}))
    expected = logits(sharing)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    place = models_folder() / "target"
    place.parent.mkdir(parents=True)
    shutil.move(target, place)
    assert torch.equal(logits(sharing), expected)
    share(sharing, str(place), ENDS)
    assert json.loads((sharing / FILE).read_text())["target"] == "target"  # no path of this machine


@pytest.mark.parametrize("load", [load_model, load_draft, load_tokenizer, load_draft_tokenizer])
def test_a_missing_target_is_told_in_one_line(sharing: Path, target: Path, load: object) -> None:
    shutil.rmtree(target)
    with pytest.raises(ModelError, match="specnav models get target") as caught:
        load(sharing)  # type: ignore[operator]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("dtype", ["auto", "bfloat16"])
def test_another_target_is_told_in_one_line(sharing: Path, target: Path, dtype: str) -> None:
    weights = load_file(target / "model.safetensors")
    weights[ENDS[0]][3, 3] += 1e-3
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match="another target") as caught:
        load_model(sharing, dtype=dtype)
    assert "\n" not in str(caught.value) and ENDS[0] in str(caught.value)


@pytest.mark.parametrize("beside", ["the fine-tuned one", "the one it was made with"])
def test_of_two_targets_of_a_name_the_one_it_was_made_with_is_taken(
    sharing: Path, target: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, beside: str
) -> None:
    expected = logits(sharing)
    (sharing / FILE).write_text(json.dumps(json.loads((sharing / FILE).read_text()) | {"target": "target"}))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cached = models_folder() / "target"
    cached.parent.mkdir(parents=True)
    other = retrained_ends(target, tmp_path / "other")
    if beside == "the fine-tuned one":
        shutil.move(target, cached)
        shutil.move(other, target)
    else:
        shutil.move(other, cached)
    assert torch.equal(logits(sharing), expected)
    shutil.rmtree(cached if beside == "the one it was made with" else target)
    assert torch.equal(logits(sharing), expected)


def test_two_other_targets_of_its_name_are_refused(
    sharing: Path, target: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (sharing / FILE).write_text(json.dumps(json.loads((sharing / FILE).read_text()) | {"target": "target"}))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    retrained_ends(target, models_folder() / "target")
    replace(target, retrained_ends(target, tmp_path / "other"))
    with pytest.raises(ModelError, match="another target"):
        load_model(sharing)


def test_a_draft_that_is_loaded_goes_on_when_its_target_is_replaced(
    sharing: Path, target: Path, tmp_path: Path
) -> None:
    model, expected = load_model(sharing), logits(sharing)
    replace(target, retrained_ends(target, tmp_path / "other"))
    assert torch.equal(logits_of(model), expected)
    with pytest.raises(ModelError, match="another target"):
        load_model(sharing)


def test_a_target_that_was_fine_tuned_in_what_is_not_shared_will_do(
    sharing: Path, target: Path, tmp_path: Path
) -> None:
    expected = logits(sharing)
    replace(target, tuned(target, tmp_path / "tuned"))
    assert torch.equal(logits(sharing), expected)


@pytest.mark.parametrize("broken", ["gone", "cut", "shards"])
def test_a_target_with_broken_weights_is_told_in_one_line(sharing: Path, target: Path, broken: str) -> None:
    file = target / "model.safetensors"
    if broken == "cut":
        file.write_bytes(file.read_bytes()[:100])
    else:
        file.unlink()
    if broken == "shards":
        (target / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(ModelError, match="copy the target again") as caught:
        load_model(sharing)
    assert "\n" not in str(caught.value)


def test_a_broken_note_is_told_in_one_line(sharing: Path) -> None:
    (sharing / FILE).write_text('{"target": 3}')
    with pytest.raises(ModelError, match="cannot be read"):
        load_model(sharing)
    assert shared_of(sharing.parent) is None


def test_a_target_in_shards_is_the_same_target(sharing: Path, target: Path) -> None:
    expected = logits(sharing)
    weights = load_file(target / "model.safetensors")
    (target / "model.safetensors").unlink()
    save_file(
        {name: weights.pop(name) for name in ENDS}, target / "ends.safetensors", metadata={"format": "pt"}
    )
    index = {"weight_map": dict.fromkeys(ENDS, "ends.safetensors")}
    (target / "model.safetensors.index.json").write_text(json.dumps(index))
    assert torch.equal(logits(sharing), expected)


def test_a_digest_is_of_the_numbers_not_of_their_type() -> None:
    numbers = torch.randn(4, 4).bfloat16()
    assert digest(numbers) == digest(numbers.float()) != digest(numbers.float() + 1)


def test_it_converts_to_a_gguf_file_that_is_whole(sharing: Path, whole: Path) -> None:
    assert sorted(Source(sharing)) == sorted(Source(whole))
    for name in ENDS:
        assert torch.equal(Source(sharing).read(name), Source(whole).read(name))
        assert Source(sharing).shape(name) == Source(whole).shape(name)
