# SPDX-License-Identifier: Apache-2.0
"""Prompts on their way into a KV cache. Pictures are prepared in other threads, and known prefixes are reused.

A prompt that starts like one that is being computed waits for that prompt's keys and values.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

from torch import Tensor

from cloud_verifier.engine.pictures import Continuation, PicturePreparer, Request
from cloud_verifier.engine.tasks import SessionKey
from cloud_verifier.engine.work import SessionWork
from specdec.models.plans import AwaitedWorker, Prepared
from specdec.store import SharedStore

SHARED_TOKENS = 16_384
"""Tokens whose keys and values are kept for future prompts, unless configured otherwise."""
SHARED_PART = 8
"""At most 1/SHARED_PART of the KV budget is used for them."""


def shared_bytes(kv_bytes: int, bytes_a_token: int) -> int:
    """Bytes kept for future prompts, unless configured otherwise."""
    return min(kv_bytes // SHARED_PART, SHARED_TOKENS * bytes_a_token)


@dataclass(frozen=True)
class PreparedTask:
    """The result of a request: a Prepared or an error; for a plan that waits for a worker, the AwaitedWorker."""

    request: Continuation
    result: Prepared | Exception | AwaitedWorker


@dataclass(frozen=True)
class _WaitingPrompt:
    """A prompt that waits for another prompt's keys and values."""

    request: Request
    prepared: Prepared
    prefix: SharedPrefix


class Prompts:
    """Prepares prompts. store: shared prefixes and pictures. Used in the engine's thread only."""

    def __init__(
        self, most_bytes: int, arrive: Callable[[PreparedTask], None], wanted: Callable[[Request], bool]
    ) -> None:
        """most_bytes: bound on what is shared; 0 shares nothing. arrive: called in another thread with prepared prompts
        that have pictures. wanted: called there, tells whether a request is still needed.
        """
        self.store = SharedStore(most_bytes)
        self.pictures = PicturePreparer(
            self.store, wanted, lambda request, result: arrive(PreparedTask(request, result))
        )
        self._prefixes = Prefixes(self.store)
        self._wanted = wanted
        self._held: list[_WaitingPrompt] = []
        self._requests: dict[SessionKey, Request] = {}

    def prepare(self, request: Request) -> Prepared | Exception | None:
        """The result; None if it comes later through `arrive` or `free`."""
        try:
            if not request.need.prompt.images:
                return self.share(request, request.need.carry_out())
            self.pictures.submit(request)
            self._requests[request.work.key] = request
        except Exception as error:  # the plan receives it
            return error
        return None

    def share(self, request: Request, prepared: Prepared) -> Prepared | None:
        """The prompt with its known prefix; None if another session is computing that prefix: it then comes
        from `free`.
        """
        need, work = request.need, request.work
        known = not self.store.most_bytes or not need.embed or prepared.prefix is not None
        if known or not need.model.runner.sees_layers:
            return prepared
        pictures = list(zip(prepared.encoded.picture_starts, request.names, strict=True))
        prefix = self._prefixes.prefix_of(need.model, work.scope, prepared.encoded.ids, pictures)
        held = _WaitingPrompt(request, prepared, replace(prefix, on_learned=lambda: self.ended(work)))
        if self._must_wait(held):
            self._held.append(held)
            return None
        return self._begun(held)

    def free(self) -> Iterator[PreparedTask]:
        """Yield the prompts that need not wait any longer."""
        held, self._held = self._held, []
        for one in held:
            if not self._wanted(one.request):
                continue
            if self._must_wait(one):
                self._held.append(one)
            else:
                yield PreparedTask(one.request, self._begun(one))

    def ended(self, work: SessionWork) -> None:
        """A session no longer works on a prompt."""
        request = self._requests.pop(work.key, None)
        if request is not None:
            self.pictures.forget(request)
        self._prefixes.ended(work)

    def close(self) -> None:
        """Start no more work."""
        self.pictures.close()

    def _must_wait(self, held: _WaitingPrompt) -> bool:
        maker = self._prefixes.maker(held.prefix)
        # No session waits for one of a lower class.
        return maker is not None and maker.rank <= held.request.work.rank

    def _begun(self, held: _WaitingPrompt) -> Prepared:
        self._prefixes.begin(held.prefix, held.request.work)
        return replace(held.prepared, prefix=held.prefix)


BLOCK = 32
"""Tokens per block."""


@dataclass(frozen=True)
class SharedPrefix:
    """The blocks of one prompt, by name, without its last token. A `KnownPrefix`.

    on_learned: called when all blocks are known.
    """

    store: SharedStore
    names: tuple[Hashable, ...]
    on_learned: Callable[[], None] = lambda: None

    @property
    def missing(self) -> tuple[Hashable, ...]:
        """The blocks after the known ones."""
        known = next((i for i, name in enumerate(self.names) if name not in self.store), len(self.names))
        return self.names[known:]

    def fill(self, cache: Tensor) -> int:
        """Copy the known blocks into a cache; returns how many tokens they hold."""
        filled = 0
        for name in self.names:
            block = self.store.get(name)
            if block is None:
                break
            cache[:, :, :, filled : filled + BLOCK] = block
            filled += BLOCK
        # Touch the first block last: other prompts share it, so it must be evicted last.
        for name in reversed(self.names[: filled // BLOCK]):
            self.store.get(name)
        return filled

    def learn(self, cache: Tensor) -> None:
        """Store the blocks that were missing."""
        for number, name in reversed(list(enumerate(self.names))):
            if name not in self.store:
                block = cache[:, :, :, number * BLOCK : (number + 1) * BLOCK].clone()
                self.store.put(name, block, block.numel() * block.element_size())
        self.on_learned()


class Prefixes:
    """The blocks of all prompts, and which session is computing which block.

    A block's name covers its tokens, its pictures and everything before it, so that equal names mean equal keys and
    values. A session copies blocks: nothing writes into shared ones.
    """

    def __init__(self, store: SharedStore) -> None:
        self._store = store
        self._makers: dict[Hashable, SessionWork] = {}

    def prefix_of(
        self, model: object, scope: bytes, ids: Tensor, pictures: Sequence[tuple[int, bytes]] = ()
    ) -> SharedPrefix:
        """The blocks of a prompt.

        Args:
            model: The model that computes the blocks.
            scope: Prompts of different scopes share nothing.
            ids: int64 [n], with the placeholders of pictures expanded.
            pictures: For each picture, where it begins in `ids` and the name of its contents.
        """
        data = ids.numpy()
        chain = blake2b(scope, digest_size=16)
        names: list[Any] = []
        left = list(pictures)
        for start in range(0, len(data) - BLOCK, BLOCK):
            chain.update(data[start : start + BLOCK].tobytes())
            while left and left[0][0] < start + BLOCK:
                at, name = left.pop(0)
                chain.update(b"%d:%d:%s" % (at, len(name), name))
            names.append((id(model), chain.digest()))
        return SharedPrefix(self._store, tuple(names))

    def maker(self, prefix: SharedPrefix) -> SessionWork | None:
        """The session that is computing the first missing block of this prompt, if any."""
        missing = prefix.missing
        return self._makers.get(missing[0]) if missing else None

    def begin(self, prefix: SharedPrefix, session: SessionWork) -> None:
        """A session starts computing the missing blocks that no other session computes."""
        for name in prefix.missing:
            self._makers.setdefault(name, session)

    def ended(self, session: SessionWork) -> None:
        """A session no longer works on a prompt."""
        if self._makers:
            self._makers = {name: maker for name, maker in self._makers.items() if maker is not session}
