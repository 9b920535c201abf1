"""Every family on our own forward gives what the library's forward gives: chains, trees, batches, pictures, methods."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from specdec.drafting import DraftModel
from specdec.drafting.memory import PromptMemory
from specdec.edge.decoder import EdgeDecoder
from specdec.errors import ModelError
from specdec.models import LoadedModel, Prompt, chat_prompt, load_model
from specdec.models.families import FAMILIES
from specdec.models.local import generate_local
from specdec.models.plans import Extension, carry_out, extend_many
from specdec.models.split import FrontPart
from specdec.options import GenerationOptions
from tests.helpers import shrunken
from tests.helpers import tiny_models as tiny
from tests.helpers.servers import Pair
from tests.specdec.wired import WiredLink

pytestmark = pytest.mark.slow

LONG = "Walk past the table and the two chairs, then turn left at the door."
TOKENS = 40
CLOSE = {"rtol": 0.0, "atol": 2e-4}
SEEING = tuple(name for name in shrunken.BUILDERS if FAMILIES[name].vision)


@pytest.fixture(scope="module", params=tuple(shrunken.BUILDERS))
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def folder(family: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shrunken.build(family, tmp_path_factory.mktemp(family) / "target")


@pytest.fixture(scope="module")
def model(folder: Path) -> LoadedModel:
    return load_model(folder)


def test_every_family_is_among_these() -> None:
    assert set(FAMILIES) == {
        *shrunken.BUILDERS,
        "qwen2_vl",
    }  # the default pair and most other tests are of that


def prompts_of(model: LoadedModel) -> list[Prompt]:
    found = [chat_prompt(model, text) for text in ("hi", LONG)]
    if model.is_multimodal:
        pictures = [tiny.picture(1), tiny.picture(2, 112, 224)]
        found.append(chat_prompt(model, "what is it?", images=pictures[:1]))
        found.append(chat_prompt(model, ["one ", pictures[0], " two ", pictures[1], LONG]))
    return found


def inputs_of(model: LoadedModel, prompt: Prompt) -> dict[str, Tensor]:
    """What the library's model takes for a prompt."""
    encoded = model.encode(prompt)
    inputs = {"input_ids": encoded.ids[None]}
    if encoded.grids is not None:
        inputs |= {"pixel_values": encoded.pixel_values, "image_grid_thw": encoded.grids}
        inputs["mm_token_type_ids"] = (encoded.ids == model.image_pad_id).int()[None]
    return inputs


@torch.inference_mode()
def row_after(model: LoadedModel, prompt: Prompt, said: Sequence[int]) -> Tensor:
    """The library's logits [vocab] after a prompt and an answer, in one pass without a cache."""
    inputs = inputs_of(model, prompt)
    inputs["input_ids"] = torch.cat([inputs["input_ids"], torch.tensor([list(said)], dtype=torch.long)], 1)
    if "mm_token_type_ids" in inputs:
        inputs["mm_token_type_ids"] = (inputs["input_ids"] == model.image_pad_id).int()
        model.hf_model.model.rope_deltas = None
    row: Tensor = model.hf_model(**inputs).logits[0, -1, : model.vocab_size]
    return row.float()


def test_greedy_ids_equal_the_librarys(model: LoadedModel) -> None:
    for prompt in prompts_of(model):
        inputs = inputs_of(model, prompt)
        found = model.hf_model.generate(**inputs, do_sample=False, max_new_tokens=TOKENS)
        right = found[0, inputs["input_ids"].shape[1] :].tolist()
        ended = right[:-1] if right[-1] in model.eos_token_ids else right
        assert len(set(ended)) > 3, "an answer that says little shows little"
        assert generate_local(model, prompt, GenerationOptions(TOKENS)) == ended


def test_trees_and_what_is_kept_of_them_see_what_the_library_sees(model: LoadedModel) -> None:
    ids, parents = [5, 6, 7, 8, 9, 10], [-1, 0, 0, 1, -1, 3]
    paths = [(5,), (5, 6), (5, 7), (5, 6, 8), (9,), (5, 6, 8, 10)]
    for prompt in prompts_of(model):
        session = model.new_session()
        session.prefill(model.encode(prompt))
        session.extend([11, 12])
        rows = session.extend_tree(ids[:4], parents[:4])
        rows = torch.cat([rows, session.extend_tree(ids[4:], parents[4:])])
        for row, path in zip(rows, paths, strict=True):
            torch.testing.assert_close(row, row_after(model, prompt, (11, 12, *path)), **CLOSE)
        session.keep_path([0, 1, 3], [5])
        kept = session.extend_tree([13], [0])
        torch.testing.assert_close(kept[0], row_after(model, prompt, (11, 12, 5, 6, 8, 10, 13)), **CLOSE)
        session.rollback(session.length - 2)
        back = session.extend([20, 21, 22])
        torch.testing.assert_close(back[2], row_after(model, prompt, (11, 12, 5, 20, 21, 22)), **CLOSE)


def test_what_the_last_prompt_began_with_need_not_be_fed_again(model: LoadedModel) -> None:
    memory = PromptMemory(model)
    for prompt in (first := prompts_of(model)) + [Prompt((*one.ids[:-2], 9), one.images) for one in first] * 2:
        cursor = DraftModel(model, GenerationOptions(9), memory).cursor
        row = carry_out(cursor.prefill.plan(memory.prepare(prompt)))
        memory.fed()
        torch.testing.assert_close(row, model.new_session().prefill(model.encode(prompt)), **CLOSE)
        cursor.rows([7, 8])
    assert memory.taken_over > 20


def test_sessions_that_share_forwards_get_what_each_gets_alone(model: LoadedModel) -> None:
    prompts = prompts_of(model)
    sessions = [model.new_session() for _ in prompts]
    needs = []
    for prompt, session in zip(prompts, sessions, strict=True):
        encoded = model.encode(prompt)
        session.start(encoded)
        needs.append(Extension(session, hidden=model.embed_prompt(encoded), last_only=True))
    with torch.inference_mode():
        parts = [
            need.divide(7) for need in needs[1:]
        ]  # prompts in two chunks, beside a whole one and each other
        first = extend_many([needs[0], *(part for part, _ in parts)])
        others = extend_many([sessions[0].extension([5, 6], [-1, -1]), *(part for _, part in parts)])
    torch.testing.assert_close(first[0][0], row_after(model, prompts[0], ()), **CLOSE)
    torch.testing.assert_close(others[0][1], row_after(model, prompts[0], (6,)), **CLOSE)
    for prompt, rows in zip(prompts[1:], others[1:], strict=True):
        torch.testing.assert_close(rows[0], row_after(model, prompt, ()), **CLOSE)


@pytest.mark.parametrize("method", ["fsd", "split"])
def test_methods_answer_like_the_target_alone(
    family: str, folder: Path, model: LoadedModel, method: str
) -> None:
    draft_folder = folder.parent / "draft"
    if not draft_folder.exists():
        tiny.noisy_copy(folder, draft_folder, 0.01)
    pair = Pair(model, load_model(draft_folder))
    options = GenerationOptions(TOKENS)
    front = pair.target if method == "split" else None
    decoder = EdgeDecoder(WiredLink(pair.target, slowness=0.3), pair.draft, method, front_model=front)
    for prompt in prompts_of(model):
        if method == "split" and FAMILIES[family].deepstack and prompt.images:
            continue  # one layer in front, and pictures go into two
        answer = [token for chunk in decoder.generate(prompt, options) for token in chunk]
        assert answer == generate_local(model, prompt, options)


@pytest.mark.parametrize("kind", ["sliding_attention", "full_attention"])
def test_a_gemma_with_layers_of_one_kind_answers_like_the_librarys(tmp_path: Path, kind: str) -> None:
    """As a draft of a target's first layers has them."""
    folder = shrunken.build("gemma3_text", tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    config["layer_types"] = [kind] * len(config["layer_types"])
    (folder / "config.json").write_text(json.dumps(config))
    test_greedy_ids_equal_the_librarys(load_model(folder))


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_a_gemma_whose_ropes_change_with_the_length_runs_on_the_librarys_forward(tmp_path: Path, kind: str) -> None:
    """It has a rope for each type of layers."""
    folder = shrunken.build("gemma3_text", tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    factors = {"short_factor": [1.0] * 16, "long_factor": [8.0] * 16, "original_max_position_embeddings": 128}
    changes = {"rope_type": kind, "factor": 8.0} | (factors if kind == "longrope" else {})
    config["rope_parameters"]["full_attention"] |= changes
    config["max_position_embeddings"] = 240  # our tables of ropes are longer
    (folder / "config.json").write_text(json.dumps(config))
    model = load_model(folder)
    prompt = chat_prompt(model, "hi")
    found = model.hf_model.generate(torch.tensor([prompt.ids]), do_sample=False, use_cache=False, max_new_tokens=TOKENS)
    right = found[0, len(prompt.ids) :].tolist()
    ended = right[:-1] if right[-1] in model.eos_token_ids else right
    assert generate_local(model, prompt, GenerationOptions(TOKENS)) == ended
    assert not model.runner.keeps_cache


def test_a_split_within_the_layers_that_pictures_go_into_is_refused(tmp_path: Path) -> None:
    model = load_model(shrunken.build("qwen3_vl", tmp_path / "model"))
    with pytest.raises(ModelError, match="pictures are added in the first 2 layers"):
        FrontPart(model, 1).prefill(prompts_of(model)[2], ())
    front = FrontPart(model, 2).prefill(prompts_of(model)[2], ())
    assert len(front) == 4 * 64 * model.encode(prompts_of(model)[2]).ids.shape[0]
