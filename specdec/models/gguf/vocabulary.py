# SPDX-License-Identifier: Apache-2.0
"""The vocabulary of a GGUF file, and a tokenizer for it.

The file's token list is authoritative. A tokenizer beside the file, or stored in it under `tokenizer.huggingface.json`,
must have exactly these tokens. Without either, the library builds a tokenizer from the list.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from specdec.errors import ModelError
from specdec.models.direct.tokenizer import DirectTokenizer
from specdec.models.gguf.binding import LlamaModel

WHOLE = "tokenizer.huggingface.json"
TEMPLATE = "tokenizer.chat_template"
ROLES, ENDS = "specnav.special_tokens", "specnav.eos_token_ids"
"""Keys in files that we have made: special tokens by role, and the ids that end an answer."""
_NAMED = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
"""llama.cpp's names of the special tokens that chat templates use."""

T = TypeVar("T")


class GgufVocabulary:
    """The tokens of a file, without padding tokens. size: largest id + 1. rows: rows of the embedding."""

    def __init__(self, tokens: Mapping[int, str], rows: int) -> None:
        self.tokens = tokens
        self.size = max(tokens) + 1
        self.rows = rows

    def check(self, tokenizer: Any, whose: str) -> None:
        """Raise ModelError unless a tokenizer has exactly these tokens, apart from ids beyond the embedding."""
        others = {index: token for token, index in tokenizer.get_vocab().items() if index < self.rows}
        for index in sorted(self.tokens.keys() | others.keys()):
            mine, other = self.tokens.get(index), others.get(index)
            if mine != other:
                raise ModelError(
                    f"token {index} is {mine!r} in the GGUF file and {other!r} in {whose}: they belong to two models"
                )


def tokenizer_for(model: LlamaModel, path: Path, vocabulary: GgufVocabulary) -> Any:
    """A tokenizer for the file at `path`. Raises ModelError if there is none, or if its tokens differ."""
    from specdec.models.loading import load_tokenizer

    whole = model.metadata(WHOLE)
    if whole:
        tokenizer, whose = _from_text(model, whole, path), f"its own {WHOLE}"
    else:
        beside = (path.parent / "tokenizer.json").is_file() and (path.parent / "config.json").is_file()
        place = path.parent if beside else path
        tokenizer, whose = load_tokenizer(place), str(place)
    vocabulary.check(tokenizer, whose)
    return tokenizer


def _from_text(model: LlamaModel, text: str, path: Path) -> Any:
    from tokenizers import Tokenizer

    try:
        added = json.loads(text)["added_tokens"]
        backend = Tokenizer.from_str(text)
        special = [token["content"] for token in added if token["special"]]
    except Exception as error:  # the tokenizers library raises plain Exception; the cause stays attached
        raise ModelError(f"{path} holds a tokenizer that cannot be read: make the file again") from error
    named: dict[str, str] = {}
    for name, role in _NAMED.items():
        index = model.metadata(f"tokenizer.ggml.{role}_token_id")
        token = backend.id_to_token(int(index)) if index.isdecimal() else None
        named |= {} if token is None else {name: token}
    roles: dict[str, object] = _read(model, ROLES, {})
    named |= {name: token for name, token in roles.items() if isinstance(token, str)}
    return DirectTokenizer(backend, named, tuple(special), model.metadata(TEMPLATE) or None)


def ends_of(model: LlamaModel, path: Path) -> frozenset[int]:
    """All ids that end an answer: those stored in the file by our converter, else those of the Hugging Face folder
    around it, else llama.cpp's.
    """
    told: list[int] = _read(model, ENDS, [])
    return frozenset(told) or _ends_beside(path.parent) or model.ends()


def _ends_beside(folder: Path) -> frozenset[int]:
    """The EOS ids of a Hugging Face folder; empty if it names none."""
    for name in ("generation_config.json", "config.json"):
        try:
            found = json.loads((folder / name).read_text(encoding="utf-8")).get("eos_token_id")
        except (OSError, ValueError, AttributeError):
            continue
        ids = found if isinstance(found, list) else [found]
        if all(isinstance(token, int) for token in ids):
            return frozenset(ids)
    return frozenset()


def _read(model: LlamaModel, key: str, otherwise: T) -> T:
    """A JSON value from the file's metadata; `otherwise` if it is missing or of another type."""
    try:
        found = json.loads(model.metadata(key) or "null")
    except ValueError:
        return otherwise
    return found if isinstance(found, type(otherwise)) else otherwise
