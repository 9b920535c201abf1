# SPDX-License-Identifier: Apache-2.0
"""Reads a vision tower from a separate file, mmproj-….gguf, in llama.cpp's layout for Qwen2-VL and Qwen2.5-VL.

The file is read here and not by llama.cpp, because torch computes the tower. Neither llama.cpp nor its Python binding
is needed. The header is checked before it is used; nothing in the file is executed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specdec.errors import ModelError
from specdec.models.gguf_header import Header, TensorPlace

QWEN2_VL, QWEN2_5_VL = "qwen2_vl", "qwen2_5_vl"
PROJECTORS = {"qwen2vl_merger": QWEN2_VL, "qwen2.5vl_merger": QWEN2_5_VL}
"""llama.cpp's names of the towers, and their families."""
WINDOW_PIXELS = 112
"""Default window size of Qwen2.5-VL's tower, the only one that llama.cpp supports."""
TEMPORAL_PATCH = 2
"""Depth of a patch in frames; a still picture is repeated that often."""

_F32, _F16, _BF16 = 0, 1, 30


def read_tensor(header: Header, name: str) -> Tensor:
    """Read a tensor as float32, whatever its stored type. Raises ModelError if it is missing or truncated."""
    place = header.tensors.get(name)
    if place is None:
        raise ModelError(f"{header.path} has no {name}: it is not a tower of a Qwen-VL model, or incomplete")
    kind, count = _stored(header.path, place, math.prod(place.shape))
    try:
        if place.offset + count * np.dtype(kind).itemsize > header.path.stat().st_size:
            raise ModelError(f"{header.path} ends within {name}: copy or convert it again")
        raw = np.fromfile(header.path, kind, count, offset=place.offset)
    except OSError as error:
        raise ModelError(f"{header.path} cannot be read ({error.strerror}): give a GGUF file") from error
    return torch.from_numpy(_unpacked(raw, place.kind).reshape(place.shape))


def _stored(path: Path, place: TensorPlace, numbers: int) -> tuple[type[np.generic], int]:
    """The stored number type of a tensor, and how many such numbers it has."""
    plain: dict[int, type[np.generic]] = {_F32: np.float32, _F16: np.float16, _BF16: np.uint16}
    if place.kind in plain:
        return plain[place.kind], numbers
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    try:
        block, size = GGML_QUANT_SIZES[GGMLQuantizationType(place.kind)]
    except (ValueError, KeyError) as error:
        raise ModelError(
            f"{path} has a number type that is unknown here: convert it with --type f16"
        ) from error
    return np.uint8, numbers // block * size


def _unpacked(raw: NDArray[Any], kind: int) -> NDArray[np.float32]:
    if kind == _BF16:
        return (raw.astype(np.uint32) << 16).view(np.float32)
    if kind in (_F32, _F16):
        return raw.astype(np.float32)
    import gguf

    found: NDArray[np.float32] = gguf.dequantize(raw, gguf.GGMLQuantizationType(kind))
    return found


@dataclass(frozen=True)
class TensorRule:
    """How a tower's tensor corresponds to tensors of a file. join: makes it from theirs, in order. split: the inverse.
    """

    names: tuple[str, ...]
    join: Callable[[list[Tensor]], Tensor]
    split: Callable[[Tensor], list[Tensor]]


def parts(family: str, depth: int) -> Iterator[tuple[str, TensorRule]]:
    """All tensors of a tower by the library's names, with their rules."""
    yield (
        "patch_embed.proj.weight",
        TensorRule(("v.patch_embd.weight", "v.patch_embd.weight.1"), _as_frames, _frames),
    )
    for index in range(depth):
        ours, theirs = f"blocks.{index}", f"v.blk.{index}"
        for kind in ("weight", "bias"):
            names = tuple(f"{theirs}.attn_{one}.{kind}" for one in "qkv")
            yield (
                f"{ours}.attn.qkv.{kind}",
                TensorRule(names, torch.cat, lambda joined: list(joined.chunk(3))),
            )
            for name, place in _layer_names(family).items():
                if kind == "bias" and family == QWEN2_5_VL and name.startswith("norm"):
                    continue
                yield f"{ours}.{name}.{kind}", _same(f"{theirs}.{place}.{kind}")
    yield "merger.ln_q.weight", _same("v.post_ln.weight")
    if family == QWEN2_VL:
        yield "merger.ln_q.bias", _same("v.post_ln.bias")
    for index in (0, 2):
        for kind in ("weight", "bias"):
            yield f"merger.mlp.{index}.{kind}", _same(f"mm.{index}.{kind}")


def _layer_names(family: str) -> dict[str, str]:
    names = {"norm1": "ln1", "norm2": "ln2", "attn.proj": "attn_out"}
    if family == QWEN2_VL:
        return names | {"mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down"}
    return names | {"mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def _same(name: str) -> TensorRule:
    return TensorRule((name,), lambda found: found[0], lambda tensor: [tensor])


def _as_frames(found: list[Tensor]) -> Tensor:
    return torch.stack(found, dim=2)


def _frames(kernel: Tensor) -> list[Tensor]:
    """Split a kernel [out, channels, frames, rows, columns] into one kernel per frame."""
    return [kernel[:, :, frame].contiguous() for frame in range(kernel.shape[2])]
