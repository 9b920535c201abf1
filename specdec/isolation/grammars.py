# SPDX-License-Identifier: Apache-2.0
"""Grammars that are compiled and followed in workers, a process each: `specdec.sampling.grammar` from afar.

What an answer asks comes back as a future. Compiled grammars are kept, and so is that a text was refused.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence, Set
from concurrent.futures import Future
from hashlib import blake2b
from typing import Any

import numpy as np

from specdec.draft import TokenTree, common_length
from specdec.errors import ModelError, OptionsError, SpecdecError
from specdec.isolation import wire
from specdec.isolation.turns import Turns
from specdec.isolation.workers import FIRST, Launcher, Limit, OverLimit, Ticket, Worker
from specdec.sampling.choices import Choices
from specdec.sampling.grammar import MAX_FORCED, Mask, check_room, tokenizer_json

COMPILING = Limit(cpu_s=2.0, wall_s=6.0)
"""A schema of a program's own takes some tens of milliseconds."""
STEP = Limit(cpu_s=0.5, wall_s=3.0)
"""A step takes less than one."""
MEMORY = 160 * 2**20
KEPT = 16
"""Processes with a grammar each. One that is needed again compiles it again."""
KEPT_BYTES = 192 * 2**20
"""Of all of them together."""
MOST_QUICK, MOST = 2, 3
"""Grammars that are compiled at a time: that are about to be done, and in all."""
KEPT_REFUSALS = 1024
MOST_TRIES = 3
"""Of a grammar that takes too long without taking much of a CPU: the machine may have been busy."""


class IsolatedGrammars:
    """Has what `Grammars` has. For any threads."""

    def __init__(self, launcher: Launcher, tokenizer: Any, vocab_size: int, eos_ids: Set[int]) -> None:
        self._launcher = launcher
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._eos_ids = frozenset(eos_ids)
        self._vocabulary: int | None = None
        self._known: OrderedDict[str, IsolatedGrammar] = OrderedDict()
        self._refused: OrderedDict[bytes, SpecdecError] = OrderedDict()
        self._doubtful: dict[bytes, int] = {}
        self._turns = Turns(MOST_QUICK, MOST, "grammars' turns")
        self._lock = threading.Lock()
        self._preparing = threading.Lock()

    def compile(self, text: str) -> IsolatedGrammar:
        """The same as `compile_soon`, once it is there. Raises what the future raises."""
        return self.compile_soon(text).result()

    def compile_soon(self, text: str) -> Ticket[IsolatedGrammar]:
        """A grammar that is compiled. The future raises OptionsError, ModelError, or OverLimit among these.

        Raises OverSpent for a client in debt.
        """
        name = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        with self._lock:
            if (error := self._refused.get(name)) is not None:
                self._refused.move_to_end(name)
                return _failed(type(error), str(error))
            known = self._known.pop(text, None) or self._new(text)
            self._known[text] = known
            surplus = self._surplus()
        for one in surplus:
            one.rest()
        return known.compiled(self._turns, lambda error: None if error is None else self._refuse(text, name, error))

    def _surplus(self) -> list[IsolatedGrammar]:
        """Those used longest ago that are not kept, for their number or for what they take."""
        found = []
        while len(self._known) > 1:
            takes = sum(one.memory for one in self._known.values())
            if len(self._known) <= KEPT and takes <= KEPT_BYTES:
                break
            found.append(self._known.popitem(last=False)[1])
        return found

    def _new(self, text: str) -> IsolatedGrammar:
        return IsolatedGrammar(self._launcher, self.vocabulary, text, self._vocab_size, self._eos_ids)

    def vocabulary(self) -> int:
        """Its number in the launcher; of a large one it takes a while to prepare it. Raises ModelError."""
        with self._preparing:
            if self._vocabulary is None:
                told = tokenizer_json(self._tokenizer, self._eos_ids)
                self._vocabulary = self._launcher.vocabulary(told, self._vocab_size, sorted(self._eos_ids))
            return self._vocabulary

    def _refuse(self, text: str, name: bytes, error: SpecdecError) -> None:
        with self._lock:
            if self._known.pop(text, None) is None:
                return
            if isinstance(error, OverLimit) and not error.certain:
                self._doubtful[name] = self._doubtful.get(name, 0) + 1
                if len(self._doubtful) > KEPT_REFUSALS:
                    self._doubtful.pop(next(iter(self._doubtful)))
            if not isinstance(error, OverLimit) or error.certain or self._doubtful[name] >= MOST_TRIES:
                self._refused[name] = error
                if len(self._refused) > KEPT_REFUSALS:
                    self._refused.popitem(last=False)


class IsolatedGrammar:
    """A grammar in a worker; shared by all answers that follow it.

    shortest: tokens of its shortest answer. memory: bytes that its process takes.
    """

    def __init__(
        self,
        launcher: Launcher,
        vocabulary: Callable[[], int],
        text: str,
        vocab_size: int,
        eos_ids: frozenset[int],
    ) -> None:
        self.vocab_size = vocab_size
        self.eos_ids = eos_ids
        self.shortest = 0
        self._launcher = launcher
        self._vocabulary = vocabulary
        self._text = text
        self._lock = threading.Lock()
        self._worker: Worker | None = None
        self._ready = False
        self._compiling: Ticket[wire.WorkerReply] | None = None
        self.memory = 0
        self._waiting: list[Ticket[IsolatedGrammar]] = []
        self._followers = itertools.count(1)

    def compiled(self, turns: Turns, on_end: Callable[[SpecdecError | None], None]) -> Ticket[IsolatedGrammar]:
        """Itself, once it is compiled. on_end: told, in another thread, that it is, or why it cannot be. Where nothing
        wants it any more before it is, compiling ends. Raises OverSpent.
        """
        ticket: Ticket[IsolatedGrammar] = Ticket(lambda: self._leave(ticket))
        with self._lock:
            if self._ready:
                ticket.set_result(self)
                return ticket
            self._waiting.append(ticket)
            if self._compiling is not None:
                return ticket
            try:
                compiling = self._compiling = turns.take(lambda: self._ask(FIRST, COMPILING), lambda reply: reply)
            except SpecdecError:
                self._waiting.remove(ticket)
                raise
        compiling.add_done_callback(lambda reply: self._settle(reply, on_end))
        return ticket

    def _settle(self, reply: Future[wire.WorkerReply], on_end: Callable[[SpecdecError | None], None]) -> None:
        error = reply.exception()
        with self._lock:
            waiting, self._waiting = self._waiting, []
            self._compiling = None
            if error is None:
                found = reply.result()
                self.shortest, self.memory, self._ready = (found.ids or [0])[0], found.memory, True
        if error is None or isinstance(error, SpecdecError):
            on_end(error)
        for ticket in waiting:
            if error is None:
                ticket.set_result(self)
            else:
                ticket.set_exception(error)

    def _leave(self, ticket: Ticket[IsolatedGrammar]) -> None:
        with self._lock:
            if ticket in self._waiting:
                self._waiting.remove(ticket)
            compiling = None if self._waiting else self._compiling
        if compiling is not None:
            compiling.abandon()

    def follow(self) -> IsolatedFollower:
        """For one answer."""
        return IsolatedFollower(self, next(self._followers))

    def check_room(self, most: int) -> None:
        """Raise OptionsError where no answer of this many tokens follows it."""
        check_room(self.shortest, most)

    def ask(
        self, body: Callable[[], Any], again: Callable[[], Any], read: Callable[[wire.WorkerReply], Any]
    ) -> Ticket[Any]:
        """A step along one of its answers, and what is read of the reply."""
        worker, asked = self._ask(body, STEP, again)
        ticket: Ticket[Any] = Ticket(lambda: worker.cancel(asked))

        def done(reply: Future[wire.WorkerReply]) -> None:
            try:
                self.memory = reply.result().memory
                value = read(reply.result())
            except BaseException as error:
                ticket.set_exception(error)
            else:
                ticket.set_result(value)

        asked.add_done_callback(done)
        return ticket

    def _ask(
        self, body: Callable[[], Any], limit: Limit, again: Callable[[], Any] | None = None
    ) -> tuple[Worker, Future[wire.WorkerReply]]:
        with self._lock:
            if self._worker is None:
                first = (lambda number: wire.Compile(number, self._text), COMPILING, self._vocabulary)
                self._worker = Worker(self._launcher, MEMORY, "the grammar", first, "grammar")
            return self._worker, self._worker.ask(body, limit, again)

    def rest(self) -> None:
        """Give its process up until something is asked."""
        with self._lock:
            worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()


class IsolatedFollower:
    """What a grammar allows along one answer and its drafts, as futures that raise what `FollowedGrammar` raises."""

    def __init__(self, grammar: IsolatedGrammar, number: int) -> None:
        self.grammar = grammar
        self._number = number
        self._told: list[int] = []

    def masks(self, answer: Sequence[int], tails: Sequence[Sequence[int]]) -> Ticket[Mask]:
        """As FollowedGrammar.masks."""
        rows, width = len(tails), self.grammar.vocab_size
        wanted = [list(tail) for tail in tails]

        def read(reply: wire.WorkerReply) -> Mask:
            if len(reply.data) != rows * ((width + 7) // 8):
                raise ModelError("the grammar's process sent an impossible reply: report this with the grammar")
            bits = np.frombuffer(reply.data, np.uint8).reshape(rows, -1)
            found: Mask = np.unpackbits(bits, axis=1, count=width, bitorder="little").view(np.bool_)
            return found

        return self._ask(answer, lambda base, ids: wire.Masks(self._number, base, ids, wanted), read)

    def forced(self, answer: Sequence[int], most: int) -> Ticket[list[int]]:
        """As FollowedGrammar.forced."""

        def read(reply: wire.WorkerReply) -> list[int]:
            return self._sound(reply.ids)[: min(most, MAX_FORCED)]

        return self._ask(answer, lambda base, ids: wire.Forced(self._number, base, ids, most), read)

    def choices(self, answer: Sequence[int], most: int) -> Ticket[Choices]:
        """As `choices_along`."""

        def read(reply: wire.WorkerReply) -> Choices:
            ids, sizes = self._sound(reply.ids), reply.sizes
            try:
                tree = TokenTree(ids, reply.parents)
            except (ValueError, IndexError):
                tree, sizes = TokenTree(), []
            if len(tree) > most or any(not 0 < size <= len(tree) for size in sizes):
                tree, sizes = TokenTree(), []
            return Choices(tree, tuple(sizes))

        return self._ask(answer, lambda base, ids: wire.Ways(self._number, base, ids, most), read)

    def _sound(self, ids: list[int]) -> list[int]:
        if any(not 0 <= token < self.grammar.vocab_size for token in ids):
            raise ModelError("the grammar's process sent an impossible reply: report this with the grammar")
        return ids

    def _ask(
        self,
        answer: Sequence[int],
        make: Callable[[int, list[int]], Any],
        read: Callable[[wire.WorkerReply], Any],
    ) -> Ticket[Any]:
        whole = list(answer)

        def body() -> Any:  # in the worker's thread, in the order of asking
            before, self._told = self._told, whole
            base = common_length(before, whole)
            return make(base, whole[base:])

        return self.grammar.ask(body, lambda: make(0, whole), read)


def _failed(kind: type[SpecdecError], text: str) -> Ticket[Any]:
    found: Ticket[Any] = Ticket()
    found.set_exception(OptionsError(text) if kind is OptionsError else ModelError(text))
    return found
