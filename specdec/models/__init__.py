# SPDX-License-Identifier: Apache-2.0
"""Models: loading (Hugging Face folder or hub id, quantised or not), prompts, sessions with KV cache and rollback.

One interface for plain causal language models and vision-language models. Independent of links and methods. Names, and
torch with them, are imported at first use: decoding a picture needs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specdec.errors import ModelError
    from specdec.models.drafts import load_draft, load_draft_tokenizer
    from specdec.models.gguf.options import GgufOptions
    from specdec.models.loaded import LoadedModel
    from specdec.models.loading import load_model, load_tokenizer
    from specdec.models.plans import Extension, extend_many
    from specdec.models.prompt import EncodedPrompt, Prompt, chat_prompt
    from specdec.models.session import ModelSession

__all__ = [
    "EncodedPrompt",
    "Extension",
    "GgufOptions",
    "LoadedModel",
    "ModelError",
    "ModelSession",
    "Prompt",
    "chat_prompt",
    "extend_many",
    "load_draft",
    "load_draft_tokenizer",
    "load_model",
    "load_tokenizer",
]
_FROM = {
    "EncodedPrompt": "specdec.models.prompt",
    "Extension": "specdec.models.plans",
    "GgufOptions": "specdec.models.gguf.options",
    "LoadedModel": "specdec.models.loaded",
    "ModelError": "specdec.errors",
    "ModelSession": "specdec.models.session",
    "Prompt": "specdec.models.prompt",
    "chat_prompt": "specdec.models.prompt",
    "extend_many": "specdec.models.plans",
    "load_draft": "specdec.models.drafts",
    "load_draft_tokenizer": "specdec.models.drafts",
    "load_model": "specdec.models.loading",
    "load_tokenizer": "specdec.models.loading",
}


def __getattr__(name: str) -> Any:
    if name not in _FROM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_FROM[name]), name)
