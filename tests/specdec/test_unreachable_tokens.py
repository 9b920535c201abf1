"""A tokenizer with a padding token for which the embedding has no row: such an id is never said, and does not count."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from cloud_verifier.errors import VerifierError
from cloud_verifier.loading import check_pair
from specdec.edge.decoder import EdgeDecoder
from specdec.edge.protocol import check_vocabulary
from specdec.errors import ModelError
from specdec.link.wire import Welcome
from specdec.models import LoadedModel, chat_prompt, load_model
from specdec.models.loaded import fingerprint, first_difference, speaks
from specdec.models.local import generate_local
from specdec.options import GenerationOptions
from tests.helpers import drafts
from tests.helpers import tiny_models as tiny
from tests.helpers.servers import Pair
from tests.specdec.wired import WiredLink

ROWS = 264
"""Of the embedding here: the tokens of the tiny models, and nothing that fills it up."""


def without_padding(source: str | Path, folder: Path, *added: str) -> Path:
    """A model whose embedding has just the rows of its tokens, and a tokenizer with more."""
    shutil.copytree(source, folder)
    weights = load_file(folder / "model.safetensors")
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        weights[name] = weights[name][:ROWS].clone()
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": ROWS}))
    tokenizer = tiny.make_tokenizer()
    assert len(tokenizer) == ROWS
    if added:
        tokenizer.add_special_tokens({"pad_token": added[0]})
        tokenizer.add_tokens(list(added[1:]))
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def plain(text_pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_model(without_padding(text_pair.target.path, tmp_path_factory.mktemp("plain") / "target"))


@pytest.fixture(scope="module")
def padded(text_pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_model(
        without_padding(text_pair.draft.path, tmp_path_factory.mktemp("padded") / "draft", "<pad>", "<tool>")
    )


def test_they_are_left_out_and_a_pair_works(plain: LoadedModel, padded: LoadedModel) -> None:
    assert len(padded.tokenizer) == ROWS + 2 and padded.vocab_size == plain.vocab_size == ROWS
    assert padded.vocabulary_fingerprint == plain.vocabulary_fingerprint
    check_pair(padded, plain)
    prompt = chat_prompt(plain, "the quick brown fox")
    answer = EdgeDecoder(WiredLink(plain, None), padded, "sd").generate(prompt, GenerationOptions(12))
    assert [token for chunk in answer for token in chunk] == generate_local(
        plain, prompt, GenerationOptions(12)
    )


def test_grammars_work_with_them(padded: LoadedModel) -> None:
    options = GenerationOptions(20, grammar='start: "yes" | "no"')
    answer = generate_local(padded, chat_prompt(padded, "well?"), options)
    assert padded.tokenizer.decode(answer) in ("yes", "no")


def test_equal_vocabularies_have_the_fingerprint_they_always_had(
    text_pair: Pair, padded: LoadedModel
) -> None:
    def earlier(model: LoadedModel) -> bytes:
        return fingerprint({index: token for token, index in model.tokenizer.get_vocab().items()})

    assert text_pair.target.vocabulary_fingerprint == earlier(text_pair.target)
    assert padded.vocabulary_fingerprint != earlier(padded)
    assert speaks(padded, earlier(padded)) and not speaks(text_pair.target, earlier(padded))


def test_a_greeting_says_what_differs(padded: LoadedModel, plain: LoadedModel) -> None:
    def refusal(size: int, vocabulary: bytes) -> str:
        with pytest.raises(ModelError) as error:
            check_vocabulary(Welcome(1, "there", size, vocabulary), padded)
        return str(error.value)

    assert "both have 264 tokens, which are not the same" in refusal(ROWS, b"another!")
    assert "the draft has 264 tokens and the target 300" in refusal(300, b"another!")
    shorter = fingerprint({index: token for index, token in plain.tokens.items() if index < 263})
    assert "only the draft has token 263, '<|video_pad|>'" in refusal(263, shorter)


def test_two_models_at_hand_tell_their_first_difference(
    plain: LoadedModel, text_pair: Pair, tmp_path: Path
) -> None:
    folder = without_padding(text_pair.draft.path, tmp_path / "draft")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_text((folder / name).read_text().replace("<|vision_pad|>", "<|the_pad|>"))
    other = load_model(folder)
    index = plain.tokenizer.convert_tokens_to_ids("<|vision_pad|>")
    said = f"token {index} is '<|the_pad|>' in {folder} and '<|vision_pad|>' in {plain.path}"
    assert first_difference(other, plain) == said
    with pytest.raises(VerifierError, match="different vocabularies") as error:
        check_pair(other, plain)
    assert said in str(error.value)


@pytest.mark.slow
@pytest.mark.gguf
def test_a_converted_file_is_taken_back(padded: LoadedModel, plain: LoadedModel) -> None:
    draft = drafts.load_draft(drafts.gguf_of(Path(padded.path)), gguf=drafts.EXACT)
    assert draft.vocab_size == ROWS and draft.vocabulary_fingerprint == plain.vocabulary_fingerprint
    check_pair(draft, plain)
