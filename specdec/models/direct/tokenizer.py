# SPDX-License-Identifier: Apache-2.0
"""A tokenizer from tokenizer.json, with special tokens and chat template: the part of the library's API that we use."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from specdec.errors import ModelError
from specdec.models.direct.shapes import Settings, fits

_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_OTHER_FILES = (
    "added_tokens.json",
    "additional_chat_templates",
    "chat_template.json",
    "processor_config.json",
    "special_tokens_map.json",
)
_NOT_IN_TEMPLATES = (
    "dict",
    "endgeneration",
    "namespace",
    "raise_exception",
    "reasoning",
    "strftime_now",
    "thinking",
    "tojson",
)
_SAFE_JINJA = (3, 1, 6)
_QWEN2_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
_QWEN2 = {
    "normalizer": {"type": "NFC"},
    "pre_tokenizer": {
        "type": "Sequence",
        "pretokenizers": [
            {
                "type": "Split",
                "pattern": {"Regex": _QWEN2_PATTERN},
                "behavior": "Isolated",
                "invert": False,
            },
            {**_BYTES, "add_prefix_space": False, "use_regex": False},
        ],
    },
    "decoder": _BYTES,
}
"""What the library's class Qwen2Tokenizer uses, whatever the file says."""
_QWEN2_MODEL = {
    "type": "BPE",
    "dropout": None,
    "unk_token": None,
    "continuing_subword_prefix": "",
    "end_of_word_suffix": "",
    "fuse_unk": False,
    "byte_fallback": False,
    "ignore_merges": False,
}


@dataclass(frozen=True, eq=False)
class DirectTokenizer:
    """A tokenizer with the library's method names. special_tokens_map: the named special tokens; others are extra."""

    backend_tokenizer: Tokenizer
    special_tokens_map: Mapping[str, str]
    extra_special_tokens: tuple[str, ...]
    chat_template: str | None

    def __call__(self, text: str | Sequence[str], add_special_tokens: bool = True) -> dict[str, Any]:
        """Encode a text, or several texts, to ids under the key "input_ids"."""
        if isinstance(text, str):
            return {
                "input_ids": self.backend_tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
            }
        encoded = self.backend_tokenizer.encode_batch(list(text), add_special_tokens=add_special_tokens)
        return {"input_ids": [one.ids for one in encoded]}

    def __len__(self) -> int:
        return self.backend_tokenizer.get_vocab_size()

    def decode(
        self,
        ids: Sequence[int],
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool | None = None,
    ) -> str:
        """Decode ids. Spaces are never cleaned up; the library does not do that for BPE tokenizers either."""
        return self.backend_tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens)

    def get_vocab(self) -> dict[str, int]:
        """All tokens, added ones included, with their ids."""
        return self.backend_tokenizer.get_vocab()

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        """The id of a token, or of several tokens. Strings that are no token give the unknown token's id, or None."""
        if not isinstance(tokens, str):
            return [self.convert_tokens_to_ids(token) for token in tokens]
        found = self.backend_tokenizer.token_to_id(tokens)
        if found is None and (unknown := self.special_tokens_map.get("unk_token")) is not None:
            found = self.backend_tokenizer.token_to_id(unknown)
        return found

    @property
    def eos_token_id(self) -> int | None:
        """The id of the named end-of-sequence token."""
        eos = self.special_tokens_map.get("eos_token")
        return None if eos is None else self.backend_tokenizer.token_to_id(eos)

    @property
    def all_special_tokens(self) -> list[str]:
        """Named and extra special tokens, each once."""
        return list(dict.fromkeys([*self.special_tokens_map.values(), *self.extra_special_tokens]))

    @property
    def added_tokens_decoder(self) -> dict[int, AddedToken]:
        """Added tokens by id."""
        return self.backend_tokenizer.get_added_tokens_decoder()

    def apply_chat_template(
        self, messages: list[dict[str, Any]], tokenize: bool = False, add_generation_prompt: bool = False
    ) -> str:
        """Render a conversation as text. Raises ModelError if there is no template, or if jinja2 cannot confine it."""
        if tokenize:
            raise ValueError("apply_chat_template returns text here: encode it")
        if self.chat_template is not None and needs_library(self.chat_template):
            from transformers.utils.chat_template_utils import render_jinja_template

            (whole,), _ = render_jinja_template(
                [messages],
                chat_template=self.chat_template,
                add_generation_prompt=add_generation_prompt,
                **self.special_tokens_map,
            )
            return str(whole)
        rendered: str = self._template.render(
            messages=messages,
            tools=None,
            documents=None,
            add_generation_prompt=add_generation_prompt,
            **self.special_tokens_map,
        )
        return rendered

    @cached_property
    def _template(self) -> Any:
        import jinja2
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        if self.chat_template is None:
            raise ModelError(
                "the tokenizer has no chat template: use a chat model, or add chat_template.jinja to its folder"
            )
        if tuple(int(part) for part in re.findall(r"\d+", jinja2.__version__)[:3]) < _SAFE_JINJA:
            raise ModelError(
                f"jinja2 {jinja2.__version__} does not confine chat templates: pip install -U jinja2"
            )
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        return environment.from_string(self.chat_template)


def needs_library(template: str) -> bool:
    """Whether a chat template uses the library's extensions of jinja or of messages."""
    return any(word in template for word in _NOT_IN_TEMPLATES)


def tokenizer_of(folder: Path, model_type: str) -> DirectTokenizer | None:
    """Read a folder's tokenizer; None unless all its settings are known.

    Missing files and broken JSON raise their own errors.
    """
    if any((folder / name).exists() for name in _OTHER_FILES):
        return None
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    written = (folder / "tokenizer.json").read_text(encoding="utf-8")
    content = json.loads(written)
    extra = config.get("extra_special_tokens", [])
    if not _config_is_known(config, model_type) or not _content_is_known(content, config["tokenizer_class"]):
        return None
    named = {name: config[name] for name in _NAMED if config.get(name) is not None}
    special = {token["content"] for token in content["added_tokens"] if token["special"]}
    if not special.issuperset([*named.values(), *extra]):
        return None  # the library would add them
    template = folder / "chat_template.jinja"
    text = template.read_text(encoding="utf-8") if template.exists() else None
    if text is not None and needs_library(text):
        return None
    try:
        tokenizer = Tokenizer.from_str(written)
    except Exception:  # no narrower type; the library's loader says what is wrong
        return None
    return DirectTokenizer(tokenizer, named, tuple(extra), text) if tokenizer.get_vocab_size() else None


def _config_is_known(config: Settings, model_type: str) -> bool:
    extra = config.get("extra_special_tokens", [])
    return (
        fits(
            config,
            {"tokenizer_class": str, "eos_token": str},
            {"backend": "tokenizers", "clean_up_tokenization_spaces": False},
            {
                *_NAMED,
                "add_prefix_space",
                "extra_special_tokens",
                "is_local",
                "local_files_only",
                "model_max_length",
            },
        )
        and not config.get("add_prefix_space")
        and all(isinstance(config.get(name), str | None) for name in _NAMED)
        and isinstance(extra, list)
        and all(isinstance(token, str) for token in extra)
        and (config["tokenizer_class"], model_type)
        in {("TokenizersBackend", "llama"), ("TokenizersBackend", "qwen2_vl"), ("Qwen2Tokenizer", "qwen2_vl")}
    )


def _content_is_known(content: Settings, tokenizer_class: str) -> bool:
    if content.get("truncation") or content.get("padding") or content["model"]["type"] != "BPE":
        return False
    if tokenizer_class != "Qwen2Tokenizer":
        return True  # the library takes the file as it is
    model = {name: value for name, value in content["model"].items() if name not in ("vocab", "merges")}
    return model == _QWEN2_MODEL and all(content[name] == value for name, value in _QWEN2.items())
