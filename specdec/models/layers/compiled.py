# SPDX-License-Identifier: Apache-2.0
"""A model's pieces, compiled by torch: fewer and larger operations, where a device spends its time on starting them.

Each piece is compiled twice, for one row and for any number of rows, and no more: neither the layer nor the length of
a sequence is part of it. Compiled arithmetic may differ from torch's own in the last bits, as that of different numbers
of rows does.
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
"""Of a piece in one process: several models, each with two, and again for another number of threads."""


class CompiledPieces:
    """PlainPieces, compiled."""

    def __init__(self, pieces: PlainPieces, layers: Iterable[Layer], device: torch.device) -> None:
        """Raises ModelError where there is no compiler, or where weights are quantised."""
        layers = list(layers)
        check_compiler(device)
        if not all(isinstance(product, Linear) for layer in layers for product in _products(layer)):
            raise ModelError("quantised weights cannot be compiled: load the model without one of both")
        limits: Any = torch._dynamo.config
        limits.cache_size_limit = max(limits.cache_size_limit, _VARIANTS)
        self._enter: Callable[..., Projected] = torch.compile(pieces.enter)
        self._leave: Callable[..., Tensor] = torch.compile(pieces.leave)
        self._pass_on: Callable[..., tuple[Tensor, Projected]] = torch.compile(pieces.pass_on)

    def begin(self, hidden: Tensor, rotaries: list[Rotary]) -> tuple[Tensor, list[Rotary]]:
        """Tensors that begin their memory: where in a larger one they stand would be part of what is compiled."""
        rotaries = [(cos.clone(), signed_sin.clone()) for cos, signed_sin in rotaries]
        _of_any_length(*(factor for pair in rotaries for factor in pair))
        return hidden.clone(memory_format=torch.contiguous_format), rotaries

    def enter(self, layer: Layer, hidden: Tensor, cos: Tensor, signed_sin: Tensor) -> Projected:
        """See Pieces."""
        _of_any_length(hidden)
        return self._enter(layer, hidden, cos, signed_sin)

    def leave(self, layer: Layer, hidden: Tensor, attended: Tensor) -> Tensor:
        """See Pieces."""
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
        """See Pieces."""
        _of_any_length(hidden, attended)
        return self._pass_on(layer, following, hidden, attended, cos, signed_sin)



def check_compiler(device: torch.device) -> None:
    """Raise ModelError where nothing can be compiled for a device."""
    from torch._inductor.cpp_builder import get_cpp_compiler

    try:
        compiler = str(get_cpp_compiler())
    except Exception as error:  # torch has classes of its own for it, by version
        raise ModelError(_NO_COMPILER) from error
    if shutil.which(compiler) is None:
        raise ModelError(_NO_COMPILER)
    if device.type == "cuda":
        from torch.utils._triton import has_triton

        if not has_triton():
            raise ModelError(
                "compiling for a GPU needs triton, which is not there: install it, or do not compile"
            )


_NO_COMPILER = (
    "compiling needs a C++ compiler and none was found: install g++ (or name one in CXX), or do not compile"
)


def _of_any_length(*tensors: Tensor) -> None:
    """Say that the number of rows is not part of what is compiled; a single row is a case of its own to torch."""
    if tensors[0].shape[0] > 1:
        for tensor in tensors:
            torch._dynamo.mark_dynamic(tensor, 0)


def _products(layer: Layer) -> tuple[Any, ...]:
    return layer.qkv, layer.out, layer.gate_up, layer.down
