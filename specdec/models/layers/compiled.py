# SPDX-License-Identifier: Apache-2.0
"""The pieces of a layer compiled by torch: fewer and larger operations, for devices limited by launch overhead.

Each piece is compiled only twice, for one row and for any number of rows, independent of the layer and the sequence
length. Compiled arithmetic may differ from torch's in the last bits, as results for different numbers of rows do, too.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from specdec.errors import ModelError
from specdec.models.layers.pieces import Layer, Linear, PlainPieces, Projected, Rotary

_VARIANTS = 256
"""Most compiled variants of a piece per process: two per model, and again for each number of threads."""


class CompiledPieces:
    """PlainPieces compiled by torch."""

    def __init__(self, pieces: PlainPieces, layers: Iterable[Layer], device: torch.device) -> None:
        """Raises ModelError without a compiler, or for quantised weights."""
        layers = list(layers)
        check_compiler(device)
        if not all(isinstance(product, Linear) for layer in layers for product in _products(layer)):
            raise ModelError("quantised weights cannot be compiled: leave out quantisation or compilation")
        limits: Any = torch._dynamo.config
        limits.cache_size_limit = max(limits.cache_size_limit, _VARIANTS)
        self._enter: Callable[..., Projected] = torch.compile(pieces.enter)
        self._leave: Callable[..., Tensor] = torch.compile(pieces.leave)
        self._pass_on: Callable[..., tuple[Tensor, Projected]] = torch.compile(pieces.pass_on)

    def begin(self, hidden: Tensor, rotaries: list[Rotary]) -> tuple[Tensor, list[Rotary]]:
        """Copies, because the offset of a view in its storage would become part of the compiled code."""
        rotaries = [(cos.clone(), signed_sin.clone()) for cos, signed_sin in rotaries]
        _of_any_length(*(factor for pair in rotaries for factor in pair))
        return hidden.clone(memory_format=torch.contiguous_format), rotaries

    def enter(self, layer: Layer, hidden: Tensor, cos: Tensor, signed_sin: Tensor) -> Projected:
        """See PlainPieces."""
        _of_any_length(hidden)
        return self._enter(layer, hidden, cos, signed_sin)

    def leave(self, layer: Layer, hidden: Tensor, attended: Tensor) -> Tensor:
        """See PlainPieces."""
        _of_any_length(hidden, attended)
        return self._leave(layer, hidden, attended)

    def pass_on(
        self,
        layer: Layer,
        following: Layer,
        hidden: Tensor,
        attended: Tensor,
        cos: Tensor,
        signed_sin: Tensor,
    ) -> tuple[Tensor, Projected]:
        """See PlainPieces."""
        _of_any_length(hidden, attended)
        return self._pass_on(layer, following, hidden, attended, cos, signed_sin)



def check_compiler(device: torch.device) -> None:
    """Raise ModelError if code cannot be compiled for a device."""
    from torch._inductor.cpp_builder import get_cpp_compiler

    try:
        compiler = str(get_cpp_compiler())
    except Exception as error:  # the exception class depends on torch's version
        raise ModelError(_NO_COMPILER) from error
    if shutil.which(compiler) is None:
        raise ModelError(_NO_COMPILER)
    if device.type == "cuda":
        from torch.utils._triton import has_triton

        if not has_triton():
            raise ModelError(
                "compiling for a GPU needs triton, which is not installed: install it, or do not compile"
            )


_NO_COMPILER = (
    "compiling needs a C++ compiler and none was found: install g++ (or name one in CXX), or do not compile"
)


def _of_any_length(*tensors: Tensor) -> None:
    """Mark the number of rows as dynamic for compilation; torch always treats a single row as a special case."""
    if tensors[0].shape[0] > 1:
        for tensor in tensors:
            torch._dynamo.mark_dynamic(tensor, 0)


def _products(layer: Layer) -> tuple[Any, ...]:
    return layer.qkv, layer.out, layer.gate_up, layer.down
