# SPDX-License-Identifier: Apache-2.0
"""Compare products of few rows, fused by tile size and with cuBLAS; and our attention with torch's FlexAttention.

    python benchmarks/gpu/compare.py [2b,7b]

Each time, in microseconds, is that of one recorded launch sequence over the 28 layers of Qwen2-VL, each layer with its
own weights in memory. The floor is the time to read the weights at 4.15 TB/s, the measured rate of an H200.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from specdec.models.attention.segment import Segment
from specdec.models.layers.pieces import Layer, Linear
from specdec.models.static import kernels
from specdec.models.static.batch import LINES, bucket_of, lay_out
from specdec.models.static.kernels import TritonOperations
from specdec.models.static.operations import Inputs
from specdec.models.static.recording import CudaGraphs

LAYERS, DIM, EPS = 28, 128, 1e-6
SIZES = {"2b": (1536, 8960, 12, 2), "7b": (3584, 18944, 28, 4)}
"""Hidden and inner width, query and key heads."""
TILES = [
    (4, 1024, 4),
    (2, 1024, 4),
    (8, 512, 4),
    (4, 512, 4),
    (2, 2048, 4),
    (4, 2048, 8),
    (1, 2048, 4),
    (8, 1024, 8),
]
"""Columns, depth and warps of a Triton program."""
DEVICE, DTYPE = torch.device("cuda"), torch.bfloat16


def main() -> None:
    with torch.inference_mode():
        for name in (sys.argv[1] if len(sys.argv) > 1 else "2b,7b").split(","):
            products(name)
        for rows in (1, 8):
            for past in (512, 2048):
                attention(rows, past)


def timed(work: Callable[[], object]) -> float:
    """Median microseconds of work replayed from a recorded CUDA graph."""
    replay, _ = CudaGraphs(DEVICE).record(work)
    taken = []
    for number in range(8):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        replay()
        last.record()
        torch.cuda.synchronize()
        if number > 1:
            taken.append(1e3 * first.elapsed_time(last))
    return statistics.median(taken)


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, device=DEVICE, dtype=DTYPE) * 0.02


def products(name: str) -> None:
    hidden, inner, heads, kv_heads = SIZES[name]
    wide = (heads + 2 * kv_heads) * DIM
    sizes = (heads, kv_heads, DIM, EPS, None, DTYPE)
    plain, fused = TritonOperations(*sizes), TritonOperations(*sizes, early=True)
    shapes = {
        "qkv": (wide, hidden),
        "out": (hidden, heads * DIM),
        "gate": (2 * inner, hidden),
        "down": (hidden, inner),
    }
    norm, silu = numbers(hidden) + 1, SimpleNamespace(activation=F.silu)
    for kind, shape in shapes.items():
        weights = [
            Linear(numbers(*shape), numbers(shape[0]) if kind == "qkv" else None) for _ in range(LAYERS)
        ]
        for rows in (1, 2):
            given, before = numbers(rows, shape[1]), numbers(rows, hidden)

            def cublas(
                one: Linear, kind: str = kind, given: Tensor = given, before: Tensor = before
            ) -> Tensor:
                if kind in ("out", "down"):
                    return one(given)
                found = one(plain.add_norm(before, before, norm, EPS)[1])
                return plain.gate(silu, found) if kind == "gate" else found

            def ours(
                one: Linear,
                how: TritonOperations,
                kind: str = kind,
                given: Tensor = given,
                before: Tensor = before,
            ) -> Tensor:
                if kind in ("out", "down"):
                    return how.add_product(before, given, one)
                return (how.norm_gate if kind == "gate" else how.norm_product)(before, norm, one)

            floor = LAYERS * weights[0].weight.numel() * 2 / 4.15e6
            found = [f"floor {floor:.0f}", f"cublas {timed(lambda: [cublas(one) for one in weights]):.0f}"]
            for tile in TILES:
                kernels._COLUMNS, kernels._DEPTH, kernels._WARPS = tile
                found.append(f"{tile} {timed(lambda: [ours(one, fused) for one in weights]):.0f}")
            kernels._COLUMNS, kernels._DEPTH, kernels._WARPS = TILES[0]
            found.append(f"not early {timed(lambda: [ours(one, plain) for one in weights]):.0f}")
            print(f"{name} {kind} rows {rows}:", "; ".join(found), flush=True)


def attention(rows: int, past: int) -> None:
    """Compare attention. Ours also rotates and stores; FlexAttention only attends, with the length in a tensor."""
    _, _, heads, kv_heads = SIZES["7b"]
    capacity = 4096
    layer = Layer(None, None, None, None, None, None, None, None, None, F.silu, 0)
    cache = numbers(LAYERS, 2, kv_heads, capacity, DIM)
    inputs = Inputs(bucket_of(rows), LINES, DEVICE)
    segment = Segment(cache, past, rows, positions=range(past, past + rows))
    inputs.load(lay_out([segment], [[1] * rows], numbers(LAYERS, 2, kv_heads, 1, DIM)))
    qkv, table = numbers(rows, (heads + 2 * kv_heads) * DIM), (numbers(capacity, DIM), numbers(capacity, DIM))
    found = []
    for early in (False, True):
        operations = TritonOperations(heads, kv_heads, DIM, EPS, None, DTYPE, early)
        took = timed(
            lambda how=operations: [how.attend(layer, index, qkv, table, inputs) for index in range(LAYERS)]
        )
        found.append(f"ours{' early' if early else ''} {took / LAYERS:.1f}")
    length, query = torch.tensor([past], device=DEVICE), numbers(1, heads, rows, DIM)
    mask = create_block_mask(
        lambda b, h, row, key: key <= row + length[0], 1, None, rows, capacity, device="cuda"
    )
    flex = torch.compile(flex_attention, dynamic=False)

    def theirs() -> list[Tensor]:
        return [
            flex(query, cache[index, 0][None], cache[index, 1][None], block_mask=mask, enable_gqa=True)
            for index in range(LAYERS)
        ]

    found.append(f"FlexAttention {timed(theirs) / LAYERS:.1f}")
    print(f"attention of {rows} rows behind {past}, a layer:", "; ".join(found), flush=True)


if __name__ == "__main__":
    main()
