"""Models without a forward of ours run on the library's: the same answers, rollback included, and clear refusals."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from specdec.edge.decoder import EdgeDecoder
from specdec.errors import ModelError, OptionsError
from specdec.models import LoadedModel, Prompt, chat_prompt, load_model
from specdec.models.local import generate_local
from specdec.models.split import FrontPart
from specdec.options import GenerationOptions
from specdec.verifying.exits import load_exits
from tests.helpers import tiny_models as tiny
from tests.specdec.generic_models import BUILDERS, build
from tests.specdec.wired import WiredLink

pytestmark = pytest.mark.slow

LONG = "Walk past the table and the two chairs, then turn left at the door."
TOKENS = 16
WITHOUT_CACHE = ("phi3", "mamba")
METHODS = [
    ("gpt2", method) for method in ("ar", "sd", "fsd", "cloud-sd", "dsd", "specedge", "sd+tree:8x3", "auto")
]
METHODS += [("gemma2", "sd+tree:8x3"), ("mixtral", "fsd"), ("phi3", "sd+tree:8x3"), ("mamba", "sd")]
METHODS += [("phi3", "sd")]


@pytest.fixture(scope="module", params=tuple(BUILDERS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def folder(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(kind, tmp_path_factory.mktemp(kind) / "target")


@pytest.fixture(scope="module")
def model(folder: Path) -> LoadedModel:
    return load_model(folder)


@pytest.fixture(scope="module")
def draft(folder: Path) -> LoadedModel:
    return load_model(tiny.noisy_copy(folder, folder.parent / "draft", 0.02))


def library_answer(model: LoadedModel, text: str) -> list[int]:
    ids = torch.tensor([chat_prompt(model, text).ids])
    found = model.hf_model.generate(ids, do_sample=False, max_new_tokens=TOKENS)[0, ids.shape[1] :].tolist()
    return found[:-1] if found[-1] in model.eos_token_ids else found


def test_greedy_ids_equal_the_librarys_and_one_line_says_how_it_runs(
    kind: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "specdec.models"):
        model = load_model(folder)
    (said,) = [record.getMessage() for record in caplog.records]
    assert "transformers' own forward" in said and "\n" not in said
    assert ("no cache to roll back" in said) == (kind in WITHOUT_CACHE) == (not model.runner.keeps_cache)
    for text in ("hi", LONG):
        right = library_answer(model, text)
        assert len(set(right)) > 3
        assert generate_local(model, chat_prompt(model, text), GenerationOptions(TOKENS)) == right


@torch.inference_mode()
def row_after(model: LoadedModel, ids: Sequence[int]) -> torch.Tensor:
    row: torch.Tensor = model.hf_model(torch.tensor([list(ids)]), use_cache=False).logits[
        0, -1, : model.vocab_size
    ]
    return row.float()


def test_rows_after_going_back_and_along_branches_are_the_librarys(model: LoadedModel) -> None:
    prompt = chat_prompt(model, LONG)
    session = model.new_session()
    session.prefill(model.encode(prompt))
    session.extend([5, 6, 7, 8])
    session.rollback(session.length - 2)
    rows = session.extend([9, 10])
    torch.testing.assert_close(rows[1], row_after(model, (*prompt.ids, 5, 6, 9, 10)), rtol=0, atol=2e-4)
    tree = session.extend_tree([11, 12, 13, 14, 15], [-1, 0, 0, 2, -1])
    paths = [(11,), (11, 12), (11, 13), (11, 13, 14), (15,)]
    for row, path in zip(tree, paths, strict=True):
        right = row_after(model, (*prompt.ids, 5, 6, 9, 10, *path))
        torch.testing.assert_close(row, right, rtol=0, atol=2e-4)
    session.keep_path([0, 2], [3])
    grown = session.extend_tree([16], [0])
    right = row_after(model, (*prompt.ids, 5, 6, 9, 10, 11, 13, 14, 16))
    torch.testing.assert_close(grown[0], right, rtol=0, atol=2e-4)
    session.evict()
    row = session.prefill(model.encode(prompt))
    torch.testing.assert_close(row, row_after(model, prompt.ids), rtol=0, atol=2e-4)


@pytest.mark.parametrize(("kind", "method"), METHODS, indirect=["kind"], scope="module")
def test_methods_answer_like_the_target_alone(
    model: LoadedModel, draft: LoadedModel, method: str
) -> None:
    options = GenerationOptions(TOKENS)
    decoder = EdgeDecoder(WiredLink(model, draft, slowness=0.3), draft, method)
    for text in ("hi", LONG):
        answer = [token for chunk in decoder.generate(chat_prompt(model, text), options) for token in chunk]
        assert answer == library_answer(model, text)
        assert method in ("ar", "auto") or sum(one.drafted for one in decoder.stats.rounds) > 0


def test_splits_pictures_and_exits_are_refused_in_one_line(tmp_path: Path) -> None:
    model = load_model(build("gpt2", tmp_path / "target"))
    with pytest.raises(OptionsError, match="cannot be split"):
        FrontPart(model)
    with pytest.raises(ModelError, match="takes no images"):
        model.encode(Prompt((1, 2), (tiny.picture(1),)))
    with pytest.raises(ModelError, match="has no exits"):
        load_exits(tmp_path, model)
