"""Small random models of families that run through the library's own forward."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tests.helpers import tiny_models as tiny

SIZES = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 512}
GROUPS = {**SIZES, "num_key_value_heads": 2, "intermediate_size": 96, "initializer_range": 0.2}


def _gpt2(common: dict[str, Any]) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(n_embd=64, n_layer=2, n_head=4, n_positions=512, initializer_range=0.2, **common)
    )


def _gemma2(common: dict[str, Any]) -> Any:
    """Windows, and caps on attention scores."""
    from transformers import Gemma2Config, Gemma2ForCausalLM

    own = {
        "head_dim": 16,
        "sliding_window": 24,
        "attn_logit_softcapping": 5.0,
        "attn_implementation": "eager",
    }
    return Gemma2ForCausalLM(Gemma2Config(**GROUPS, **common, **own))


def _mixtral(common: dict[str, Any]) -> Any:
    """Experts."""
    from transformers import MixtralConfig, MixtralForCausalLM

    return MixtralForCausalLM(MixtralConfig(**GROUPS, **common, num_local_experts=4, sliding_window=24))


def _phi3(common: dict[str, Any]) -> Any:
    """Ropes that change with the length: in the middle of the answers to the longer prompt."""
    from transformers import Phi3Config, Phi3ForCausalLM

    factors = {"short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
    rope = {"rope_type": "longrope", "rope_theta": 1e4, **factors}
    changes_at = {"original_max_position_embeddings": 90, "rope_parameters": rope}
    return Phi3ForCausalLM(Phi3Config(**GROUPS, **common, **changes_at))


def _mamba(common: dict[str, Any]) -> Any:
    """A state that cannot be taken back."""
    from transformers import MambaConfig, MambaForCausalLM

    return MambaForCausalLM(MambaConfig(hidden_size=64, num_hidden_layers=2, initializer_range=0.3, **common))


BUILDERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "gpt2": _gpt2,
    "gemma2": _gemma2,
    "mixtral": _mixtral,
    "phi3": _phi3,
    "mamba": _mamba,
}


def build(kind: str, folder: Path) -> Path:
    tokenizer = tiny.make_tokenizer()
    torch.manual_seed(3)
    ends = tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
    common = {"vocab_size": len(tokenizer) + tiny.PADDING, "eos_token_id": ends, "tie_word_embeddings": False}
    model = BUILDERS[kind]({**common, "bos_token_id": None, "pad_token_id": None})
    with torch.no_grad():
        model.get_output_embeddings().weight[len(tokenizer) :] = 0
    return tiny._save(model, tokenizer, folder)
