# SPDX-License-Identifier: Apache-2.0
"""The static path's operations as Triton kernels, for NVIDIA GPUs from compute capability 8.0 on.

Attention is flash decoding (Dao et al., 2023): the keys of a tile are split over several programs, and a second kernel
joins their partial results by log-sum-exp. Lengths, cache addresses and tree masks are read on the device, so one
recorded launch serves every length, and a program without keys ends at once.
"""

# mypy: ignore-errors
# Triton compiles these functions from source and supports only its own annotations.

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor, nn
from torch.nn import functional as F
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from specdec.models.direct.modules import TowerOperations
from specdec.models.layers.pieces import Layer, Linear
from specdec.models.static.batch import MAX_NODES, TILE, BatchRow, Tile
from specdec.models.static.operations import Inputs, TorchOperations

_MOST_KEYS, _KEY_BYTES = 64, 16384
"""Keys that a program reads at a time; several such blocks must fit into a multiprocessor's shared memory."""
_PROGRAMS = 264
"""Target number of programs if each row is a tile, enough to fill a large GPU twice; splits are chosen for it."""
_FEWEST_SPLITS, _MOST_SPLITS = 4, 32
_COLUMNS, _DEPTH, _WARPS = 4, 1024, 4
"""For a product with few rows: weight rows per program, numbers of each row read at a time, and warps."""


class TritonOperations(TorchOperations):
    """Operations for one model on one GPU."""

    def __init__(
        self,
        heads: int,
        kv_heads: int,
        head_dim: int,
        eps: float,
        scale: float | None,
        dtype: torch.dtype,
        early: bool = False,
    ) -> None:
        """early: start a kernel before the previous one has ended, and wait for its results on the device (compute
        capability 9.0).
        """
        super().__init__(heads, kv_heads, head_dim, eps, head_dim**-0.5 if scale is None else scale)
        self._dtype = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}[
            dtype
        ]
        self._precision = "ieee" if dtype == torch.float32 else "tf32"
        self._launch = {"EARLY": True, "launch_pdl": True} if early else {"EARLY": False}

    def add_norm(
        self, hidden: Tensor, added: Tensor | None, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        """See TorchOperations."""
        rows, width = hidden.shape
        total = hidden if added is None else torch.empty_like(hidden)
        normed = torch.empty_like(hidden)
        block = triton.next_power_of_2(width)
        _add_norm[(rows,)](
            hidden,
            hidden if added is None else added,
            weight,
            total,
            normed,
            width,
            eps,
            ADD=added is not None,
            BLOCK=block,
            num_warps=min(16, max(1, block // 512)),
            **self._launch,
        )
        return total, normed

    def attend(
        self, layer: Layer, index: int, qkv: Tensor, table: tuple[Tensor, Tensor], inputs: Inputs
    ) -> Tensor:
        """See TorchOperations."""
        rows, dim, heads, kv_heads = qkv.shape[0], self._head_dim, self._heads, self._kv_heads
        block = triton.next_power_of_2(dim)
        query = torch.empty(rows, heads * dim, dtype=qkv.dtype, device=qkv.device)
        norm = layer.qk_norm
        cos, sin = table
        _rotate_and_store[(rows, heads + 2 * kv_heads)](
            qkv,
            qkv if norm is None else norm,
            cos,
            sin,
            cos.stride(0),
            inputs.numbers,
            query,
            index,
            self._eps,
            rows,
            HEADS=heads,
            KV_HEADS=kv_heads,
            DIM=dim,
            BLOCK=block,
            NORM=norm is not None,
            DTYPE=self._dtype,
            num_warps=1,
            **self._launch,
        )
        groups = heads // kv_heads
        splits = triton.next_power_of_2(triton.cdiv(_PROGRAMS, kv_heads * rows))
        splits = min(_MOST_SPLITS, max(_FEWEST_SPLITS, splits))
        tile_rows = min(TILE, rows)
        block_rows = max(16, triton.next_power_of_2(groups * tile_rows))
        partial = torch.empty(splits, rows, heads * dim, dtype=torch.float32, device=qkv.device)
        score = torch.empty(splits, rows, heads, dtype=torch.float32, device=qkv.device)
        _attend_part[(rows, kv_heads, splits)](
            query,
            inputs.numbers,
            inputs.mask,
            partial,
            score,
            index,
            self._scale,
            rows,
            HEADS=heads,
            KV_HEADS=kv_heads,
            GROUPS=groups,
            DIM=dim,
            BLOCK=block,
            BLOCK_ROWS=block_rows,
            KEYS=min(_MOST_KEYS, max(16, _KEY_BYTES // (block * qkv.element_size()))),
            WINDOW=layer.window,
            NODES=MAX_NODES,
            PRECISION=self._precision,
            DTYPE=self._dtype,
            num_warps=4,
            num_stages=2,
            **self._launch,
        )
        attended = torch.empty_like(query)
        _join_parts[(rows, heads)](
            partial,
            score,
            attended,
            rows,
            HEADS=heads,
            DIM=dim,
            BLOCK=block,
            SPLITS=splits,
            num_warps=1,
            **self._launch,
        )
        return attended

    def gate(self, layer: Layer, gate_up: Tensor) -> Tensor:
        """See TorchOperations."""
        if layer.activation is not F.silu:
            return super().gate(layer, gate_up)
        rows, width = gate_up.shape[0], gate_up.shape[1] // 2
        gated = torch.empty(rows, width, dtype=gate_up.dtype, device=gate_up.device)
        _silu_gate[(rows, triton.cdiv(width, 1024))](
            gate_up, gated, width, BLOCK=1024, num_warps=4, **self._launch
        )
        return gated

    def norm_product(self, hidden: Tensor, norm: Tensor, product: Linear) -> Tensor:
        """See TorchOperations."""
        found = torch.empty(
            hidden.shape[0], product.weight.shape[0], dtype=hidden.dtype, device=hidden.device
        )
        return self._few_rows(found, hidden, norm, product, hidden, NORM=True, GATE=False, ADD=False)

    def norm_gate(self, hidden: Tensor, norm: Tensor, product: Linear) -> Tensor:
        """See TorchOperations."""
        outer = product.weight.shape[0] // 2
        found = torch.empty(hidden.shape[0], outer, dtype=hidden.dtype, device=hidden.device)
        return self._few_rows(found, hidden, norm, product, hidden, NORM=True, GATE=True, ADD=False)

    def add_product(self, hidden: Tensor, given: Tensor, product: Linear) -> Tensor:
        """See TorchOperations."""
        found = torch.empty_like(hidden)
        return self._few_rows(found, given, given, product, hidden, NORM=False, GATE=False, ADD=True)

    def _few_rows(
        self, found: Tensor, given: Tensor, norm: Tensor, product: Linear, hidden: Tensor, **kind: bool
    ) -> Tensor:
        weight, bias, inner = product.weight, product.bias, given.shape[1]
        columns = max(1, _COLUMNS // 2) if kind["GATE"] else _COLUMNS
        _few_rows_product[(triton.cdiv(found.shape[1], columns),)](
            given,
            norm,
            weight,
            weight if bias is None else bias,
            hidden,
            found,
            found.shape[1],
            self._eps,
            ROWS=given.shape[0],
            INNER=inner,
            COLUMNS=columns,
            DEPTH=min(_DEPTH, triton.next_power_of_2(inner)),
            BIAS=bias is not None,
            num_warps=_WARPS,
            **kind,
            **self._launch,
        )
        return found


class TritonTower(TowerOperations):
    """The operations of a vision tower between its matrix products. They are checked for correctness when a model is
    loaded, but not for speed.
    """

    def turn(self, qkv: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """See TowerOperations."""
        rows, _, heads, dim = qkv.shape
        turned = torch.empty(2, rows, heads, dim, dtype=qkv.dtype, device=qkv.device)
        _turn_patches[(rows, 2)](
            qkv,
            cos,
            sin,
            turned,
            rows,
            HEADS=heads,
            DIM=dim,
            BLOCK=triton.next_power_of_2(dim),
            BLOCK_HEADS=triton.next_power_of_2(heads),
            num_warps=4,
        )
        return turned[0], turned[1]

    def add_norm(self, hidden: Tensor, linear: nn.Linear, rows: Tensor, norm: nn.LayerNorm) -> tuple[Tensor, Tensor]:
        """See TowerOperations."""
        added, width = linear(rows), hidden.shape[1]
        block = triton.next_power_of_2(width)
        _add_layer_norm[(hidden.shape[0],)](
            hidden,
            added,
            norm.weight,
            norm.bias,
            width,
            norm.eps,
            BLOCK=block,
            num_warps=min(16, max(1, block // 512)),
        )
        return hidden, added

    def quick_gelu(self, linear: nn.Linear, rows: Tensor) -> Tensor:
        """See TowerOperations."""
        wide = linear(rows)
        width = wide.shape[1]
        _quick_gelu[(wide.shape[0], triton.cdiv(width, 1024))](wide, width, BLOCK=1024, num_warps=4)
        return wide


_ROPE, _SLOT, _POSITION = (
    tl.constexpr(int(BatchRow.ROPE)),
    tl.constexpr(int(BatchRow.SLOT)),
    tl.constexpr(int(BatchRow.POSITION)),
)
_CACHE, _CAPACITY = tl.constexpr(int(BatchRow.CACHE)), tl.constexpr(int(BatchRow.CAPACITY))
_FIRST, _COUNT, _TOTAL = (
    tl.constexpr(int(Tile.FIRST)),
    tl.constexpr(int(Tile.COUNT)),
    tl.constexpr(int(Tile.TOTAL)),
)
_COMMITTED, _NODES = tl.constexpr(int(Tile.COMMITTED)), tl.constexpr(int(Tile.NODES))


@triton.jit
def _add_norm(
    hidden, added, weight, total, normed, width, eps, ADD: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr
):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < width
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()
    x = tl.load(hidden + row * width + at, mask=inside, other=0.0)
    if ADD:
        x = x + tl.load(added + row * width + at, mask=inside, other=0.0)
        tl.store(total + row * width + at, x, mask=inside)
    x = x.to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, 0) / width + eps)
    w = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(normed + row * width + at, (x * scale * w).to(normed.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows"])
def _turn_patches(
    qkv,
    cos,
    sin,
    turned,
    rows,
    HEADS: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
):
    """Rotate all heads of one row, of the queries or of the keys."""
    row = tl.program_id(0)
    part = tl.program_id(1)
    head = tl.arange(0, BLOCK_HEADS)[:, None]
    at = tl.arange(0, BLOCK)[None]
    inside = (head < HEADS) & (at < DIM)
    swapped = tl.where(at < DIM // 2, at + DIM // 2, at - DIM // 2)
    source = qkv + row * 3 * HEADS * DIM + part * HEADS * DIM + head * DIM
    x = tl.load(source + at, mask=inside, other=0.0).to(tl.float32)
    other = tl.load(source + swapped, mask=inside, other=0.0).to(tl.float32)
    c = tl.load(cos + row * DIM + at, mask=at < DIM, other=0.0)
    s = tl.load(sin + row * DIM + at, mask=at < DIM, other=0.0)
    found = x * c + tl.where(at < DIM // 2, -other, other) * s
    place = turned + part * rows * HEADS * DIM + row * HEADS * DIM + head * DIM
    tl.store(place + at, found.to(turned.dtype.element_ty), mask=inside)


@triton.jit
def _add_layer_norm(hidden, added, weight, shift, width, eps, BLOCK: tl.constexpr):
    """One row: hidden += added, and the norm of the sum overwrites `added`."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < width
    x = tl.load(hidden + row * width + at, mask=inside, other=0.0).to(tl.float32)
    x += tl.load(added + row * width + at, mask=inside, other=0.0).to(tl.float32)
    total = x.to(hidden.dtype.element_ty)
    tl.store(hidden + row * width + at, total, mask=inside)
    x = total.to(tl.float32)
    off = tl.where(inside, x - tl.sum(x, 0) / width, 0.0)
    scale = tl.rsqrt(tl.sum(off * off, 0) / width + eps)
    w = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(shift + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(added + row * width + at, (off * scale * w + b).to(added.dtype.element_ty), mask=inside)


@triton.jit
def _quick_gelu(wide, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    x = tl.load(wide + row * width + at, mask=inside, other=0.0).to(tl.float32)
    bent = (x / (1.0 + tl.exp(-1.702 * x))).to(wide.dtype.element_ty)
    tl.store(wide + row * width + at, bent, mask=inside)


@triton.jit
def _few_rows_product(
    given,
    norm,
    weight,
    bias,
    hidden,
    found,
    outer,
    eps,
    ROWS: tl.constexpr,
    INNER: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    NORM: tl.constexpr,
    GATE: tl.constexpr,
    ADD: tl.constexpr,
    BIAS: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Some columns of a product of one or two rows, whose cost is reading the weight once.

    The weight does not depend on the previous kernel, so its first part is loaded before that kernel has ended. The
    norm's scale is a factor per row and is applied at the end.
    """
    if EARLY:
        gdc_launch_dependents()
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    there = column[:, None] < outer
    at = tl.arange(0, DEPTH)
    place = weight + column[:, None].to(tl.int64) * INNER + at[None]
    above = place + outer.to(tl.int64) * INNER
    inside = at < INNER
    w = tl.load(place, mask=there & inside[None], other=0.0)
    if GATE:
        v = tl.load(above, mask=there & inside[None], other=0.0)
    if EARLY:
        gdc_wait()
    first = tl.zeros([COLUMNS, DEPTH], tl.float32)
    second = tl.zeros([COLUMNS, DEPTH], tl.float32)
    first_up = tl.zeros([COLUMNS, DEPTH], tl.float32)
    second_up = tl.zeros([COLUMNS, DEPTH], tl.float32)
    first_squares = tl.zeros([DEPTH], tl.float32)
    second_squares = tl.zeros([DEPTH], tl.float32)
    for start in range(0, INNER, DEPTH):
        inside = at < INNER - start
        ahead = at < INNER - start - DEPTH
        next_w = tl.load(place + start + DEPTH, mask=there & ahead[None], other=0.0)
        wide = w.to(tl.float32)
        x = tl.load(given + start + at, mask=inside, other=0.0).to(tl.float32)
        if ROWS == 2:
            y = tl.load(given + INNER + start + at, mask=inside, other=0.0).to(tl.float32)
        if NORM:
            factor = tl.load(norm + start + at, mask=inside, other=0.0).to(tl.float32)
            first_squares += x * x
            x = x * factor
            if ROWS == 2:
                second_squares += y * y
                y = y * factor
        first += wide * x[None]
        if ROWS == 2:
            second += wide * y[None]
        w = next_w
        if GATE:
            next_v = tl.load(above + start + DEPTH, mask=there & ahead[None], other=0.0)
            wide_up = v.to(tl.float32)
            first_up += wide_up * x[None]
            if ROWS == 2:
                second_up += wide_up * y[None]
            v = next_v
    kind = found.dtype.element_ty
    for row in tl.static_range(ROWS):
        sum = tl.sum(first if row == 0 else second, 1)
        up = tl.sum(first_up if row == 0 else second_up, 1)
        if NORM:
            scale = tl.rsqrt(tl.sum(first_squares if row == 0 else second_squares, 0) / INNER + eps)
            sum *= scale
            up *= scale
        target = row * outer + column
        if BIAS:
            sum += tl.load(bias + column, mask=column < outer, other=0.0).to(tl.float32)
        if GATE:  # rounded as in torch
            gate = sum.to(kind).to(tl.float32)
            sum = (gate / (1.0 + tl.exp(-gate))).to(kind).to(tl.float32) * up.to(kind).to(tl.float32)
        if ADD:
            sum = sum.to(kind).to(tl.float32) + tl.load(hidden + target, mask=column < outer, other=0.0).to(tl.float32)
        tl.store(found + target, sum.to(kind), mask=column < outer)


@triton.jit
def _silu_gate(gate_up, gated, width, BLOCK: tl.constexpr, EARLY: tl.constexpr):
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()
    row = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    gate = tl.load(gate_up + row * 2 * width + at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * width + width + at, mask=inside, other=0.0)
    silu = (gate / (1.0 + tl.exp(-gate))).to(up.dtype)  # rounded as in torch
    tl.store(gated + row * width + at, silu * up, mask=inside)


@triton.jit(do_not_specialize=["index", "rows"])
def _rotate_and_store(
    qkv,
    norm,
    cos,
    sin,
    table_stride,
    numbers,
    query,
    index,
    eps,
    rows,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    NORM: tl.constexpr,
    DTYPE: tl.constexpr,
    EARLY: tl.constexpr,
):
    """One head of one row: rotates a query; rotates a key and stores it in the cache; stores a value."""
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()
    row = tl.program_id(0)
    head = tl.program_id(1)
    at = tl.arange(0, BLOCK)
    inside = at < DIM
    source = qkv + row * (HEADS + 2 * KV_HEADS) * DIM + head * DIM
    x = tl.load(source + at, mask=inside, other=0.0)
    if head < HEADS + KV_HEADS:
        swapped = tl.where(at < DIM // 2, at + DIM // 2, at - DIM // 2)
        swapped = tl.where(inside, swapped, 0)
        other = tl.load(source + swapped, mask=inside, other=0.0)
        if NORM:
            wide = x.to(tl.float32)
            scale = tl.rsqrt(tl.sum(wide * wide, 0) / DIM + eps)
            x = (wide * scale).to(DTYPE) * tl.load(norm + head * DIM + at, mask=inside, other=0.0)
            other = (other.to(tl.float32) * scale).to(DTYPE) * tl.load(
                norm + head * DIM + swapped, mask=inside, other=0.0
            )
        place = tl.load(numbers + _ROPE * rows + row) * table_stride
        c = tl.load(cos + place + at, mask=inside, other=0.0)
        s = tl.load(sin + place + at, mask=inside, other=0.0)
        x = ((x * c).to(DTYPE).to(tl.float32) + other.to(tl.float32) * s.to(tl.float32)).to(DTYPE)
    if head < HEADS:
        tl.store(query + row * HEADS * DIM + head * DIM + at, x, mask=inside)
    else:
        # Index into the cache [layers, 2, kv_heads, capacity, dim]: all heads' keys precede all heads' values.
        part = index.to(tl.int64) * 2 * KV_HEADS + head - HEADS
        address = tl.multiple_of(tl.load(numbers + _CACHE * rows + row), 16)
        cache = tl.multiple_of(address.to(tl.pointer_type(DTYPE)), 16)
        capacity = tl.load(numbers + _CAPACITY * rows + row)
        slot = tl.load(numbers + _SLOT * rows + row)
        tl.store(cache + (part * capacity + slot) * DIM + at, x, mask=inside)


@triton.jit(do_not_specialize=["index", "rows"])
def _attend_part(
    query,
    numbers,
    mask,
    partial,
    score,
    index,
    factor,
    rows,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    GROUPS: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    WINDOW: tl.constexpr,
    NODES: tl.constexpr,
    PRECISION: tl.constexpr,
    DTYPE: tl.constexpr,
    EARLY: tl.constexpr,
):
    """One tile, one key head, one part of the keys. Query heads that share the key head are adjacent rows."""
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()
    tile = tl.program_id(0)
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
    count = tl.load(numbers + _COUNT * rows + tile)
    if count == 0:
        return
    first = tl.load(numbers + _FIRST * rows + tile)
    total = tl.load(numbers + _TOTAL * rows + tile)
    committed = tl.load(numbers + _COMMITTED * rows + tile)
    nodes = tl.load(numbers + _NODES * rows + tile)
    line = tl.arange(0, BLOCK_ROWS)
    own = line // GROUPS < count
    row = tl.where(own, first + line // GROUPS, first)
    head = kv_head * GROUPS + line % GROUPS
    position = tl.load(numbers + _POSITION * rows + row)
    slot = tl.load(numbers + _SLOT * rows + row)
    begin = 0
    if WINDOW > 0:
        begin = tl.maximum(tl.min(position, 0) + 1 - WINDOW, 0)
    share = tl.cdiv(tl.cdiv(total - begin, tl.num_programs(2)), KEYS) * KEYS
    start = begin + split * share
    stop = tl.minimum(start + share, total)
    place = (split * rows + row) * HEADS + head
    if start >= stop:
        tl.store(score + place, tl.full([BLOCK_ROWS], float("-inf"), tl.float32), mask=own)
        return
    at = tl.arange(0, BLOCK)
    inside = at < DIM
    q = tl.load(
        query + row[:, None] * HEADS * DIM + head[:, None] * DIM + at[None], mask=inside[None], other=0.0
    )
    # Allocations are aligned; without this hint the compiler loads keys element by element.
    address = tl.multiple_of(tl.load(numbers + _CACHE * rows + first), 16)
    cache = tl.multiple_of(address.to(tl.pointer_type(DTYPE)), 16)
    capacity = tl.load(numbers + _CAPACITY * rows + first)
    keys = cache + (index.to(tl.int64) * 2 * KV_HEADS + kv_head) * capacity * DIM
    values = keys + KV_HEADS * capacity * DIM
    highest = tl.full([BLOCK_ROWS], float("-inf"), tl.float32)
    weight = tl.zeros([BLOCK_ROWS], tl.float32)
    found = tl.zeros([BLOCK_ROWS, BLOCK], tl.float32)
    for some in range(start, stop, KEYS):
        key = some + tl.arange(0, KEYS)
        there = key < stop
        k = tl.load(keys + key[:, None] * DIM + at[None], mask=there[:, None] & inside[None], other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision=PRECISION) * factor
        seen = there[None] & (key[None] <= slot[:, None])
        if nodes > 0:
            node = key - committed
            known = tl.load(
                mask + row[:, None] * NODES + node[None],
                mask=(node[None] >= 0) & (node[None] < nodes),
                other=0,
            )
            seen = there[None] & ((node[None] < 0) | (known != 0))
        if WINDOW > 0:
            near = key[None] > position[:, None] - WINDOW
            seen = seen & (near | ((nodes > 0) & (key[None] >= committed)))
        s = tl.where(seen, s, float("-inf"))
        higher = tl.maximum(highest, tl.max(s, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        p = tl.exp(s - base[:, None])
        shrink = tl.exp(highest - base)
        weight = weight * shrink + tl.sum(p, 1)
        v = tl.load(values + key[:, None] * DIM + at[None], mask=there[:, None] & inside[None], other=0.0)
        found = found * shrink[:, None] + tl.dot(p.to(DTYPE), v, input_precision=PRECISION)
        highest = higher
    some_seen = weight > 0.0
    divisor = tl.where(some_seen, weight, 1.0)
    tl.store(score + place, tl.where(some_seen, highest + tl.log(divisor), float("-inf")), mask=own)
    tl.store(
        partial + place[:, None] * DIM + at[None], found / divisor[:, None], mask=own[:, None] & inside[None]
    )


@triton.jit(do_not_specialize=["rows"])
def _join_parts(
    partial,
    score,
    attended,
    rows,
    HEADS: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    SPLITS: tl.constexpr,
    EARLY: tl.constexpr,
):
    """One head of one row: joins parts, weighted by exp(score). Parts without keys were never written and are not read.
    """
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()
    row = tl.program_id(0)
    head = tl.program_id(1)
    at = tl.arange(0, BLOCK)
    split = tl.arange(0, SPLITS)
    place = (split * rows + row) * HEADS + head
    s = tl.load(score + place)
    best = tl.max(s, 0)
    best = tl.where(best > float("-inf"), best, 0.0)
    w = tl.exp(s - best)
    w = w / tl.maximum(tl.sum(w, 0), 1e-30)
    there = (w[:, None] > 0.0) & (at[None] < DIM)
    parts = tl.load(partial + place[:, None] * DIM + at[None], mask=there, other=0.0)
    found = tl.sum(parts * w[:, None], 0)
    tl.store(attended + (row * HEADS + head) * DIM + at, found.to(attended.dtype.element_ty), mask=at < DIM)
