# SPDX-License-Identifier: Apache-2.0
"""Work beside a forward: exits on a stream of their own, whose results are taken as they get ready.

The forward's own stream never waits for an exit, and the program waits for neither while layers
are being issued to the device. In this order: an event behind the layer on the main stream; the side stream waits for
it, does the work, copies the result to pinned memory and records an event behind that; once the whole forward is
issued, results are handed over as their events come to pass, until the forward is done. What is not ready by then is
dropped.
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
"""Between two looks at events: a hint's delay at most, and next to nothing of a forward."""


class CudaStreams:
    """The streams of an NVIDIA GPU: the main one, that forwards run on, and one beside it. An event is a place in one
    of them; its `query` says whether the device has come by it.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def mark_main(self) -> torch.cuda.Event:
        """An event behind all that the main stream has been given."""
        return self._mark(torch.cuda.current_stream(self._device))

    def side(self) -> AbstractContextManager[object]:
        """What is issued within goes to the side stream."""
        return torch.cuda.stream(self._side)

    def side_waits_for(self, event: torch.cuda.Event, hidden: Tensor) -> None:
        """The side stream goes on when the event has come to pass; it reads `hidden`, made on the main stream, whose
        memory is not given to others before it has.
        """
        self._side.wait_event(event)
        hidden.record_stream(self._side)

    def copy_to_host(self, result: Tensor) -> Tensor:
        """A copy on the CPU that is being made, on the stream of this context; no thread waits."""
        host = torch.empty(result.shape, dtype=result.dtype, pin_memory=True)
        return host.copy_(result, non_blocking=True)

    def mark_side(self) -> torch.cuda.Event:
        """An event behind all that the side stream has been given."""
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
    """Work beside the forward that is being issued. For one thread."""

    def __init__(self, streams: CudaStreams, sleep: Callable[[float], None] = time.sleep) -> None:
        self._streams = streams
        self._sleep = sleep
        self._copies: deque[_Copy] = deque()

    def start(
        self, hidden: Tensor, work: Callable[[Tensor], Tensor], then: Callable[[Tensor], object]
    ) -> None:
        """Have `work` done with the main stream's `hidden`; `then` takes the result, on the CPU, from within a
        later call of `start` or `finish`, or never.
        """
        self._hand_over()
        reached = getattr(hidden, "reached", None)  # where a recorded forward has run ahead of its observers
        behind_layer = self._streams.mark_main() if reached is None else reached
        with self._streams.side():
            self._streams.side_waits_for(behind_layer, hidden)
            host = self._streams.copy_to_host(work(hidden))
            self._copies.append(_Copy(host, self._streams.mark_side(), then))

    def finish(self) -> None:
        """The forward is issued: hand over what gets ready before it is done, and forget the rest."""
        if not self._copies:
            return
        behind_forward = self._streams.mark_main()
        while True:
            done = behind_forward.query()  # type: ignore[no-untyped-call]  # first: what was ready by then is not lost
            self._hand_over()
            if done or not self._copies:
                break
            self._sleep(POLL_S)
        self.forget()

    def forget(self) -> None:
        """No caller wants what has not been handed over."""
        self._copies.clear()

    def _hand_over(self) -> None:
        while self._copies and self._copies[0].done.query():  # type: ignore[no-untyped-call]
            copy = self._copies.popleft()
            copy.then(copy.host)


def beside_of(device: torch.device) -> SideStream | None:
    """A device's way; None where work is done on the spot: on a CPU."""
    return SideStream(CudaStreams(device)) if device.type == "cuda" else None
