"""A device that is none: tensors say that they are not on the CPU, and are worked out there all the same.

It goes by torch's name "meta": "cuda" itself cannot be said without the driver's libraries. What a GPU would refuse is
refused: a tensor of the CPU with dimensions in one operation with one of the device. What would make the program wait
for a GPU is counted: every number and every tensor that comes back to the CPU.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from specdec.models import LoadedModel

DEVICE = torch.device("meta")
CPU = torch.device("cpu")

aten = torch.ops.aten

_MAY_MIX = {
    aten.copy_.default,
    aten._to_copy.default,
    aten.to.other,
    aten.index.Tensor,  # a GPU is indexed by what the CPU says, too: that goes up first
    aten.index_put_.default,
    aten.index_put.default,
}
_READS = (
    aten._local_scalar_dense,
    aten.item,
    aten.equal,
    aten.nonzero,
    aten.masked_select,
    aten._unique2,
    aten.unique_dim,
    aten.unique_consecutive,
)
_COPIES = (aten._to_copy, aten.copy_, aten.to)
_MATH = 0
"""Of the back-ends of attention."""


class OnDevice(Tensor):
    """A tensor that says it is on the device; `held` has its numbers."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> OnDevice:
        layout = {"strides": held.stride(), "storage_offset": held.storage_offset()}
        made = Tensor._make_wrapper_subclass(cls, held.shape, **layout, dtype=held.dtype, device=DEVICE)
        assert held.device == CPU, held.device
        made.held = held
        return made

    def __repr__(self, **_: Any) -> str:
        return f"OnDevice({self.held!r})"

    def tolist(self) -> Any:
        """The numbers, for which the program waits."""
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return PretendedDevice.carry_out(func, args, kwargs or {})


class Uploads(TorchFunctionMode):
    """`torch.tensor` makes its tensors by itself."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        asked = (kwargs or {}).get("device")
        if func is torch.tensor and asked is not None and torch.device(asked).type != "cpu":
            return OnDevice(func(*args, **{**(kwargs or {}), "device": CPU}))
        return func(*args, **(kwargs or {}))


class PretendedDevice(TorchDispatchMode):
    """While it is on, what is made on the device is made here. waits: for what the program had to wait."""

    waits: ClassVar[Counter[str]] = Counter()

    def __enter__(self) -> Any:
        self._uploads = Uploads()
        self._uploads.__enter__()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._uploads.__exit__(*error)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self.carry_out(func, args, kwargs or {})

    @classmethod
    def carry_out(cls, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Do on the CPU what the device is instructed to do, and wrap what comes of it."""
        tensors = list(_tensors_in((args, kwargs)))
        mine = [one for one in tensors if isinstance(one, OnDevice)]
        if any(one.device == DEVICE and not isinstance(one, OnDevice) for one in tensors):
            raise RuntimeError(
                f"{func}: a tensor without numbers was made unseen: index by tensors, not by lists"
            )
        asked = next((one for one in (*args, kwargs.get("device")) if isinstance(one, torch.device)), None)
        to = DEVICE if mine else CPU
        if asked is not None:
            to = DEVICE if asked.type != "cpu" else CPU
            args = tuple(CPU if isinstance(one, torch.device) else one for one in args)
            kwargs = {**kwargs, "device": CPU} if "device" in kwargs else kwargs
        elif func is aten.copy_.default:
            to = DEVICE if isinstance(args[0], OnDevice) else CPU
        if mine and func not in _MAY_MIX:
            others = [one for one in tensors if not isinstance(one, OnDevice) and one.dim()]
            if others:
                raise RuntimeError(
                    f"{func}: tensors on the device and on the CPU ({[tuple(o.shape) for o in others]})"
                )
        if func is aten._fused_sdp_choice.default:
            return _MATH
        if mine and _waits(func, args, to):
            cls.waits[str(func)] += 1
        if "pin_memory" in kwargs:
            kwargs = {**kwargs, "pin_memory": False}
        held_args, held_kwargs = _mapped(_held, (args, kwargs))
        result = func(*held_args, **held_kwargs)
        in_place = func._schema.name.endswith("_") and not func._schema.name.endswith("__")
        if in_place and mine and isinstance(args[0], Tensor):
            return args[0]  # in place
        return _mapped(_wrapped, result) if to == DEVICE else result


# torch's own functions for this take most of an answer's time: they look for all kinds of containers.
def _tensors_in(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list, dict)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _tensors_in(one)


def _mapped(change: Callable[[Any], Any], value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)([_mapped(change, one) for one in value])
    if isinstance(value, dict):
        return {name: _mapped(change, one) for name, one in value.items()}
    return change(value)


def _waits(func: Any, args: tuple[Any, ...], to: torch.device) -> bool:
    if func.overloadpacket in _READS:
        return True
    if func in (aten.index.Tensor, aten.index_put_.default, aten.index_put.default):
        return any(isinstance(one, Tensor) and one.dtype == torch.bool for one in args[1])
    source = args[1] if func is aten.copy_.default else args[0]
    return func.overloadpacket in _COPIES and to == CPU and isinstance(source, OnDevice)


def _held(value: Any) -> Any:
    return value.held if isinstance(value, OnDevice) else value


def _wrapped(value: Any) -> Any:
    return OnDevice(value) if isinstance(value, Tensor) and not isinstance(value, OnDevice) else value


def on_device(model: LoadedModel) -> LoadedModel:
    """The same model with its weights on the device. Only within `PretendedDevice`."""
    network = copy.deepcopy(model.network)
    for module in network.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is not None:
                module._parameters[name] = nn.Parameter(_wrapped(parameter.data), requires_grad=False)
        for name, buffer in list(module._buffers.items()):
            if buffer is not None:
                module._buffers[name] = _wrapped(buffer)
    return LoadedModel(
        network, model.tokenizer, model.path, model.eos_token_ids, model.family, model._preparer
    )


@contextmanager
def waits() -> Iterator[Counter[str]]:
    """Counts what the program waits for."""
    before = Counter(PretendedDevice.waits)
    found: Counter[str] = Counter()
    yield found
    found.update(PretendedDevice.waits - before)


def names(found: Counter[str]) -> Sequence[str]:
    """For messages."""
    return sorted(found.elements())
