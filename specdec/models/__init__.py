"""Models: loading (HF folder or hub id, quantised or not), prompts, sessions with KV cache and rollback.

One interface for plain causal language models and Qwen2-VL. Nothing in here knows about links or methods.
"""

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
