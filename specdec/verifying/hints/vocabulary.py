# SPDX-License-Identifier: Apache-2.0
"""The tokens that an exit covers: a shortlist of frequent tokens and of tokens in the session.

With a shortlist an exit's head costs a fraction of a full head. Every session has its own columns for tokens that are
not frequent; products use one weight that all sessions share.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

from specdec.errors import ModelError
from specdec.verifying.exits import Exits, Shortlist

FREQUENT = 512
"""Most frequent tokens, unless 1/16 of the vocabulary is more."""

OWN = 64
"""Most session-specific tokens that are not among the frequent ones."""

WHOLE = 1024
"""A vocabulary up to this size without token counts is covered completely."""


def most_frequent(vocab_size: int) -> int:
    """Most frequent tokens in a shortlist, for a vocabulary of this size."""
    return max(FREQUENT, vocab_size // 16)


class ExitVocabulary:
    """The shortlist of a model. For one thread."""

    def __init__(self, exits: Exits) -> None:
        vocab_size = exits.model.vocab_size
        self.exits = exits
        self.device = exits.model.device
        self.ends = sorted(exits.model.eos_token_ids)
        counted = [token for token in exits.frequent if 0 <= token < vocab_size]
        # Without counts, use the lowest ids: most tokenizers number tokens in merge order, most frequent first.
        most = most_frequent(vocab_size)
        ranked = list(dict.fromkeys([*self.ends, *(counted or range(most))]))
        self.frequent = ranked[: max(most, len(self.ends))]
        self.column = {token: column for column, token in enumerate(self.frequent)}
        rest = (token for token in range(vocab_size) if token not in self.column)
        self.fillers = [token for token, _ in zip(rest, range(OWN), strict=False)]
        self.owner: SessionVocabulary | None = None
        self.all: Shortlist | None = None
        self.buffer: Shortlist | None = None
        try:
            if (not counted and vocab_size <= WHOLE) or len(self.fillers) < OWN:
                self.all = exits.shortlist(range(vocab_size))
            else:
                self.buffer = exits.shortlist([*self.frequent, *self.fillers])
        except ModelError:
            pass  # rows of a quantised head cannot be selected: exits use the full head
        self.whole = SessionVocabulary(self, range(vocab_size), None)

    def session(self, context: Sequence[int]) -> SessionVocabulary:
        """The vocabulary of a session. context: ids of its prompt and of its answer so far, oldest first."""
        if self.buffer is None:
            return self.whole
        own = [token for token in dict.fromkeys(reversed(context)) if token not in self.column][:OWN]
        fillers = [token for token in self.fillers if token not in own][: OWN - len(own)]
        return SessionVocabulary(self, [*self.frequent, *fillers, *reversed(own)], OWN)


class SessionVocabulary:
    """The tokens of one session, one column each."""

    def __init__(self, vocabulary: ExitVocabulary, tokens: Sequence[int], own: int | None) -> None:
        """own: how many columns, at the end, are session-specific and replaceable; None: the whole vocabulary."""
        self._vocabulary = vocabulary
        self._tokens = tokens
        self.size = len(tokens)
        self._own: dict[int, int] | None = None
        self._oldest = 0
        self._unwritten: list[int] = []
        if own is not None:
            self._first = self.size - own
            self._own = {token: column for column, token in enumerate(tokens) if column >= self._first}
        self.ends = frozenset(self.column(token) for token in vocabulary.ends)

    def token(self, column: int) -> int:
        """The token id of a column."""
        return self._tokens[column]

    def column(self, token: int) -> int:
        """The column of a token, which must have one (see `have`)."""
        if self._own is None:
            return token
        column = self._vocabulary.column.get(token)
        return self._own[token] if column is None else column

    def have(self, tokens: Sequence[int]) -> bool:
        """Give every token a column, replacing the oldest session-specific ones; False if there are too many tokens."""
        if self._own is None:
            return True
        shared = self._vocabulary.column
        wanted = dict.fromkeys(token for token in tokens if token not in shared)
        if len(wanted) > len(self._own):
            return False
        for token in wanted:
            if token not in self._own:
                self._replace_oldest(token, wanted)
        return True

    def shortlist(self) -> Shortlist | None:
        """The shortlist for the exits, valid until another session requests its own; None: the full head."""
        vocabulary = self._vocabulary
        buffer = vocabulary.all if self._own is None else vocabulary.buffer
        if self._own is None or buffer is None:
            return buffer
        columns = self._unwritten if vocabulary.owner is self else list(range(self._first, self.size))
        if columns:
            rows = vocabulary.exits.shortlist([self._tokens[column] for column in columns])
            index = torch.tensor(columns, device=vocabulary.device)
            buffer.ids.index_copy_(0, index, rows.ids)
            buffer.weight.index_copy_(0, index, rows.weight)
            if buffer.bias is not None and rows.bias is not None:
                buffer.bias.index_copy_(0, index, rows.bias)
            vocabulary.owner = self
            self._unwritten = []
        return buffer

    def _replace_oldest(self, token: int, wanted: Collection[int]) -> None:
        assert self._own is not None and isinstance(self._tokens, list)
        count = len(self._own)
        while self._tokens[self._first + self._oldest] in wanted:
            self._oldest = (self._oldest + 1) % count
        column = self._first + self._oldest
        del self._own[self._tokens[column]]
        self._own[token] = column
        self._tokens[column] = token
        self._unwritten.append(column)
        self._oldest = (self._oldest + 1) % count
