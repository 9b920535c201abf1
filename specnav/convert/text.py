# SPDX-License-Identifier: Apache-2.0
"""The content of a decoder's file: metadata and tensors, as llama.cpp needs them for each family."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import gguf
import torch
from gguf import MODEL_ARCH, GGUFWriter, RopeScalingType, TensorNameMap
from torch import Tensor

from specnav.convert.content import Content, Planned
from specnav.convert.kinds import F32, GgufKind, kind_of_head, kind_of_tensor
from specnav.convert.source import Source
from specnav.convert.vocabulary import ConvertedVocabulary
from specnav.errors import UsageError

ARCHES = {
    "llama": MODEL_ARCH.LLAMA,
    "mistral": MODEL_ARCH.LLAMA,
    "qwen2": MODEL_ARCH.QWEN2,
    "qwen3": MODEL_ARCH.QWEN3,
    "gemma3_text": MODEL_ARCH.GEMMA3,
    "qwen2_vl": MODEL_ARCH.QWEN2VL,
    "qwen2_5_vl": MODEL_ARCH.QWEN2VL,
}
"""llama.cpp's names of the families."""
_PAIRED = ("llama", "mistral")
"""Families whose rotary pairs are adjacent rows in a GGUF file, but half a head apart in a folder. A file without this
reordering still generates text, but badly."""
_EMBEDDING, _NORM, _HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"
_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)")
_NO_WEIGHTS = re.compile(r".*rotary_emb\.inv_freq")
_BIASES = {"llama": "", "qwen2": r"[qkv]_proj", "qwen2_vl": r"[qkv]_proj", "qwen2_5_vl": r"[qkv]_proj"}
"""Biases that llama.cpp reads, by family; other families have none."""
_ROPES = ("default", "linear", "yarn", "llama3")
_SCALE_FROM_LAYERS = 62
"""For a Gemma 3 with this many layers (27B), llama.cpp computes the attention scale differently."""


@dataclass(frozen=True)
class DecoderSource:
    """The needed facts about a folder. model_type: the family. config: transformers' text config."""

    model_type: str
    config: Any
    tied: bool
    name: str


def text_content(decoder: DecoderSource, source: Source, vocabulary: ConvertedVocabulary, kind: GgufKind) -> Content:
    """Plan a decoder's file. Raises UsageError for a model that llama.cpp does not support, or missing weights."""
    config, arch = decoder.config, ARCHES[decoder.model_type]
    if decoder.model_type.endswith("_vl") and config.hidden_size != config.num_attention_heads * _head_dim(
        config
    ):
        raise UsageError("llama.cpp supports qwen2vl only if its heads together are as wide as the model")
    scaling = _rope_scaling(decoder)
    tensors = [*_tensors(decoder, source, kind), *_rope_factors(decoder)]

    def describe(writer: GGUFWriter) -> None:
        writer.add_type(gguf.GGUFType.MODEL)
        writer.add_name(decoder.name)
        _describe_shape(writer, decoder)
        scaling(writer)
        vocabulary.describe(writer)

    return Content(
        gguf.MODEL_ARCH_NAMES[arch], kind, describe, tuple(tensors), tuple(_notes(decoder, tensors, kind))
    )


def _head_dim(config: Any) -> int:
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def _describe_shape(writer: GGUFWriter, decoder: DecoderSource) -> None:
    config, head_dim = decoder.config, _head_dim(decoder.config)
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(head_dim)
    window = _window(decoder)
    if decoder.model_type == "gemma3_text":
        if window:
            sliding = [kind == "sliding_attention" for kind in config.layer_types]
            writer.add_sliding_window(window)
            writer.add_sliding_window_pattern(_period(sliding) or sliding)
            writer.add_rope_freq_base_swa(_ropes(decoder)["sliding_attention"]["rope_theta"])
        if config.final_logit_softcapping:
            writer.add_final_logit_softcapping(config.final_logit_softcapping)
    elif window:
        writer.add_sliding_window(window)


def _window(decoder: DecoderSource) -> int:
    """Tokens in the window of sliding-attention layers; 0 if there are none."""
    config = decoder.config
    window = getattr(config, "sliding_window", None) or 0
    types = getattr(config, "layer_types", None)
    return window if types is None or "sliding_attention" in types else 0


def _period(sliding: list[bool]) -> int:
    """Period of the full-attention layers, each the last of its period; 0 if the pattern is irregular."""
    if False not in sliding:
        return 0
    period = sliding.index(False) + 1
    regular = [(layer + 1) % period != 0 for layer in range(len(sliding))]
    return period if regular == sliding else 0


def _ropes(decoder: DecoderSource) -> dict[str, dict[str, Any]]:
    """RoPE settings by kind of layer; under "" if they are the same for all layers."""
    rope: dict[str, Any] = decoder.config.rope_parameters or {}
    if "full_attention" in rope or "sliding_attention" in rope:
        return rope
    return {"": rope}


def _rope_scaling(decoder: DecoderSource) -> Callable[[GGUFWriter], None]:
    """A function that writes the RoPE settings. Raises UsageError for a type that llama.cpp does not support."""
    ropes = _ropes(decoder)
    rope = ropes.get("full_attention") or ropes.get("") or {}
    kind = rope.get("rope_type", "default")
    refused = kind not in _ROPES or (kind == "llama3" and decoder.model_type != "llama")
    others = [one for name, one in ropes.items() if name == "sliding_attention"]
    refused |= any(one.get("rope_type", "default") != "default" for one in others)
    if refused or rope.get("partial_rotary_factor", 1.0) != 1.0 or rope.get("mscale"):
        raise UsageError(f"RoPE of type {kind!r} with the settings of this {decoder.model_type} cannot be converted")

    def describe(writer: GGUFWriter) -> None:
        writer.add_rope_freq_base(rope["rope_theta"])
        sections = rope.get("mrope_section")
        if sections:
            writer.add_rope_dimension_sections([*sections, *[0] * (4 - len(sections))])
        if kind == "linear":
            writer.add_rope_scaling_type(RopeScalingType.LINEAR)
            writer.add_rope_scaling_factor(rope["factor"])
        elif kind == "yarn":
            writer.add_rope_scaling_type(RopeScalingType.YARN)
            writer.add_rope_scaling_factor(rope["factor"])
            writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
            if rope.get("beta_fast"):
                writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
            if rope.get("beta_slow"):
                writer.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])

    return describe


def _rope_factors(decoder: DecoderSource) -> Iterator[Planned]:
    """The tensor of RoPE factors: Llama 3 scales each frequency by its own factor."""
    (rope,) = _ropes(decoder).values() if decoder.model_type == "llama" else ({},)
    if rope.get("rope_type") != "llama3":
        return
    size = _head_dim(decoder.config)
    old = rope["original_max_position_embeddings"]
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    exponents = torch.arange(0, size, 2, dtype=torch.float32) / size
    waves = 2 * math.pi * rope["rope_theta"] ** exponents
    smooth = ((old / waves - low) / (high - low)).clamp(0.0, 1.0)
    factors = 1 / ((1 - smooth) / rope["factor"] + smooth)
    yield Planned("rope_freqs.weight", (size // 2,), F32, lambda: factors)


def _notes(decoder: DecoderSource, tensors: list[Planned], kind: GgufKind) -> Iterator[str]:
    odd = [one for one in tensors if kind.quantised and one.kind.name == "f16"]
    if odd:
        rows = sorted({one.shape[-1] for one in odd})
        yield (
            f"{len(odd)} matrices stay f16: rows of {', '.join(map(str, rows))} are not a multiple of {kind.block}"
        )
    window = _window(decoder)
    if window and decoder.model_type != "gemma3_text":
        yield (
            f"llama.cpp has no sliding windows for {decoder.model_type}: beyond {window} tokens this draft sees more "
            "than in training, and is accepted less"
        )


def _tensors(decoder: DecoderSource, source: Source, kind: GgufKind) -> Iterator[Planned]:
    config, arch = decoder.config, ARCHES[decoder.model_type]
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    wanted = [
        name for name in source if not name.startswith("model.visual.") and not _NO_WEIGHTS.fullmatch(name)
    ]
    if decoder.tied and _HEAD in wanted:
        wanted.remove(_HEAD)
    _check_complete(decoder, source, wanted)
    for name in wanted:
        yield _tensor(decoder, source, names, name, kind)


def _tensor(decoder: DecoderSource, source: Source, names: TensorNameMap, name: str, kind: GgufKind) -> Planned:
    found = names.get_name(name, try_suffixes=(".weight", ".bias"))
    if found is None or (name.endswith(".bias") and not re.search(_BIASES.get(decoder.model_type, "$^"), name)):
        raise UsageError(
            f"{source.folder} has {name}, which llama.cpp's {decoder.model_type} lacks: it cannot be converted"
        )
    shape = source.shape(name)
    coarse = kind_of_head(kind) if name == _HEAD or (name == _EMBEDDING and decoder.tied) else kind
    change = _change(decoder, name)
    return Planned(found, shape, kind_of_tensor(coarse, found, shape), lambda: change(source.read(name)))


def _change(decoder: DecoderSource, name: str) -> Callable[[Tensor], Tensor]:
    """The conversion that a tensor's numbers need."""
    config = decoder.config
    part = re.search(r"self_attn\.([qk])_proj\.(weight|bias)$", name)
    if part and decoder.model_type in _PAIRED:
        heads = config.num_attention_heads if part[1] == "q" else config.num_key_value_heads
        return lambda tensor: paired(tensor, heads)
    if decoder.model_type == "gemma3_text" and name.endswith("norm.weight"):
        scale = 1.0
        if name.endswith("q_norm.weight") and config.num_hidden_layers != _SCALE_FROM_LAYERS:
            # llama.cpp always scales scores by the width of a head and ignores the config.
            scale = math.sqrt(_head_dim(config) / config.query_pre_attn_scalar)
        return lambda tensor: (tensor.float() + 1.0) * scale  # its norms' weights are stored minus 1
    return lambda tensor: tensor


def paired(tensor: Tensor, heads: int) -> Tensor:
    """Reorder rows of a query or key projection, [heads * size, ...], so that rotary pairs are adjacent."""
    return tensor.reshape(heads, 2, -1, *tensor.shape[1:]).transpose(1, 2).reshape(tensor.shape)


def _check_complete(decoder: DecoderSource, source: Source, wanted: list[str]) -> None:
    """Raise UsageError unless all layers, the embedding, the norm and the head exist."""
    config = decoder.config
    needed = {_EMBEDDING, _NORM} | (set() if decoder.tied else {_HEAD})
    layers: dict[int, set[str]] = {}
    for name in wanted:
        if found := _LAYER.fullmatch(name):
            layers.setdefault(int(found[1]), set()).add(found[2])
    parts = set().union(*layers.values())
    needed |= {f"model.layers.{layer}.{part}" for layer in range(config.num_hidden_layers) for part in parts}
    missing = sorted(needed - set(wanted))
    if missing:
        raise UsageError(
            f"{source.folder} lacks {len(missing)} weights ({missing[0]}, ...): the checkpoint is incomplete"
        )
    size = (config.vocab_size, config.hidden_size)
    if source.shape(_EMBEDDING) != size:
        raise UsageError(
            f"{source.folder} has embeddings of {source.shape(_EMBEDDING)}, its config says {size}"
        )
