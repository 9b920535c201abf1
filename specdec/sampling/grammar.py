# SPDX-License-Identifier: Apache-2.0
"""Grammars: the allowed next tokens, as a pure function of the ids before them.

A grammar is compiled once per vocabulary (llguidance) and followed without state that would need a rollback: grammar
states are cached for the last positions and recomputed for earlier ones. If the following text is fixed, only its
canonical tokenization is allowed. Most of it is then *forced*: one token is allowed, and no model is needed for it.

An answer that may begin with free text might never end. A grammar may therefore have two parts, separated by a line
`%%after N`. After N tokens the answer continues with the second part, as soon as the first part allows it to begin: not
in the middle of a character of several tokens, for example.
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
"""Positions whose states are cached. A rollback beyond them follows the answer again from its start, 2 µs per token."""
_AFTER = re.compile(r"^%%after[ \t]+(\d{1,7})[ \t]*$", re.MULTILINE)
MAX_FORCED = 64
"""Most forced tokens that are appended at once; a reply has room for as many."""


LOOKED_AT = 300
"""Most states to visit in search of a grammar's shortest answer."""

Mask = np.ndarray[Any, Any]
"""Allowed tokens: bool [vocab] or [rows, vocab]."""


@dataclass(frozen=True)
class GrammarState:
    """The state of an answer of `length` tokens. matcher: the active part's matcher; read-only. second: True if the
    second part is active or there is none.
    """

    matcher: Any
    length: int = 0
    second: bool = True


class Grammar:
    """A grammar compiled for one vocabulary; shared by all answers."""

    def __init__(
        self,
        first: Any,
        vocab_size: int,
        eos_ids: Set[int],
        after: int = 0,
        second: Any = None,
        spelling: Callable[[int], bytes] = lambda token: b"",
    ) -> None:
        """first, second: fresh matchers of the two parts. after: tokens before the second part may begin. spelling: the
        bytes of a token.
        """
        self.vocab_size = vocab_size
        self.spelling = spelling
        self.eos_ids = frozenset(eos_ids)
        self._after, self._second = after, second
        self.start = self._arrive(GrammarState(first, 0, second is None))

    def follow(self) -> FollowedGrammar:
        """A follower for one answer."""
        return FollowedGrammar(self)

    def next(self, place: GrammarState, token: int) -> GrammarState | None:
        """The state after one more token; None if the token is not allowed."""
        following = place.matcher.deep_copy()
        if not following.consume_token(token):
            return None
        return self._arrive(GrammarState(following, place.length + 1, place.second))

    def allowed(self, place: GrammarState) -> Mask:
        """The mask of allowed next tokens. Raises ModelError if none is allowed, or if computing it exceeds the limits.
        """
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
        """Switch to the second part if it is due and may begin."""
        if place.second or place.length < self._after or place.matcher.is_stopped():
            return place
        second = GrammarState(self._second.deep_copy(), place.length)
        begins = self.allowed(second)
        return second if (self.allowed(place) & begins).sum() == begins.sum() else place

    @cached_property
    def shortest(self) -> int:
        """Length of the shortest answer without its EOS; a lower bound if the grammar has very many states. Raises
        OptionsError if no answer exists.
        """
        reached, looked_at, length = [self.start], 0, 0
        while True:
            further: list[GrammarState] = []
            for place in reached:
                looked_at += 1
                try:
                    ids = np.flatnonzero(self.allowed(place)).tolist()
                except ModelError:  # a dead end
                    continue
                if not self.eos_ids.isdisjoint(ids):
                    return length
                if looked_at + len(further) + len(ids) > LOOKED_AT:
                    return length + 1
                further += [found for token in ids if (found := self.next(place, token)) is not None]
            if not further:
                raise OptionsError("no answer follows the grammar: it has no path to an end")
            reached, length = further, length + 1

    def check_room(self, most: int) -> None:
        """Raise OptionsError if the grammar allows no answer of at most `most` tokens."""
        check_room(self.shortest, most)

    def longest(self, most: int = 50_000) -> int | None:
        """Length of the longest answer, EOS included; None if the search would visit more than `most` states."""
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
    """Compiles grammars for one tokenizer, with a cache. Thread-safe."""

    def __init__(self, tokenizer: Any, vocab_size: int, eos_ids: Set[int]) -> None:
        """tokenizer: a fast Hugging Face tokenizer, or the result of `tokenizer_json`."""
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._eos_ids = frozenset(eos_ids)
        self._vocabulary: Any = None
        self._known: OrderedDict[str, Grammar] = OrderedDict()
        self._lock = threading.Lock()

    def warm_up(self) -> None:
        """Prepare the vocabulary, which takes a while. Raises ModelError if grammars cannot be compiled for it."""
        if self._vocabulary is None:
            self._vocabulary = _vocabulary(self._tokenizer, self._vocab_size, self._eos_ids)

    def compile_soon(self, text: str) -> Grammar:
        """As `compile`. The counterpart in specdec.isolation returns a future."""
        return self.compile(text)

    def compile(self, text: str) -> Grammar:
        """Compile a grammar in llguidance's dialect of Lark, or two separated by a line `%%after N`.

        Raises OptionsError for an invalid or too large grammar, ModelError for a model without an EOS or with an
        unsupported tokenizer.
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
    """Follows a grammar along one answer and its drafts."""

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self._ids: list[int] = []
        self._places = [grammar.start]  # states of the last prefixes of _ids

    def masks(self, answer: Sequence[int], tails: Sequence[Sequence[int]]) -> Mask:
        """The mask of allowed tokens after answer + each tail: bool [len(tails), vocab].

        tails: paths of a draft; their prefixes need not be in the list. After a token that the grammar forbids,
        everything is allowed, because no answer gets there. Raises ModelError if the answer itself breaks the grammar,
        or if following it exceeds the limits.
        """
        reached: dict[tuple[int, ...], GrammarState | None] = {(): self._allowed_place(answer)}
        rows = np.ones((len(tails), self.grammar.vocab_size), dtype=np.bool_)
        for row, tail in zip(rows, tails, strict=True):
            place = self._after(reached, tuple(tail))
            if place is not None:
                row[:] = self.grammar.allowed(place)
        return rows

    def mask(self, answer: Sequence[int]) -> Mask:
        """The mask of allowed tokens after an answer: bool [vocab]. Raises as `masks`."""
        return self.grammar.allowed(self._allowed_place(answer))

    def forced(self, answer: Sequence[int], most: int) -> list[int]:
        """The forced tokens after an answer, at most `most`; an EOS is the last of them.

        Empty if the answer breaks the grammar, which a draft may do. Raises ModelError as `Grammar.allowed`.
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
        """The state after an answer; None if the answer breaks the grammar."""
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
        """The state after a path, or None if the path breaks the grammar; states on the way are stored in `reached`."""
        begun = len(tail)
        while tail[:begun] not in reached:
            begun -= 1
        place = reached[tail[:begun]]
        for end in range(begun + 1, len(tail) + 1):
            place = None if place is None else self.grammar.next(place, tail[end - 1])
            reached[tail[:end]] = place
        return place


def check_room(shortest: int, most: int) -> None:
    """Raise OptionsError if a grammar's shortest answer has more than `most` tokens."""
    if shortest > most:
        raise OptionsError(
            f"an answer that follows the grammar has at least {shortest} tokens: allow more than "
            f"{most} (max_new_tokens)"
        )


def only(masks: Mask, eos_ids: Sequence[int]) -> Mask:
    """Which rows of masks [n, vocab] allow only EOS tokens: bool [n]."""
    ends = masks[:, list(eos_ids)].sum(axis=1)
    found: Mask = (ends > 0) & (ends == masks.sum(axis=1))
    return found


def tokenizer_json(tokenizer: Any, eos_ids: Set[int]) -> str:
    """The tokenizer.json for compiling grammars. Raises ModelError if the tokenizer has none, or there is no EOS."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or not hasattr(backend, "to_str"):
        raise ModelError("a grammar needs a model with a tokenizer.json (a fast tokenizer)")
    if not eos_ids:
        raise ModelError(
            "a grammar needs a model that can end an answer: this one has no end-of-sequence token"
        )
    from tokenizers import Tokenizer

    plain = Tokenizer.from_str(backend.to_str())  # a copy, because padding and truncation are the caller's settings
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
    except Exception as error:  # the library raises various errors
        raise ModelError(
            f"no grammar can be used with this tokenizer: {str(error).splitlines()[0]:.200}"
        ) from error


def _cut_to(tokenizer: str, vocab_size: int) -> str:
    """Remove added tokens without logits in the model, such as a padding token, from a tokenizer.json."""
    content = json.loads(tokenizer)
    content["added_tokens"] = [token for token in content["added_tokens"] if token["id"] < vocab_size]
    return json.dumps(content)


def _first_line(matcher: Any) -> str:
    """One line of a matcher's error. For an invalid regular expression the reason is on a later line."""
    first, *more = (matcher.get_error().strip() or "unknown reason").splitlines()
    reason = next((line.removeprefix("error:") for line in more if line.startswith("error:")), "")
    first = first[: 300 - len(reason)]
    return f"{first}{reason}" if reason else first
