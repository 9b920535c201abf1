# SPDX-License-Identifier: Apache-2.0
"""Prompts on their way into a cache: pictures beside the forwards, and nothing worked out that is known already.

A prompt that begins as one that is being worked on waits for that one's keys and values.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any

from torch import Tensor

from cloud_verifier.engine.pictures import Name, PicturePreparer, PrepareRequest, name_of
from cloud_verifier.engine.tasks import SessionKey
from cloud_verifier.engine.work import SessionWork
from specdec.isolation.accounts import Account
from specdec.models.plans import AwaitedWorker, Plan, Preparation, Prepared
from specdec.store import SharedStore

SHARED_TOKENS = 16_384
"""Tokens whose keys and values are kept for prompts to come, unless configured otherwise."""
SHARED_PART = 8
"""And no more than this part of the KV budget."""


def shared_bytes(kv_bytes: int, bytes_a_token: int) -> int:
    """What is kept for prompts to come, unless configured otherwise."""
    return min(kv_bytes // SHARED_PART, SHARED_TOKENS * bytes_a_token)


@dataclass(frozen=True)
class Continuation:
    """A plan that goes on when what it waits for is there."""

    work: SessionWork
    plan: Plan[None]


@dataclass(frozen=True)
class Request(Continuation):
    """A plan that wants a prompt prepared."""

    need: Preparation

    @cached_property
    def names(self) -> tuple[Name, ...]:
        """Of its pictures' contents; large ones take a while when it is first asked for."""
        return tuple(name_of(picture, self.work.scope) for picture in self.need.prompt.images)


@dataclass(frozen=True)
class PreparedTask:
    """What came of a request: a Prepared, or the error that was met. A plan that waits for a worker looks itself."""

    request: Continuation
    result: Prepared | Exception | AwaitedWorker


@dataclass(frozen=True)
class _WaitingPrompt:
    """A prompt that waits for another's keys and values."""

    request: Request
    prepared: Prepared
    prefix: SharedPrefix


class Prompts:
    """Prepares prompts. store: what is shared. Belongs to the engine's thread."""

    def __init__(
        self, most_bytes: int, arrive: Callable[[PreparedTask], None], wanted: Callable[[Request], bool]
    ) -> None:
        """most_bytes: of what is shared, 0 shares nothing. arrive: takes prompts with pictures, in another thread.
        wanted: asked there whether a request still counts.
        """
        self.store = SharedStore(most_bytes)
        self.pictures = PicturePreparer(self.store)
        self._prefixes = Prefixes(self.store)
        self._arrive = arrive
        self._wanted = wanted
        self._held: list[_WaitingPrompt] = []
        self._orders: dict[SessionKey, PrepareRequest] = {}

    def prepare(self, request: Request, account: Account | None = None) -> Prepared | Exception | None:
        """What comes of it; None: it comes later, through `arrive` or from `free`. account: of whose it is."""
        need, work = request.need, request.work
        try:
            if not need.prompt.images:
                return self.share(request, need.carry_out())
            order = PrepareRequest(
                need,
                lambda: request.names if need.embed else (),
                lambda: self._wanted(request),
                lambda result: self._arrive(PreparedTask(request, result)),
                work.rank,
                account,
            )
            self.pictures.submit(order)
            self._orders[request.work.key] = order
        except Exception as error:  # the plan is notified
            return error
        return None

    def share(self, request: Request, prepared: Prepared) -> Prepared | None:
        """With what is known of its keys and values; None where that is being worked on: it comes from `free`."""
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
        """Those that wait no longer."""
        held, self._held = self._held, []
        for one in held:
            if not self._wanted(one.request):
                continue
            if self._must_wait(one):
                self._held.append(one)
            else:
                yield PreparedTask(one.request, self._begun(one))

    def ended(self, work: SessionWork) -> None:
        """A session works on no prompt any more."""
        order = self._orders.pop(work.key, None)
        if order is not None:
            self.pictures.forget(order)
        self._prefixes.ended(work)

    def close(self) -> None:
        """Begin nothing more."""
        self.pictures.close()

    def _must_wait(self, held: _WaitingPrompt) -> bool:
        maker = self._prefixes.maker(held.prefix)
        # No thread waits for a session of a lower class.
        return maker is not None and maker.rank <= held.request.work.rank

    def _begun(self, held: _WaitingPrompt) -> Prepared:
        self._prefixes.begin(held.prefix, held.request.work)
        return replace(held.prepared, prefix=held.prefix)


BLOCK = 32
"""Tokens of a block."""


@dataclass(frozen=True)
class SharedPrefix:
    """The blocks of one prompt, by name, short of its last token. A `KnownPrefix`.

    on_learned: called when all of them are known.
    """

    store: SharedStore
    names: tuple[Hashable, ...]
    on_learned: Callable[[], None] = lambda: None

    @property
    def missing(self) -> tuple[Hashable, ...]:
        """The blocks behind those that are known."""
        known = next((i for i, name in enumerate(self.names) if name not in self.store), len(self.names))
        return self.names[known:]

    def fill(self, cache: Tensor) -> int:
        """Copy the blocks that are known; returns how many tokens those are."""
        filled = 0
        for name in self.names:
            block = self.store.get(name)
            if block is None:
                break
            cache[:, :, :, filled : filled + BLOCK] = block
            filled += BLOCK
        for name in reversed(self.names[: filled // BLOCK]):  # what others go on from is to be forgotten last
            self.store.get(name)
        return filled

    def learn(self, cache: Tensor) -> None:
        """Copy the blocks that were missing."""
        for number, name in reversed(list(enumerate(self.names))):
            if name not in self.store:
                block = cache[:, :, :, number * BLOCK : (number + 1) * BLOCK].clone()
                self.store.put(name, block, block.numel() * block.element_size())
        self.on_learned()


class Prefixes:
    """All prompts' blocks, and who is working on which of them.

    A block is known by its tokens, its pictures and all that stands before it, so that equal names mean equal keys and
    values. A session copies what it takes: nothing writes into what is shared.
    """

    def __init__(self, store: SharedStore) -> None:
        self._store = store
        self._makers: dict[Hashable, SessionWork] = {}

    def prefix_of(
        self, model: object, scope: bytes, ids: Tensor, pictures: Sequence[tuple[int, bytes]] = ()
    ) -> SharedPrefix:
        """The blocks of a prompt. ids: int64 [n], placeholders of pictures expanded. pictures: where each begins, and
        its contents' name. scope: prompts of different ones share nothing.
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
        """Who is working on what this prompt lacks first."""
        missing = prefix.missing
        return self._makers.get(missing[0]) if missing else None

    def begin(self, prefix: SharedPrefix, session: SessionWork) -> None:
        """A session works on what is missing, as far as no other thread does yet."""
        for name in prefix.missing:
            self._makers.setdefault(name, session)

    def ended(self, session: SessionWork) -> None:
        """A session works on no prompt any more."""
        if self._makers:
            self._makers = {name: maker for name, maker in self._makers.items() if maker is not session}
