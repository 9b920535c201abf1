"""Keys and values of prompts' beginnings, worked out once: a prompt that begins as one before takes them over.

A prompt is cut into blocks; a block is known by its tokens, its pictures and all that stands before it, so that equal
names mean equal keys and values. A session copies what it takes: nobody writes into what is shared.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from torch import Tensor

from cloud_verifier.engine.work import SessionWork
from specdec.store import SharedStore

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
    """All prompts' blocks, and who is working on which of them."""

    def __init__(self, store: SharedStore) -> None:
        self._store = store
        self._makers: dict[Hashable, SessionWork] = {}

    def of(
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
        """A session works on what is missing, as far as nobody does yet."""
        for name in prefix.missing:
            self._makers.setdefault(name, session)

    def ended(self, session: SessionWork) -> None:
        """A session works on no prompt any more."""
        if self._makers:
            self._makers = {name: maker for name, maker in self._makers.items() if maker is not session}
