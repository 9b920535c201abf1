# SPDX-License-Identifier: Apache-2.0
"""Runs exits on a separate CUDA stream during a forward pass, and delivers results as they become ready.

The main stream never waits for an exit, and the host waits for neither while it launches layers. The sequence: an event
after the layer is recorded on the main stream; the side stream waits for it, does the work, copies the result to pinned
memory and records another event. Once the whole pass is launched, results are delivered as their events complete, until
the pass is done. Results that are not ready by then are dropped.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple

import torch
from torch import Tensor

POLL_S = 50e-6
"""Interval between two polls of events: the largest delay of a hint, and negligible compared with a pass."""


class CudaStreams:
    """The main stream of an NVIDIA GPU, on which forward passes run, and a side stream. The `query` of an event tells
    whether the device has reached it.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def mark_main(self) -> torch.cuda.Event:
        """An event after everything launched on the main stream."""
        return self._mark(torch.cuda.current_stream(self._device))

    def side(self) -> AbstractContextManager[object]:
        """A context in which work is launched on the side stream."""
        return torch.cuda.stream(self._side)

    def side_waits_for(self, event: torch.cuda.Event, hidden: Tensor) -> None:
        """Make the side stream wait for the event. It then reads `hidden`, which was computed on the main stream and
        whose memory is not reused before that.
        """
        self._side.wait_event(event)
        hidden.record_stream(self._side)

    def copy_to_host(self, result: Tensor) -> Tensor:
        """Start an asynchronous copy to the CPU on the current stream."""
        host = torch.empty(result.shape, dtype=result.dtype, pin_memory=True)
        return host.copy_(result, non_blocking=True)

    def mark_side(self) -> torch.cuda.Event:
        """An event after everything launched on the side stream."""
        return self._mark(self._side)

    def _mark(self, stream: torch.cuda.Stream) -> torch.cuda.Event:
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(stream)
        return event


class _Copy(NamedTuple):
    host: Tensor
    done: torch.cuda.Event
    then: Callable[[Tensor], object]


class SideStream:
    """Work during the pass that is being launched. For one thread."""

    def __init__(self, streams: CudaStreams, sleep: Callable[[float], None] = time.sleep) -> None:
        self._streams = streams
        self._sleep = sleep
        self._copies: deque[_Copy] = deque()

    def start(
        self, hidden: Tensor, work: Callable[[Tensor], Tensor], then: Callable[[Tensor], object]
    ) -> None:
        """Launch `work` on the main stream's `hidden`. `then` receives the result on the CPU during a later call of
        `start` or `finish`, or never.
        """
        self._hand_over()
        reached = getattr(hidden, "reached", None)  # set if a recorded pass runs ahead of its observers
        behind_layer = self._streams.mark_main() if reached is None else reached
        with self._streams.side():
            self._streams.side_waits_for(behind_layer, hidden)
            host = self._streams.copy_to_host(work(hidden))
            self._copies.append(_Copy(host, self._streams.mark_side(), then))

    def finish(self) -> None:
        """The pass is launched: deliver results that become ready before it is done, and drop the rest."""
        if not self._copies:
            return
        behind_forward = self._streams.mark_main()
        while True:
            done = behind_forward.query()  # type: ignore[no-untyped-call]  # first, to lose none
            self._hand_over()
            if done or not self._copies:
                break
            self._sleep(POLL_S)
        self.forget()

    def forget(self) -> None:
        """Drop results that were not delivered yet."""
        self._copies.clear()

    def _hand_over(self) -> None:
        while self._copies and self._copies[0].done.query():  # type: ignore[no-untyped-call]
            copy = self._copies.popleft()
            copy.then(copy.host)


def beside_of(device: torch.device) -> SideStream | None:
    """The side stream of a device; None on a CPU, where work is done at once."""
    return SideStream(CudaStreams(device)) if device.type == "cuda" else None
