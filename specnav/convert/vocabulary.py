# SPDX-License-Identifier: Apache-2.0
"""A tokenizer in a GGUF file: every token with its type for llama.cpp, and the complete tokenizer for us."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gguf import GGUFWriter, Keys, TokenType

from specdec.models import load_tokenizer
from specnav.errors import UsageError

SPECIAL_TOKENS = "specnav.special_tokens"
"""Our own key: JSON of the named special tokens, with unnamed ones under `extra`."""
EOS_IDS = "specnav.eos_token_ids"
"""Our own key: JSON of every id that ends an answer, because llama.cpp does not return arrays of a file."""
_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
_ENDS_A_TURN = ("<|im_end|>", "<|eot_id|>", "<end_of_turn>")
_QWEN2_SPLIT = r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
_LLAMA3_SPLIT = r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"


@dataclass(frozen=True)
class ConvertedVocabulary:
    """The vocabulary of a GGUF file.

    tokens, types: for all rows of the embedding. merges: of a byte-level tokenizer; None for one with scores. splits:
    llama.cpp's name of the pre-tokenizer. ends: ids that end an answer, the main one first. whole: the tokenizer as
    JSON. named: special tokens by role. extra: other special tokens. template: the chat template. pictures: ids of
    picture tokens by key. adds_bos, adds_space: what the tokenizer puts before a text.
    """

    tokens: tuple[str, ...]
    types: tuple[TokenType, ...]
    merges: tuple[str, ...] | None
    splits: str
    ends: tuple[int, ...]
    whole: str
    named: dict[str, str]
    extra: tuple[str, ...]
    template: str | None
    pictures: dict[str, int]
    adds_bos: bool
    adds_space: bool

    def describe(self, writer: GGUFWriter) -> None:
        """Write the vocabulary."""
        writer.add_tokenizer_model("llama" if self.merges is None else "gpt2")
        writer.add_tokenizer_pre(self.splits)
        writer.add_token_list(self.tokens)
        writer.add_token_types(self.types)
        if self.merges is None:  # ids are in the order in which tokens are merged
            writer.add_token_scores([-float(index) for index in range(len(self.tokens))])
            writer.add_add_space_prefix(self.adds_space)
        else:
            # The list must not be empty; this merge has no effect, because its result is not a token.
            writer.add_token_merges(self.merges or (f"{self.tokens[0]} {self.tokens[0]}",))
        ids = {token: index for index, token in enumerate(self.tokens)}
        for role, add in (
            ("bos_token", writer.add_bos_token_id),
            ("pad_token", writer.add_pad_token_id),
            ("unk_token", writer.add_unk_token_id),
        ):
            if (found := ids.get(self.named.get(role, ""))) is not None:
                add(found)
        writer.add_eos_token_id(self.ends[0])
        turn = [end for end in self.ends if self.tokens[end] in _ENDS_A_TURN]
        writer.add_eot_token_id((turn or self.ends)[0])
        writer.add_add_bos_token(self.adds_bos)
        if self.template is not None:
            writer.add_chat_template(self.template)
        writer.add_string(Keys.Tokenizer.HF_JSON, self.whole)
        writer.add_string(
            SPECIAL_TOKENS, json.dumps({**self.named, "extra": list(self.extra)}, ensure_ascii=False)
        )
        writer.add_string(EOS_IDS, json.dumps(list(self.ends)))
        for name, index in self.pictures.items():
            writer.add_uint32(f"specnav.{name}", index)


def read_vocabulary(folder: Path, rows: int, config: Any) -> ConvertedVocabulary:
    """Read the vocabulary of a folder. rows: of the embedding. config: transformers'. Raises UsageError, ModelError."""
    tokenizer = load_tokenizer(folder)
    backend = tokenizer.backend_tokenizer
    whole = backend.to_str()
    model = json.loads(whole)["model"]
    if model["type"] != "BPE":
        raise UsageError(f"{folder} has a tokenizer of type {model['type']}: only BPE can be converted")
    ends = tuple(end for end in _ends(folder, config, tokenizer) if end < rows)
    if not ends:
        raise UsageError(
            f"{folder} does not define what ends an answer: add eos_token_id to generation_config.json"
        )
    by_bytes = not model.get("byte_fallback")
    named = {
        name: str(token) for name, token in tokenizer.special_tokens_map.items() if isinstance(token, str)
    }
    tokens, types = _tokens(backend, rows, model.get("unk_token"))
    template = tokenizer.chat_template
    if isinstance(template, dict):
        template = template.get("default")
    return ConvertedVocabulary(
        tokens,
        types,
        tuple(_merge(one) for one in model["merges"]) if by_bytes else None,
        _splits(whole) if by_bytes else "default",
        ends,
        whole,
        named,
        tuple(one for one in tokenizer.all_special_tokens if one not in named.values()),
        template,
        _pictures(config),
        backend.encode("a").tokens[:1] == [named.get("bos_token")],
        backend.encode("a", add_special_tokens=False).tokens[0].startswith("▁"),
    )


def _tokens(backend: Any, rows: int, unknown: str | None) -> tuple[tuple[str, ...], tuple[TokenType, ...]]:
    """(tokens, types) of all rows; rows without a token are marked as unused."""
    tokens = [f"[PAD{index}]" for index in range(rows)]
    types = [TokenType.UNUSED] * rows
    added = backend.get_added_tokens_decoder()
    for token, index in backend.get_vocab().items():
        if index >= rows:
            continue
        tokens[index] = token
        if index in added:
            types[index] = TokenType.CONTROL if added[index].special else TokenType.USER_DEFINED
        elif token == unknown:
            types[index] = TokenType.UNKNOWN
        else:
            types[index] = TokenType.BYTE if _BYTE.fullmatch(token) else TokenType.NORMAL
    return tuple(tokens), tuple(types)


def _merge(pair: list[str] | str) -> str:
    """A merge as text, from either of its forms in files."""
    return pair if isinstance(pair, str) else " ".join(pair)


def _splits(whole: str) -> str:
    """llama.cpp's name of the pre-tokenizer. Our own programs send ids and never need it."""
    rules = json.dumps(json.loads(whole).get("pre_tokenizer"))
    for name, pattern in (("qwen2", _QWEN2_SPLIT), ("llama-bpe", _LLAMA3_SPLIT)):
        if json.dumps(pattern)[1:-1] in rules:
            return name
    return "gpt-2"


def _ends(folder: Path, config: Any, tokenizer: Any) -> tuple[int, ...]:
    """The ids that end an answer, found as in `specdec.models.loading.eos_ids`, but without the model."""
    try:
        generation = json.loads((folder / "generation_config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        generation = {}
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{folder / 'generation_config.json'} cannot be read: copy the folder anew"
        ) from error
    text = config.get_text_config()
    for value in (
        generation.get("eos_token_id"),
        getattr(config, "eos_token_id", None),
        getattr(text, "eos_token_id", None),
        tokenizer.eos_token_id,
    ):
        if value is not None:
            return tuple(value) if isinstance(value, list) else (value,)
    return ()


def _pictures(config: Any) -> dict[str, int]:
    names = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
    if getattr(config, "vision_config", None) is None:
        return {}
    return {name: index for name in names if (index := getattr(config, name, None)) is not None}
