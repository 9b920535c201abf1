# SPDX-License-Identifier: Apache-2.0
"""Pictures decoded and resized in workers: a remote `specdec.pictures.decoding.open_picture`."""

from __future__ import annotations

import threading
from concurrent.futures import Future

from PIL import Image

from specdec.errors import ModelError
from specdec.isolation import wire
from specdec.isolation.turns import Turns
from specdec.isolation.workers import Launcher, Limit, Ticket, Worker
from specdec.pictures.decoding import size_opened
from specdec.pictures.sizes import picture_size

DECODING = Limit(cpu_s=2.0, wall_s=8.0)
"""Limits for one picture; a photograph of 12 megapixels takes a tenth of this."""
MEMORY = 320 * 2**20
"""Enough for the largest picture three times: decoded, with transparency, and as RGB."""
MOST_QUICK, MOST = 3, 6
"""Most pictures at a time: those not yet slow, and in total."""
LARGE, LARGE_BYTES = 6_000_000, 4 << 20
"""Pictures with more pixels or more encoded bytes are decoded one at a time, because of their memory."""


class PictureWorkers:
    """As many workers as needed, at most MOST. Thread-safe and non-blocking."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._turns = Turns(MOST_QUICK, MOST, "pictures' turns")
        self._lock = threading.Lock()
        self._idle: list[Worker] = []

    def start(self, data: bytes, factor: int, least: int, most: int) -> Ticket[Image.Image]:
        """As `open_picture`, as a future. Raises ModelError for data that is no picture, and OverSpent."""
        job = wire.Picture(factor, least, most)
        size = picture_size(data)
        large = size[0] * size[1] > LARGE or len(data) > LARGE_BYTES
        size = size_opened(*size, factor, least, most)
        return self._turns.take(lambda: self._begin(job, data), lambda reply: _read(reply, size), large)

    def _begin(self, job: wire.Picture, data: bytes) -> tuple[Worker, Future[wire.WorkerReply]]:
        with self._lock:
            worker = self._idle.pop() if self._idle else Worker(self._launcher, MEMORY, "the image", name="picture")
        try:
            asked = worker.ask(lambda: job, DECODING, beside=data)
        except BaseException:
            self._give_back(worker)
            raise
        asked.add_done_callback(lambda _: self._give_back(worker))
        return worker, asked

    def _give_back(self, worker: Worker) -> None:
        with self._lock:
            self._idle.append(worker)


def _read(reply: wire.WorkerReply, size: tuple[int, int]) -> Image.Image:
    """The picture in a reply. Raises ModelError for a reply that no sound worker sends."""
    if (reply.width, reply.height) != size or len(reply.data) != 3 * size[0] * size[1]:
        raise ModelError("the image cannot be decoded: if other programs can open it, report this with the image")
    return Image.frombytes("RGB", size, reply.data)
