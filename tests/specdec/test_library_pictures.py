"""Models without a forward of ours take pictures, too: what the library's `generate` says, in every shape of draft."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from specdec.edge.decoder import EdgeDecoder
from specdec.errors import ModelError
from specdec.models import LoadedModel, Prompt, chat_prompt, load_model
from specdec.models.local import generate_local
from specdec.models.plans import Extension, extend_many
from specdec.options import GenerationOptions
from tests.helpers import tiny_models as tiny
from tests.specdec import seeing_elsewhere
from tests.specdec.wired import WiredLink

pytestmark = pytest.mark.slow

LONG = "Walk past the table and the two chairs, then turn left at the door."
TOKENS = 20
CLOSE = {"rtol": 0.0, "atol": 2e-4}
OVER_A_LINK = [
    ("llava", "sd"),
    ("idefics3", "sd+tree:8x3"),
    ("gemma3", "fsd"),
    ("glm4v", "auto"),
    ("glm4v", "sd"),
]


@pytest.fixture(scope="module", params=tuple(seeing_elsewhere.BUILDERS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def folder(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return seeing_elsewhere.build(kind, tmp_path_factory.mktemp(kind) / "target")


@pytest.fixture(scope="module")
def model(folder: Path) -> LoadedModel:
    return load_model(folder)


def prompts_of(model: LoadedModel) -> list[Prompt]:
    one, other = tiny.picture(1), tiny.picture(2, 112, 224)
    found = [chat_prompt(model, LONG), chat_prompt(model, "what is it?", images=[one])]
    return [*found, chat_prompt(model, ["one", one, "two ", other, LONG])]


def library_answer(model: LoadedModel, prompt: Prompt) -> list[int]:
    encoded = model.encode(prompt)
    found = model.hf_model.generate(
        input_ids=encoded.ids[None], **(encoded.extras or {}), do_sample=False, max_new_tokens=TOKENS
    )[0, len(encoded.ids) :].tolist()
    return found[:-1] if found[-1] in model.eos_token_ids else found


@torch.inference_mode()
def row_after(model: LoadedModel, prompt: Prompt, said: Sequence[int]) -> Tensor:
    """The library's logits [vocab] after a prompt and an answer, in one pass without a cache."""
    encoded = model.encode(prompt)
    length = len(encoded.ids)
    extras = {
        name: torch.nn.functional.pad(value, (0, len(said))) if value.shape == (1, length) else value
        for name, value in (encoded.extras or {}).items()
    }
    if hasattr(model.hf_model.model, "rope_deltas"):
        model.hf_model.model.rope_deltas = None
    ids = torch.cat([encoded.ids, torch.tensor(list(said), dtype=torch.long)])[None]
    row: Tensor = model.hf_model(input_ids=ids, **extras, use_cache=False).logits[0, -1, : model.vocab_size]
    return row.float()


def test_greedy_ids_equal_the_librarys_and_pictures_matter(model: LoadedModel) -> None:
    answers = [library_answer(model, prompt) for prompt in prompts_of(model)]
    for prompt, right in zip(prompts_of(model), answers, strict=True):
        assert len(set(right)) > 3
        assert generate_local(model, prompt, GenerationOptions(TOKENS)) == right
    asked = prompts_of(model)[1]
    assert library_answer(model, Prompt(asked.ids, (tiny.picture(7),))) != answers[1]


@pytest.mark.parametrize("kind", ["llava", "idefics3", "gemma3"], indirect=True, scope="module")
def test_ids_and_pixels_are_those_of_the_librarys_processor(
    kind: str, folder: Path, model: LoadedModel
) -> None:
    from transformers import Gemma3Processor, Idefics3Processor, LlavaProcessor

    from specdec.pictures.decoding import decode_image

    own = {"llava": LlavaProcessor, "idefics3": Idefics3Processor, "gemma3": Gemma3Processor}[kind]
    processor = own.from_pretrained(folder)
    for prompt in prompts_of(model)[1:]:
        text = processor.tokenizer.decode(prompt.ids)
        images = [decode_image(data) for data in prompt.images]
        right = processor(text=[text], images=[images], return_tensors="pt", add_special_tokens=False)
        encoded = model.encode(prompt)
        assert encoded.ids.tolist() == right["input_ids"][0].tolist()
        for name, value in (encoded.extras or {}).items():
            torch.testing.assert_close(value, right[name], rtol=0, atol=0)


def test_rows_after_going_back_and_along_branches_are_the_librarys(model: LoadedModel) -> None:
    for prompt in prompts_of(model):
        session = model.new_session()
        session.prefill(model.encode(prompt))
        session.extend([5, 6, 7, 8])
        session.rollback(session.length - 2)
        rows = session.extend([9, 10])
        torch.testing.assert_close(rows[1], row_after(model, prompt, (5, 6, 9, 10)), **CLOSE)
        tree = session.extend_tree([11, 12, 13, 14, 15], [-1, 0, 0, 2, -1])
        for row, path in zip(tree, [(11,), (11, 12), (11, 13), (11, 13, 14), (15,)], strict=True):
            torch.testing.assert_close(row, row_after(model, prompt, (5, 6, 9, 10, *path)), **CLOSE)
        session.keep_path([0, 2], [3])
        session.rollback(session.length - 6)  # to the prompt's end
        row = session.extend([21])
        torch.testing.assert_close(row[0], row_after(model, prompt, (21,)), **CLOSE)


def test_sessions_with_other_pictures_side_by_side_do_not_touch_each_other(model: LoadedModel) -> None:
    prompts = prompts_of(model)
    sessions = [model.new_session() for _ in prompts]
    for session, prompt in zip(sessions, prompts, strict=True):
        session.prefill(model.encode(prompt))
    for step in range(2):
        for session, prompt in zip(sessions, prompts, strict=True):
            row = session.extend([30 + step])[0]
            torch.testing.assert_close(row, row_after(model, prompt, range(30, 31 + step)), **CLOSE)


def test_a_prompt_that_an_engine_cuts_into_parts_goes_in_as_a_whole(model: LoadedModel) -> None:
    for prompt in prompts_of(model):
        encoded = model.encode(prompt)
        session = model.new_session()
        session.start(encoded)
        rest: Extension | None = Extension(session, hidden=session.prompt_input(encoded), last_only=True)
        while rest is not None:
            part, rest = rest.divide(9) if rest.rows > 9 else (rest, None)
            (row,) = extend_many([part])
        torch.testing.assert_close(row[0], row_after(model, prompt, ()), **CLOSE)
        torch.testing.assert_close(session.extend([9])[0], row_after(model, prompt, (9,)), **CLOSE)


@pytest.mark.parametrize(("kind", "method"), OVER_A_LINK, indirect=["kind"], scope="module")
def test_methods_answer_like_the_target_alone(
    folder: Path, model: LoadedModel, method: str, tmp_path: Path
) -> None:
    draft = load_model(tiny.noisy_copy(folder, tmp_path / "draft", 0.02))
    decoder = EdgeDecoder(WiredLink(model, slowness=0.3), draft, method)
    for prompt in prompts_of(model):
        chunks = decoder.generate(prompt, GenerationOptions(TOKENS))
        assert [token for chunk in chunks for token in chunk] == library_answer(model, prompt)
        drafted = sum(one.drafted for one in decoder.stats.rounds)
        assert method == "auto" or drafted > 0


@pytest.mark.parametrize("kind", ["llava"], indirect=True, scope="module")
def test_two_sides_of_other_families_see_a_picture_each_in_its_own_way(
    model: LoadedModel, tmp_path: Path
) -> None:
    other = load_model(tiny.build_qwen2vl(tmp_path / "other"))
    asked = chat_prompt(other, "what is it?", images=[tiny.picture(1)])
    assert len(other.encode(asked).ids) != len(model.encode(asked).ids)
    for target, draft in ((model, other), (other, model)):
        chunks = EdgeDecoder(WiredLink(target), draft, "sd").generate(asked, GenerationOptions(TOKENS))
        said = [token for chunk in chunks for token in chunk]
        assert said == generate_local(target, asked, GenerationOptions(TOKENS))


@pytest.mark.parametrize("kind", ["glm4v"], indirect=True, scope="module")
def test_large_pictures_are_scaled_down_and_too_many_are_refused_before_they_are_decoded(
    folder: Path, model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = load_model(folder, pixels=56 * 56)
    asked = chat_prompt(model, "what is it?", images=[tiny.picture(1, 224, 224)])
    assert len(small.encode(asked).ids) < len(model.encode(asked).ids) == model.prompt_length(asked)
    assert model.never_drafted >= {model.image_pad_id, model.tokenizer.convert_tokens_to_ids("<|video_pad|>")}
    many = chat_prompt(model, "what are they?", images=[tiny.picture(1, 224, 224)] * 200)

    def decode(data: bytes) -> None:
        raise AssertionError("it was decoded")

    monkeypatch.setattr("specdec.pictures.decoding.decode_image", decode)
    with pytest.raises(ModelError, match=r"tokens and .* takes 1024"):
        model.encode(many)


@pytest.mark.parametrize("kind", ["llava"], indirect=True, scope="module")
def test_what_is_missing_for_pictures_is_said_in_one_line(
    folder: Path, model: LoadedModel, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blind = shutil.copytree(folder, tmp_path / "blind")
    for name in ("preprocessor_config.json", "processor_config.json"):
        (blind / name).unlink(missing_ok=True)
    with caplog.at_level(logging.WARNING, "specdec.models"):
        lacking = load_model(blind)
    (said,) = [record.getMessage() for record in caplog.records]
    assert "without pictures (its processor cannot be created: " in said and "\n" not in said
    asked = chat_prompt(model, "what is it?", images=[tiny.picture(1)])
    with pytest.raises(ModelError, match="takes no images: its processor cannot be created") as refused:
        lacking.encode(asked)
    assert "\n" not in str(refused.value)
    text = chat_prompt(model, LONG)
    assert generate_local(lacking, text, GenerationOptions(8)) == generate_local(
        model, text, GenerationOptions(8)
    )
    with pytest.raises(ModelError, match="0 image placeholders but 1 image"):
        model.encode(Prompt((1, 2), (tiny.picture(1),)))
