# SPDX-License-Identifier: Apache-2.0
"""One llama.cpp context: decodes rows of several sequences in one call, and allocates sequences.

In llama.cpp a sequence is a set of KV cache cells, and a cell may belong to several sequences. So a tree takes one
sequence per leaf, and shared cells are stored once.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specdec.errors import ModelError, NoRoom
from specdec.models.gguf.binding import LlamaModel, library, new_context
from specdec.models.gguf.options import GgufOptions

END = -1
"""End of a range of positions that covers all of them."""
Branch = int | tuple[int, int]
"""A sequence to continue, or (sequence, end): a new sequence that copies that one up to position `end` (exclusive)."""


@dataclass(frozen=True)
class Sizes:
    """Limits of a context.

    Attributes:
        batch: Most rows per call.
        outputs: Most rows per call with logits; at least `sequences`.
        sequences: Most sequences of all sessions together.
        spare: Sequences reserved for branches of trees, beyond one per session.
        exact: For a verifier: a row's result must not depend on the other rows of its call.
    """

    batch: int = 512
    outputs: int = 128
    sequences: int = 128
    spare: int = 64
    exact: bool = False


@dataclass
class DecodeRows:
    """Rows to decode, in order.

    Attributes:
        ids: int32 [n].
        positions: int32 [n], or [3, n] for m-rope.
        branches: The sequences that the rows extend.
        leaves: For each row, the indices of the branches it belongs to; None: all rows belong to the only branch.
        vectors: float32 [n, width], used as embeddings of rows whose id is below 0; None if there are none.
        last_only: Compute only the last row's logits.
        sequences: Sequence numbers of the branches, filled in by `decode`.
    """

    ids: NDArray[np.int32]
    positions: NDArray[np.int32]
    branches: Sequence[Branch]
    leaves: Sequence[Sequence[int]] | None = None
    vectors: NDArray[np.float32] | None = None
    last_only: bool = False
    sequences: list[int] = field(default_factory=list)


class LlamaDecoder:
    """Decodes rows in a context. Thread-safe: calls are serialised, because llama.cpp's context is not.

    cells: most tokens of all sequences together, shared ones counted once. longest: most tokens of one sequence. sizes:
    limits of a call. These three are read back from the context: the library rounds requested values, and a call beyond
    the limits aborts the process. threads: threads of a call. sessions: sessions that share the sequences.
    """

    def __init__(
        self, model: LlamaModel, options: GgufOptions, threads: int, tokens: int, sizes: Sizes | None = None
    ) -> None:
        wanted = sizes or Sizes()
        lib = self._library = library()
        self._model = model  # outlives the context
        self.threads = threads
        self._context = new_context(model, options, threads, tokens, wanted)
        self.cells: int = lib.llama_n_ctx(self._context)
        self.longest: int = lib.llama_n_ctx_seq(self._context)
        batch = lib.llama_n_batch(self._context)
        outputs, sequences = min(wanted.outputs, batch), lib.llama_n_seq_max(self._context)
        self.sizes = Sizes(batch, outputs, sequences, wanted.spare, wanted.exact)
        self._memory = self._library.llama_get_memory(self._context)
        self.sessions: weakref.WeakSet[Any] = weakref.WeakSet()
        self._free = list(range(self.sizes.sequences - 1, -1, -1))
        self._left: deque[int] = deque()
        self._lock = threading.RLock()
        self._make_batch()

    def __del__(self) -> None:
        if getattr(self, "_context", None):
            self._library.llama_free(self._context)

    def _make_batch(self) -> None:
        """Allocate the input arrays of all calls, and the structure that points to them, once."""
        lib, most, sequences = self._library, self.sizes.batch, self.sizes.sequences
        self._ids = np.zeros(most, np.int32)
        self._positions = np.zeros(4 * most, np.int32)
        self._counts = np.ones(most, np.int32)
        self._members = np.zeros((most, sequences), np.int32)
        rows = self._members.ctypes.data + np.arange(most, dtype=np.uint64) * self._members.strides[0]
        self._member_rows = rows.astype(np.uint64)
        self._wanted = np.zeros(most, np.int8)
        self._batch = lib.llama_batch(
            n_tokens=0,
            token=self._ids.ctypes.data_as(ctypes.POINTER(lib.llama_token)),
            embd=None,
            pos=self._positions.ctypes.data_as(ctypes.POINTER(lib.llama_pos)),
            n_seq_id=self._counts.ctypes.data_as(ctypes.POINTER(ctypes.c_int32)),
            seq_id=self._member_rows.ctypes.data_as(ctypes.POINTER(ctypes.POINTER(lib.llama_seq_id))),
            logits=self._wanted.ctypes.data_as(ctypes.POINTER(ctypes.c_int8)),
        )
        self._token_pointer = self._ids.ctypes.data_as(ctypes.POINTER(lib.llama_token))

    def left_for(self, held: int) -> int:
        """How many more sequences a session with `held` of them may take: the rest of its share, as far as available.
        """
        free = len(self._free) + len(self._left)
        return min(self.sizes.sequences // max(1, len(self.sessions)) - held, free)

    def take(self) -> int:
        """Take an empty sequence. Raises NoRoom if none is left."""
        with self._lock:
            while self._left:
                self.give(self._left.popleft())
            if not self._free:
                raise NoRoom(f"more than {self.sizes.sequences} branches at once: draft smaller trees")
            return self._free.pop()

    def give(self, sequence: int) -> None:
        """Return a sequence, and free its cells."""
        with self._lock:
            self._library.llama_memory_seq_rm(self._memory, sequence, END, END)
            self._free.append(sequence)

    def leave(self, sequences: dict[int, int]) -> None:
        """Return the sequences in `sequences` (its keys) and clear it. For finalisers, which may run at any time on any
        thread: the cells are freed by the next `take`.
        """
        self._left.extend(sequences)
        sequences.clear()

    def cut(self, sequence: int, position: int) -> None:
        """Drop a sequence's cells from a position on."""
        with self._lock:
            self._library.llama_memory_seq_rm(self._memory, sequence, position, END)

    def decode(self, many: Sequence[DecodeRows]) -> list[NDArray[np.float32]]:
        """Decode all rows, in as few calls as possible; returns logits float32 [wanted, vocabulary] for each entry.

        Raises NoRoom if the context is full; all sequences are then as before.
        """
        with self._lock:
            taken: list[int] = []
            try:
                for rows in many:
                    rows.sequences = [self._branch(branch, taken) for branch in rows.branches]
                return self._decode_all(many)
            except BaseException:
                for rows in many:
                    self._undo(rows)
                for sequence in taken:
                    self.give(sequence)
                raise

    def _branch(self, branch: Branch, taken: list[int]) -> int:
        if isinstance(branch, int):
            return branch
        source, end = branch
        sequence = self.take()
        taken.append(sequence)
        self._library.llama_memory_seq_cp(self._memory, source, sequence, 0, end)
        return sequence

    def _undo(self, rows: DecodeRows) -> None:
        """Remove rows that may have been added to continued sequences, each from its own first row on."""
        flat = rows.positions if rows.positions.ndim == 1 else rows.positions[0]
        for number, branch in enumerate(rows.branches):
            leaves = rows.leaves
            mine = flat if leaves is None else flat[[number in several for several in leaves]]
            if isinstance(branch, int) and mine.size:
                self.cut(branch, int(mine.min()))

    def _decode_all(self, many: Sequence[DecodeRows]) -> list[NDArray[np.float32]]:
        found: list[list[NDArray[np.float32]]] = [[] for _ in many]
        parts: list[tuple[int, DecodeRows, int, int]] = []
        rows = outputs = 0
        for number, one in enumerate(many):
            for start, stop in _stretches(one, self.sizes.batch, self.sizes.outputs):
                asked = _outputs(one, start, stop)
                alone = one.vectors is not None and one.ids[start] < 0
                fits = rows + stop - start <= self.sizes.batch and outputs + asked <= self.sizes.outputs
                if parts and (not fits or alone or self._batch_is_of_vectors(parts)):
                    self._call(parts, found)
                    parts, rows, outputs = [], 0, 0
                parts.append((number, one, start, stop))
                rows, outputs = rows + stop - start, outputs + asked
        if parts:
            self._call(parts, found)
        return [one[0] if len(one) == 1 else np.concatenate(one) for one in found]

    @staticmethod
    def _batch_is_of_vectors(parts: Sequence[tuple[int, DecodeRows, int, int]]) -> bool:
        _, rows, start, _ = parts[0]
        return rows.vectors is not None and bool(rows.ids[start] < 0)

    def _call(
        self, parts: Sequence[tuple[int, DecodeRows, int, int]], found: list[list[NDArray[np.float32]]]
    ) -> None:
        """One call of llama.cpp; wanted logits are copied before the next call overwrites them."""
        total = 0
        for _, rows, start, stop in parts:
            self._fill(rows, start, stop, total)
            total += stop - start
        vectors = None
        self._batch.n_tokens = total
        if self._batch_is_of_vectors(parts):
            vectors = self._fill_vectors(*parts[0][1:])
            self._batch.token, self._batch.embd = None, vectors.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        else:
            self._batch.token, self._batch.embd = self._token_pointer, None
        state = self._library.llama_decode(self._context, self._batch)
        if state:
            self._refuse(state)
        asked = int(self._wanted[:total].sum())
        if not asked:
            return
        width = self._model.rows
        pointer = self._library.llama_get_logits(self._context)
        address = ctypes.cast(pointer, ctypes.c_void_p).value
        assert address is not None
        block: Any = (ctypes.c_float * (asked * width)).from_address(address)
        logits = np.frombuffer(block, np.float32).reshape(asked, width)
        start_row = 0
        for number, rows, start, stop in parts:
            count = _outputs(rows, start, stop)
            if count:
                found[number].append(logits[start_row : start_row + count].copy())
            start_row += count

    def _refuse(self, state: int) -> None:
        if state == 1:
            raise NoRoom(
                f"llama.cpp's context of {self.cells} tokens is full: raise context (gguf options), a verifier's kv_gb"
            )
        raise ModelError(f"llama.cpp could not decode (its code {state}): it may be out of memory")

    def _fill(self, rows: DecodeRows, start: int, stop: int, at: int) -> None:
        """Copy rows start .. stop into the input arrays from index `at` on."""
        end = at + stop - start
        self._ids[at:end] = rows.ids[start:stop]
        flat = rows.positions if rows.positions.ndim == 1 else rows.positions[0]
        self._positions[at:end] = flat[start:stop]
        if rows.leaves is None:
            self._counts[at:end] = 1
            self._members[at:end, 0] = rows.sequences[0]
        else:
            for place, leaves in enumerate(rows.leaves[start:stop], start=at):
                self._counts[place] = len(leaves)
                for slot, leaf in enumerate(leaves):
                    self._members[place, slot] = rows.sequences[leaf]
        self._wanted[at:end] = not rows.last_only
        if rows.last_only and stop == len(rows.ids):
            self._wanted[end - 1] = 1

    def _fill_vectors(self, rows: DecodeRows, start: int, stop: int) -> NDArray[np.float32]:
        """Fill the positions of embedding rows, in four sections (time, height, width, unused); returns the vectors."""
        assert rows.vectors is not None
        count = stop - start
        axes = np.zeros((4, count), np.int32)
        axes[:3] = rows.positions[:, start:stop] if rows.positions.ndim == 2 else rows.positions[start:stop]
        self._positions[: 4 * count] = axes.reshape(-1)
        return np.ascontiguousarray(rows.vectors[start:stop], np.float32)


def _outputs(rows: DecodeRows, start: int, stop: int) -> int:
    """How many of these rows need logits."""
    if rows.last_only:
        return int(stop == len(rows.ids))
    return stop - start


def _stretches(rows: DecodeRows, most: int, outputs: int) -> list[tuple[int, int]]:
    """Split rows into stretches that are all ids or all vectors and fit into one call."""
    most = most if rows.last_only else min(most, outputs)
    total = len(rows.ids)
    edges = [0, total]
    if rows.vectors is not None:
        is_vector = rows.ids < 0
        edges = [0, *(np.flatnonzero(is_vector[1:] != is_vector[:-1]) + 1).tolist(), total]
    found = []
    for first, last in pairwise(edges):
        found += [(start, min(start + most, last)) for start in range(first, last, most)]
    return found
