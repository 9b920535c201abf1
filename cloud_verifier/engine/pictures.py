"""Prompts with pictures are prepared beside the forwards: several threads decode, one looks.

The vision tower sees the pictures of prompts that wait in one pass, each content once; what it has made of a picture is
kept, so that a frame that comes again in the next prompt's history is neither decoded nor looked at.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

import torch

from specdec.errors import ModelError
from specdec.models.images import PreparedImages, SeenPicture
from specdec.models.plans import Preparation, Prepared
from specdec.store import SharedStore

TOKENS_AT_ONCE = 4096
"""Of all prompts whose pictures are decoded and looked at together; more only where a single one is longer."""
MOST_DECODERS = 4
_NICENESS = 10
"""Of threads that decode: a tenth of a core that a forward wants, too."""

Name = bytes
"""Of a picture's contents."""


@dataclass(frozen=True)
class Order:
    """A prompt to prepare. find_names: takes a while for large pictures, so it is called in the thread that looks.

    wanted: False once nobody waits for it. done: takes what came of it, or the error, in the thread that looks. rank: 0
    comes first.
    """

    need: Preparation
    find_names: Callable[[], Sequence[Name]]
    wanted: Callable[[], bool]
    done: Callable[[Prepared | Exception], None]
    rank: int = 1

    @cached_property
    def names(self) -> Sequence[Name]:
        """Of its pictures' contents, in order; none where nobody need look at them."""
        return self.find_names()


def name_of(picture: bytes, scope: bytes = b"") -> Name:
    """Equal for equal bytes within a scope."""
    return blake2b(picture, digest_size=16, key=scope[:64]).digest()


def _give_way() -> None:
    """Let forwards have the cores first. Only Linux has threads with priorities of their own."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)


class PictureRoom:
    """Prepares prompts until close().

    passes, looked_at: of the vision tower, and pictures in them; vision_s: seconds until they were decoded and seen.
    """

    def __init__(self, store: SharedStore) -> None:
        """store: keeps what was made of pictures."""
        self._store = store
        self._waiting: queue.PriorityQueue[tuple[int, int, int, Order | None]] = queue.PriorityQueue()
        decoders = max(1, min(MOST_DECODERS, (os.cpu_count() or 2) - 1))
        self._decoders = ThreadPoolExecutor(decoders, "decode", initializer=_give_way)
        self._thread: threading.Thread | None = None
        self._number = 0
        self._closed = False
        self.looked_at = 0
        self.passes = 0
        self.vision_s = 0.0

    def submit(self, order: Order) -> None:
        """Hand over a prompt; always from the same thread. Raises ModelError for what is no picture."""
        size = order.need.model.prompt_length(order.need.prompt)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="pictures", daemon=True)
            self._thread.start()
        self._number += 1
        self._waiting.put((order.rank, self._number, size, order))

    def close(self) -> None:
        """Begin nothing more."""
        if not self._closed:
            self._closed = True
            self._decoders.shutdown(wait=False, cancel_futures=True)
            self._waiting.put((-1, 0, 0, None))

    @torch.inference_mode()
    def _run(self) -> None:
        while (orders := self._take()) is not None and not self._closed:
            left = list(orders)
            try:
                for order, result in self._prepare(orders):
                    left.remove(order)
                    order.done(result)
            except Exception as error:  # nobody's own: all that wait are told
                for order in left:
                    order.done(error)

    def _take(self) -> list[Order] | None:
        """What is prepared together: at least one order, all of one model; None: there will be no more."""
        taken: list[Order] = []
        room = TOKENS_AT_ONCE
        while not taken or not self._waiting.empty():
            waiting = self._waiting.get()
            *_, size, order = waiting
            if order is None:
                return None
            if not order.wanted():
                continue
            if taken and (size > room or order.need.model is not taken[0].need.model):
                self._waiting.put(waiting)
                break
            taken.append(order)
            room -= size
        return taken

    def _prepare(self, orders: Sequence[Order]) -> Iterator[tuple[Order, Prepared | Exception]]:
        """What comes of each, as soon as it is there."""
        began = time.perf_counter()
        seen: dict[Name, SeenPicture] = {}
        decoding: dict[Name, Future[PreparedImages]] = {}
        for order in orders:
            for name, picture in zip(order.names, order.need.prompt.images, strict=bool(order.names)):
                if name in seen or name in decoding:
                    continue
                known = self._store.get((id(order.need.model), name))
                if known is not None:
                    seen[name] = known
                else:
                    decoding[name] = self._decoders.submit(order.need.model.decode, picture)
        sound = []
        for order in orders:
            error = _error_in(order, decoding)
            if error is None:
                sound.append(order)
            else:
                yield order, error
        together = True
        try:
            self._look(sound, decoding, seen)
        except Exception:
            together = False  # each alone, so that one alone fails
        self.vision_s += time.perf_counter() - began
        for order in sound:
            try:
                if not together:
                    self._look([order], decoding, seen)
                pictures = [seen[name] for name in order.names] if order.names else None
                yield order, order.need.carry_out(pictures)
            except Exception as error:
                yield order, error

    def _look(
        self,
        orders: Sequence[Order],
        decoding: Mapping[Name, Future[PreparedImages]],
        seen: dict[Name, SeenPicture],
    ) -> None:
        """One pass over all that is new of these orders."""
        new = list(dict.fromkeys(name for order in orders for name in order.names if name not in seen))
        if not new:
            return
        model = orders[0].need.model
        pictures = model.look([decoding[name].result() for name in new])
        self.passes += 1
        self.looked_at += len(new)
        for name, picture in zip(new, pictures, strict=True):
            seen[name] = picture
            size = picture.features.numel() * picture.features.element_size()
            self._store.put((id(model), name), picture, size)


def _error_in(order: Order, decoding: Mapping[Name, Future[PreparedImages]]) -> Exception | None:
    """Why one of its pictures cannot be decoded; waits for them."""
    for name in order.names:
        error = decoding[name].exception() if name in decoding else None
        if error is not None:
            return error if isinstance(error, Exception) else ModelError("a picture was not decoded")
    return None
