# SPDX-License-Identifier: Apache-2.0
"""Counts the operations launched on a device, and how often the program waits for the device's results."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

_READS = frozenset(
    {
        Tensor.item,
        Tensor.tolist,
        Tensor.cpu,
        Tensor.numpy,
        Tensor.__bool__,
        Tensor.__int__,
        Tensor.__float__,
        Tensor.__index__,
        Tensor.nonzero,
        torch.nonzero,
        torch.equal,
        Tensor.equal,
        torch.unique,
        Tensor.unique,
        Tensor.masked_select,
        torch.masked_select,
    }
)
"""Functions that need a value from the device."""


class Launches(TorchDispatchMode):
    """count: operations launched on a device; views do not count."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.count += not func.is_view
        return func(*args, **(kwargs or {}))


class Reads(TorchFunctionMode):
    """count: how often the program read values of a tensor, by `item`, `tolist`, a boolean index and the like.

    If the tensor is on a GPU the program waits each time. On a CPU all reads are counted, even of tensors that would
    never be on a GPU.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if args and isinstance(args[0], Tensor):
            self.count += func in _READS or (
                func in (Tensor.__getitem__, Tensor.__setitem__) and _is_boolean(args[1])
            )
            self.count += func is Tensor.to and _goes_to_the_cpu(args[0], args[1:], kwargs or {})
        return func(*args, **(kwargs or {}))


def _is_boolean(index: Any) -> bool:
    parts = index if isinstance(index, tuple) else (index,)
    return any(isinstance(part, Tensor) and part.dtype == torch.bool for part in parts)


def _goes_to_the_cpu(tensor: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    named = [one for one in (*args, kwargs.get("device")) if isinstance(one, str | torch.device)]
    return tensor.device.type != "cpu" and any(torch.device(one).type == "cpu" for one in named)
