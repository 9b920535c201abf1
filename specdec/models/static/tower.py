# SPDX-License-Identifier: Apache-2.0
"""Qwen2-VL's vision tower on a GPU: recorded per picture size and replayed, because a camera's frames have one size."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from specdec.errors import first_line
from specdec.models.direct.modules import TowerOperations, VisionTower, frame_lengths
from specdec.models.direct.shapes import VisionShape
from specdec.models.positions import Grid
from specdec.models.static.recording import CudaGraphs, GraphRecorder

_LOG = logging.getLogger("specdec.models")
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.03, torch.float16: 0.006}
"""Tolerance between kernels and plain torch, relative to the largest value."""
_ROWS = 70
_MOST_SIZES = 4
"""Most recordings kept; each holds the activations of one pass."""
_SEEN_BEFORE = 2
"""A size is recorded at its second use."""


class RecordedTower:
    """Patches of pictures -> embeddings. Thread-safe."""

    def __init__(self, tower: VisionTower, recorder: GraphRecorder) -> None:
        self.tower = tower
        self._recorder = recorder
        self._weight = tower.merger.ln_q.weight
        self._lock = threading.Lock()
        self._asked: OrderedDict[tuple[Grid, ...], int] = OrderedDict()
        self._recorded: OrderedDict[
            tuple[Grid, ...], tuple[Tensor, Callable[[], None], Callable[[], Tensor]]
        ] = OrderedDict()

    def __call__(self, pixels: Tensor, grids: Sequence[Grid]) -> Tensor:
        """pixels float [patches, features] -> [tokens, hidden_size] of all pictures, concatenated."""
        sizes = tuple(grids)
        with self._lock:
            found = self._recorded.get(sizes)
            if found is None:
                times = self._asked.pop(sizes, 0) + 1
                self._asked[sizes] = times
                if len(self._asked) > 64:
                    self._asked.popitem(last=False)
                if times < _SEEN_BEFORE:
                    return self._work(pixels.to(self._weight.device, self._weight.dtype), sizes)()
                found = self._record(pixels, sizes)
            self._recorded.move_to_end(sizes)
            buffer, replay, result = found
            buffer.copy_(pixels)
            replay()
            return result().clone()

    def _record(
        self, pixels: Tensor, sizes: tuple[Grid, ...]
    ) -> tuple[Tensor, Callable[[], None], Callable[[], Tensor]]:
        buffer = pixels.to(self._weight.device, self._weight.dtype, copy=True)
        replay, result = self._recorder.record(self._work(buffer, sizes))
        found = self._recorded[sizes] = (buffer, replay, result)
        if len(self._recorded) > _MOST_SIZES:
            self._recorded.popitem(last=False)
        return found

    def _work(self, pixels: Tensor, sizes: tuple[Grid, ...]) -> Callable[[], Tensor]:
        cos, sin = (part.to(pixels.device) for part in self.tower.rotary(sizes))
        lengths = frame_lengths(sizes)
        return lambda: self.tower.through(pixels, lengths, cos, sin)


def record_tower(visual: Any, config: Any, device: torch.device) -> RecordedTower | None:
    """The recorded tower of a Qwen2-VL network on a GPU, sharing its weights; None if its structure is unknown."""
    from specdec.models.static.kernels import TritonTower

    return tower_of(visual, config, TritonTower(), CudaGraphs(device))


def tower_of(visual: Any, config: Any, operations: TowerOperations, recorder: GraphRecorder) -> RecordedTower | None:
    """As `record_tower`, with given operations and recorder. If the operations fail or differ from plain torch, a
    warning is logged and plain torch is used.
    """
    if config.model_type not in ("qwen2_vl", "qwen2_vl_vision") or config.hidden_act != "quick_gelu":
        return None
    with torch.device("meta"):
        tower = VisionTower(VisionShape.from_library(config))
    try:
        tower.load_state_dict(visual.state_dict(), assign=True)
    except RuntimeError:  # quantised, or another version
        return None
    tower.requires_grad_(False)
    try:
        apart = largest_difference(tower, operations)
        agrees = apart < TOLERANCE[tower.merger.ln_q.weight.dtype]  # False for NaN
        reason = f"they differ from plain torch by {apart:.2g}"
    except Exception as error:  # compilers and drivers fail in many ways; plain torch still works
        agrees, reason = False, first_line(error)
    if agrees:
        tower.operations = operations
    else:
        _LOG.warning("the vision tower does not use its own kernels and runs slower (%s)", reason)
    return RecordedTower(tower, recorder)


@torch.inference_mode()
def largest_difference(tower: VisionTower, operations: TowerOperations) -> float:
    """Compare `operations` with plain torch in a tower's first block, on noise: the largest difference relative to the
    largest value, maximised over the operations.
    """
    block: Any = tower.blocks[0]
    dim = tower.rotary([(1, 2, 2)])[0].shape[-1]
    weight = block.mlp.fc1.weight
    (wide, width), generator = weight.shape, torch.Generator().manual_seed(0)

    def noise(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(weight.device)

    (hidden, rows), raised = noise(2, _ROWS, width).to(weight.dtype), noise(_ROWS, wide).to(weight.dtype)
    qkv = noise(_ROWS, 3, width // dim, dim).to(weight.dtype)
    cos, sin = noise(2, _ROWS, 1, dim)
    found = []
    for way in (TowerOperations(), operations):
        query, key = way.turn(qkv, cos, sin)
        q, k, v = (part.transpose(0, 1)[None] for part in (query, key, qkv[:, 2]))
        attended = way.attend(q, k, v, dim**-0.5)
        bent = way.quick_gelu(block.mlp.fc1, rows)
        total, normed = way.add_norm(hidden.clone(), block.mlp.fc2, raised, block.norm2)
        found.append([query, key, attended, bent, total, normed])
    apart = [(a.float() - b.float()).abs().max() / a.float().abs().max() for a, b in zip(*found, strict=True)]
    return float(torch.stack(apart).max())
