# SPDX-License-Identifier: Apache-2.0
"""Recorded work: run once to record it, replayed afterwards with whatever its fixed input buffers hold by then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import torch

T = TypeVar("T")


class GraphRecorder(Protocol):
    """Makes replayable recordings of functions that take nothing and return tensors."""

    def record(self, work: Callable[[], T]) -> tuple[Callable[[], None], Callable[[], T]]:
        """Returns what replays the work, and what gives the tensors that it last filled."""
        ...

    def forget(self) -> None:
        """All that was recorded has been given up."""
        ...

    runs_ahead: bool
    """Whether replays return before their work is done."""

    def mark(self) -> object:
        """An event behind all that was replayed so far."""
        ...


class CudaGraphs:
    """CUDA graphs that share one memory pool, recorded on a stream of their own.

    A graph is replayed on the caller's current stream. All graphs of one recorder must be replayed one after another on
    one stream, since they share memory.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()
        self._anchor: torch.cuda.CUDAGraph | None = None

    def record(self, work: Callable[[], T]) -> tuple[Callable[[], None], Callable[[], T]]:
        """See Recorder. Runs the work once before it records: kernels are compiled and workspaces sized there."""
        outer = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(outer)
        with torch.cuda.stream(self._stream):
            work()
            graph = torch.cuda.CUDAGraph()
            # Other threads may allocate memory or wait for events meanwhile (pictures, exits).
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                found = work()
            finally:
                graph.capture_end()
        outer.wait_stream(self._stream)
        self._anchor = self._anchor or graph  # a pool whose graphs are all gone cannot be recorded into again
        return graph.replay, lambda: found

    def forget(self) -> None:
        """See Recorder."""
        self._pool, self._anchor = torch.cuda.graph_pool_handle(), None

    runs_ahead = True

    def mark(self) -> torch.cuda.Event:
        """See Recorder."""
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        return event


class EagerRuns:
    """Runs the work anew at every replay: the static path on a CPU."""

    def record(self, work: Callable[[], T]) -> tuple[Callable[[], None], Callable[[], T]]:
        """See Recorder."""
        found: list[T] = []

        def replay() -> None:
            found[:] = [work()]

        return replay, lambda: found[0]

    def forget(self) -> None:
        """See Recorder."""

    runs_ahead = False

    def mark(self) -> object:
        """See Recorder."""
        return None
