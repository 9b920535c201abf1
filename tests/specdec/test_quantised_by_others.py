"""Checkpoints that others have quantised: taken as the library takes them, or refused in one line that says why."""

from __future__ import annotations

import json
import shutil
from importlib import util
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from specdec.errors import ModelError
from specdec.models import chat_prompt, load_model
from specdec.models.layers.pieces import fuse, is_plain, linear
from specdec.models.local import generate_local
from specdec.options import GenerationOptions
from tests.helpers import tiny_models as tiny

BLOCK = 64
"""Of weights that share a scale; the tiny model is 64 wide."""


def quantised(source: Path, folder: Path, settings: dict[str, Any], weights: dict[str, torch.Tensor]) -> Path:
    shutil.copytree(source, folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(
        json.dumps({**config, "quantization_config": settings}), encoding="utf-8"
    )
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.build_llama(tmp_path_factory.mktemp("plain") / "model")


@pytest.mark.slow
def test_blocks_of_float8_are_unpacked_where_there_is_no_gpu(plain: Path, tmp_path: Path) -> None:
    """As DeepSeek and Qwen publish them: float8 with a scale a block."""
    weights = load_file(plain / "model.safetensors")
    for name in [name for name in weights if name.endswith("_proj.weight")]:
        whole = weights[name].float()
        rows, columns = whole.shape[0] // BLOCK or 1, whole.shape[1] // BLOCK
        cells = whole.reshape(rows, -1, columns, BLOCK)
        scales = cells.abs().amax((1, 3)) / 448
        weights[name] = (cells / scales[:, None, :, None]).reshape(whole.shape).to(torch.float8_e4m3fn)
        weights[f"{name}_scale_inv"] = scales
    settings = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [BLOCK, BLOCK]}
    model, other = load_model(quantised(plain, tmp_path / "fp8", settings, weights)), load_model(plain)
    assert model.family is not None and model.dtype == torch.float32
    prompt = chat_prompt(model, "what do you see?")
    ids = torch.tensor([prompt.ids])
    right = model.hf_model.generate(ids, do_sample=False, max_new_tokens=16)[0, ids.shape[1] :].tolist()
    said = generate_local(model, prompt, GenerationOptions(16))
    assert right[: len(said)] == said
    rows = torch.stack([one.new_session().prefill(one.encode(prompt)) for one in (model, other)])
    assert 0.97 < float(torch.corrcoef(rows)[0, 1]) < 0.99999, "quantised, and the same model all the same"


@pytest.mark.parametrize("method", ["modelopt", ""])
def test_what_the_library_does_not_know_is_refused_and_not_taken_without_its_scales(
    plain: Path, tmp_path: Path, method: str
) -> None:
    settings = {"quant_method": method} if method else {"bits": 4}
    folder = quantised(plain, tmp_path / "unknown", settings, load_file(plain / "model.safetensors"))
    with pytest.raises(ModelError, match=r"is quantised with .*which the library does not support"):
        load_model(folder)


@pytest.mark.parametrize(
    ("method", "package"),
    [("gptq", "optimum"), ("awq", "gptqmodel"), ("hqq", "hqq"), ("quanto", "optimum.quanto")],
)
def test_a_missing_package_is_named_in_one_line(
    plain: Path, tmp_path: Path, method: str, package: str
) -> None:
    if util.find_spec(package.partition(".")[0]) is not None:
        pytest.skip(f"{package} is installed")
    settings: dict[str, Any] = {"quant_method": method, "bits": 4, "group_size": 32, "weights": "int8"}
    folder = quantised(plain, tmp_path / method, settings, load_file(plain / "model.safetensors"))
    with pytest.raises(ModelError, match=rf"not installed \({method}\): ") as refused:
        load_model(folder)
    assert package.replace(".", "-") in str(refused.value).lower() and "\n" not in str(refused.value)


def test_weights_that_are_made_of_other_tensors_are_left_to_their_own_products() -> None:
    layer = torch.nn.Linear(4, 4)
    assert is_plain(layer)
    layer.weight.__tensor_flatten__ = lambda: ([], None)  # type: ignore[attr-defined]
    assert not is_plain(layer)


class RoundsEachToken(torch.nn.Linear):
    """As compressed-tensors rounds what comes in: a scale a token, where tokens are the second dimension."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        others = [dim for dim in range(x.ndim) if dim not in (0, 1)]
        scale = x.abs().amax(others, keepdim=True) / 7 if others else x.abs().max() / 7
        return super().forward((x / scale).round() * scale)


def test_a_row_does_not_depend_on_those_beside_it_where_a_layer_rounds_what_comes_in() -> None:
    torch.manual_seed(0)
    layers = [RoundsEachToken(8, 8), RoundsEachToken(8, 4)]
    rows = torch.randn(5, 8) * torch.tensor([[1.0], [30.0], [0.1], [2.0], [500.0]])
    for product in (linear(layers[0]), fuse(layers)):
        together = product(rows)
        for row, found in zip(rows, together, strict=True):
            torch.testing.assert_close(product(row[None])[0], found, rtol=1e-5, atol=1e-5)
