# SPDX-License-Identifier: Apache-2.0
"""Grammars compiled and followed in workers, one process each: a remote `specdec.sampling.grammar`.

Each query returns a future. Compiled grammars are cached, and so are refusals.
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
from specdec.isolation.workers import FIRST, JobCancelled, Launcher, Limit, OverLimit, Ticket, Worker
from specdec.sampling.choices import Choices
from specdec.sampling.grammar import MAX_FORCED, Mask, check_room, tokenizer_json

COMPILING = Limit(cpu_s=2.0, wall_s=6.0)
"""Limits for compiling a grammar; a typical program's schema takes some tens of milliseconds."""
STEP = Limit(cpu_s=0.5, wall_s=3.0)
"""Limits for one step along an answer; a typical step takes less than a millisecond."""
MEMORY = 160 * 2**20
KEPT = 16
"""Most processes to keep, one grammar each. An evicted grammar is compiled again when needed."""
KEPT_BYTES = 192 * 2**20
"""Most bytes of all these processes together."""
MOST_QUICK, MOST = 2, 3
"""Most grammars compiled at a time: those not yet slow, and in total."""
KEPT_REFUSALS = 1024
MOST_TRIES = 3
"""Attempts for a grammar that takes too long without much CPU time: the machine may have been busy."""


class IsolatedGrammars:
    """The interface of `Grammars`, with workers. Thread-safe."""

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
        """As `compile_soon`, but waits for the result. Raises what the future raises."""
        return self.compile_soon(text).result()

    def compile_soon(self, text: str) -> Ticket[IsolatedGrammar]:
        """Compile a grammar, or take it from the cache. The future raises OptionsError, or ModelError (which includes
        OverLimit).

        Raises OverSpent for a client whose budget is used up.
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
        return known.compiled(self._turns, lambda error: self._ended(text, name, error))

    def _surplus(self) -> list[IsolatedGrammar]:
        """Remove and return the least recently used grammars beyond the bounds on number and memory."""
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
        """The vocabulary's number in the launcher. Preparing a large one takes a while. Raises ModelError."""
        with self._preparing:
            if self._vocabulary is None:
                told = tokenizer_json(self._tokenizer, self._eos_ids)
                self._vocabulary = self._launcher.vocabulary(told, self._vocab_size, sorted(self._eos_ids))
            return self._vocabulary

    def _ended(self, text: str, name: bytes, error: SpecdecError | None) -> None:
        """Remember the result of a compilation: a refused grammar is not compiled again."""
        with self._lock:
            if error is None:
                self._doubtful.pop(name, None)
                return
            if self._known.pop(text, None) is None or isinstance(error, JobCancelled):
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
    """A grammar in a worker, shared by all answers that follow it.

    shortest: token count of its shortest answer. memory: bytes used by its process.
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
        """A future for this grammar once it is compiled. on_end: called in another thread with the error, or None. If
        all tickets are abandoned before that, compilation is stopped. Raises OverSpent.
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
        waiting: list[Ticket[IsolatedGrammar]] = []
        with self._lock:
            is_abandoned = self._compiling is not reply  # those that wait now wait for another compilation
            if not is_abandoned:
                waiting, self._waiting = self._waiting, []
                self._compiling = None
            if error is None and not self._ready:
                found = reply.result()
                self.shortest, self.memory, self._ready = (found.ids or [0])[0], found.memory, True
        is_moot = is_abandoned and isinstance(error, JobCancelled)
        if not is_moot and (error is None or isinstance(error, SpecdecError)):
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
            if self._waiting:
                return
            compiling, self._compiling = self._compiling, None
        if compiling is not None:
            compiling.abandon()

    def follow(self) -> IsolatedFollower:
        """A follower for one answer."""
        return IsolatedFollower(self, next(self._followers))

    def check_room(self, most: int) -> None:
        """Raise OptionsError if the grammar allows no answer of at most `most` tokens."""
        check_room(self.shortest, most)

    def ask(
        self, body: Callable[[], Any], again: Callable[[], Any], read: Callable[[wire.WorkerReply], Any]
    ) -> Ticket[Any]:
        """Run one step along an answer. body: makes the job. again: makes it with all ids. read: parses the reply."""
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
        """End its process until the next query."""
        with self._lock:
            worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()


class IsolatedFollower:
    """Follows a grammar along one answer and its drafts. Returns futures that raise what `FollowedGrammar` raises."""

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

        def body() -> Any:  # runs in the worker's thread, in submission order
            before, self._told = self._told, whole
            base = common_length(before, whole)
            return make(base, whole[base:])

        return self.grammar.ask(body, lambda: make(0, whole), read)


def _failed(kind: type[SpecdecError], text: str) -> Ticket[Any]:
    found: Ticket[Any] = Ticket()
    found.set_exception(OptionsError(text) if kind is OptionsError else ModelError(text))
    return found
