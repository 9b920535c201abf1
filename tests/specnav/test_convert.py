"""A converted folder gives in llama.cpp what it gives here, and no file gets its name before it is sound."""

from __future__ import annotations

import json
import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from typer.testing import CliRunner

from specdec.models import Prompt, load_model
from specdec.models.direct import read_tokenizer
from specdec.models.gguf_header import read_header
from specnav.cli.app import app
from specnav.convert import run as converting
from specnav.convert import text
from specnav.convert.kinds import KINDS
from specnav.convert.run import ConvertConfig, run_convert
from specnav.errors import UsageError
from tests.helpers import shrunken
from tests.helpers import tiny_models as tiny

pytestmark = pytest.mark.slow

CONVERTED = [*(name for name in shrunken.BUILDERS if name != "qwen3_vl"), "qwen2_vl"]
IDS = [int(one) for one in np.random.default_rng(0).integers(5, 200, 60)]
BEFORE_THE_WINDOW = 20
CLOSE = {"gemma3_text": 5e-4, "qwen2_vl": 2e-2, "qwen2_5_vl": 2e-2}
"""Of logits: llama.cpp looks GELU up in a table of float16, and leaves the epsilon of norms out for qwen2vl."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {"qwen2_vl": tiny.built_pairs() / "vision-target", "text": tiny.built_pairs() / "text-target"}
    for name in shrunken.BUILDERS:
        made[name] = shrunken.build(name, tmp_path_factory.mktemp(name) / name)
    return made


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A small Llama that may be broken."""
    return Path(shutil.copytree(tiny.built_pairs() / "text-target", tmp_path / "model"))


def converted(folder: Path, kind: str, out: Path) -> Path:
    assert run_convert(ConvertConfig(folder, kind, out)) == 0
    return out


def logits_of_llama_cpp(path: Path) -> np.ndarray[Any, Any]:
    from llama_cpp import Llama

    model = Llama(str(path), n_ctx=128, logits_all=True, verbose=False, type_k=0, type_v=0, n_threads=1)
    model.eval(IDS)
    return np.array(model.scores[: len(IDS)])


def logits_of_ours(folder: Path) -> np.ndarray[Any, Any]:
    model = load_model(folder)
    session = model.new_session()
    first = session.prefill(model.encode(Prompt(tuple(IDS[:1]))))
    return torch.cat([first[None], session.extend(IDS[1:])]).numpy()


def off(path: Path, folder: Path) -> np.ndarray[Any, Any]:
    """By position, how far llama.cpp's logits are from ours."""
    right = logits_of_ours(folder)
    return np.abs(logits_of_llama_cpp(path)[:, : right.shape[1]] - right).max(axis=1)


@pytest.mark.gguf
@pytest.mark.parametrize("family", CONVERTED)
def test_llama_cpp_gives_the_logits_that_the_folder_gives(
    family: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    found = off(converted(folders[family], "f32", tmp_path / "m.gguf"), folders[family])
    seen = found[:BEFORE_THE_WINDOW] if family in ("mistral", "qwen2") else found
    assert seen.max() < CLOSE.get(family, 1e-4)


@pytest.mark.gguf
def test_rows_of_a_llama_that_are_not_moved_are_noticed(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "paired", lambda tensor, heads: tensor)
    assert off(converted(folders["text"], "f32", tmp_path / "m.gguf"), folders["text"]).max() > 0.5


def test_every_type_is_written_and_stays_within_its_bound(folders: dict[str, Path], tmp_path: Path) -> None:
    sizes = {}
    for kind in KINDS:
        path = converted(folders["text"], kind, tmp_path / f"{kind}.gguf")
        sizes[kind] = path.stat().st_size
        types = {one.tensor_type.name.lower() for one in gguf.GGUFReader(path).tensors}
        assert kind in types and types <= {kind, "f32", "q8_0"}
    assert sizes["f32"] > sizes["f16"] == sizes["bf16"] > sizes["q8_0"] > sizes["q5_1"] > sizes["q4_0"]


def test_the_head_stays_finer_than_four_bits_and_vectors_stay_whole(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    there = gguf.GGUFReader(converted(folders["llama"], "q4_0", tmp_path / "m.gguf")).tensors
    types = {one.name: one.tensor_type.name for one in there}
    assert "output.weight" not in types and types["token_embd.weight"] == "Q8_0"  # the folder ties them
    assert types["blk.0.attn_q.weight"] == "Q4_0" and types["rope_freqs.weight"] == "F32"
    assert all(kind == "F32" for name, kind in types.items() if "norm" in name)


def test_rows_that_are_no_whole_blocks_stay_f16_and_that_is_said(
    folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = gguf.GGUFReader(
        converted(folders["qwen3"], "q8_0", tmp_path / "m.gguf")
    ).tensors  # 48 and 144 wide
    types = {one.name: one.tensor_type.name for one in there}
    assert types["blk.0.ffn_down.weight"] == "F16" and types["blk.0.attn_output.weight"] == "Q8_0"
    assert "matrices stay f16: rows of 48, 144 are not a multiple of 32" in capsys.readouterr().err


def test_the_file_holds_the_folder_s_tokenizer_and_marks_what_only_fills_up(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    folder = folders["qwen2_vl"]
    data = read_header(converted(folder, "q8_0", tmp_path / "m.gguf")).metadata
    model = load_model(folder)
    vocabulary = model.tokenizer.get_vocab()
    used = [kind != gguf.TokenType.UNUSED for kind in data["tokenizer.ggml.token_type"]]
    listed = data["tokenizer.ggml.tokens"]
    assert {token: index for index, token in enumerate(listed) if used[index]} == vocabulary
    assert len(listed) == len(vocabulary) + tiny.PADDING
    whole, right = Tokenizer.from_str(data["tokenizer.huggingface.json"]), model.tokenizer.backend_tokenizer
    said = "<|im_start|>Walk to the Tür!<|im_end|>"
    assert whole.encode(said).ids == right.encode(said).ids and whole.to_str() == right.to_str()
    assert json.loads(data["specnav.eos_token_ids"]) == [vocabulary["<|im_end|>"], vocabulary["<|endoftext|>"]]
    assert (
        data["tokenizer.ggml.eos_token_id"] == data["tokenizer.ggml.eot_token_id"] == vocabulary["<|im_end|>"]
    )
    assert data["specnav.image_token_id"] == model.image_pad_id
    assert data["tokenizer.chat_template"] == tiny.CHAT_TEMPLATE
    assert json.loads(data["specnav.special_tokens"])["eos_token"] == "<|im_end|>"


def test_what_the_reader_needs_of_the_shipped_tokenizers_is_in_the_file(tmp_path: Path) -> None:
    for name in ("text-draft", "nav-draft"):
        folder = Path(__file__).resolve().parents[2] / "default_models" / name
        right = read_tokenizer(folder)
        assert right is not None
        data = read_header(converted(folder, "q8_0", tmp_path / f"{name}.gguf")).metadata
        special = json.loads(data["specnav.special_tokens"])
        extra = special.pop("extra")
        assert special == right.special_tokens_map
        assert {*special.values(), *extra} == set(right.all_special_tokens)


def test_settings_of_ropes_and_windows_are_llama_cpp_s(folders: dict[str, Path], tmp_path: Path) -> None:
    said = {
        name: read_header(converted(folders[name], "q8_0", tmp_path / f"{name}.gguf")).metadata
        for name in ("gemma3_text", "qwen2_5_vl")
    }
    gemma, vision = said["gemma3_text"], said["qwen2_5_vl"]
    assert gemma["gemma3.attention.sliding_window"] == shrunken.WINDOW
    assert gemma["gemma3.attention.sliding_window_pattern"] == 3
    assert gemma["gemma3.rope.freq_base"] != gemma["gemma3.rope.freq_base_swa"]
    assert vision["qwen2vl.rope.dimension_sections"] == [2, 3, 3, 0]


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl"])
def test_a_tower_s_tensors_have_the_names_that_llama_cpp_s_converter_gives_them(
    family: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    converted(folders[family], "q4_0", tmp_path / "m.gguf")
    header = read_header(tmp_path / "mmproj-m.gguf")
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, 3)
    stored = [name for name in load_file(folders[family] / "model.safetensors") if "visual." in name]
    right = {"v.patch_embd.weight.1"}
    for name in (one[one.index("visual.") :] for one in stored):
        for part in "qkv" if ".qkv." in name else [""]:
            right.add(
                str(names.get_name(name.replace("qkv", part or "qkv"), try_suffixes=(".weight", ".bias")))
            )
    assert set(header.tensors) == right
    assert header.metadata["clip.projector_type"] in ("qwen2vl_merger", "qwen2.5vl_merger")
    assert header.metadata["clip.has_vision_encoder"] is True


def test_a_file_that_reads_back_wrong_is_removed_and_the_good_one_stays(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = converted(copy, "q8_0", tmp_path / "m.gguf")
    good = out.read_bytes()
    for kind in ("f32", "q8_0", "q4_0"):
        _spoil(monkeypatch)
        with pytest.raises(UsageError, match="read back as"):
            run_convert(ConvertConfig(copy, kind, out))
        monkeypatch.undo()
        assert out.read_bytes() == good and not list(tmp_path.glob(".*"))


def _spoil(monkeypatch: pytest.MonkeyPatch) -> None:
    """One matrix is written with a number that is not the folder's."""
    from specnav.convert import writing

    whole = writing.packed

    def packed(tensor: torch.Tensor, kind: Any) -> Any:
        if tensor.dim() == 2:
            tensor = tensor.clone().float()
            tensor[3, 5] += tensor.abs().max()
        return whole(tensor, kind)

    monkeypatch.setattr(writing, "packed", packed)


def test_a_disk_that_fills_up_leaves_nothing_half_written(copy: Path, tmp_path: Path) -> None:
    out = converted(copy, "f16", tmp_path / "m.gguf")
    good = out.read_bytes()
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, most[1]))
    try:
        with pytest.raises(UsageError, match="cannot write into"):
            run_convert(ConvertConfig(copy, "f32", out))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
    assert out.read_bytes() == good and not list(tmp_path.glob(".*"))


def test_too_little_room_is_told_before_anything_is_written(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(converting.shutil, "disk_usage", lambda where: SimpleNamespace(free=10))
    with pytest.raises(UsageError, match="0 MB free and 17 are needed"):
        run_convert(ConvertConfig(copy, "f32", tmp_path / "m.gguf"))


def edited(folder: Path, name: str, **settings: Any) -> None:
    content = json.loads((folder / name).read_text()) | settings
    (folder / name).write_text(json.dumps(content))


def with_matrix(change: Callable[[torch.Tensor], torch.Tensor | None]) -> Callable[[Path], None]:
    """Makes a folder one of whose matrices became another; None: is gone."""

    def break_it(folder: Path) -> None:
        weights, name = load_file(folder / "model.safetensors"), "model.layers.1.mlp.up_proj.weight"
        changed = change(weights.pop(name))
        weights |= {} if changed is None else {name: changed}
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    return break_it


BROKEN = {
    "is of type 'gpt2', which cannot be converted": lambda folder: edited(
        folder, "config.json", model_type="gpt2"
    ),
    "is quantised already": lambda folder: edited(
        folder, "config.json", quantization_config={"quant_method": "gptq", "bits": 4}
    ),
    "in I8: a quantised checkpoint": with_matrix(lambda matrix: matrix.to(torch.int8)),
    "lacks 1 weights (model.layers.1.mlp.up_proj.weight": with_matrix(lambda matrix: None),
    "that are not finite": with_matrix(lambda matrix: matrix * float("nan")),
    "has no safetensors": lambda folder: (folder / "model.safetensors").unlink(),
    "cannot be read (": lambda folder: (folder / "model.safetensors").write_bytes(b"12345678"),
    "has no config.json": lambda folder: (folder / "config.json").unlink(),
    "has no usable tokenizer": lambda folder: (folder / "tokenizer.json").unlink(),
    "RoPE of type 'dynamic'": lambda folder: edited(
        folder, "config.json", rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    ),
}


@pytest.mark.parametrize("said", BROKEN)
def test_a_folder_that_cannot_be_converted_is_told_in_one_line(said: str, copy: Path, tmp_path: Path) -> None:
    BROKEN[said](copy)
    with pytest.raises(Exception) as told:
        run_convert(ConvertConfig(copy, "q8_0", tmp_path / "m.gguf"))
    assert type(told.value).__name__ in ("UsageError", "ModelError") and said in str(told.value)
    assert "\n" not in str(told.value) and not list(tmp_path.glob("*.gguf")) and not list(tmp_path.glob(".*"))


def with_biases(folder: Path) -> Path:
    weights = load_file(folder / "model.safetensors")
    for name in [one for one in weights if "self_attn" in one and one.endswith("_proj.weight")]:
        weights[name.replace("weight", "bias")] = torch.randn(weights[name].shape[0])
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    edited(folder, "config.json", attention_bias=True)
    return folder


@pytest.mark.gguf
def test_biases_go_along_with_their_rows(copy: Path, tmp_path: Path) -> None:
    assert off(converted(with_biases(copy), "f32", tmp_path / "m.gguf"), copy).max() < 1e-4


def test_biases_are_refused_where_llama_cpp_reads_none(folders: dict[str, Path], tmp_path: Path) -> None:
    other = with_biases(Path(shutil.copytree(folders["qwen3"], tmp_path / "qwen3")))
    with pytest.raises(UsageError, match=r"which llama\.cpp's qwen3 lacks"):
        run_convert(ConvertConfig(other, "f32", tmp_path / "other.gguf"))


@pytest.mark.gguf
@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0},
        {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 32},
    ],
    ids=lambda rope: str(rope["rope_type"]),
)
def test_stretched_ropes_stay_stretched(rope: dict[str, Any], copy: Path, tmp_path: Path) -> None:
    edited(copy, "config.json", rope_parameters=rope)
    assert off(converted(copy, "f32", tmp_path / "m.gguf"), copy).max() < 1e-4


def test_qwen3_vl_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'qwen3_vl', which cannot be converted"):
        run_convert(ConvertConfig(folders["qwen3_vl"], "q8_0", tmp_path / "m.gguf"))


def wrong_arguments() -> Iterator[tuple[list[str], str]]:
    text_draft = str(tiny.built_pairs() / "text-draft")
    yield ["/nowhere/model"], "model folder /nowhere/model does not exist"
    yield [text_draft, "--type", "q3_k"], "type 'q3_k' is unknown here"
    yield [text_draft, "--out", "model.bin"], "is not the name of a GGUF file"
    yield [text_draft, "--out", "/nowhere/m.gguf"], "folder /nowhere does not exist"


def test_wrong_arguments_are_told() -> None:
    for arguments, said in wrong_arguments():
        done = CliRunner().invoke(app, ["convert", "gguf", *arguments])
        assert done.exit_code and said in str(done.exception)


def test_the_command_names_the_file_itself_and_shows_what_rounding_did(copy: Path) -> None:
    done = CliRunner().invoke(app, ["convert", "gguf", str(copy), "--type", "Q8_0"])
    assert done.exit_code == 0 and (copy / "model-q8_0.gguf").is_file()
    assert "every number read back" in done.output and "q8_0" in done.output
    assert load_model(copy).parameter_count  # the folder is what it was
