"""A tower from the safetensors or the mmproj beside a GGUF file sees what the folder's model sees."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import gguf
import pytest
import torch
from torch import Tensor

from specdec.errors import ModelError
from specdec.models import LoadedModel, load_model
from specdec.models.gguf.mmproj import read_tensor
from specdec.models.gguf.tower import GgufTower, load_tower
from specdec.models.gguf_header import read_header
from specnav.convert.run import ConvertConfig, run_convert
from tests.helpers import shrunken
from tests.helpers import tiny_models as tiny

pytestmark = pytest.mark.slow

NAV_DRAFT = Path(__file__).resolve().parents[2] / "default_models/nav-draft"
PICTURES = [tiny.picture(1), tiny.picture(2, 112, 224)]
EXACT, ROUNDED = 1e-5, 2e-4
"""Of features of random weights, at most 0.1: in float32, and in float16."""


@pytest.fixture(scope="module", params=["qwen2_vl", "qwen2_5_vl", "nav-draft"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param == "nav-draft":
        return NAV_DRAFT
    if request.param == "qwen2_vl":
        return tiny.built_pairs() / "vision-target"
    return shrunken.build(request.param, tmp_path_factory.mktemp("tower") / request.param)


@pytest.fixture(scope="module")
def model(folder: Path) -> LoadedModel:
    return load_model(folder)


@pytest.fixture
def converted(folder: Path, tmp_path: Path) -> Callable[[str], Path]:
    def convert(kind: str) -> Path:
        run_convert(ConvertConfig(folder, kind, tmp_path / "model.gguf"))
        return tmp_path / "model.gguf"

    return convert


@pytest.fixture
def of_qwen2_vl(tmp_path: Path) -> Path:
    """A GGUF file with its mmproj."""
    run_convert(ConvertConfig(tiny.built_pairs() / "vision-target", "f32", tmp_path / "model.gguf"))
    return tmp_path / "model.gguf"


def seen(tower: GgufTower) -> Tensor:
    prepared = tower.preparer.prepare(PICTURES)
    found = tower.network.get_image_features(
        prepared.pixel_values, image_grid_thw=torch.tensor(prepared.grids)
    )
    return torch.cat(list(found.pooler_output))


def right(model: LoadedModel) -> Tensor:
    return torch.cat([one.features for one in model.look([model.decode(picture) for picture in PICTURES])])


def width(model: LoadedModel) -> int:
    return int(model.runner.hidden_size)


@pytest.mark.parametrize(("kind", "close"), [("f32", EXACT), ("f16", ROUNDED), ("q4_0", ROUNDED)])
def test_a_tower_of_an_mmproj_sees_what_the_folder_s_sees(
    kind: str, close: float, converted: Callable[[str], Path], model: LoadedModel
) -> None:
    tower = load_tower(converted(kind), None, width(model))
    assert tower is not None
    torch.testing.assert_close(seen(tower), right(model), rtol=0.0, atol=close)
    assert tower.image_token_id == model.image_pad_id and tower.placeholder_ids == model.never_drafted
    assert tower.preparer.rules == model.picture_rules


def test_a_tower_of_the_folder_around_a_file_is_the_folder_s(folder: Path, model: LoadedModel) -> None:
    tower = load_tower(folder / "any.gguf", None, width(model))
    assert tower is not None and torch.equal(seen(tower), right(model))
    assert tower.image_token_id == model.image_pad_id and tower.placeholder_ids == model.never_drafted
    assert tower.preparer.rules == model.picture_rules


def test_only_the_tower_is_loaded(folder: Path, model: LoadedModel) -> None:
    tower = load_tower(folder / "any.gguf", None, width(model))
    assert tower is not None
    held = sum(one.numel() for one in tower.network.parameters())
    assert held == sum(one.numel() for name, one in model.network.named_parameters() if "visual." in name)


def test_pixels_bound_a_tower_s_pictures(of_qwen2_vl: Path) -> None:
    tower = load_tower(of_qwen2_vl, None, 64, pixels=28 * 28 * 8)
    assert tower is not None and tower.preparer.rules.most == 28 * 28 * 8


def test_a_preprocessor_config_beside_the_mmproj_is_taken(of_qwen2_vl: Path) -> None:
    shutil.copy(NAV_DRAFT / "preprocessor_config.json", of_qwen2_vl.parent)
    tower = load_tower(of_qwen2_vl, None, 64)
    assert tower is not None and tower.preparer.rules.most == 31360


def test_without_a_tower_there_is_none(tmp_path: Path) -> None:
    assert load_tower(tmp_path / "model.gguf", None, 64) is None
    assert load_tower(tiny.built_pairs() / "text-target" / "model.gguf", None, 64) is None


def test_files_of_the_published_layout_without_our_keys_are_read(of_qwen2_vl: Path, tmp_path: Path) -> None:
    """As converters before ours wrote them: both ends of the MLPs called by each other's names, widths left out."""
    right_tower = load_tower(of_qwen2_vl, None, 64)
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    header = read_header(tmp_path / "mmproj-model.gguf")
    writer = gguf.GGUFWriter(theirs / "mmproj-f32.gguf", "clip")
    data = header.metadata
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", "qwen2vl_merger")
    for name in ("block_count", "attention.head_count", "projection_dim", "patch_size"):
        writer.add_uint32(f"clip.vision.{name}", data[f"clip.vision.{name}"])
    writer.add_array("clip.vision.image_mean", data["clip.vision.image_mean"])
    writer.add_array("clip.vision.image_std", data["clip.vision.image_std"])
    swapped = {"ffn_up": "ffn_down", "ffn_down": "ffn_up"}
    for name in header.tensors:
        other = ".".join(swapped.get(part, part) for part in name.split("."))
        writer.add_tensor(other, read_tensor(header, name).numpy())
    _close(writer)
    writer = gguf.GGUFWriter(theirs / "model.gguf", "qwen2vl")
    writer.add_token_list(read_header(of_qwen2_vl).metadata["tokenizer.ggml.tokens"])
    _close(writer)
    tower = load_tower(theirs / "model.gguf", None, 64)
    assert tower is not None and right_tower is not None
    prepared = right_tower.preparer.prepare(PICTURES)
    pixels, grids = prepared.pixel_values, torch.tensor(prepared.grids)
    found, known = (
        one.network.get_image_features(pixels, grids).pooler_output[0] for one in (tower, right_tower)
    )
    assert torch.equal(found, known)
    assert (tower.image_token_id, tower.placeholder_ids) == (
        right_tower.image_token_id,
        right_tower.placeholder_ids,
    )


def _close(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_tower_of_another_model_is_refused(of_qwen2_vl: Path) -> None:
    for path in (of_qwen2_vl, NAV_DRAFT / "any.gguf"):
        with pytest.raises(ModelError, match="they belong to two models"):
            load_tower(path, None, 96)


def test_a_file_that_is_no_tower_is_refused(of_qwen2_vl: Path) -> None:
    with pytest.raises(ModelError, match="is not a vision tower at all: the mmproj of a Qwen2-VL"):
        load_tower(of_qwen2_vl, of_qwen2_vl, 64)
    with pytest.raises(ModelError, match="cannot be read"):
        load_tower(of_qwen2_vl, of_qwen2_vl.with_name("nowhere.gguf"), 64)


def test_of_several_mmprojs_that_of_the_file_s_name_is_taken(of_qwen2_vl: Path) -> None:
    other = of_qwen2_vl.with_name("mmproj-other.gguf")
    other.write_bytes(b"no tower")
    assert load_tower(of_qwen2_vl, None, 64) is not None
    with pytest.raises(ModelError, match="has 2 files mmproj"):
        load_tower(of_qwen2_vl.with_name("another.gguf"), None, 64)


def test_a_file_that_ends_anywhere_is_told_in_one_line(of_qwen2_vl: Path) -> None:
    mmproj = of_qwen2_vl.with_name("mmproj-model.gguf")
    whole = mmproj.read_bytes()
    for length in [*range(0, 4000, 97), len(whole) // 2, len(whole) - 4]:
        mmproj.write_bytes(whole[:length])
        with pytest.raises(ModelError) as told:
            load_tower(of_qwen2_vl, None, 64)
        assert "\n" not in str(told.value)


def test_a_header_that_lies_about_lengths_takes_no_memory(of_qwen2_vl: Path) -> None:
    mmproj = of_qwen2_vl.with_name("mmproj-model.gguf")
    whole = bytearray(mmproj.read_bytes())
    for at in (8, 16, 24):  # numbers of tensors and of values, the length of the first text
        lying = bytearray(whole)
        lying[at : at + 8] = (1 << 62).to_bytes(8, "little")
        mmproj.write_bytes(lying)
        with pytest.raises(ModelError):
            load_tower(of_qwen2_vl, None, 64)
