"""llama.cpp cuts text up as the folder's tokenizer does, whichever kind that is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import gguf
import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, processors

from specdec.models import load_tokenizer
from specdec.models.gguf_header import read_header
from specnav.convert.run import ConvertConfig, run_convert
from tests.helpers import tiny_models as tiny

pytestmark = pytest.mark.slow

DEFAULTS = Path(__file__).resolve().parents[2] / "default_models"
TEXTS = (
    "Walk to the red ball, then turn left 90 degrees.",
    "def f(x):\n    return x**2  # 123",
    "<|im_end|>Ünï\n\n\n  x",
    "don't I'll",
)


def converted(folder: Path, out: Path) -> Path:
    assert run_convert(ConvertConfig(folder, "q8_0", out)) == 0
    return out


def of_llama_cpp(path: Path) -> Any:
    from llama_cpp import Llama

    return Llama(str(path), n_ctx=32, verbose=False)


@pytest.mark.gguf
@pytest.mark.parametrize("name", ["text-draft", "nav-draft"])
def test_byte_level_tokenizers(name: str, tmp_path: Path) -> None:
    model = of_llama_cpp(converted(DEFAULTS / name, tmp_path / "m.gguf"))
    right = load_tokenizer(DEFAULTS / name).backend_tokenizer
    for text in TEXTS:
        assert model.tokenize(text.encode(), add_bos=False, special=True) == right.encode(text).ids


def with_scores(folder: Path) -> Tokenizer:
    """Give a folder a tokenizer as Llama 2 has it: spaces as letters, unknown ones as bytes, an id in front."""
    from transformers import PreTrainedTokenizerFast

    merges = [("▁", "t"), ("h", "e"), ("▁t", "he"), ("▁", "w"), ("▁w", "a")]
    known = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        *map("".join, merges),
        *"▁thewalko",
    ]
    vocabulary = {token: index for index, token in enumerate(dict.fromkeys(known))}
    backend = Tokenizer(
        models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (folder / name).unlink(missing_ok=True)
    whole = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    whole.save_pretrained(folder)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 2}))
    return backend


@pytest.mark.gguf
def test_tokenizers_that_fall_back_to_bytes(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny.built_pairs() / "text-target", tmp_path / "model"))
    right = with_scores(folder)
    path = converted(folder, tmp_path / "m.gguf")
    model = of_llama_cpp(path)
    for text in ("the walk to", "walk the ü two", "the"):
        assert model.tokenize(text.encode(), add_bos=True, special=True) == right.encode(text).ids
    data = read_header(path).metadata
    kinds = [gguf.TokenType(kind).name for kind in data["tokenizer.ggml.token_type"]]
    assert kinds[:4] == ["CONTROL", "CONTROL", "CONTROL", "BYTE"] and kinds[-1] == "UNUSED"
    assert data["tokenizer.ggml.add_bos_token"] and data["tokenizer.ggml.bos_token_id"] == 1
    assert json.loads(data["specnav.eos_token_ids"]) == [2] and "tokenizer.chat_template" not in data
