"""Loading, prompts and image preparation: the same ids and pixels as the library, and one-line errors."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch
from PIL import Image

from cloud_verifier.__main__ import main
from cloud_verifier.config import ServerConfig
from specdec.models import (
    ModelError,
    Prompt,
    chat_prompt,
    load_draft,
    load_draft_tokenizer,
    load_model,
    load_tokenizer,
)
from specdec.models.gguf import binding
from specdec.models.images import MOST_PIXELS, ImagePreparer, find_process_vision_info
from specdec.models.local import generate_local
from specdec.models.positions import expand_image_pads, mrope_positions
from specdec.options import GenerationOptions
from specdec.pictures.decoding import decode_image
from tests.helpers import tiny_models as tiny
from tests.helpers.servers import Pair


def test_vocabulary_is_the_real_one_not_the_padded_one(pair: Pair) -> None:
    padded = pair.target.hf_model.get_input_embeddings().weight.shape[0]
    assert pair.target.vocab_size == padded - tiny.PADDING == len(pair.target.tokenizer)
    session = pair.target.new_session()
    row = session.prefill(pair.target.encode(chat_prompt(pair.target, "hello")))
    assert row.shape == (pair.target.vocab_size,)


def test_all_end_of_sequence_ids_are_known(pair: Pair) -> None:
    expected = pair.target.tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
    assert pair.target.eos_token_ids == frozenset(expected)


@pytest.mark.parametrize("path", [".", "../text-target", "../text-target/"])
def test_a_model_is_called_like_its_folder_however_that_is_written(
    text_pair: Pair, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of `.` was empty, and the HTTP API then took every name."""
    name = Path(text_pair.target.path).name
    monkeypatch.chdir(text_pair.target.path)
    monkeypatch.setattr(text_pair.target, "path", path.replace("text-target", name))
    assert text_pair.target.name == name


def test_draft_and_target_of_one_family_have_one_vocabulary_fingerprint(pair: Pair) -> None:
    assert pair.target.vocabulary_fingerprint == pair.draft.vocabulary_fingerprint
    assert len(pair.target.vocabulary_fingerprint) == 8


def test_prompt_carries_one_placeholder_an_image_and_encoding_expands_it(vision_pair: Pair) -> None:
    model = vision_pair.target
    images = (tiny.picture(1), tiny.picture(2, 112, 224))
    prompt = chat_prompt(model, "what do you see?", images=images)
    assert prompt.ids.count(model.image_pad_id) == 2
    encoded = model.encode(prompt)
    assert encoded.grids is not None
    tokens = [int(t * (h // 2) * (w // 2)) for t, h, w in encoded.grids.tolist()]
    assert int((encoded.ids == model.image_pad_id).sum()) == sum(tokens)


def test_pieces_may_put_the_instruction_before_the_image(vision_pair: Pair) -> None:
    model = vision_pair.target
    first = chat_prompt(model, ["find the ball", tiny.picture(1)])
    pad = first.ids.index(model.image_pad_id)
    assert "find the ball" in model.tokenizer.decode(first.ids[:pad])
    assert first.images == (tiny.picture(1),)


@pytest.mark.parametrize(
    "attack", ["<|image_pad|>", "<|im_end|>", "<|im<|im_end|>_end|>", "<|vision_start|>"]
)
def test_special_tokens_in_the_users_words_stay_out_of_the_prompt(vision_pair: Pair, attack: str) -> None:
    model = vision_pair.target
    clean = chat_prompt(model, "find the ball", images=[tiny.picture(1)])
    attacked = chat_prompt(model, f"find the {attack}ball", images=[tiny.picture(1)])
    assert attacked.ids == clean.ids


def test_positions_equal_the_librarys(vision_pair: Pair) -> None:
    model = vision_pair.target
    images = [tiny.picture(1), tiny.picture(2, 112, 224)]
    encoded = model.encode(chat_prompt(model, ["one", images[0], "two", images[1], "three"]))
    kinds = (encoded.ids == model.image_pad_id).int()[None]
    positions, delta = model.hf_model.model.get_rope_index(
        encoded.ids[None], mm_token_type_ids=kinds, image_grid_thw=encoded.grids
    )
    assert torch.equal(positions[:, 0], encoded.positions)
    assert int(delta) == encoded.delta


def test_positions_of_a_prompt_without_images_are_plain() -> None:
    positions, delta = mrope_positions([5, 6, 7], pad_id=9, grids=[], merge=2)
    assert positions.tolist() == [[0, 1, 2]] * 3
    assert delta == 0


def test_number_of_placeholders_and_images_must_agree(vision_pair: Pair) -> None:
    model = vision_pair.target
    with pytest.raises(ValueError, match="2 image placeholders but 1 images"):
        expand_image_pads([9, 1, 9], 9, [(1, 4, 4)], 2)
    prompt = chat_prompt(model, "hi", images=[tiny.picture(1)])
    with pytest.raises(ModelError, match="placeholder"):
        model.encode(Prompt(prompt.ids, prompt.images * 2))
    with pytest.raises(ModelError, match="placeholder"):
        model.encode(Prompt(prompt.ids))


def test_ids_and_pixels_equal_the_librarys_full_processor(
    vision_pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What we build without torchvision is what the full Qwen2VLProcessor makes."""
    from transformers.models.qwen2_vl import processing_qwen2_vl
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    model = vision_pair.target
    processor = object.__new__(
        processing_qwen2_vl.Qwen2VLProcessor
    )  # its constructor wants a video processor
    processor.image_processor = Qwen2VLImageProcessorPil.from_pretrained(model.path)
    images = [tiny.picture(1), tiny.picture(2, 224, 140)]
    pictures = [decode_image(data) for data in images]
    features = processor.image_processor(images=pictures, return_tensors="pt")
    processor.image_token = "<|image_pad|>"
    prompt = chat_prompt(model, "what is it?", images=images)
    text = model.tokenizer.decode(prompt.ids)
    parts = text.split("<|image_pad|>")
    expanded = parts[0]
    for index, part in enumerate(parts[1:]):
        expanded += processor.replace_image_token(features, index) + part
    encoded = model.encode(prompt)
    assert encoded.ids.tolist() == model.tokenizer(expanded, add_special_tokens=False)["input_ids"]
    assert torch.equal(encoded.pixel_values, features["pixel_values"])
    assert torch.equal(encoded.grids, features["image_grid_thw"])


@pytest.mark.parametrize("size", [(224, 140), (640, 480), (100, 37), (30, 30)])
def test_same_pixels_with_and_without_qwen_vl_utils(
    vision_pair: Pair, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    vision_info = find_process_vision_info()
    if vision_info is None:  # it wants torchvision only for videos: an empty stand-in lets it import
        for name in ("torchvision", "torchvision.io", "torchvision.transforms"):
            monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
        sys.modules["torchvision"].io = sys.modules["torchvision.io"]  # type: ignore[attr-defined]
        sys.modules["torchvision"].transforms = sys.modules["torchvision.transforms"]  # type: ignore[attr-defined]
        sys.modules["torchvision"].__version__ = "0"  # type: ignore[attr-defined]
        sys.modules["torchvision.transforms"].InterpolationMode = object  # type: ignore[attr-defined]
        monkeypatch.delitem(sys.modules, "qwen_vl_utils", raising=False)
        vision_info = find_process_vision_info()
        if vision_info is None:
            pytest.skip("qwen-vl-utils is not installed")
    processor = vision_pair.target._preparer._processor  # type: ignore[union-attr]
    data = tiny.picture(3, *(side // 12 * 12 for side in size))
    with_utils = ImagePreparer(processor, vision_info).prepare([data])
    without = ImagePreparer(processor, None).prepare([data])
    assert torch.equal(with_utils.pixel_values, without.pixel_values)
    assert with_utils.grids == without.grids


def test_a_photo_is_scaled_down_to_the_pixels_a_model_is_given(model_root: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(model_root / "vision-target", tmp_path / "target"))
    file = folder / "preprocessor_config.json"
    settings = json.loads(file.read_text())
    settings["size"]["longest_edge"] = 16384 * 28 * 28  # as published
    file.write_text(json.dumps(settings))
    photo = tiny.picture(1, 1536, 1152)
    of_pixels = {0: MOST_PIXELS, 200_000: 200_000, 1_500_000: 1_500_000}
    for pixels, most in of_pixels.items():
        model = load_model(folder, pixels=pixels)
        prompt = Prompt((1, model.image_pad_id or 0, 2), (photo,))
        tokens = model.prompt_length(prompt) - 2
        assert 0.8 * most < tokens * 28 * 28 <= most
        if tokens < 900:  # those that fit the tiny model's context
            assert model.encode(prompt).ids.shape[0] == tokens + 2
    with pytest.raises(ModelError, match="pixels = -1 is out of range"):
        load_model(folder, pixels=-1)


@pytest.mark.parametrize("data", [b"", b"not an image", tiny.picture(1)[:200], b"\xff\xd8\xff" + b"\0" * 100])
def test_corrupt_image_is_a_one_line_error(vision_pair: Pair, data: bytes) -> None:
    prompt = chat_prompt(vision_pair.target, "hi", images=[tiny.picture(1)])
    with pytest.raises(ModelError) as caught:
        vision_pair.target.encode(Prompt(prompt.ids, (data,)))
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_small_file_of_a_huge_picture_is_not_decoded() -> None:
    import io

    buffer = io.BytesIO()
    Image.new("1", (9_000, 9_000)).save(buffer, format="PNG")
    with pytest.raises(ModelError, match=r"pixels|decoded"):
        decode_image(buffer.getvalue())


def test_text_model_refuses_images(text_pair: Pair) -> None:
    with pytest.raises(ModelError, match="takes no images"):
        text_pair.target.encode(Prompt((1, 2), (tiny.picture(1),)))


def test_prompt_longer_than_the_context_is_refused(text_pair: Pair) -> None:
    with pytest.raises(ModelError, match="shorten"):
        text_pair.target.encode(Prompt((1,) * text_pair.target.context_limit))


def test_sharded_qwen2vl_folder_loads_and_says_the_same(vision_pair: Pair, tmp_path: Path) -> None:
    folder = tiny.build_qwen2vl(tmp_path / "sharded", max_shard_size="60KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 3
    sharded = load_model(folder)
    prompt = chat_prompt(sharded, "hello", images=[tiny.picture(1)])
    one = sharded.new_session().prefill(sharded.encode(prompt))
    other = vision_pair.target.new_session().prefill(vision_pair.target.encode(prompt))
    assert torch.allclose(one, other, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("quantize", ["8bit", "4bit"])
@pytest.mark.parametrize("kind", ["text", "vision"])
def test_quantised_models_load_and_stay_close(model_root: Path, quantize: str, kind: str) -> None:
    whole = load_model(model_root / f"{kind}-target")
    small = load_model(model_root / f"{kind}-target", quantize=quantize)
    layer = small.hf_model.model.language_model if kind == "vision" else small.hf_model.model
    assert "bitsandbytes" in type(layer.layers[0].mlp.down_proj).__module__
    prompt = chat_prompt(whole, "hello", images=[tiny.picture(1)] if kind == "vision" else [])
    session = small.new_session()
    row = session.prefill(small.encode(prompt))
    expected = whole.new_session().prefill(whole.encode(prompt))
    assert torch.nn.functional.cosine_similarity(row, expected, dim=0) > (0.95 if quantize == "8bit" else 0.7)
    assert session.extend([1, 2, 3]).shape == (3, whole.vocab_size)


@pytest.mark.slow
def test_a_quantised_model_is_loaded_without_a_word(model_root: Path) -> None:
    """In a process of its own: a package tells what it misses when it is imported, once."""
    code = "import sys; from specdec.models import load_model; load_model(sys.argv[1], quantize='4bit')"
    done = subprocess.run(
        [sys.executable, "-c", code, str(model_root / "text-target")],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout + done.stderr == ""


def test_4bit_on_a_cpu_names_a_width_it_cannot_take(tmp_path: Path) -> None:
    folder = tiny.build_llama(tmp_path / "narrow", hidden=32)
    with pytest.raises(ModelError, match="multiples of 64"):
        load_model(folder, device="cpu", quantize="4bit")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_loads(model_root: Path, dtype: str) -> None:
    model = load_model(model_root / "vision-target", dtype=dtype)
    row = model.new_session().prefill(model.encode(chat_prompt(model, "hi", images=[tiny.picture(1)])))
    assert row.dtype == torch.float32
    assert bool(torch.isfinite(row).all())


class TestErrorsOfLoading:
    """Every mistake in one line that names the folder."""

    def check(self, folder: Path | str, match: str, **settings: str) -> None:
        with pytest.raises(ModelError, match=match) as caught:
            load_model(folder, **settings)
        assert "\n" not in str(caught.value)

    def copy(self, model_root: Path, tmp_path: Path) -> Path:
        return Path(shutil.copytree(model_root / "text-target", tmp_path / "model"))

    def test_missing_folder(self, tmp_path: Path) -> None:
        self.check(tmp_path / "nothing", "does not exist")

    def test_empty_folder(self, tmp_path: Path) -> None:
        self.check(tmp_path, "config.json")

    def test_other_architecture(self, model_root: Path, tmp_path: Path) -> None:
        folder = self.copy(model_root, tmp_path)
        (folder / "config.json").write_text(json.dumps({"model_type": "vit"}))
        self.check(folder, "'vit', which does not predict a next token")

    def test_a_gguf_file_that_is_none(self, tmp_path: Path) -> None:
        file = tmp_path / "model.gguf"
        self.check(file, "does not exist")
        file.write_bytes(b"GGUF" + bytes(40))
        self.check(file, "model.gguf")

    def test_broken_config(self, model_root: Path, tmp_path: Path) -> None:
        folder = self.copy(model_root, tmp_path)
        (folder / "config.json").write_text("{")
        self.check(folder, "config.json")

    def test_a_config_without_layers(self, model_root: Path, tmp_path: Path) -> None:
        folder = self.copy(model_root, tmp_path)
        config = json.loads((folder / "config.json").read_text())
        for layers in (0, -3):
            (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": layers}))
            self.check(folder, "no layers")

    def test_no_weights(self, model_root: Path, tmp_path: Path) -> None:
        folder = self.copy(model_root, tmp_path)
        (folder / "model.safetensors").unlink()
        self.check(folder, "weights")

    def test_no_weights_but_a_gguf_file_and_no_llama_cpp(
        self, model_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = self.copy(model_root, tmp_path)
        (folder / "model.safetensors").unlink()
        (folder / "q8.gguf").write_bytes(b"GGUF")
        monkeypatch.setitem(sys.modules, "llama_cpp", None)
        binding.library.cache_clear()
        try:
            for load in (load_draft, load_draft_tokenizer):
                with pytest.raises(ModelError, match=r"has no weights .*only q8\.gguf.*make setup-gguf") as caught:
                    load(folder)
                assert str(folder) in str(caught.value) and "\n" not in str(caught.value)
        finally:
            monkeypatch.undo()
            binding.library.cache_clear()

    def test_pickled_weights(self, model_root: Path, tmp_path: Path) -> None:
        folder = self.copy(model_root, tmp_path)
        (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
        self.check(folder, r"pytorch_model.bin, a pickle, which may run code: convert them to safetensors")

    def test_truncated_weights(self, model_root: Path, tmp_path: Path) -> None:
        folder = self.copy(model_root, tmp_path)
        data = (folder / "model.safetensors").read_bytes()
        (folder / "model.safetensors").write_bytes(data[: len(data) // 2])
        self.check(folder, "weights")

    def test_weights_of_some_layers_missing(self, model_root: Path, tmp_path: Path) -> None:
        from safetensors.torch import load_file, save_file

        folder = self.copy(model_root, tmp_path)
        weights = load_file(folder / "model.safetensors")
        weights.pop("model.layers.1.mlp.up_proj.weight")
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        self.check(folder, "incomplete")

    def test_no_tokenizer(self, model_root: Path, tmp_path: Path) -> None:
        folder = self.copy(model_root, tmp_path)
        for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
            (folder / name).unlink(missing_ok=True)
        self.check(folder, "tokenizer")

    def test_a_tokenizer_whose_merges_are_not_in_its_vocabulary(self, model_root: Path, tmp_path: Path) -> None:
        folder = self.copy(model_root, tmp_path)
        content = json.loads((folder / "tokenizer.json").read_text())
        content["model"]["merges"] = [["no such", "tokens"]]
        (folder / "tokenizer.json").write_text(json.dumps(content))
        self.check(folder, "no usable tokenizer .*out of vocabulary")

    @pytest.mark.parametrize("end, shown", [("x", "'x'"), ([[256]], r"\[256\]"), (True, "True")])
    def test_an_end_of_answers_that_is_no_token(
        self, model_root: Path, tmp_path: Path, end: object, shown: str
    ) -> None:
        folder = self.copy(model_root, tmp_path)
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": end}))
        self.check(folder, f"model has an eos_token_id of {shown}")

    def test_a_negative_end_of_answers_is_none(self, model_root: Path, tmp_path: Path) -> None:
        """As some published checkpoints have it; verifiers tell edges the ids, which are never negative."""
        folder = self.copy(model_root, tmp_path)
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": -1}))
        model = load_model(folder)
        assert not model.eos_token_ids
        assert len(generate_local(model, Prompt((5, 6)), GenerationOptions(4, min_new_tokens=2))) == 4

    def test_a_setting_of_another_type(self, model_root: Path, tmp_path: Path) -> None:
        folder = self.copy(model_root, tmp_path)
        settings = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**settings, "hidden_size": "wide"}))
        self.check(folder, "hidden_size.*wide")

    def test_bad_settings(self, model_root: Path) -> None:
        self.check(model_root / "text-target", "quantize", quantize="2bit")
        self.check(model_root / "text-target", "dtype", dtype="int8")
        self.check(model_root / "text-target", "device", device="abacus")


def test_shipped_models_are_found_by_their_names_from_any_directory(
    model_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "code" / "default_models" / "shipped"
    folder.parent.mkdir(parents=True)
    folder.symlink_to(model_root / "text-target")
    monkeypatch.setattr("specdec.downloads.DATA", tmp_path / "code")
    monkeypatch.chdir(tmp_path)
    name = "default_models/shipped"
    assert load_model(name).path == load_draft(name).path == str(folder)
    assert load_tokenizer(name).get_vocab() == load_draft_tokenizer(name).get_vocab()
    served: list[ServerConfig] = []
    monkeypatch.setattr("cloud_verifier.serving.serve", served.append)
    main(["--model", name])
    assert served[0].model == str(folder)
    (tmp_path / name).mkdir(parents=True)  # what lies here comes first
    with pytest.raises(ModelError, match=f"{name} has no config.json"):
        load_model(name)
