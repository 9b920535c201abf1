"""`deterministic`: in half precision a row's logits do not depend on what else is in its pass, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cloud_verifier.config import ServerConfig
from specdec.edge.decoder import EdgeDecoder
from specdec.errors import ModelError
from specdec.models import LoadedModel, Prompt, chat_prompt, load_model
from specdec.models.local import generate_local
from specdec.models.plans import extend_many
from specdec.options import GenerationOptions
from specnav.paths import DEFAULT_DRAFT, DEFAULT_TARGET, DEFAULT_TEXT_DRAFT, DEFAULT_TEXT_TARGET
from specnav.supervise.children import verifier_spec
from tests.helpers import shrunken
from tests.helpers import tiny_models as tiny
from tests.specdec.generic_models import build as build_other
from tests.specdec.wired import WiredLink

pytestmark = pytest.mark.slow

HALVES = ("bfloat16", "float16")
SAID = [5, 17, 6, 40, 8, 9, 33, 10, 11]


def prompts_of(model: LoadedModel) -> list[Prompt]:
    found = [chat_prompt(model, "walk past the table and the two chairs, then turn left")]
    if model.is_multimodal:
        found.append(chat_prompt(model, "what is it?", images=[tiny.picture(1)]))
    return found


@pytest.mark.parametrize("family", sorted(shrunken.BUILDERS))
def test_every_family_says_the_same_deterministically(family: str, tmp_path: Path) -> None:
    """Windows, norms of heads, several ropes, pictures: in float32 answers are those of the usual forward."""
    folder = shrunken.build(family, tmp_path / "target")
    usual, model = (load_model(folder, dtype="float32", deterministic=how) for how in (False, True))
    options = GenerationOptions(24, min_new_tokens=24)
    for prompt in prompts_of(usual):
        assert generate_local(model, prompt, options) == generate_local(usual, prompt, options)
        plain, invariant = (one.new_session() for one in (usual, model))
        with torch.inference_mode():
            for session, one in ((plain, usual), (invariant, model)):
                session.prefill(one.encode(prompt))
            rows = [session.extend_tree([5, 6, 7, 8], [-1, 0, 0, 1]) for session in (plain, invariant)]
        torch.testing.assert_close(*rows, rtol=0.0, atol=2e-4)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("family", ["gemma3_text", "qwen3_vl", "llama"])
def test_a_row_does_not_depend_on_what_shares_its_pass(family: str, dtype: str, tmp_path: Path) -> None:
    model = load_model(shrunken.build(family, tmp_path / "target"), dtype=dtype, deterministic=True)
    with torch.inference_mode():
        for prompt in prompts_of(model):
            alone, together, beside, other = (model.new_session() for _ in range(4))
            first = [session.prefill(model.encode(prompt)) for session in (alone, together, beside)]
            assert torch.equal(first[0], first[1])
            other.prefill(model.encode(prompts_of(model)[0]))
            steps = torch.cat([alone.extend([token]) for token in SAID])
            assert torch.equal(steps, together.extend(SAID))
            shared = extend_many([other.extension(SAID[:7]), beside.extension(SAID)])
            assert torch.equal(steps, shared[1])


@pytest.mark.parametrize("pair", [(DEFAULT_TEXT_TARGET, DEFAULT_TEXT_DRAFT), (DEFAULT_TARGET, DEFAULT_DRAFT)])
def test_chains_give_the_answers_of_one_token_a_pass(pair: tuple[Path, Path]) -> None:
    target = load_model(pair[0], dtype="bfloat16", deterministic=True)
    draft = load_model(pair[1])
    options = GenerationOptions(40, min_new_tokens=40)
    prompt = chat_prompt(target, "go to the red ball and stop")
    decoder = EdgeDecoder(WiredLink(target, draft, slowness=0.3, seed=2), draft, "sd+overlap:stream", gamma=5)
    got = [token for chunk in decoder.generate(prompt, options) for token in chunk]
    assert got == generate_local(target, prompt, options)


def test_what_cannot_be_deterministic_says_so(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="never deterministic"):
        load_model(build_other("gpt2", tmp_path / "gpt2"), deterministic=True)
    assert "--deterministic" in verifier_spec(ServerConfig("m", deterministic=True), {}).argv
