# SPDX-License-Identifier: Apache-2.0
"""Grammars: which tokens may come next, as a pure function of the ids before them.

A grammar is compiled once a vocabulary (llguidance) and followed without any state that would have to be rolled back:
what may come after a sequence is kept for the last positions and worked out again for earlier ones. Where the text
that must follow is known, only its own spelling by the tokenizer is allowed, so that most of it is *forced*: one
token may come, and nothing has to ask a model for it.

An answer that may begin with free text might never come to an end: a grammar may therefore have two parts, with a line
`%%after N` between them. Behind N tokens an answer goes on as the second part says, as soon as the first lets that
begin: not in the middle of a character of several tokens, for example.
"""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from specdec.draft import common_length
from specdec.errors import ModelError, OptionsError

KEPT_GRAMMARS = 32
KEPT_POSITIONS = 64
"""Behind these an answer that is taken back is followed again from its beginning, 2 µs a token."""
_AFTER = re.compile(r"^%%after[ \t]+(\d{1,7})[ \t]*$", re.MULTILINE)
MAX_FORCED = 64
"""Tokens that are appended at once without asking a model; a reply has room for as many."""


LOOKED_AT = 300
"""Places in a grammar that are looked at for its shortest answer."""

Mask = np.ndarray[Any, Any]
"""Which tokens are allowed: bool [vocab], or a row of them each."""


@dataclass(frozen=True)
class GrammarState:
    """Where an answer of `length` tokens has come to. matcher: of the part that counts there; not to be changed.

    second: that is the second part, or there is none.
    """

    matcher: Any
    length: int = 0
    second: bool = True


class Grammar:
    """A compiled grammar of one vocabulary; shared by all answers."""

    def __init__(
        self,
        first: Any,
        vocab_size: int,
        eos_ids: Set[int],
        after: int = 0,
        second: Any = None,
        spelling: Callable[[int], bytes] = lambda token: b"",
    ) -> None:
        """first, second: matchers that have seen nothing; the second's turn comes after this many tokens. spelling: the
        text of a token.
        """
        self.vocab_size = vocab_size
        self.spelling = spelling
        self.eos_ids = frozenset(eos_ids)
        self._after, self._second = after, second
        self.start = self._arrive(GrammarState(first, 0, second is None))

    def follow(self) -> FollowedGrammar:
        """For one answer."""
        return FollowedGrammar(self)

    def next(self, place: GrammarState, token: int) -> GrammarState | None:
        """Where one token more leads; None where it is not allowed."""
        following = place.matcher.deep_copy()
        if not following.consume_token(token):
            return None
        return self._arrive(GrammarState(following, place.length + 1, place.second))

    def allowed(self, place: GrammarState) -> Mask:
        """What may come next. Raises ModelError where nothing may, or to know it takes more work than a grammar may."""
        bits = np.frombuffer(place.matcher.compute_bitmask(), dtype=np.uint8)
        if place.matcher.is_error():
            raise ModelError(f"the grammar cannot be followed any further: {_first_line(place.matcher)}")
        allowed: Mask = np.unpackbits(bits, count=self.vocab_size, bitorder="little").view(np.bool_)
        if not allowed.any():
            raise ModelError(
                "the grammar cannot be followed any further: no token of the model may come next"
            )
        return allowed

    def _arrive(self, place: GrammarState) -> GrammarState:
        """The second part, where its turn has come."""
        if place.second or place.length < self._after or place.matcher.is_stopped():
            return place
        second = GrammarState(self._second.deep_copy(), place.length)
        begins = self.allowed(second)
        return second if (self.allowed(place) & begins).sum() == begins.sum() else place

    @cached_property
    def shortest(self) -> int:
        """Tokens of the shortest answer, its end not included; of a grammar with very many places as many as were found
        to be too few, and one more. Raises OptionsError where there is none.
        """
        reached, looked_at, length = [self.start], 0, 0
        while True:
            further: list[GrammarState] = []
            for place in reached:
                looked_at += 1
                try:
                    ids = np.flatnonzero(self.allowed(place)).tolist()
                except ModelError:  # it leads nowhere
                    continue
                if not self.eos_ids.isdisjoint(ids):
                    return length
                if looked_at + len(further) + len(ids) > LOOKED_AT:
                    return length + 1
                further += [found for token in ids if (found := self.next(place, token)) is not None]
            if not further:
                raise OptionsError("no answer follows the grammar: no way through it comes to an end")
            reached, length = further, length + 1

    def check_room(self, most: int) -> None:
        """Raise OptionsError where no answer of this many tokens follows it."""
        check_room(self.shortest, most)

    def longest(self, most: int = 50_000) -> int | None:
        """Tokens of the longest answer, its end included; None where more than this many places would be looked at."""
        waiting, longest, looked_at = [self.start], 0, 0
        while waiting:
            place = waiting.pop()
            looked_at += 1
            if looked_at > most:
                return None
            for token in np.flatnonzero(self.allowed(place)).tolist():
                if token in self.eos_ids:
                    longest = max(longest, place.length + 1)
                elif (following := self.next(place, token)) is not None:
                    waiting.append(following)
            if len(waiting) > most:
                return None
        return longest


class Grammars:
    """Compiles grammars for one tokenizer and keeps the last ones; for any threads."""

    def __init__(self, tokenizer: Any, vocab_size: int, eos_ids: Set[int]) -> None:
        """tokenizer: a Hugging Face one that stands on the tokenizers library, or what `tokenizer_json` gives."""
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._eos_ids = frozenset(eos_ids)
        self._vocabulary: Any = None
        self._known: OrderedDict[str, Grammar] = OrderedDict()
        self._lock = threading.Lock()

    def warm_up(self) -> None:
        """Prepare the vocabulary, which takes a while. Raises ModelError where no grammar can be compiled for it."""
        if self._vocabulary is None:
            self._vocabulary = _vocabulary(self._tokenizer, self._vocab_size, self._eos_ids)

    def compile_soon(self, text: str) -> Grammar:
        """The same as `compile`; where that is done elsewhere (specdec.isolation), a future."""
        return self.compile(text)

    def compile(self, text: str) -> Grammar:
        """text: a grammar in llguidance's dialect of Lark, or two with a line `%%after N` between them.

        Raises OptionsError for one that is wrong or too large, and ModelError for a model without an end of the answer
        or with a tokenizer that no grammar can be compiled for.
        """
        with self._lock:
            known = self._known.pop(text, None)
            if known is None:
                known = self._compile(text)
            self._known[text] = known
            if len(self._known) > KEPT_GRAMMARS:
                self._known.popitem(last=False)
            return known

    def _compile(self, text: str) -> Grammar:
        first, *others = _AFTER.split(text)
        if len(others) > 2:
            raise OptionsError("the grammar has more than two parts: one line with %%after N may divide it")
        after, second = (int(others[0]), self._matcher(others[1])) if others else (0, None)
        begun = self._matcher(first)
        grammar = Grammar(begun, self._vocab_size, self._eos_ids, after, second, self._spelling)
        try:
            grammar.allowed(grammar.start)
        except ModelError as error:
            raise OptionsError(f"no answer follows the grammar: {error}") from error
        return grammar

    def _spelling(self, token: int) -> bytes:
        spelled: bytes = self._vocabulary.decode_bytes([token])
        return spelled

    def _matcher(self, text: str) -> Any:
        from llguidance import LLMatcher, LLParserLimits

        limits = LLParserLimits(
            max_items_in_row=500,
            initial_lexer_fuel=200_000,
            step_lexer_fuel=100_000,
            step_max_items=20_000,
            max_lexer_states=20_000,
            max_grammar_size=100_000,
        )
        self.warm_up()
        start = LLMatcher(self._vocabulary, LLMatcher.grammar_from_lark(text), log_level=0, limits=limits)
        if start.is_error():
            raise OptionsError(f"the grammar cannot be used: {_first_line(start)}")
        return start


class FollowedGrammar:
    """What a grammar allows along one answer and its drafts."""

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self._ids: list[int] = []
        self._places = [grammar.start]  # of the last lengths of _ids that were kept

    def masks(self, answer: Sequence[int], tails: Sequence[Sequence[int]]) -> Mask:
        """Which tokens may follow answer + each tail: bool [len(tails), vocab].

        tails: paths of a draft, the beginning of each of which is allowed to be missing. Behind a token that the
        grammar does not allow everything is: no answer gets there. Raises ModelError where the answer itself breaks the
        grammar, or where following it takes more work than a grammar may.
        """
        reached: dict[tuple[int, ...], GrammarState | None] = {(): self._allowed_place(answer)}
        rows = np.ones((len(tails), self.grammar.vocab_size), dtype=np.bool_)
        for row, tail in zip(rows, tails, strict=True):
            place = self._after(reached, tuple(tail))
            if place is not None:
                row[:] = self.grammar.allowed(place)
        return rows

    def mask(self, answer: Sequence[int]) -> Mask:
        """Which tokens may follow an answer: bool [vocab]. Raises as `masks`."""
        return self.grammar.allowed(self._allowed_place(answer))

    def forced(self, answer: Sequence[int], most: int) -> list[int]:
        """The tokens that must follow an answer because nothing else may, at most so many; an end is the last of them.

        None behind what the grammar does not allow: a draft may hold that. Raises ModelError as `Grammar.allowed`.
        """
        grammar = self.grammar
        found: list[int] = []
        place = self.place(answer)
        while place is not None and len(found) < min(most, MAX_FORCED):
            allowed = np.flatnonzero(grammar.allowed(place)).tolist()
            if grammar.eos_ids.issuperset(allowed):
                return [*found, min(grammar.eos_ids)]
            if len(allowed) != 1:
                break
            found.append(allowed[0])
            place = grammar.next(place, allowed[0])
        return found

    def _allowed_place(self, answer: Sequence[int]) -> GrammarState:
        place = self.place(answer)
        if place is None:
            raise ModelError("the answer so far does not follow the grammar")
        return place

    def place(self, answer: Sequence[int]) -> GrammarState | None:
        """Where an answer has come to; None where the grammar does not allow it."""
        ids = list(answer)
        common = common_length(ids, self._ids)
        if common < self._places[0].length:
            self._places, common = [self.grammar.start], 0
        del self._places[common - self._places[0].length + 1 :]
        self._ids = ids[:common]
        for token in ids[common:]:
            place = self.grammar.next(self._places[-1], token)
            if place is None:
                return None
            self._ids.append(token)
            self._places.append(place)
        if len(self._places) > 2 * KEPT_POSITIONS:
            del self._places[:-KEPT_POSITIONS]
        return self._places[-1]

    def _after(
        self, reached: dict[tuple[int, ...], GrammarState | None], tail: tuple[int, ...]
    ) -> GrammarState | None:
        """Where a path leads, None where the grammar does not allow it; what is on the way is kept in `reached`."""
        begun = len(tail)
        while tail[:begun] not in reached:
            begun -= 1
        place = reached[tail[:begun]]
        for end in range(begun + 1, len(tail) + 1):
            place = None if place is None else self.grammar.next(place, tail[end - 1])
            reached[tail[:end]] = place
        return place


def check_room(shortest: int, most: int) -> None:
    """Raise OptionsError where an answer of this many tokens is too short for a grammar whose shortest has
    `shortest`.
    """
    if shortest > most:
        raise OptionsError(
            f"an answer that follows the grammar has {shortest} tokens at least: allow more than "
            f"{most} (max_new_tokens)"
        )


def only(masks: Mask, eos_ids: Sequence[int]) -> Mask:
    """Which rows of masks [n, vocab] allow nothing but an end: bool [n]."""
    ends = masks[:, list(eos_ids)].sum(axis=1)
    found: Mask = (ends > 0) & (ends == masks.sum(axis=1))
    return found


def tokenizer_json(tokenizer: Any, eos_ids: Set[int]) -> str:
    """The tokenizer.json that grammars are compiled for. Raises ModelError where there is none, or no end token."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or not hasattr(backend, "to_str"):
        raise ModelError("a grammar needs a model with a tokenizer.json (a fast tokenizer)")
    if not eos_ids:
        raise ModelError(
            "a grammar needs a model that can end an answer: this one has no end-of-sequence token"
        )
    from tokenizers import Tokenizer

    plain = Tokenizer.from_str(backend.to_str())  # a copy: padding and truncation are others' settings
    plain.no_padding()
    plain.no_truncation()
    text: str = plain.to_str()
    return text


def _vocabulary(tokenizer: Any, vocab_size: int, eos_ids: Set[int]) -> Any:
    from llguidance import LLTokenizer

    text = tokenizer if isinstance(tokenizer, str) else tokenizer_json(tokenizer, eos_ids)
    try:
        written = _cut_to(text, vocab_size)
        return LLTokenizer(written, n_vocab=vocab_size, eos_token=sorted(eos_ids))
    except Exception as error:  # the library raises what it likes
        raise ModelError(
            f"no grammar can be used with this tokenizer: {str(error).splitlines()[0]:.200}"
        ) from error


def _cut_to(tokenizer: str, vocab_size: int) -> str:
    """A tokenizer.json without added tokens that the model has no logits for, such as a padding token."""
    content = json.loads(tokenizer)
    content["added_tokens"] = [token for token in content["added_tokens"] if token["id"] < vocab_size]
    return json.dumps(content)


def _first_line(matcher: Any) -> str:
    return str((matcher.get_error().strip() or "unknown reason").splitlines()[0][:300])
