"""`compile`: in float32 a compiled target says what it says uncompiled, however it is drafted for; compiled once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from cloud_verifier.config import ServerConfig
from specdec.edge.decoder import EdgeDecoder
from specdec.errors import ModelError
from specdec.models import LoadedModel, chat_prompt, load_model
from specdec.models.local import generate_local
from specdec.options import GenerationOptions
from specnav.supervise.children import verifier_spec
from tests.helpers import tiny_models as tiny
from tests.helpers.servers import Pair
from tests.specdec.wired import WiredLink

ASKED = "what is seven times eight?"
PIECES, VARIANTS = 3, 2


@pytest.fixture(scope="module")
def compiled() -> Iterator[LoadedModel]:
    torch._dynamo.reset()
    yield load_model(tiny.built_pairs() / "text-target", dtype="float32", compile=True)
    torch._dynamo.reset()


@pytest.mark.slow
def test_a_compiled_target_gives_the_same_answers_and_is_compiled_no_more(
    compiled: LoadedModel, text_pair: Pair
) -> None:
    usual, draft = text_pair.target, text_pair.draft
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    assert graphs == PIECES * VARIANTS
    options = GenerationOptions(40)
    prompt = chat_prompt(usual, ASKED)
    expected = generate_local(usual, prompt, options)
    assert generate_local(compiled, prompt, options) == expected
    for method in ("sd", "fsd", "sd+tree:12x4", "split"):
        link = WiredLink(compiled, draft, slowness=0.3, seed=2)
        front = compiled if method == "split" else None
        decoder = EdgeDecoder(link, draft, method, gamma=4, front_model=front)
        assert [token for chunk in decoder.generate(prompt, options) for token in chunk] == expected, method
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs, (
        "compiled again while it was used"
    )


@pytest.mark.slow
def test_compiled_logits_are_near(compiled: LoadedModel, text_pair: Pair) -> None:
    prompt = chat_prompt(text_pair.target, ASKED)
    rows = []
    for model in (text_pair.target, compiled):
        session = model.new_session()
        first = session.prefill(model.encode(prompt))
        rows.append(
            torch.cat([first[None], session.extend([5, 6, 7]), session.extend_tree([8, 9, 10], [-1, 0, 0])])
        )
    torch.testing.assert_close(*rows, rtol=0.0, atol=1e-4)


def test_without_a_compiler_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specdec.models.layers.compiled.shutil.which", lambda name: None)
    with pytest.raises(ModelError, match=r"needs a C\+\+ compiler and none was found"):
        load_model(tiny.built_pairs() / "text-target", compile=True)


def test_what_cannot_be_compiled_says_so() -> None:
    for setting in ({"deterministic": True}, {"quantize": "8bit"}):
        with pytest.raises(ModelError, match="cannot be compiled: choose one of the two"):
            load_model("anything", compile=True, **setting)


def test_a_verifier_is_told_on_its_command_line() -> None:
    assert "--compile" in verifier_spec(ServerConfig("m", compile=True), {}).argv
