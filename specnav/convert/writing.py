# SPDX-License-Identifier: Apache-2.0
"""Writes a GGUF file, one tensor in memory at a time."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGUFWriter
from numpy.typing import NDArray
from torch import Tensor

from specnav.convert.content import Content
from specnav.convert.kinds import BF16, F16, F32, GgufKind

CHUNK = 1 << 22
"""How many numbers are converted at a time; intermediate results take several times their memory."""


def write(content: Content, path: Path, advance: Callable[[], None]) -> None:
    """Write a file under a temporary name. advance: called after each tensor. Raises OSError."""
    writer = GGUFWriter(path, content.arch)
    content.describe(writer)
    writer.add_file_type(int(content.kind.file_type))
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    for one in content.tensors:
        writer.add_tensor_info(one.name, one.shape, np.dtype(np.float32), one.size, raw_dtype=one.kind.type)
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for one in content.tensors:
            writer.write_tensor_data(packed(one.read(), one.kind))
            advance()
        assert writer.fout is not None
        for file in writer.fout:
            file.flush()
            os.fsync(file.fileno())
    finally:
        writer.close()


def packed(tensor: Tensor, kind: GgufKind) -> NDArray[Any]:
    """A tensor's numbers as an array with the bytes of the file."""
    if kind is F32:
        return tensor.to(torch.float32).contiguous().numpy()
    if kind is F16:
        return tensor.to(torch.float16).contiguous().numpy()
    if kind is BF16:
        return tensor.to(torch.bfloat16).contiguous().view(torch.int16).numpy()
    width = tensor.shape[-1]
    rows = tensor.reshape(-1, width)
    found = np.empty((rows.shape[0], kind.size((width,))), np.uint8)
    for start, stop in stretches(rows.shape[0], width):
        part = rows[start:stop].to(torch.float32).contiguous().numpy()
        with np.errstate(all="ignore"):  # values that are not finite are reported on reading back
            found[start:stop] = gguf.quantize(part, kind.type)
    return found


def stretches(rows: int, width: int) -> list[tuple[int, int]]:
    """(start, stop) of the row ranges of a matrix that are processed one after another."""
    step = max(1, CHUNK // max(1, width))
    return [(start, min(rows, start + step)) for start in range(0, rows, step)] if width else []
