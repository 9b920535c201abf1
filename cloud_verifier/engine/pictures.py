# SPDX-License-Identifier: Apache-2.0
"""Prepares prompts with pictures beside the forward passes: several threads decode, one runs the vision tower.

The vision tower sees the pictures of all waiting prompts in one pass, and each distinct picture once. A picture's
features are kept, so that a frame that returns in the next prompt's history is neither decoded nor encoded again.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any

import torch
from PIL import Image

from cloud_verifier.engine.work import SessionWork
from cloud_verifier.observing.counts import BEAT_S, Heartbeats
from specdec.errors import ModelError
from specdec.isolation.accounts import Account, charged
from specdec.isolation.workers import Ticket
from specdec.models.images import PreparedImages, SeenPicture
from specdec.models.plans import Plan, Preparation, Prepared, PromptModel
from specdec.store import SharedStore

TOKENS_AT_ONCE = 4096
"""Tokens of all prompts whose pictures share one vision pass; only a single longer prompt may exceed this."""
MOST_DECODERS = 4
_NICENESS = 10
"""Niceness of decoding threads: they get about a tenth of a core that forward passes also want."""

Name = bytes
"""Identifies a picture by its contents."""


@dataclass(frozen=True, eq=False)
class Continuation:
    """A plan that continues when what it waits for is there."""

    work: SessionWork
    plan: Plan[None]


@dataclass(frozen=True, eq=False)
class Request(Continuation):
    """A plan that needs a prompt prepared. account: of the client that is charged for decoding."""

    need: Preparation
    account: Account | None = None

    @cached_property
    def names(self) -> tuple[Name, ...]:
        """Names of its pictures' contents, in order; hashing large pictures takes a while on first use."""
        return tuple(name_of(picture, self.work.scope) for picture in self.need.prompt.images)


def name_of(picture: bytes, scope: bytes = b"") -> Name:
    """A digest that is equal for equal bytes within a scope."""
    return blake2b(picture, digest_size=16, key=scope[:64]).digest()


def _give_way() -> None:
    """Lower this thread's priority below forward passes. Only Linux has priorities per thread."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)


class _Decoding:
    """A picture that is being decoded for the vision tower. result: set when that is done."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.ticket: Ticket[Image.Image] | None = None
        self.result: PreparedImages | Exception | None = None


_Key = tuple[int, Name]
"""Key of a picture: the model that sees it, and its name."""


class PicturePreparer:
    """Prepares prompts until close(). The vision thread never waits for a picture to be decoded.

    passes: vision passes so far. looked_at: pictures in them. vision_s: seconds spent in them. beats: heartbeats of
    the vision thread.
    """

    def __init__(
        self,
        store: SharedStore,
        wanted: Callable[[Request], bool],
        done: Callable[[Request, Prepared | Exception], None],
    ) -> None:
        """store: keeps the features of pictures. wanted: False once nothing waits for the result. done: called in the
        vision thread or in a thread of its own with each result or error.
        """
        self._store = store
        self._wanted = wanted
        self._done = done
        self._arriving: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._keys: dict[Request, set[_Key]] = {}
        self._pending: dict[Request, set[_Key]] = {}
        self._ready: list[Request] = []
        self._decoding: dict[_Key, _Decoding] = {}
        decoders = max(1, min(MOST_DECODERS, (os.cpu_count() or 2) - 1))
        self._lock = threading.RLock()
        self._decoders = ThreadPoolExecutor(decoders, "decode", initializer=_give_way)
        self._alone = ThreadPoolExecutor(MOST_DECODERS, "prepare", initializer=_give_way)
        self._thread: threading.Thread | None = None
        self._closed = False
        self.looked_at = 0
        self.passes = 0
        self.vision_s = 0.0
        self.beats = Heartbeats()

    def submit(self, request: Request) -> None:
        """Hand over a prompt; always from the same thread. Raises ModelError for data that is not a picture."""
        request.need.model.prompt_length(request.need.prompt)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="pictures", daemon=True)
            self._thread.start()
        self._arriving.put(lambda: self._take(request))

    def forget(self, request: Request) -> None:
        """Give up a prompt that nothing waits for, and pictures decoded only for it. From any thread."""
        with self._lock:
            self._leave(request)

    def close(self) -> None:
        """Start no more work."""
        if not self._closed:
            self._closed = True
            self._decoders.shutdown(wait=False, cancel_futures=True)
            self._alone.shutdown(wait=False, cancel_futures=True)
            self._arriving.put(None)

    @torch.inference_mode()
    def _run(self) -> None:
        while not self._closed:
            self.beats.mark("pictures")
            try:
                arrived = self._arriving.get(timeout=0.0 if self._ready else BEAT_S)
            except queue.Empty:
                if self._ready:
                    self._look_at_some()
                continue
            if arrived is None:
                break
            arrived()
        self.beats.end("pictures")

    def _take(self, request: Request) -> None:
        """Start preparing a prompt."""
        if not self._wanted(request):
            return
        try:
            if not request.need.embed:  # only the sizes of its pictures are needed
                self._alone.submit(self._carry_out_alone, request)
                return
            names = request.names  # hashed in this thread, as it may take long
            with self._lock:
                self._keys[request] = {(id(request.need.model), name) for name in names}
                for name, picture in zip(names, request.need.prompt.images, strict=True):
                    if self._store.get((id(request.need.model), name)) is None:
                        self._begin(request, name, picture)
                self._pending[request] = {
                    key
                    for key in self._keys[request]
                    if key in self._decoding and self._decoding[key].result is None
                }
                self._see_whether_ready(request)
                if not self._wanted(request):  # forgotten in the meantime
                    self._leave(request)
        except Exception as error:
            self._leave(request)
            self._done(request, error)

    def _see_whether_ready(self, request: Request) -> None:
        if not self._pending[request]:
            del self._pending[request]
            self._ready.append(request)

    def _carry_out_alone(self, request: Request) -> None:
        result: Prepared | Exception
        token = charged.set(request.account)
        try:
            with torch.inference_mode():
                result = request.need.carry_out()
        except Exception as error:
            result = error
        finally:
            charged.reset(token)
        self._done(request, result)

    def _begin(self, request: Request, name: Name, picture: bytes) -> None:
        """Have a picture decoded, once for all requests that wait for it."""
        model = request.need.model
        key = (id(model), name)
        decoding = self._decoding.get(key)
        if decoding is None:
            token = charged.set(request.account)
            try:
                opening = model.open_soon(picture)
            finally:
                charged.reset(token)
            decoding = self._decoding[key] = _Decoding()
            decoding.ticket = opening
            if opening is None:
                self._then(self._decoders.submit(model.decode, picture), key, decoding)
            else:
                opening.add_done_callback(lambda image: self._opened(image, model, key, decoding))
        if request not in decoding.requests:
            decoding.requests.append(request)

    def _opened(self, image: Future[Image.Image], model: PromptModel, key: _Key, decoding: _Decoding) -> None:
        """Called in a worker's thread."""
        if image.exception() is not None:
            self._then(image, key, decoding)
        elif not self._closed:
            with contextlib.suppress(RuntimeError):  # closed in the meantime
                self._then(self._decoders.submit(model.decode_opened, image.result()), key, decoding)

    def _then(self, found: Future[Any], key: _Key, decoding: _Decoding) -> None:
        def done(found: Future[Any]) -> None:
            error = CancelledError() if found.cancelled() else found.exception()
            if error is None:
                decoding.result = found.result()
            else:
                decoding.result = (
                    error if isinstance(error, Exception) else ModelError("a picture was not decoded")
                )
            self._arriving.put(lambda: self._decoded(key, decoding))

        found.add_done_callback(done)

    def _decoded(self, key: _Key, decoding: _Decoding) -> None:
        with self._lock:
            for request in decoding.requests:
                if request in self._pending:
                    self._pending[request].discard(key)
                    self._see_whether_ready(request)

    def _leave(self, request: Request) -> None:
        """Remove a request that is finished or no longer wanted."""
        with self._lock:
            self._pending.pop(request, None)
            if request in self._ready:
                self._ready.remove(request)
            for key in self._keys.pop(request, ()):
                decoding = self._decoding.get(key)
                if decoding is None or request not in decoding.requests:
                    continue
                decoding.requests.remove(request)
                if not decoding.requests:
                    del self._decoding[key]
                    if decoding.ticket is not None and decoding.result is None:
                        decoding.ticket.abandon()

    def _look_at_some(self) -> None:
        """Run one vision pass for prompts whose pictures are decoded: of one model, up to TOKENS_AT_ONCE tokens."""
        taken: list[Request] = []
        with self._lock:
            self._ready.sort(
                key=lambda request: request.work.rank
            )  # stable: within a rank, first ready first
            room = TOKENS_AT_ONCE
            for request in list(self._ready):
                if not self._wanted(request):
                    self._leave(request)
                    continue
                if taken and request.need.model is not taken[0].need.model:
                    break
                size = request.need.model.prompt_length(request.need.prompt)
                if taken and size > room:
                    break
                self._ready.remove(request)
                taken.append(request)
                room -= size
        left = list(taken)
        try:
            for request, result in self._prepare(taken):
                left.remove(request)
                self._leave(request)
                if result is not None:
                    self._done(request, result)
                else:  # a picture's features were evicted in the meantime
                    self._take(request)
        except Exception as error:  # not the fault of one request: all that wait are notified
            for request in left:
                self._leave(request)
                self._done(request, error)

    def _prepare(self, requests: Sequence[Request]) -> Iterator[tuple[Request, Prepared | Exception | None]]:
        """The result of each request, as soon as it is known; None: one of its pictures must be decoded again."""
        began = time.perf_counter()
        seen: dict[Name, SeenPicture] = {}
        decoded: dict[Name, PreparedImages] = {}
        sound = []
        for request in requests:
            try:
                self._gather(request, seen, decoded)
                sound.append(request)
            except KeyError:
                yield request, None
            except Exception as error:
                yield request, error
        together = True
        try:
            self._look(sound, decoded, seen)
        except Exception:
            together = False  # run each alone, so that only the faulty one fails
        self.vision_s += time.perf_counter() - began
        for request in sound:
            try:
                if not together:
                    self._look([request], decoded, seen)
                yield request, request.need.carry_out([seen[name] for name in request.names])
            except Exception as error:
                yield request, error

    def _gather(
        self, request: Request, seen: dict[Name, SeenPicture], decoded: dict[Name, PreparedImages]
    ) -> None:
        """Collect a request's features and decoded pictures. Raises a picture's decoding error, or KeyError if
        one is gone.
        """
        with self._lock:
            for name in request.names:
                key = (id(request.need.model), name)
                known = self._store.get(key)
                if known is not None:
                    seen[name] = known
                    continue
                result = self._decoding[key].result
                if isinstance(result, Exception):
                    raise result
                if result is not None:
                    decoded[name] = result

    def _look(
        self,
        requests: Sequence[Request],
        decoded: Mapping[Name, PreparedImages],
        seen: dict[Name, SeenPicture],
    ) -> None:
        """Run one vision pass over the pictures of these requests that have no features yet."""
        new = list(dict.fromkeys(name for request in requests for name in request.names if name not in seen))
        if not new:
            return
        model = requests[0].need.model
        pictures = model.look([decoded[name] for name in new])
        self.passes += 1
        self.looked_at += len(new)
        for name, picture in zip(new, pictures, strict=True):
            seen[name] = picture
            size = picture.features.numel() * picture.features.element_size()
            self._store.put((id(model), name), picture, size)
