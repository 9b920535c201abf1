# SPDX-License-Identifier: Apache-2.0
"""Recorded work: run once for recording, then replayed with the present contents of its fixed input buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

T = TypeVar("T")


class CudaGraphs:
    """CUDA graphs that share one memory pool, recorded on a separate stream.

    A graph is replayed on the caller's current stream. All graphs of one recorder must be replayed in sequence on one
    stream, because they share memory.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()
        self._anchor: torch.cuda.CUDAGraph | None = None

    def record(self, work: Callable[[], T]) -> tuple[Callable[[], None], Callable[[], T]]:
        """Record work; returns a function that replays it, and one that returns its output tensors.

        Runs the work once before recording, to compile kernels and size workspaces.
        """
        outer = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(outer)
        with torch.cuda.stream(self._stream):
            work()
            graph = torch.cuda.CUDAGraph()
            # Other threads may allocate memory or wait for events during the capture (pictures, exits).
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                found = work()
            finally:
                graph.capture_end()
        outer.wait_stream(self._stream)
        self._anchor = self._anchor or graph  # once all its graphs are gone, a pool cannot be used again
        return graph.replay, lambda: found

    def forget(self) -> None:
        """Release resources: all recordings have been discarded."""
        self._pool, self._anchor = torch.cuda.graph_pool_handle(), None

    runs_ahead = True
    """Replays return before the device has done their work."""

    def mark(self) -> torch.cuda.Event:
        """An event after everything replayed so far."""
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        return event


class EagerRuns:
    """Runs the work again at every replay; used on a CPU, and once after a failed recording."""

    def record(self, work: Callable[[], T]) -> tuple[Callable[[], None], Callable[[], T]]:
        """See CudaGraphs."""
        found: list[T] = []

        def replay() -> None:
            found[:] = [work()]

        return replay, lambda: found[0]

    def forget(self) -> None:
        """See CudaGraphs."""

    runs_ahead = False

    def mark(self) -> object:
        """See CudaGraphs."""
        return None


GraphRecorder = CudaGraphs | EagerRuns
