# SPDX-License-Identifier: Apache-2.0
"""Check the Triton kernels of the static path against the torch reference, on the GPU of this machine.

    python benchmarks/gpu/check_kernels.py [--quick]
"""

from __future__ import annotations

import sys

import torch
import torch.nn.functional as F
from torch import nn

from specdec.models.attention.segment import Segment
from specdec.models.direct.modules import VisionTower
from specdec.models.direct.shapes import VisionShape
from specdec.models.layers.pieces import Layer, Linear
from specdec.models.session import grow_sight
from specdec.models.static.batch import LINES, bucket_of, lay_out
from specdec.models.static.kernels import TritonOperations, TritonTower
from specdec.models.static.operations import Inputs, TorchOperations
from specdec.models.static.tower import TOLERANCE, largest_difference

PARENTS = [-1, -1, 0, 0, 2, 1]
DEPTHS = (0, 0, 1, 1, 2, 1)


def main() -> None:
    tree = grow_sight(torch.empty(0, 0, dtype=torch.bool), PARENTS)
    cases = {
        "one row": [(700, 1, None, ())],
        "chains": [(3, 5, None, ()), (1500, 2, None, ()), (0, 40, None, ())],
        "a tree and a chain": [(400, 6, tree, DEPTHS), (20, 1, None, ())],
        "a grown tree": [(404, 2, tree[4:], DEPTHS)],
        "32 sessions": [(100 + 7 * number, 1, None, ()) for number in range(32)],
    }
    quick = "--quick" in sys.argv
    for dtype, bound in TOLERANCE.items():
        if quick and dtype != torch.bfloat16:
            continue
        for heads, kv_heads, dim, window, norm in (
            (28, 4, 128, 0, False),
            (9, 3, 64, 0, False),
            (4, 1, 256, 64, True),
        ):
            for name, sessions in cases.items():
                worst = difference(heads, kv_heads, dim, window, norm, sessions, dtype)
                print(
                    f"{str(dtype)[6:]:9} heads {heads}/{kv_heads} x {dim} window {window} {name:20} {worst:.2g}",
                    flush=True,
                )
                assert worst < bound, f"{worst} is more than {bound}"
        for inner, outer in ((1536, 2048), (8960, 1536), (320, 70)):
            worst = product_difference(inner, outer, dtype)
            print(f"{str(dtype)[6:]:9} products {inner} x {outer} {worst:.2g}", flush=True)
            assert worst < bound, f"{worst} is more than {bound}"
        for width, heads in ((80, 2), (1280, 16)):
            worst = tower_difference(width, heads, dtype)
            print(f"{str(dtype)[6:]:9} tower {width} {worst:.2g}", flush=True)
            assert worst < bound, f"{worst} is more than {bound}"
    print("kernels agree with the reference")


def difference(
    heads: int, kv_heads: int, dim: int, window: int, norm: bool, sessions: list, dtype: torch.dtype
) -> float:
    """The largest difference in attention outputs and caches, relative to the reference's largest value."""
    torch.manual_seed(1)
    place = torch.device("cuda")
    qkv = torch.randn(
        bucket_of(sum(one[1] for one in sessions)), (heads + 2 * kv_heads) * dim, device=place
    ).to(dtype)
    cos, sin = torch.randn(2, 4096, dim, device=place).to(dtype)
    weight = torch.randn(heads + kv_heads, dim, device=place).to(dtype) if norm else None
    layer = Layer(None, None, weight, None, None, None, None, None, None, F.silu, window)
    caches = [
        torch.randn(2, 2, kv_heads, past + rows + 64, dim, device=place).to(dtype)
        for past, rows, _, _ in sessions
    ]
    found = []
    for operations in ways(heads, kv_heads, dim, dtype):
        segments = []
        for cache, (past, rows, tree, depths) in zip(caches, sessions, strict=True):
            at = range(past, past + rows)
            if tree is not None:
                at = [past - (len(depths) - rows) + depth for depth in depths[-rows:]]
            segments.append(Segment(cache.clone(), past, rows, tree, depths, list(at)))
        unused = torch.zeros(2, 2, kv_heads, 1, dim, device=place, dtype=dtype)  # padding rows write here
        batch = lay_out(segments, [[1] * one.rows for one in segments], unused)
        inputs = Inputs(batch.bucket, LINES, place)
        inputs.load(batch)
        attended = operations.attend(layer, 1, qkv, (cos, sin), inputs)[: batch.rows]
        found.append([attended, *(one.cache for one in segments)])
    return worst_of(found)


def ways(heads: int, kv_heads: int, dim: int, dtype: torch.dtype) -> list:
    """The reference operations, and the kernels in each way that this GPU can launch them."""
    sizes = (heads, kv_heads, dim, 1e-6, None)
    early = [True] if torch.cuda.get_device_capability() >= (9, 0) else []
    return [TorchOperations(*sizes), *(TritonOperations(*sizes, dtype, one) for one in (False, *early))]


def worst_of(found: list[list]) -> float:
    """The largest difference from the first result, relative to its largest value."""
    return max(
        float((a.float() - b.float()).abs().max() / a.float().abs().max())
        for other in found[1:]
        for a, b in zip(found[0], other, strict=True)
    )


def product_difference(inner: int, outer: int, dtype: torch.dtype) -> float:
    """The largest relative difference in products fused with the operations around them, for one and two rows."""
    torch.manual_seed(1)
    weight, bias = (
        torch.randn(2 * outer, inner, device="cuda").to(dtype) / inner**0.5,
        torch.randn(2 * outer, device="cuda"),
    )
    with_bias, without = Linear(weight, bias.to(dtype)), Linear(weight, None)
    norm = torch.rand(inner, device="cuda").to(dtype) + 0.5
    found: list[list] = []
    for operations in ways(4, 2, 64, dtype):
        torch.manual_seed(2)
        found.append([])
        for rows in (1, 2):
            hidden, before = (
                torch.randn(rows, width, device="cuda").to(dtype) for width in (inner, 2 * outer)
            )
            found[-1] += [
                operations.norm_product(hidden, norm, with_bias),
                operations.norm_gate(hidden, norm, without),
                operations.add_product(before, hidden, without),
            ]
    return worst_of(found)


def tower_difference(width: int, heads: int, dtype: torch.dtype) -> float:
    """The largest relative difference in what a vision tower computes between its products."""
    torch.manual_seed(1)
    tower = VisionTower(VisionShape(1, width, 64, heads, 4 * width, 3, 14, 2, 2, 10000.0)).requires_grad_(
        False
    )
    for norm in (module for module in tower.modules() if isinstance(module, nn.LayerNorm)):
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    return largest_difference(tower.to("cuda", dtype), TritonTower())


if __name__ == "__main__":
    main()
