"""Folders read without the library: the same bits as with it, and the library wherever a setting is not known."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from specdec.models import LoadedModel, ModelError, chat_prompt, load_model, load_tokenizer
from specdec.models.direct import read_model, read_tokenizer
from specdec.models.direct.tokenizer import DirectTokenizer
from specdec.models.loading import _load_library_tokenizer
from specdec.pictures.sizes import smart_resize
from specdec.verifying.exits.fingerprint import fingerprint
from tests.helpers import tiny_models as tiny
from tests.helpers.servers import Pair

pytestmark = pytest.mark.slow

DEFAULTS = Path(__file__).resolve().parents[2] / "default_models"
OURS = ("nav-draft", "nav-target", "text-draft", "text-target")
ALL = (*OURS, "tiny text", "tiny vision")
TEXTS = (
    "find the silver bottle",
    "",
    "  two  spaces,\n\n\ttab and\r\nlines 1234567 ",
    "naïve café — Ångström Ａ １２ ﬁ 日本語 🤖👩‍🚀 \u0301e",
    "I'm, you'RE; it's<|im_end|>x<|user|> don't!?...\x00\x7f",
    "<|vision_start|><|image_pad|><|vision_end|>",
)


def folder_of(name: str, model_root: Path) -> Path:
    return DEFAULTS / name if name in OURS else model_root / f"{name.removeprefix('tiny ')}-target"


def by_library(folder: Path, monkeypatch: pytest.MonkeyPatch) -> LoadedModel:
    with monkeypatch.context() as patch:
        patch.setattr("specdec.models.loading.read_model", lambda folder: None)
        return load_model(folder)


def picture(width: int, height: int, seed: int = 0) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).resize((width, height)).save(buffer, format="PNG")
    return buffer.getvalue()


@pytest.fixture(params=ALL)
def both(
    request: pytest.FixtureRequest, model_root: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[LoadedModel, LoadedModel]:
    folder = folder_of(request.param, model_root)
    direct = load_model(folder)
    assert isinstance(direct.tokenizer, DirectTokenizer)
    return direct, by_library(folder, monkeypatch)


def test_logits_ids_and_pixels_are_the_librarys_bit_by_bit(both: tuple[LoadedModel, LoadedModel]) -> None:
    direct, library = both
    images: list[bytes] = []
    if direct.is_multimodal:
        images = [tiny.picture(1), picture(640, 480), picture(97, 301, 1), picture(30, 30, 2)]
    prompt = chat_prompt(direct, "find the silver bottle", images=images, history=[("hello", "stop")])
    assert prompt == chat_prompt(
        library, "find the silver bottle", images=images, history=[("hello", "stop")]
    )
    rows = []
    for model in both:
        encoded = model.encode(prompt)
        session = model.new_session()
        with torch.inference_mode():
            rows.append(
                [
                    encoded.ids,
                    encoded.pixel_values,
                    encoded.grids,
                    model.embed_prompt(encoded),
                    session.prefill(encoded),
                    session.extend([1, 2, 3, 4]),
                    session.extend_tree([1, 2, 3], [-1, 0, 0]),
                ]
            )
    for ours, theirs in zip(*rows, strict=True):
        assert ours is theirs is None or (ours.dtype == theirs.dtype and torch.equal(ours, theirs))


def test_weights_and_what_is_said_of_them_are_the_librarys(both: tuple[LoadedModel, LoadedModel]) -> None:
    direct, library = both
    theirs = dict(library.network.named_parameters())
    ours = dict(direct.network.named_parameters())
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert not any(parameter.requires_grad for parameter in ours.values())
    said = (
        "vocab_size",
        "context_limit",
        "eos_token_ids",
        "never_drafted",
        "image_pad_id",
        "dtype",
        "device",
    )
    said += ("parameter_count", "vocabulary_fingerprint", "is_multimodal", "path")
    assert [getattr(direct, name) for name in said] == [getattr(library, name) for name in said]
    assert fingerprint(direct) == fingerprint(library)


def test_the_librarys_own_model_is_there_for_who_asks(text_pair: Pair) -> None:
    model = load_model(text_pair.target.path)
    assert type(model.network).__module__.startswith("specdec.")
    assert type(model.hf_model).__name__ == "LlamaForCausalLM"
    assert model.hf_model is model.hf_model


@pytest.mark.parametrize("name", ALL)
def test_a_tokenizer_says_what_the_librarys_says(name: str, model_root: Path) -> None:
    folder = folder_of(name, model_root)
    ours, theirs = load_tokenizer(folder), _load_library_tokenizer(str(folder))
    assert isinstance(ours, DirectTokenizer)
    for text in TEXTS:
        for whole in (True, False):
            ids = ours(text, add_special_tokens=whole)["input_ids"]
            assert ids == theirs(text, add_special_tokens=whole)["input_ids"]
            for end in range(len(ids) + 1):
                for skip in (True, False):
                    assert ours.decode(ids[:end], skip_special_tokens=skip) == theirs.decode(
                        ids[:end], skip_special_tokens=skip
                    )
    assert ours(list(TEXTS))["input_ids"] == theirs(list(TEXTS))["input_ids"]
    words = ["a", "no such token at all", "<|im_end|>", "<|endoftext|>", "<|image_pad|>"]
    assert ours.convert_tokens_to_ids(words) == theirs.convert_tokens_to_ids(words)
    said = (
        "eos_token_id",
        "all_special_tokens",
        "special_tokens_map",
        "chat_template",
        "added_tokens_decoder",
    )
    for name in said:
        assert str(getattr(ours, name)) == str(getattr(theirs, name)), name
    assert ours.get_vocab() == theirs.get_vocab() and len(ours) == len(theirs)


@pytest.mark.parametrize("name", ALL)
def test_a_conversation_is_rendered_like_the_librarys(name: str, model_root: Path) -> None:
    folder = folder_of(name, model_root)
    ours, theirs = load_tokenizer(folder), _load_library_tokenizer(str(folder))
    pieces: list[dict[str, str]] = [{"type": "text", "text": "a <b> {{ c }}"}, {"type": "text", "text": "\n"}]
    if "text" not in name:
        pieces.insert(1, {"type": "image"})
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": pieces},
        {"role": "assistant", "content": "yes"},
        {"role": "user", "content": "and \u00e9 now? "},
    ]
    for going_on in (True, False):
        given = {"tokenize": False, "add_generation_prompt": going_on}
        assert ours.apply_chat_template(messages, **given) == theirs.apply_chat_template(messages, **given)


def test_sizes_of_pictures_are_the_librarys() -> None:
    from transformers.models.qwen2_vl import image_processing_pil_qwen2_vl as library

    rng = np.random.default_rng(0)
    for height, width in rng.integers(1, 3000, (2000, 2)).tolist():
        for bounds in ((28, 3136, 50176), (28, 31360, 31360), (56, 100_000, 1_000_000)):
            sizes = []
            for resize in (smart_resize, library.smart_resize):
                try:
                    sizes.append(resize(height, width, *bounds))
                except ValueError as error:
                    sizes.append(str(error))
            assert sizes[0] == sizes[1]


Change = Callable[[dict[str, Any]], Any]


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("config.json", lambda c: c.update(model_type="qwen2")),
        ("config.json", lambda c: c.update(quantization_config={"load_in_8bit": True})),
        ("config.json", lambda c: c.update(a_new_setting=1)),
        ("config.json", lambda c: c["text_config"].update(a_new_setting=1)),
        ("config.json", lambda c: c["text_config"].update(hidden_act="gelu")),
        ("config.json", lambda c: c["text_config"].update(use_sliding_window=True)),
        ("config.json", lambda c: c["text_config"].update(num_hidden_layers=2)),
        ("config.json", lambda c: c["text_config"]["rope_parameters"].update(rope_type="yarn", factor=2.0)),
        ("config.json", lambda c: c["text_config"]["rope_parameters"].update(mrope_section=[2, 3])),
        ("config.json", lambda c: c["vision_config"].update(spatial_merge_size=4)),
        ("config.json", lambda c: c["vision_config"].update(hidden_act="gelu")),
        ("config.json", lambda c: c.update(tie_word_embeddings=True)),
        ("generation_config.json", lambda c: c.pop("eos_token_id")),
        ("preprocessor_config.json", lambda c: c.update(do_normalize=False)),
        ("preprocessor_config.json", lambda c: c.update(min_pixels=100)),
        ("preprocessor_config.json", lambda c: c.update(resample=2)),
        ("preprocessor_config.json", lambda c: c.update(patch_size=16)),
        ("tokenizer_config.json", lambda c: c.update(tokenizer_class="LlamaTokenizer")),
        ("tokenizer_config.json", lambda c: c.update(add_bos_token=True)),
        ("tokenizer_config.json", lambda c: c.update(extra_special_tokens=["<|not there|>"])),
        ("tokenizer_config.json", lambda c: c.update(chat_template="{{ messages }}")),
        ("tokenizer.json", lambda c: c.update(truncation={"max_length": 3})),
        ("tokenizer.json", lambda c: c["model"].update(type="WordLevel")),
        ("tokenizer.json", lambda c: c.pop("model")),
    ],
)
def test_whatever_is_not_known_is_left_to_the_library(
    file: str, change: Change, vision_pair: Pair, tmp_path: Path
) -> None:
    folder = shutil.copytree(vision_pair.target.path, tmp_path / "changed")
    assert read_model(folder) is not None
    content = json.loads((folder / file).read_text())
    change(content)
    (folder / file).write_text(json.dumps(content))
    assert read_model(folder) is None


def test_another_pipeline_than_the_librarys_class_makes_is_left_to_the_library(tmp_path: Path) -> None:
    folder = shutil.copytree(DEFAULTS / "nav-draft", tmp_path / "changed")
    assert read_tokenizer(folder) is not None
    content = json.loads((folder / "tokenizer.json").read_text())
    content["normalizer"] = {"type": "NFKC"}
    (folder / "tokenizer.json").write_text(json.dumps(content))
    assert read_tokenizer(folder) is None


@pytest.mark.parametrize(
    "name",
    ["adapter_config.json", "model.safetensors.index.json", "added_tokens.json", "special_tokens_map.json"],
)
def test_files_that_say_more_are_left_to_the_library(name: str, text_pair: Pair, tmp_path: Path) -> None:
    folder = shutil.copytree(text_pair.target.path, tmp_path / "more")
    (folder / name).write_text("{}")
    assert read_model(folder) is None


@pytest.mark.parametrize("template", ["{{ messages | tojson }}", "{% set n = namespace(i=0) %}"])
def test_templates_with_the_librarys_own_words_are_left_to_it(
    template: str, text_pair: Pair, tmp_path: Path
) -> None:
    folder = shutil.copytree(text_pair.target.path, tmp_path / "more")
    (folder / "chat_template.jinja").write_text(template)
    assert read_tokenizer(folder) is None


def _lacking(weights: dict[str, torch.Tensor]) -> None:
    del weights["model.norm.weight"]


def _misshapen(weights: dict[str, torch.Tensor]) -> None:
    weights["model.norm.weight"] = torch.ones(3)


@pytest.mark.parametrize("spoil", [_lacking, _misshapen])
def test_spoilt_weights_are_told_in_the_librarys_words(
    spoil: Callable[[dict[str, torch.Tensor]], None], text_pair: Pair, tmp_path: Path
) -> None:
    folder = shutil.copytree(text_pair.target.path, tmp_path / "spoilt")
    weights = load_file(folder / "model.safetensors")
    spoil(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert read_model(folder) is None
    with pytest.raises(ModelError, match="weights"):
        load_model(folder)


def test_other_number_types_and_quantised_models_come_from_the_library(text_pair: Pair) -> None:
    for given in ({"dtype": "bfloat16"}, {"quantize": "8bit"}):
        model = load_model(text_pair.target.path, **given)
        assert model.network is model.hf_model
        assert type(model.network).__name__ == "LlamaForCausalLM"


def test_reading_draws_no_random_numbers(text_pair: Pair) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    assert read_model(Path(text_pair.target.path)) is not None
    assert torch.equal(torch.get_rng_state(), before)
