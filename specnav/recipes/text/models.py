# SPDX-License-Identifier: Apache-2.0
"""The text pair's two sizes, and the conversion of trained weights to Hugging Face folders.

The models are transformers' Llama, in training and on disk. A folder written here loads with
`AutoModelForCausalLM.from_pretrained` and `AutoTokenizer`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from specnav.recipes.folders import appearing_at_once
from specnav.recipes.loop import read_checkpoint
from specnav.recipes.text.vocabulary import CONTEXT

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

ROPE_THETA = 10_000.0
ANSWER_TOKENS = 128


@dataclass(frozen=True)
class LlamaShape:
    """A Llama with tied embeddings. Widths are multiples of 64, which 4-bit products on a CPU need."""

    layers: int
    width: int
    inner: int
    heads: int
    kv_heads: int


TARGET = LlamaShape(layers=8, width=192, inner=448, heads=6, kv_heads=2)
DRAFT = LlamaShape(layers=2, width=128, inner=512, heads=4, kv_heads=2)


def build_model(shape: LlamaShape, vocabulary: int, end: int) -> LlamaForCausalLM:
    """A randomly initialised model whose answers end with token `end`."""
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=shape.width,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        max_position_embeddings=CONTEXT,
        rms_norm_eps=1e-6,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_THETA},
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=end,
    )
    model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(
        eos_token_id=end, pad_token_id=end, do_sample=False, max_new_tokens=ANSWER_TOKENS
    )
    return model


def trained_model(shape: LlamaShape, vocabulary: int, end: int, checkpoint: Path) -> LlamaForCausalLM:
    """The model of a stage's checkpoint, frozen and in evaluation mode."""
    model = build_model(shape, vocabulary, end)
    model.load_state_dict(read_checkpoint(checkpoint)["model"])
    return model.eval().requires_grad_(False)


def save_folder(folder: Path, model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    """Write a model folder in float16, atomically; converts the given model."""
    with appearing_at_once(folder) as building:
        model.half().save_pretrained(building)
        for weights in building.glob("*.safetensors"):
            weights.chmod(0o644)  # safetensors writes files that only their owner can read
        tokenizer.save_pretrained(building)
