# SPDX-License-Identifier: Apache-2.0
"""Recorded forward passes of one model, by bucket, and drafting of a whole chain in one launch.

The host loads a batch's integers, replays, and reads the results it needs. Thread-safe: a lock covers loading and
launching, but not the device's work.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec.errors import first_line
from specdec.models.attention.segment import Segment
from specdec.models.static.batch import BUCKETS, LINES, MAX_ROWS, BatchRow, Tile, fits, lay_out
from specdec.models.static.operations import MOST_FUSED, Inputs, TorchOperations, can_fuse
from specdec.models.static.recording import CudaGraphs, EagerRuns, GraphRecorder
from specdec.options import GenerationOptions
from specdec.sampling.choice import GreedyPicks, chances_of
from specdec.sampling.noise import noisy_argmax_of, seed_word
from specdec.sampling.processors import cut_scores

Staged = Any
"""specdec.models.plans.Staged; DecoderRunner and LayerObserver are from specdec.models.runner. Both modules import this
one, so their types cannot be imported here.
"""
DecoderRunner = Any
LayerObserver = Callable[[int, Tensor], None]

_LOG = logging.getLogger("specdec.models")
_CAPABILITY = (8, 0)
_EARLY_CAPABILITY = (9, 0)
"""Least compute capability with which a kernel can be launched before the one that it depends on has ended."""
_ROUNDING = {torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 5e-2}
"""Tolerance between two implementations of a layer, as a share of its largest value."""
_TIMED = 5
_LONGEST_TABLE = 1 << 17
"""Most rotary positions kept on the device; longer sequences use the ordinary path."""
_MOST_CHAINS = 32
MOST_IN_A_RUN = 16
"""Most tokens of a chain that are predicted in one launch."""
_STEPS = (BatchRow.ROPE, BatchRow.SLOT, BatchRow.POSITION, Tile.TOTAL)
"""Lines that increase by one from each token of a chain to the next."""


@dataclass(frozen=True)
class ChainRun:
    """A chain of tokens to predict on the device, each from the one before.

    Args:
        count: Number of tokens.
        options: How tokens are picked. Seed and position are data; the other options are part of the recording.
        position: Answer position of the first token.
        banned: Ids that are never picked, sorted.
        chances: Also compute the model's probability of each token (specdec.sampling.choice.chances_of).
    """

    count: int
    options: GenerationOptions
    position: int
    banned: tuple[int, ...] = ()
    chances: bool = False

    @property
    def recording(self) -> tuple[Any, ...]:
        """Key of the recording: the values that are fixed in it."""
        options = self.options
        cuts = (options.temperature, options.top_k, options.top_p, options.min_p) if options.temperature else ()
        return self.count, cuts, self.banned, self.chances


@dataclass
class _Part:
    """Some layers of a recorded pass. found: (hidden after them, logits or hidden, input of GreedyPicks)."""

    replay: Callable[[], None]
    layers: range
    found: Callable[[], tuple[Tensor, Tensor, Tensor]]


@dataclass
class _Chain:
    """A recorded chain: buffers to load before a replay, and `found` for the ids (see `StaticForward.chain`)."""

    replay: Callable[[], None]
    found: Callable[[], Tensor]
    last: Tensor
    word: Tensor
    position: Tensor


class StaticForward:
    """The static decode path of one DecoderRunner. Created by `make_static`.

    cuts: layers after which hidden states can be observed; passes are recorded in parts that end there. recordings: how
    many were made. fused_rows: up to this many rows, fused operations are used; 0 before `choose_fused`.
    """

    def __init__(
        self,
        runner: DecoderRunner,
        operations: TorchOperations,
        recorder: GraphRecorder,
        fused: TorchOperations | None = None,
    ) -> None:
        """fused: operations for passes with few rows, used if the layers allow it."""
        self._runner = runner
        self._operations = operations
        self._fused = fused if all(map(can_fuse, runner.layers)) else None
        self._recorder = recorder
        self._unused = runner.new_cache(1)
        self._length = min(runner.context_limit, _LONGEST_TABLE)
        cos, sin = runner.rotary_range(0, self._length)
        dim = runner.head_dim
        self._tables = [
            (cos[:, 0, kind * dim : (kind + 1) * dim], sin[:, 0, kind * dim : (kind + 1) * dim])
            for kind in range(max(1, len(runner.ropes)))
        ]
        self._inputs: dict[int, Inputs] = {}
        self._hidden: dict[int, Tensor] = {}
        self._following = Inputs(1, LINES, runner.device)
        step = torch.zeros(LINES, 1, dtype=torch.int64)
        step[list(_STEPS)] = 1
        self._step = step.to(runner.device)
        self._recorded: dict[tuple[Any, ...], list[_Part]] = {}
        self._chains: OrderedDict[tuple[Any, ...], _Chain] = OrderedDict()
        self.fused_rows = 0
        self._lock = threading.RLock()
        self._owner: int | None = None
        self._given_up = False
        self.cuts: tuple[int, ...] = ()
        self.recordings = 0

    def claim(self) -> None:
        """Reserve replays for the calling thread, and discard recordings made by other threads."""
        with self._lock:
            self._owner = threading.get_ident()
            self._forget()

    def observe(self, layers: Sequence[int]) -> None:
        """Make hidden states after these layers observable. Existing recordings are discarded."""
        with self._lock:
            self.cuts = tuple(sorted(set(layers)))
            self._forget()

    def _forget(self) -> None:
        self._recorded.clear()
        self._chains.clear()
        self._recorder.forget()

    def takes(self, staged: Sequence[Staged]) -> bool:
        """Whether a pass over these extensions can be replayed; otherwise it takes the ordinary path."""
        if self._given_up or self._owner not in (None, threading.get_ident()):
            return False
        rows = 0
        for one in staged:
            extension, segment = one.extension, one.segment
            rows += segment.rows
            if extension.hidden is not None and (
                len(staged) > 1 or extension.hidden.shape[1] != self._runner.hidden_size
            ):
                return False
            if extension.observer is not None and not self.cuts:
                return False
            if not fits(segment, self._runner.windows):
                return False
            if max(segment.positions) + extension.more >= self._length:
                return False
        return rows <= MAX_ROWS

    def logits(self, staged: Sequence[Staged], observer: LayerObserver | None) -> list[Tensor]:
        """As `plans.forward_together`: logits float32 of each session's requested rows."""
        with self._lock:
            raw, picks = self._run(staged, observer, with_head=True)
            spans, start = [], 0
            for one in staged:
                stop = start + one.segment.rows
                spans.append((stop - 1 if one.extension.last_only else start, stop))
                start = stop
            wanted = [raw[start:stop] for start, stop in spans]
            whole = wanted[0] if len(wanted) == 1 else torch.cat(wanted)
            logits = self._runner.finish(whole, copy=len(wanted) == 1)  # the next replay overwrites `raw`
            greedy = GreedyPicks(picks.clone())
        found = list(torch.split(logits, [stop - start for start, stop in spans]))
        for rows, (start, _) in zip(found, spans, strict=True):
            greedy.attach(rows, start)
        return found

    def hidden(self, staged: Sequence[Staged], observer: LayerObserver | None) -> Tensor:
        """As `plans.hidden_together`: the output of the sessions' last layers, [rows, hidden_size]."""
        with self._lock:
            rows = sum(one.segment.rows for one in staged)
            return self._run(staged, observer, with_head=False)[0][:rows].clone()

    def chain(self, staged: Staged) -> Tensor:
        """Feed the session's pending tokens, then predict `extension.run.count` tokens.

        Returns int64 [count] on the device; with chances float64 [2 * count], ids first. The session then holds the
        pending tokens and all but the last of the predicted ones.
        """
        run = staged.extension.run
        assert run is not None
        segment = staged.segment
        assert not isinstance(segment.positions, Tensor)
        with self._lock:
            batch = lay_out([segment], [staged.extension.ids], self._unused)
            after = Segment(segment.cache, segment.total, 1, positions=(segment.positions[-1] + 1,))
            behind = lay_out([after], [(0,)], self._unused)
            inputs = self._inputs_of(batch.bucket)
            key = (batch.bucket, *run.recording)

            def load() -> None:
                inputs.load(batch)
                self._following.load(behind)

            load()
            chain = self._chains.get(key)
            if chain is None:
                chain = self._chains[key] = self._record_chain(inputs, run)
                load()  # recording has advanced the buffers
                if len(self._chains) > _MOST_CHAINS:
                    self._chains.popitem(last=False)
            self._chains.move_to_end(key)
            chain.last.fill_(segment.rows - 1)
            if run.options.temperature:
                chain.word.fill_(seed_word(run.options.seed))
                chain.position.fill_(run.position)
            self._runner.passes += run.count
            chain.replay()
            found = chain.found().clone()
        staged.extension.session.hold(staged.extension)
        return found

    @torch.inference_mode()
    def try_out(self) -> None:
        """Run the operations once for the smallest and the largest tile. Raises whatever error occurs."""
        runner = self._runner
        cache = runner.new_cache(BUCKETS[3], 1)
        for bucket in (BUCKETS[0], BUCKETS[3]):
            self._through(self._embedded(cache, bucket), range(1), 0, self._inputs_of(bucket))
        self._settle()

    @torch.inference_mode()
    def choose_fused(self) -> None:
        """Use fused products only if they are correct and faster on this device. Call after try_out."""
        if self._fused is None:
            return
        cache = self._runner.new_cache(MOST_FUSED)
        try:
            for rows in range(1, MOST_FUSED + 1):
                fused, plain = (self._first_layer(cache, rows, most) for most in (MOST_FUSED, 0))
                apart = float((fused - plain).abs().max() / plain.abs().max())
                if not apart < _ROUNDING[self._runner.dtype]:  # also true for NaN
                    raise ArithmeticError(f"they are {apart:.1%} off")
            faster = self._milliseconds(cache, MOST_FUSED) < self._milliseconds(cache, 0)
        except Exception as error:  # compilers, drivers and kernels fail in many ways; unfused products still work
            faster = False
            _LOG.warning("products of few rows are not fused on this device (%s)", first_line(error))
        self.fused_rows = MOST_FUSED if faster else 0
        self._forget()

    def _first_layer(self, cache: Tensor, rows: int, fused_rows: int) -> Tensor:
        """The output of the first layer for some rows: float32 [rows, hidden_size]."""
        self.fused_rows = fused_rows
        return self._through(self._embedded(cache, rows), range(1), 0, self._inputs_of(rows)).float()

    def _milliseconds(self, cache: Tensor, fused_rows: int) -> float:
        """Shortest time of a few recorded passes of one row through all layers."""
        runner, inputs = self._runner, self._inputs_of(1)
        self.fused_rows = fused_rows
        hidden = self._embedded(cache, 1)
        replay, _ = self._recorder.record(lambda: self._through(hidden, range(runner.layer_count), 0, inputs))
        taken = []
        for _ in range(_TIMED):
            self._settle()
            began = time.perf_counter()
            replay()
            self._settle()
            taken.append(1e3 * (time.perf_counter() - began))
        return min(taken)

    def _embedded(self, cache: Tensor, rows: int) -> Tensor:
        """Embed `rows` ids, laid out at the beginning of a cache."""
        segment = Segment(cache, 0, rows, positions=range(rows))
        inputs = self._inputs_of(rows)
        inputs.load(lay_out([segment], [range(rows)], self._unused))
        embedded: Tensor = self._runner.embed(inputs.numbers[BatchRow.ID])
        return embedded

    def _settle(self) -> None:
        if self._runner.device.type == "cuda":
            torch.cuda.synchronize(self._runner.device)

    def warm_up(self, cache: Tensor, rows: int = MAX_ROWS) -> None:
        """Record the buckets up to `rows` now. cache: an empty cache with room for this many rows."""
        for bucket in BUCKETS:
            if bucket > rows:
                break
            segment = Segment(cache, 0, bucket, positions=range(bucket))
            with self._lock:
                batch = lay_out([segment], [[0] * bucket], self._unused)
                self._inputs_of(bucket).load(batch)
                self._parts(bucket, range(self._runner.layer_count), from_hidden=False, with_head=True)

    def _run(
        self, staged: Sequence[Staged], after: LayerObserver | None, with_head: bool
    ) -> tuple[Tensor, Tensor]:
        """Run one pass: returns raw logits [bucket, ...] (without a head: hidden states) and the input of GreedyPicks.
        The next replay overwrites both.
        """
        runner, first = self._runner, staged[0].extension
        segments = [one.segment for one in staged]
        ids: list[Sequence[int]] = [() if one.extension.device_ids is not None else one.extension.ids for one in staged]
        batch = lay_out(segments, ids, self._unused)
        inputs = self._inputs_of(batch.bucket)
        inputs.load(batch)
        row = 0
        for one in staged:
            if one.extension.device_ids is not None:
                inputs.numbers[BatchRow.ID, row : row + one.segment.rows] = one.extension.device_ids
            row += one.segment.rows
        if first.hidden is not None:
            self._hidden_of(batch.bucket)[: batch.rows] = first.hidden
        layers = first.session.layers or range(runner.layer_count)
        parts = self._parts(batch.bucket, layers, first.hidden is not None, with_head)
        runner.passes += 1
        waiting: list[tuple[_Part, Tensor, object]] = []
        ahead = runner.pacer is None and self._recorder.runs_ahead
        if runner.pacer is not None:
            after = runner.pacer.begin(batch.rows, after, len(layers))
        for part in parts:
            part.replay()
            if after is None:
                continue
            seen = part.found()[0][: batch.rows]
            if ahead:  # launch all parts before calling observers
                waiting.append((part, seen, self._recorder.mark()))
            else:
                _show(after, part.layers, seen)
        for shown, hidden, reached in waiting:
            assert after is not None
            hidden.reached = reached  # type: ignore[attr-defined]
            _show(after, shown.layers, hidden)
        for one in staged:
            one.extension.session.hold(one.extension)
        return parts[-1].found()[1:]

    def _parts(self, bucket: int, layers: range, from_hidden: bool, with_head: bool) -> list[_Part]:
        key = (bucket, layers, from_hidden, with_head)
        found = self._recorded.get(key)
        if found is None:
            found = self._recorded[key] = self._record_parts(bucket, layers, from_hidden, with_head)
        return found

    def _record_parts(self, bucket: int, layers: range, from_hidden: bool, with_head: bool) -> list[_Part]:
        inputs = self._inputs_of(bucket)
        ends = [layers.start, *(cut + 1 for cut in self.cuts if layers.start <= cut < layers.stop - 1), layers.stop]
        parts: list[_Part] = []
        for start, stop in pairwise(ends):
            span = range(start, stop)
            before = parts[-1].found if parts else None

            def work(span: range = span, before: Any = before) -> tuple[Tensor, Tensor, Tensor]:
                if before is not None:
                    hidden = before()[0]
                else:
                    hidden = self._hidden_of(bucket) if from_hidden else self._runner.embed(inputs.numbers[BatchRow.ID])
                hidden = self._through(hidden, span, layers.start, inputs)
                if not with_head or span.stop != layers.stop:
                    return hidden, hidden, inputs.numbers[:2]
                raw = self._runner.head(hidden)
                logits = raw[:, : self._runner.vocab_size]
                return hidden, raw, torch.stack([logits.argmax(-1), logits[:, 0].isfinite().long()])

            parts.append(_Part(*self._record(work, span)))
        return parts

    def _record(self, work: Callable[[], Any], span: range) -> tuple[Callable[[], None], range, Callable[[], Any]]:
        try:
            replay, found = self._recorder.record(work)
        except Exception as error:  # an operation that waits for the device, or memory; the cause is logged
            if isinstance(self._recorder, EagerRuns):
                raise
            _LOG.warning("forward passes are not recorded as CUDA graphs and run slower (%s)", first_line(error))
            self._recorder, self._given_up = EagerRuns(), True  # run this one eagerly; later ones use the ordinary path
            replay, found = self._recorder.record(work)
        self.recordings += 1
        return replay, span, found

    def _record_chain(self, inputs: Inputs, run: ChainRun) -> _Chain:
        runner, device = self._runner, self._runner.device
        last, word, position = (torch.zeros(1, dtype=torch.int64, device=device) for _ in range(3))
        banned = torch.tensor(run.banned, dtype=torch.int64, device=device) if run.banned else None
        layers = range(runner.layer_count)

        def pick(hidden: Tensor, step: int, chances: list[Tensor]) -> Tensor:
            logits: Tensor = runner.finish(runner.head(hidden))
            if banned is not None:
                logits = logits.index_fill(1, banned, float("-inf"))
            if run.options.temperature:
                token = noisy_argmax_of(cut_scores(logits, run.options), word, position + step)
            else:
                token = logits.argmax(-1)
            if run.chances:
                chances.append(chances_of(logits, token, run.options.temperature).double())
            return token

        def work() -> Tensor:
            hidden = self._through(runner.embed(inputs.numbers[BatchRow.ID]), layers, 0, inputs)
            chances: list[Tensor] = []
            picked = [pick(hidden.index_select(0, last), 0, chances)]
            following = self._following
            for step in range(1, run.count):
                following.numbers[BatchRow.ID].copy_(picked[-1])
                hidden = self._through(runner.embed(following.numbers[BatchRow.ID]), layers, 0, following)
                picked.append(pick(hidden, step, chances))
                following.numbers.add_(self._step)
            ids = torch.cat(picked)
            return torch.cat([ids.double(), *chances]) if run.chances else ids  # float64 holds ids exactly

        replay, _, found = self._record(work, layers)
        return _Chain(replay, found, last, word, position)

    def _through(self, hidden: Tensor, span: range, first: int, inputs: Inputs) -> Tensor:
        """Run hidden [bucket, hidden_size] through some layers. first: the first layer of the sessions' caches."""
        runner, operations = self._runner, self._operations
        if self._fused is not None and hidden.shape[0] <= self.fused_rows:
            return self._through_fused(self._fused, hidden, span, first, inputs)
        added: Tensor | None = None
        for index in span:
            layer = runner.layers[index]
            hidden, normed = operations.add_norm(hidden, added, layer.norm_1, runner.eps)
            qkv = layer.qkv(normed)
            attended = operations.attend(layer, index - first, qkv, self._tables[layer.rope], inputs)
            added = layer.out(attended)
            if layer.after_attention is not None:
                added = F.rms_norm(added, (runner.hidden_size,), layer.after_attention, runner.eps)
            hidden, normed = operations.add_norm(hidden, added, layer.norm_2, runner.eps)
            added = layer.down(operations.gate(layer, layer.gate_up(normed)))
            if layer.after_mlp is not None:
                added = F.rms_norm(added, (runner.hidden_size,), layer.after_mlp, runner.eps)
        return hidden if added is None else hidden + added

    def _through_fused(
        self, operations: TorchOperations, hidden: Tensor, span: range, first: int, inputs: Inputs
    ) -> Tensor:
        """As `_through`, for so few rows that a product takes as long as reading its weight."""
        for index in span:
            layer = self._runner.layers[index]
            qkv = operations.norm_product(hidden, layer.norm_1, layer.qkv)
            attended = operations.attend(layer, index - first, qkv, self._tables[layer.rope], inputs)
            hidden = operations.add_product(hidden, attended, layer.out)
            gated = operations.norm_gate(hidden, layer.norm_2, layer.gate_up)
            hidden = operations.add_product(hidden, gated, layer.down)
        return hidden

    def _inputs_of(self, bucket: int) -> Inputs:
        found = self._inputs.get(bucket)
        if found is None:
            found = self._inputs[bucket] = Inputs(bucket, LINES, self._runner.device)
        return found

    def _hidden_of(self, bucket: int) -> Tensor:
        found = self._hidden.get(bucket)
        if found is None:
            runner = self._runner
            found = torch.zeros(bucket, runner.hidden_size, dtype=runner.dtype, device=runner.device)
            self._hidden[bucket] = found
        return found


def _show(observer: LayerObserver, layers: range, hidden: Tensor) -> None:
    for index in layers:
        observer(index, hidden)


def make_static(runner: DecoderRunner, scale: float | None) -> StaticForward | None:
    """The static path of a model on a GPU. If it is not available, logs one line and returns None.

    Never raises: passes then use the ordinary path.
    """
    if runner.device.type != "cuda":
        return None
    capability = torch.cuda.get_device_capability(runner.device)
    if capability < _CAPABILITY:
        reason = f"compute capability {capability[0]}.{capability[1]} is below {_CAPABILITY[0]}.{_CAPABILITY[1]}"
    elif not _has_triton():
        reason = "triton is not installed"
    else:
        from specdec.models.static.kernels import TritonOperations

        sizes = (runner.heads, runner.kv_heads, runner.head_dim, runner.eps, scale, runner.dtype)
        try:
            fused = TritonOperations(*sizes, early=capability >= _EARLY_CAPABILITY)
            static = StaticForward(runner, TritonOperations(*sizes), CudaGraphs(runner.device), fused)
            static.try_out()
            static.choose_fused()
            return static
        except Exception as error:  # compilers and drivers fail in many ways; the ordinary path still works
            reason = first_line(error)
    _LOG.warning("forward passes are not recorded as CUDA graphs and run slower (%s)", reason)
    return None


def _has_triton() -> bool:
    from torch.utils._triton import has_triton

    return bool(has_triton())
