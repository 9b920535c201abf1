"""Which tokens an exit is asked about: a shortlist of frequent ones and of those that the session is about.

A shortlist makes an exit's head cost a fraction of a full one. Every session has columns of its own for tokens that
are not frequent; the products run over one weight that all sessions share.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specdec.errors import ModelError
from specdec.verifying.exits import Exits, Shortlist

FREQUENT = 512
"""Frequent tokens at most, or a 16th of the vocabulary where that is more."""

OWN = 64
"""Tokens of a session that are not among the frequent ones, at most."""

WHOLE = 1024
"""A vocabulary up to this size of which no tokens were counted is asked for as a whole."""


def most_frequent(vocab_size: int) -> int:
    """How many frequent tokens a shortlist of a vocabulary has at most."""
    return max(FREQUENT, vocab_size // 16)


class Words:
    """The shortlist of a model. Works for one thread."""

    def __init__(self, exits: Exits) -> None:
        vocab_size = exits.model.vocab_size
        self.exits = exits
        self.device = exits.model.device
        self.ends = sorted(exits.model.eos_token_ids)
        counted = [token for token in exits.frequent if 0 <= token < vocab_size]
        # Not counted: most tokenizers number their tokens as they were merged, the most frequent ones first.
        most = most_frequent(vocab_size)
        ranked = list(dict.fromkeys([*self.ends, *(counted or range(most))]))
        self.frequent = ranked[: max(most, len(self.ends))]
        self.column = {token: column for column, token in enumerate(self.frequent)}
        rest = (token for token in range(vocab_size) if token not in self.column)
        self.fillers = [token for token, _ in zip(rest, range(OWN), strict=False)]
        self.owner: SessionWords | None = None
        self.all: Shortlist | None = None
        self.buffer: Shortlist | None = None
        try:
            if (not counted and vocab_size <= WHOLE) or len(self.fillers) < OWN:
                self.all = exits.shortlist(range(vocab_size))
            else:
                self.buffer = exits.shortlist([*self.frequent, *self.fillers])
        except ModelError:
            pass  # a quantised head has no rows: every exit goes through the whole of it
        self.whole = SessionWords(self, range(vocab_size), None)

    def session(self, context: Sequence[int]) -> SessionWords:
        """The tokens of a session. context: ids of its prompt and of its answer so far, oldest first."""
        if self.buffer is None:
            return self.whole
        own = [token for token in dict.fromkeys(reversed(context)) if token not in self.column][:OWN]
        fillers = [token for token in self.fillers if token not in own][: OWN - len(own)]
        return SessionWords(self, [*self.frequent, *fillers, *reversed(own)], OWN)


class SessionWords:
    """The tokens of one session, a column each."""

    def __init__(self, words: Words, tokens: Sequence[int], own: int | None) -> None:
        """own: how many columns, the last ones, may be given to other tokens; None: the whole vocabulary."""
        self._words = words
        self._tokens = tokens
        self.size = len(tokens)
        self._own: dict[int, int] | None = None
        self._oldest = 0
        self.ids = torch.tensor(list(tokens), device=words.device)
        if own is not None:
            shared = self.size - own
            self._own = {token: shared + place for place, token in enumerate(tokens[shared:])}
            rows = words.exits.shortlist(tokens[shared:])
            self._weight, self._bias = rows.weight, rows.bias
        self.ends = [self.column(token) for token in words.ends]

    def token(self, column: int) -> int:
        """The id that a column stands for."""
        return self._tokens[column]

    def column(self, token: int) -> int:
        """The column of a token that it has (see `have`)."""
        if self._own is None:
            return token
        column = self._words.column.get(token)
        return self._own[token] if column is None else column

    def have(self, tokens: Sequence[int]) -> bool:
        """Give every token a column, in place of those that got theirs longest ago; False if they are too many."""
        if self._own is None:
            return True
        shared = self._words.column
        wanted = {token for token in tokens if token not in shared}
        new = [token for token in dict.fromkeys(tokens) if token in wanted and token not in self._own]
        if len(wanted) > len(self._own):
            return False
        if new:
            self._replace(new, wanted)
        return True

    def shortlist(self) -> Shortlist | None:
        """For the exits' head; None for the full head."""
        words = self._words
        if self._own is None:
            return words.all
        buffer = words.buffer
        assert buffer is not None
        if words.owner is not self:
            first = self.size - len(self._own)
            buffer.weight[first:] = self._weight
            if buffer.bias is not None and self._bias is not None:
                buffer.bias[first:] = self._bias
            words.owner = self
        return buffer

    def _replace(self, new: list[int], wanted: set[int]) -> None:
        assert self._own is not None and isinstance(self._tokens, list)
        count = len(self._own)
        first = self.size - count
        places = []
        for token in new:
            while self._tokens[first + self._oldest] in wanted:
                self._oldest = (self._oldest + 1) % count
            place = self._oldest
            del self._own[self._tokens[first + place]]
            self._own[token] = first + place
            self._tokens[first + place] = token
            self._oldest = (place + 1) % count
            places.append(place)
        rows = self._words.exits.shortlist(new)
        index = torch.tensor(places, device=self._words.device)
        self._weight.index_copy_(0, index, rows.weight)
        if self._bias is not None and rows.bias is not None:
            self._bias.index_copy_(0, index, rows.bias)
        self.ids.index_copy_(0, index + first, rows.ids)
        self._words.owner = None
